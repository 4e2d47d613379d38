#!/usr/bin/env python3
"""Runs over machines that know little of each other's names, or have a network too many.

    names_test.py TRAINCTL LIBTORCH [FILTER]

Skipped (exit code 77) where hosts cannot be had.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_case  # noqa: E402
from cluster_case import Case, expect, expect_code, expect_nothing_left  # noqa: E402
from hosts import Hosts  # noqa: E402

TRAINCTL = os.path.abspath(sys.argv[1])
LIBTORCH = os.path.abspath(sys.argv[2])
FILTER = sys.argv[3] if len(sys.argv) > 3 else ""
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine
STEPS = 6

expected = None  # of one machine; the network has no part in it


def hosts_with(**settings):
    return Hosts(2, shared=[os.path.dirname(TRAINCTL), LIBTORCH], **settings)


def train(hosts, name, launch=""):
    """Two nodes of one worker; node1 launches and takes part."""
    global expected
    case = Case(name, hosts, TRAINCTL)
    if expected is None:
        recipe = case.recipe("one.toml", 1, 2, 1, 2, steps=STEPS)
        expect_code(case.run("launch", recipe, "--run-dir", "one"), 0)
        expected = case.metrics("one")
        expect(len(expected) == STEPS, expected)
    recipe = case.recipe("two.toml", 2, 1, 1, 2, steps=STEPS, launch=launch)
    result = case.run("launch", recipe, "--run-dir", "run")
    expect_code(result, 0)
    expect("restarting" not in result.stdout, result.stdout)
    expect(case.metrics("run") == expected, "%s\n%s" % (expected, case.metrics("run")))
    expect_nothing_left(hosts)


def refuse(hosts, name, interface, *words):
    case = Case(name, hosts, TRAINCTL)
    recipe = case.recipe("two.toml", 2, 1, 1, 2, steps=STEPS, launch='interface = "%s"' % interface)
    result = case.run("launch", recipe, "--run-dir", "run")
    expect_code(result, 5)
    for word in words:
        expect(word in result.stdout, "no '%s' in:\n%s" % (word, result.stdout))
    expect_nothing_left(hosts)


def the_own_name_is_127_0_1_1_and_no_server_knows_another():
    """/etc/hosts as Debian's installer writes it, and a name server that never answers."""
    with hosts_with(names="dead", own_name="127.0.1.1") as hosts:
        answer = hosts["node1"].run("getent", "ahostsv4", "node1").stdout
        expect(answer.startswith("127.0.1.1 "), answer)
        train(hosts, "dead")


def the_own_name_is_127_0_1_1_and_files_know_the_others():
    with hosts_with(own_name="127.0.1.1") as hosts:
        train(hosts, "debian")


def there_is_only_ipv6():
    with hosts_with(ip=6) as hosts:
        train(hosts, "ipv6")
        train(hosts, "named", 'interface = "eth0"')


def no_name_can_be_resolved():
    with hosts_with(names="none", own_name=None) as hosts:
        expect(hosts["node1"].run("getent", "hosts", "node1").returncode == 2, "node1 has a name")
        train(hosts, "nameless")


def a_dead_interface_comes_first():
    """Its address is what the own name says, and the way to everywhere else goes through it."""
    with hosts_with(names="none", own_name="dead", dead_interface="dead") as hosts:
        for host in hosts:
            host.ip(["route add default dev eth1"])
        listed = hosts["node1"].run("ip", "-o", "-4", "addr").stdout
        expect(0 < listed.find(" eth1 ") < listed.find(" eth0 "), listed)
        train(hosts, "auto", 'interface = "auto"')
        train(hosts, "name", 'interface = "eth0"')
        train(hosts, "range", 'interface = "10.77.0.0/16"')


def an_interface_that_is_down_comes_first():
    with hosts_with(names="none", own_name="dead", dead_interface="down") as hosts:
        train(hosts, "auto")
        refuse(hosts, "down", "eth1", "'eth1' is down", "eth0 (", hosts["node1"].address)


def a_wrong_interface_names_what_there_is():
    with hosts_with() as hosts:
        own, other = hosts["node1"].address, hosts["node2"].address
        refuse(hosts, "unknown", "ib7", "'ib7' is no network interface", "eth0 (", own, "lo (")
        # node1 has it, node2 does not.
        refuse(hosts, "elsewhere", own, "node2: ", "'%s' is no address of this machine" % own, "eth0 (", other)


CASES = [the_own_name_is_127_0_1_1_and_no_server_knows_another, the_own_name_is_127_0_1_1_and_files_know_the_others,
         there_is_only_ipv6, no_name_can_be_resolved, a_dead_interface_comes_first,
         an_interface_that_is_down_comes_first, a_wrong_interface_names_what_there_is]


if __name__ == "__main__":
    sys.exit(cluster_case.exit_code_of(lambda: cluster_case.run_cases(CASES, FILTER)))
