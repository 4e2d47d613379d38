#!/usr/bin/env python3
"""Who failed first is named: 64 workers over 8 hosts whose clocks differ, one of which fails, and the others because of it.

    attribution_test.py TRAINCTL FAKE_WORKER [--all] [FILTER]

Without --all 4 failures, else 100. Skipped (exit code 77) where hosts cannot be had.

The launcher, the agents and the network are real, the workers only fail: tests/tools/fake_worker.cc tells which one does,
how, and how the others follow it within 50 ms: with an echo, an exception of their own, SIGABRT or SIGSEGV.
"""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_case  # noqa: E402
from cluster_case import PATIENCE, Case, expect, expect_nothing_left  # noqa: E402
from hosts import Hosts  # noqa: E402

os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine
NODES, WORKERS = 8, 8
FAILURES, ALL_FAILURES = 4, 100  # the four ways once
NODE_LOSSES, ALL_NODE_LOSSES = 1, 5
HOW = ("this one threw", "exited with code 9", "killed by SIGSEGV", "stood still")  # by generation mod 4

LAUNCH = """
max_restarts = 1000
hang_timeout = "6s"
"""
SCRIPT = """
[launch.env]
FAKE_WORKER_SCRIPT = "%s"
"""


def exits(case):
    """(generation, rank, host, message) of each failure, as the journal has them."""
    found, generation = [], 0
    with open(case.dir + "/run/journal.jsonl") as journal:
        for event in map(json.loads, journal):
            generation = event.get("generation", generation) if event["event"] == "generation" else generation
            if event["event"] == "worker_exit":
                found.append((generation, event["rank"], event.get("host"), event["message"]))
    return found


def launch(hosts, trainctl, name, script):
    case = Case(name, hosts, trainctl)
    recipe = case.recipe("many.toml", NODES, WORKERS, NODES * WORKERS, 1, steps=100000, launch=LAUNCH,
                         after=SCRIPT % script.format(dir=case.dir), sequences=NODES * WORKERS, zero=0)
    return case, case.popen("launch", recipe, "--run-dir", "run")


def whoever_fails_first_is_named(hosts, trainctl, count):
    case, process = launch(hosts, trainctl, "ranks", "*:downfall:%d:{dir}" % count)
    code = process.wait(PATIENCE + 10 * count)
    expect(code == 0, "exit code %s:\n%s" % (code, case.output()[-3000:]))
    found = exits(case)
    wrong = []
    for generation in range(1, count + 1):
        rank = (37 * generation + 11) % (NODES * WORKERS)
        host = "node%d" % (rank // WORKERS + 1)
        named = [exit[1:] for exit in found if exit[0] == generation]
        if len(named) != 1 or named[0][:2] != (rank, host) or HOW[generation % 4] not in named[0][2]:
            wrong.append("generation %d: rank %d of %s, not %s" % (generation, rank, host, named))
    expect(not wrong, "%d of %d:\n%s\n%s" % (len(wrong), count, "\n".join(wrong), case.output()[-3000:]))
    print("%d of %d failures were blamed on who failed first" % (count, count), flush=True)
    expect_nothing_left(hosts)


def a_node_that_is_lost_is_named(hosts, trainctl, count):
    """Its workers say nothing, all others fall at once."""
    case, process = launch(hosts, trainctl, "nodes", "*:node_loss:%d:{dir}" % count)
    for generation in range(1, count + 1):
        number = generation % (NODES - 1) + 2
        case.wait("generation %d" % generation, lambda: process.poll() is not None or
                  os.path.exists("%s/ready-%d" % (case.dir, generation)))
        expect(process.poll() is None, case.output()[-3000:])
        hosts["node%d" % number].kill()
        with open("%s/fallen-%d" % (case.dir, generation), "w"):
            pass
        case.wait("its name", lambda: process.poll() is not None or any(exit[0] == generation for exit in exits(case)))
        named = [exit[1:] for exit in exits(case) if exit[0] == generation]
        hosts["node%d" % number].start()
        expect(len(named) == 1 and named[0][1] == "node%d" % number and "lost with its node" in named[0][2],
               "node%d, not %s\n%s" % (number, named, case.output()[-3000:]))
    code = process.wait(PATIENCE)
    expect(code == 0, "exit code %s:\n%s" % (code, case.output()[-3000:]))
    print("%d of %d lost nodes were named" % (count, count), flush=True)
    expect_nothing_left(hosts)


def hide_debugger(hosts):
    """It would look at 64 processes at once when one hangs, all on this machine's cores."""
    debugger = shutil.which("gdb")
    for host in hosts if debugger else ():
        hidden = host.run("mount", "--bind", "/dev/null", os.path.realpath(debugger))
        expect(hidden.returncode == 0, hidden.stdout)


def main():
    arguments = [word for word in sys.argv[1:] if word != "--all"]
    is_all = "--all" in sys.argv
    with Hosts(NODES) as hosts:
        programs = hosts.dir + "/bin"
        os.mkdir(programs)
        shutil.copy(arguments[0], programs + "/trainctl")
        shutil.copy(arguments[1], programs + "/trainctl-worker")
        hide_debugger(hosts)
        cases = [(whoever_fails_first_is_named, ALL_FAILURES if is_all else FAILURES),
                 (a_node_that_is_lost_is_named, ALL_NODE_LOSSES if is_all else NODE_LOSSES)]
        wanted = arguments[2] if len(arguments) > 2 else ""
        return cluster_case.run_all([(case.__name__, lambda case=case, count=count: case(hosts, programs + "/trainctl", count))
                                     for case, count in cases if wanted in case.__name__], hosts)


if __name__ == "__main__":
    sys.exit(cluster_case.exit_code_of(main))
