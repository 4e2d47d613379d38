#!/usr/bin/env python3
"""The hosts that tests of clusters run on: they are apart, joined, cut off and gone as hosts.py says.

    hosts_test.py [FILTER]

Skipped (exit code 77) where this machine cannot have them.
"""
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hosts import OUTSIDE, CannotStart, Hosts  # noqa: E402

FILTER = sys.argv[1] if len(sys.argv) > 1 else ""
PATIENCE = 60  # seconds, for anything that is waited for
FAILURES = []
PYTHON = [sys.executable, "-I", "-S", "-c"]

ECHO_SERVER = """
import socket
server = socket.create_server(("%s", 0), family=socket.AF_INET6 if ":" in "%s" else socket.AF_INET)
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
while data := connection.recv(100):
    connection.sendall(data)
"""
CLIENT = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for line in sys.stdin:
    connection.sendall(line.encode())
    print(connection.recv(100).decode(), end="", flush=True)
"""
RECEIVER = """
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("0.0.0.0", 0))
print(receiver.getsockname()[1], flush=True)
while True:
    print(receiver.recv(100).decode(), flush=True)
"""


class Case:
    def __init__(self, name, hosts):
        self.name = name
        self.hosts = hosts

    def expect(self, true, *words):
        if not true:
            self.fail(" ".join(str(word) for word in words))

    def fail(self, text):
        FAILURES.append("%s: %s" % (self.name, text))
        print("FAILED", FAILURES[-1], flush=True)

    def expect_output(self, result, text):
        self.expect(result.returncode == 0 and result.stdout.strip() == text, result)


def wait(what, ready):
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError("not seen in %d s: %s" % (PATIENCE, what))
        time.sleep(0.01)


CASES = []


def case(function):
    if FILTER in function.__name__:
        CASES.append(function)
    return function


def python(host, script, *arguments, **more):
    return host.popen([*PYTHON, script, *map(str, arguments)], stdout=subprocess.PIPE, text=True, **more)


def read_line(process):
    """The next line that it writes; empty when none comes."""
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    try:
        return process.stdout.readline()
    finally:
        timer.cancel()


def echo_server(host):
    """Its port, and the process."""
    server = python(host, ECHO_SERVER % (host.address, host.address))
    return int(read_line(server)), server


def first_field(host, part):
    """The number of a process in its own host."""
    pid, = host.pids(part)
    with open("/proc/%d/status" % pid) as status:
        return next(line.split()[-1] for line in status if line.startswith("NSpid:"))


@case
def hosts_know_their_names_and_those_of_the_others(c):
    for host in c.hosts:
        c.expect_output(host.run("hostname"), host.name)
        for other in c.hosts:
            line = host.run("getent", "hosts", other.name).stdout.split()
            c.expect(line == [other.address, other.name], host.name, line)
        c.expect(host.run("cat", "/etc/hostname").stdout == host.name + "\n", host.name)
    loopback = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    c.expect(c.hosts["node1"].run(*PYTHON, loopback).returncode == 0, "no loopback")


@case
def ssh_works_from_host_to_host_and_from_outside(c):
    node1 = c.hosts["node1"]
    c.expect_output(node1.run("ssh", "node2", "hostname"), "node2")
    c.expect_output(node1.run("ssh", "-F", c.hosts.ssh_config, "node3", "ssh node4 hostname"), "node4")
    c.expect_output(c.hosts.run("ssh", "-F", c.hosts.ssh_config, "node2", "hostname"), "node2")
    c.expect(node1.run("ssh", "node2", "exit 3").returncode == 3, "the exit code is lost")
    by_address = node1.run("ssh", c.hosts["node2"].address, "hostname")
    c.expect_output(by_address, "node2")


@case
def the_folder_of_the_test_is_shared_and_tmp_is_not(c):
    node1, node2 = c.hosts["node1"], c.hosts["node2"]
    with open(c.hosts.dir + "/seen", "w") as file:
        file.write("here")
    c.expect_output(node1.run("sh", "-c", "cat seen && echo there > seen"), "here")
    c.expect_output(node2.run("cat", c.hosts.dir + "/seen"), "there")
    for folder in ("/tmp", "/dev/shm", "/run"):
        name = "%s/of-%d" % (folder, os.getpid())
        c.expect(node1.run("touch", name).returncode == 0 and node1.run("test", "-e", name).returncode == 0, name)
        c.expect(node2.run("test", "-e", name).returncode == 1, "node2 sees", name)
        c.expect(not os.path.exists(name), "outside there is", name)
    mine = os.path.dirname(os.path.abspath(__file__))
    c.expect(node1.run("test", "-e", mine + "/hosts.py").returncode == 0, "the tree is hidden")


@case
def hosts_do_not_see_the_processes_of_others(c):
    node1, node2 = c.hosts["node1"], c.hosts["node2"]
    sleeper = node2.popen(["sleep", "1001"])
    wait("sleep", lambda: "sleep 1001" in node2.processes())
    c.expect("sleep 1001" not in node1.processes(), node1.processes())
    command = "tr '\\0' ' ' < /proc/%s/cmdline" % first_field(node2, "sleep 1001")
    c.expect_output(node2.run("sh", "-c", command), "sleep 1001")
    everything = "cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\0' ' ' | grep -o 's[l]eep 1001'"
    c.expect_output(node2.run("sh", "-c", everything), "sleep 1001")
    c.expect(node1.run("sh", "-c", everything).stdout == "", "node1 sees it")
    sleeper.terminate()
    c.expect(sleeper.wait(PATIENCE) == -signal.SIGTERM, sleeper.returncode)
    c.expect(node2.pids("sleep 1001") == {}, node2.processes())


@case
def orphans_are_reaped(c):
    node1 = c.hosts["node1"]
    left = node1.run("sh", "-c", "(setsid sh -c 'sleep 0 & exit' &) ; sh -c 'exit 5' & setsid sleep 0.001 & exit")
    c.expect(left.returncode == 0, left)
    states = "cat /proc/[0-9]*/stat 2> /dev/null | grep ' Z ' || echo none"
    wait("no zombie", lambda: node1.run("sh", "-c", states).stdout == "none\n")


@case
def clocks_do_not_count_from_one_moment(c):
    read = "import time; print(int(time.monotonic()))"
    clocks = [int(host.run(*PYTHON, read).stdout) for host in c.hosts]
    if not os.path.exists("/proc/self/ns/time"):
        return
    c.expect(all(later > clock + 50000 for clock, later in zip(clocks, clocks[1:])), clocks)


@case
def a_server_on_one_host_is_reached_from_another(c):
    port, _ = echo_server(c.hosts["node1"])
    client = python(c.hosts["node2"], CLIENT, c.hosts["node1"].address, port, stdin=subprocess.PIPE)
    output, _ = client.communicate("hello\nagain\n", PATIENCE)
    c.expect(output == "hello\nagain\n", output)


@case
def a_blackhole_is_one_way_and_silent(c):
    hosts = c.hosts
    names = ("node1", "node2", OUTSIDE)
    address = {OUTSIDE: hosts.address, **{host.name: host.address for host in hosts}}

    def send(name, to, port, text):
        command = ["bash", "-c", "printf %s > /dev/udp/%s/%d" % (text, address[to], port)]
        result = hosts.run(*command) if name == OUTSIDE else hosts[name].run(*command)
        c.expect(result.returncode == 0, name, result)

    with contextlib.ExitStack() as stack:
        receivers = {}
        for name in names:
            if name == OUTSIDE:
                one = subprocess.Popen([*PYTHON, RECEIVER], stdout=subprocess.PIPE, text=True)
            else:
                one = python(hosts[name], RECEIVER)
            stack.callback(one.wait)
            stack.callback(one.kill)
            receivers[name] = one, int(read_line(one))
        for name, to in (("node1", "node2"), ("node2", "node1"), ("node2", OUTSIDE), (OUTSIDE, "node2")):
            hosts.blackhole(name, to=to)
            send(name, to, receivers[to][1], "lost")
            send(to, name, receivers[name][1], "back")
            c.expect(read_line(receivers[name][0]) == "back\n", to, name)
            hosts.heal(name, to=to)
            send(name, to, receivers[to][1], "healed")
            text = read_line(receivers[to][0])
            c.expect(text == "healed\n", name, to, text)


@case
def a_blackhole_holds_open_connections_too(c):
    node1, node2 = c.hosts["node1"], c.hosts["node2"]
    port, _ = echo_server(node2)
    client = python(node1, CLIENT, node2.address, port, stdin=subprocess.PIPE)

    def say(text):
        client.stdin.write(text)
        client.stdin.flush()

    def retransmitted():
        titles, values = [line.split() for line in node1.run("grep", "^Tcp:", "/proc/net/snmp").stdout.splitlines()]
        return int(values[titles.index("RetransSegs")])

    say("one\n")
    c.expect(read_line(client) == "one\n", "no answer")
    for cut, mend in ((lambda: c.hosts.blackhole("node1", to="node2"), c.hosts.heal), (node2.link_down, node2.link_up)):
        cut()
        before = retransmitted()
        say("two\n")
        wait("a retransmission", lambda: retransmitted() > before)
        c.expect(not select.select([client.stdout], [], [], 0)[0], "an answer")
        mend()
        c.expect(read_line(client) == "two\n", "no answer after it was healed")
    client.stdin.close()
    client.wait(PATIENCE)


@case
def a_host_that_loses_its_power_says_nothing(c):
    node1, node2, node3 = c.hosts["node1"], c.hosts["node2"], c.hosts["node3"]
    watched = ["ssh", "-o", "LogLevel=INFO", "-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1"]
    silent = node1.popen(watched + ["node2", "sleep", "1002"], stderr=subprocess.PIPE, text=True)
    told = node1.popen(watched + ["node3", "sleep", "1002"], stderr=subprocess.PIPE, text=True)
    for host in (node2, node3):
        wait("sleep", lambda: "sleep 1002" in host.processes())
    node2.kill()
    node3.kill(silent=False)
    c.expect(node2.processes() == [] and not node2.is_alive(), node2.processes())
    _, error = silent.communicate(timeout=PATIENCE)
    c.expect(silent.returncode == 255 and "not responding" in error, error)
    _, error = told.communicate(timeout=PATIENCE)
    c.expect(told.returncode == 255 and ("closed" in error or "reset" in error), error)
    for host in (node2, node3):
        host.start()
        c.expect_output(node1.run("ssh", host.name, "hostname"), host.name)
        c.expect("sleep 1002" not in host.processes(), host.processes())


@case
def hosts_with_ipv6_alone(c):
    with Hosts(2, ip=6) as hosts:
        node1, node2 = hosts["node1"], hosts["node2"]
        c.expect(":" in node2.address, node2.address)
        c.expect("10.77" not in node1.run("ip", "addr").stdout, "IPv4")
        c.expect_output(node1.run("ssh", "node2", "hostname"), "node2")
        c.expect_output(hosts.run("ssh", "-F", hosts.ssh_config, "node2", "hostname"), "node2")
        port, _ = echo_server(node2)
        hosts.blackhole("node2", to="node1")
        client = python(node1, CLIENT, "node2", port, stdin=subprocess.PIPE)
        client.stdin.write("hello\n")
        client.stdin.flush()
        # The first packet arrives, the answer does not.
        wait("a connection that hangs", lambda: "SYN-SENT" in node1.run("ss", "-tn").stdout
               and "SYN-RECV" in node2.run("ss", "-tna").stdout)
        hosts.heal()
        c.expect(read_line(client) == "hello\n", "no answer")


@case
def hosts_without_names(c):
    with Hosts(2, names="none") as hosts:
        node1 = hosts["node1"]
        for name in ("node1", "node2", "trainctl.invalid"):
            c.expect(node1.run("getent", "hosts", name).returncode == 2, name)
        c.expect(node1.run("getent", "hosts", "localhost").returncode == 0, "localhost")
        c.expect_output(node1.run("ssh", "node2", "hostname"), "node2")  # ssh has the address in its settings


@case
def hosts_with_a_dead_name_server_a_name_of_127_0_1_1_and_an_interface_that_is_down(c):
    with Hosts(1, names="dead", own_name="127.0.1.1", dead_interface="down") as hosts:
        node1 = hosts["node1"]
        c.expect_output(node1.run("sh", "-c", "getent ahostsv4 node1 | head -n 1"), "127.0.1.1       STREAM node1")
        c.expect("PERMANENT" in node1.run("ip", "neigh").stdout, "ARP would tell")
        result = node1.run("getent", "ahosts", "node2", env=dict(hosts.env, RES_OPTIONS="timeout:1 attempts:1"))
        c.expect(result.returncode == 2, result)
        counts = {}
        titles = []
        for line in node1.run("cat", "/proc/net/snmp").stdout.splitlines():
            kind, *words = line.split()
            if words[0].isdigit() or words[0] == "-1":
                counts.update({kind + title: int(value) for title, value in zip(titles, words)})
            titles = words
        down = node1.run("ip", "addr", "show", "eth1").stdout
        c.expect("state DOWN" in down and node1.dead_address in down, down)
        c.expect(counts["Udp:OutDatagrams"] > 0, "it is not asked")
        c.expect(counts["Udp:InDatagrams"] == 0 and counts["Icmp:InDestUnreachs"] == 0, "it answers", counts)


@case
def hosts_with_a_second_interface_that_is_dead(c):
    with Hosts(2, dead_interface="dead", own_name="dead") as hosts:
        node1, node2 = hosts["node1"], hosts["node2"]
        c.expect(node1.run("getent", "hosts", "node1").stdout.split() == [node1.dead_address, "node1"], "own name")
        c.expect_output(node1.run("cat", "/sys/class/net/eth1/carrier"), "1")
        port, _ = echo_server(node2)
        client = python(node1, CLIENT, node2.dead_address, port, stderr=subprocess.DEVNULL)
        wait("a connection that hangs", lambda: "SYN-SENT" in node1.run("ss", "-tn").stdout)
        client.kill()
        c.expect_output(node1.run("ssh", "node2", "hostname"), "node2")


# ---- nothing is left -------------------------------------------------------------------------


def links():
    """Names of links here; those to the hosts of other tests left out."""
    return {name for name in os.listdir("/sys/class/net") if not name.startswith("tchosts")}


class Traces:
    """What there is of some Hosts while they run."""

    def __init__(self, folder, link, pids):
        self.folder = folder
        self.link = link
        self.namespaces = {os.readlink("/proc/%d/ns/%s" % (pid, kind)) for pid in pids for kind in ("pid", "net", "mnt")}

    @staticmethod
    def of(hosts):
        return Traces(hosts.dir, hosts.link, [host.pid for host in hosts] + [hosts._keeper.pid])

    def left(self):
        found = []
        if os.path.exists(self.folder):
            found.append(self.folder)
        if os.path.exists("/sys/class/net/" + self.link):
            found.append(self.link)
        with open("/proc/self/mounts") as mounts:
            found += [line.strip() for line in mounts if self.folder in line]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open("/proc/%s/cmdline" % pid, "rb") as file:
                    line = file.read().decode(errors="replace").replace("\0", " ")
                here = {os.readlink("/proc/%s/ns/%s" % (pid, kind)) for kind in ("pid", "net")}
                if self.folder in line or here & (self.namespaces - own_namespaces()):
                    found.append("%s: %s" % (pid, line))
        return found


def own_namespaces():
    return {os.readlink("/proc/self/ns/" + kind) for kind in ("pid", "net", "mnt")}


def disturb(hosts):
    """Things that are hard to clear away."""
    hosts["node1"].popen(["sh", "-c", "trap '' TERM INT HUP; while true; do sleep 1003; done"])
    hosts["node1"].run("sh", "-c", "setsid sleep 1003 > /dev/null 2>&1 &")
    hosts["node1"].popen(["ssh", "node2", "sleep 1003"], stderr=subprocess.DEVNULL)
    hosts["node1"].run("mount", "-t", "tmpfs", "none", "/mnt")
    wait("the ssh of node1", lambda: "sleep 1003" in hosts["node2"].processes())
    hosts["node2"].run("ip", "link", "add", "more", "type", "dummy")
    hosts.blackhole(OUTSIDE, to="node1")


@case
def nothing_is_left_after_close(c):
    before = links()
    named = c.hosts.run("ip", "netns", "list").stdout
    with Hosts(2) as hosts:
        disturb(hosts)
        traces = Traces.of(hosts)
        c.expect(len(traces.left()) > 5, "the search finds nothing", traces.left())
    c.expect(not traces.left() and links() == before, traces.left(), links(), before)
    c.expect(c.hosts.run("ip", "netns", "list").stdout == named, "a named namespace")


@case
def nothing_is_left_when_the_test_is_killed(c):
    ends = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGINT: -signal.SIGINT}
    children = {number: subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                for number in ends}
    for number, child in children.items():
        facts = json.loads(read_line(child))
        traces = Traces(facts["folder"], facts["link"], facts["pids"])
        c.expect(len(traces.left()) > 5, "the search finds nothing", traces.left())
        child.send_signal(number)
        c.expect(child.wait(PATIENCE) == ends[number], number, child.returncode)
        child.stdin.close()
        child.stdout.close()
        if number == signal.SIGKILL:
            wait("nothing left", lambda: not traces.left())
        c.expect(not traces.left(), number, traces.left())


@case
def nothing_is_left_of_hosts_that_do_not_start(c):
    folder = c.hosts.dir + "/broken"
    os.mkdir(folder)
    with open(folder + "/sshd", "w") as file:
        file.write("#!/bin/sh\necho no sshd today >&2\nexit 1\n")
    os.chmod(folder + "/sshd", 0o755)
    hosts = Hosts(2, shared=[folder])  # it lies in /tmp
    hosts.env["PATH"] = folder + ":" + hosts.env["PATH"]
    try:
        with hosts:
            c.fail("they start")
    except CannotStart as error:
        c.expect("no sshd today" in str(error), error)
    c.expect(not os.path.exists(hosts.dir) and not os.path.exists("/sys/class/net/" + hosts.link), hosts.dir)
    c.expect(not any(hosts.dir in line for line in command_lines()), "a process")


def command_lines():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                yield file.read().decode(errors="replace")


@case
def who_may_not_have_hosts_is_told_why(c):
    os.seteuid(65534)
    try:
        with Hosts(1):
            c.fail("they start without root")
    except CannotStart as error:
        c.expect("need root" in str(error), error)
    finally:
        os.seteuid(0)
    result = c.hosts.run("setpriv", "--bounding-set=-sys_admin", sys.executable, os.path.abspath(__file__))
    c.expect(result.returncode == 77 and "skipped" in result.stdout and "namespace" in result.stdout, result)


def run_cases(hosts):
    for function in CASES:
        start = time.monotonic()
        c = Case(function.__name__, hosts)
        try:
            function(c)
        except Exception as error:  # the other cases run all the same
            c.fail(repr(error))
        hosts.heal()
        hosts.start([host for host in hosts if not host.is_alive()])
        print("%s: %.1f s" % (function.__name__, time.monotonic() - start), flush=True)


def wait_to_be_killed():
    with Hosts(2) as hosts:
        disturb(hosts)
        pids = [host.pid for host in hosts] + [hosts._keeper.pid]
        print(json.dumps({"folder": hosts.dir, "link": hosts.link, "pids": pids}), flush=True)
        sys.stdin.read()


def main():
    if FILTER == "--child":
        wait_to_be_killed()
    try:
        with Hosts(4) as hosts:
            run_cases(hosts)
    except CannotStart as error:
        print("skipped: no hosts on this machine: %s (Debian: iproute2, openssh-client, openssh-server)" % error)
        return 77
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
