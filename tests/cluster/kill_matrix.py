#!/usr/bin/env python3
"""Ends each kind of process of a run on two hosts, in each way, at each moment, and looks at what became of it.

    kill_matrix.py TRAINCTL LIBTORCH [--all] [FILTER]

Without --all a sample with each row and each column. Skipped (exit code 77) where hosts cannot be had.

After each cell: the exit code and the culprit that the table says, no process of the run, no folder of an agent, and
after a resume where one is needed the metrics of a run that nobody disturbed, to the byte.
"""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_case  # noqa: E402
from cluster_case import PATIENCE, Case, expect, expect_code, expect_nothing_left, left_on  # noqa: E402
from hosts import Hosts  # noqa: E402

os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine
STEPS = 60

# What the launch must end with, and what must be said; code None: the launcher itself was ended, or stopped for good.
GOES_ON = (0, "restarting all workers")
UNMOVED = (0, "")
SAVED = (75, "saving and stopping")
GONE = (None, "")
NODE = (0, "lost with its node node2")

# process: {signal: outcome}. A worker leaves TERM to its launcher: a stranger's has no effect.
TABLE = {
    "launch": {"KILL": GONE, "TERM": SAVED, "SEGV": GONE, "STOP": GONE},
    "agent": {"KILL": NODE, "TERM": SAVED, "SEGV": NODE, "STOP": NODE},
    # It blocks what can be blocked.
    "keeper": {"KILL": (0, "trainctl-keeper, was killed on node2"), "TERM": UNMOVED, "SEGV": UNMOVED},
    "worker": {"KILL": (0, "killed by SIGKILL"), "TERM": UNMOVED, "SEGV": (0, "killed by SIGSEGV"),
               "STOP": (0, "restarting all workers")},
}
# A node that cannot be reached at the very first is a mistake to be told at once, or after two minutes of silence.
AT_START = {"agent": (5, "node2: ")}
MOMENTS = ("start", "step", "commit", "restart")
SAMPLE = [("launch", "KILL", "step"), ("launch", "TERM", "start"), ("agent", "KILL", "step"),
          ("agent", "TERM", "commit"), ("agent", "STOP", "step"), ("keeper", "KILL", "commit"),
          ("worker", "SEGV", "restart"), ("worker", "TERM", "commit"), ("worker", "STOP", "step")]


def find(hosts, launch, process):
    """The process to signal: of node2, but for the launcher."""
    if process == "launch":
        return launch.pid
    names = {"agent": "trainctl agent", "worker": "trainctl-worker", "keeper": "trainctl launch\0"}
    node = hosts["node2"]
    if process == "keeper":
        # It is a fork of the agent: the same command line, another name.
        for pid in node.pids("trainctl agent"):
            with open("/proc/%d/comm" % pid) as comm:
                if comm.read().strip() == "trainctl-keeper":
                    return pid
        return None
    for pid in sorted(node.pids(names[process])):
        with open("/proc/%d/comm" % pid) as comm:
            if comm.read().strip() not in ("trainctl-keeper", "sh", "bash"):
                return pid
    return None


def is_committing(case):
    folder = case.dir + "/run/checkpoints"
    return os.path.isdir(folder) and any(not name.startswith("step-") for name in os.listdir(folder))


def wait_for(case, hosts, launch, moment, process):
    def ended():
        return launch.poll() is not None
    if moment == "start":
        # Before its run folder is there, a launcher ends as any program does.
        case.wait("its start", lambda: ended() or os.path.exists(case.dir + "/run/journal.jsonl") and
                  find(hosts, launch, process) is not None)
        return
    case.wait("a checkpoint", lambda: ended() or case.checkpoints("run"))
    if moment == "restart":
        os.kill(find(hosts, launch, "worker"), signal.SIGKILL)
        case.wait("a restart", lambda: ended() or "restarting all workers" in case.output())
        case.wait("its start", lambda: ended() or find(hosts, launch, process) is not None)
    elif moment == "commit":
        deadline = time.monotonic() + PATIENCE
        while not is_committing(case) and not ended() and time.monotonic() < deadline:
            pass


def run_cell(hosts, trainctl, expected, process, name, moment):
    case = Case("%s-%s-%s" % (process, name, moment), hosts, trainctl)
    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=STEPS, every=5)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    wait_for(case, hosts, launch, moment, process)
    victim = find(hosts, launch, process)
    expect(victim is not None and launch.poll() is None, "too late:\n" + case.output())
    os.kill(victim, getattr(signal, "SIG" + name))
    code, words = TABLE[process][name]
    if moment == "start":
        code, words = AT_START.get(process, (code, words))
    if process == "launch" and name == "STOP":
        # Nobody hears of it: its agents end their workers, and when it wakes up it goes on.
        case.wait("the end of all workers", lambda: not any("worker" in line for host in hosts for line in left_on(host)))
        launch.send_signal(signal.SIGCONT)
        code = 0
    ended = launch.wait(PATIENCE)
    if code is None:
        case.wait("the end of all workers", lambda: not any(left_on(host) for host in hosts))
    else:
        expect(ended == code or (code == 75 and ended == 0), "exit code %s, not %s:\n%s" % (ended, code, case.output()))
        expect(words in case.output(), "'%s' is not in:\n%s" % (words, case.output()))
    if name == "STOP":  # what is stopped is ended by its keeper
        case.wait("the end of what was stopped", lambda: not any(left_on(host) for host in hosts))
    expect_nothing_left(hosts)
    if ended != 0:
        expect_code(case.run("resume", "run"), 0)
        expect_nothing_left(hosts)
    expect(case.metrics("run") == expected, "the run differs from an undisturbed one")


def main():
    arguments = [word for word in sys.argv[1:] if word != "--all"]
    trainctl, libtorch = os.path.abspath(arguments[0]), os.path.abspath(arguments[1])
    wanted = arguments[2] if len(arguments) > 2 else ""
    cells = SAMPLE
    if "--all" in sys.argv:
        cells = [(process, name, moment) for process, row in TABLE.items() for name in row for moment in MOMENTS]
    with Hosts(2, shared=[os.path.dirname(trainctl), libtorch]) as hosts:
        straight = Case("straight", hosts, trainctl)
        recipe = straight.recipe("one.toml", 1, 4, 1, 4, steps=STEPS, every=5)
        expect_code(straight.run("launch", recipe, "--run-dir", "run"), 0)
        expected = straight.metrics("run")
        return cluster_case.run_all([("%s %s at %s" % cell, lambda cell=cell: run_cell(hosts, trainctl, expected, *cell))
                                     for cell in cells if wanted in "-".join(cell)], hosts)


if __name__ == "__main__":
    sys.exit(cluster_case.exit_code_of(main))
