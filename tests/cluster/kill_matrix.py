#!/usr/bin/env python3
"""Ends each kind of process of a run on two hosts, in each way, at each moment, and looks at what became of it.

    kill_matrix.py TRAINCTL LIBTORCH LIBORPHAN [--all] [FILTER]

Without --all a sample with each row and each column. Skipped (exit code 77) where hosts cannot be had.

After each cell: the exit code and the culprit that the table says, no process of the run, no folder of an agent, no port
that listens, no shared memory, and after a resume where one is needed the metrics of a run that nobody disturbed, to the
byte.
"""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_case  # noqa: E402
import inject_exit  # noqa: E402
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
KEEPER = (0, "trainctl-keeper, was killed on node2")
ENDS = ("KILL", "STOP", "TERM", "SEGV", "EXIT0", "EXIT3")

# process: {end: outcome}. EXIT0 and EXIT3: it calls exit_group(2) itself. A worker leaves TERM to its launcher: a
# stranger's has no effect. What a worker has started, in a session of its own, is nothing to the run, and ends with it.
TABLE = {
    "launch": {"KILL": GONE, "TERM": SAVED, "SEGV": GONE, "STOP": GONE, "EXIT0": GONE, "EXIT3": GONE},
    "agent": {"KILL": NODE, "TERM": SAVED, "SEGV": NODE, "STOP": NODE, "EXIT0": NODE, "EXIT3": NODE},
    # It blocks what can be blocked.
    "keeper": {"KILL": KEEPER, "TERM": UNMOVED, "SEGV": UNMOVED, "STOP": UNMOVED, "EXIT0": KEEPER, "EXIT3": KEEPER},
    "worker": {"KILL": (0, "killed by SIGKILL"), "TERM": UNMOVED, "SEGV": (0, "killed by SIGSEGV"),
               "STOP": (0, "restarting all workers"), "EXIT0": (0, "exited with code 0 before the end of the run"),
               "EXIT3": (3, "exited with code 3")},
    "orphan": dict.fromkeys(ENDS, UNMOVED),
    "orphan without environment": dict.fromkeys(ENDS, UNMOVED),
}
# A node that cannot be reached at the very first is a mistake to be told at once, or after two minutes of silence.
AT_START = {"agent": (5, "node2: ")}
MOMENTS = ("start", "joined", "step", "saving", "commit", "restart", "end")
SAMPLE = [("launch", "KILL", "step"), ("launch", "TERM", "start"), ("launch", "EXIT0", "saving"),
          ("agent", "KILL", "step"), ("agent", "TERM", "saving"), ("agent", "STOP", "step"), ("agent", "EXIT3", "joined"),
          ("keeper", "KILL", "commit"), ("worker", "SEGV", "restart"), ("worker", "TERM", "commit"),
          ("worker", "STOP", "step"), ("worker", "EXIT0", "joined"), ("worker", "KILL", "end"),
          ("orphan", "TERM", "saving"), ("orphan without environment", "KILL", "step")]
ORPHAN = "sleep 98765"  # of tests/tools/orphan.cc


def find(hosts, launch, process):
    """The process to signal: of node2, but for the launcher."""
    if process == "launch":
        return launch.pid
    names = {"agent": "trainctl agent", "worker": "trainctl-worker"}
    node = hosts["node2"]
    if process.startswith("orphan"):
        return min(node.pids(ORPHAN), default=None)
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


def is_saving(case):
    folder = case.dir + "/run/checkpoints"
    return os.path.isdir(folder) and any(not name.startswith("step-") for name in os.listdir(folder))


def has_generation(case):
    with open(case.dir + "/run/journal.jsonl") as journal:
        return '"event":"generation"' in journal.read()


def wait_at_once(ready, ended):
    """For what lasts a moment."""
    deadline = time.monotonic() + PATIENCE
    while not ready() and not ended() and time.monotonic() < deadline:
        pass


def wait_for(case, hosts, launch, moment, process):
    def ended():
        return launch.poll() is not None
    # Before its run folder is there, a launcher ends as any program does.
    case.wait("its start", lambda: ended() or os.path.exists(case.dir + "/run/journal.jsonl") and
              find(hosts, launch, process) is not None)
    if moment == "joined":
        wait_at_once(lambda: has_generation(case), ended)
    elif moment == "end":
        wait_at_once(lambda: case.steps("run") == STEPS, ended)
    elif moment != "start":
        case.wait("a checkpoint", lambda: ended() or case.checkpoints("run"))
    if moment == "restart":
        os.kill(find(hosts, launch, "worker"), signal.SIGKILL)
        case.wait("a restart", lambda: ended() or "restarting all workers" in case.output())
        case.wait("its start", lambda: ended() or find(hosts, launch, process) is not None)
    elif moment == "saving":
        wait_at_once(lambda: is_saving(case), ended)
    elif moment == "commit":
        before = case.checkpoints("run")
        wait_at_once(lambda: case.checkpoints("run") != before, ended)


def end(victim, how):
    if how.startswith("EXIT"):
        inject_exit.inject_exit(victim, int(how[len("EXIT"):]))
    else:
        os.kill(victim, getattr(signal, "SIG" + how))


def expect_no_trace(hosts):
    expect_nothing_left(hosts)
    for host in hosts:
        expect(not host.pids(ORPHAN), "a grandchild is left on " + host.name)
        ports = [line.split()[3] for line in host.run("ss", "-Hltn").stdout.splitlines()]
        expect(all(port.endswith(":22") for port in ports), "%s listens on %s" % (host.name, ports))
        shared = host.run("ls", "-A", "/dev/shm").stdout.split()
        expect(not shared, "shared memory is left on %s: %s" % (host.name, shared))


def run_cell(hosts, trainctl, orphan, expected, process, how, moment):
    case = Case("-".join((process, how, moment)).replace(" ", "-"), hosts, trainctl)
    kind = {"orphan": "plain", "orphan without environment": "bare"}.get(process)
    env = '[launch.env]\nLD_PRELOAD = "%s"\nORPHAN = "%s"\n' % (orphan, kind) if kind else ""
    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=STEPS, every=5, after=env)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    wait_for(case, hosts, launch, moment, process)
    victim = find(hosts, launch, process)
    if moment == "end" and (victim is None or launch.poll() is not None):
        victim = None  # it was faster
    else:
        expect(victim is not None and launch.poll() is None, "too late:\n" + case.output())
        try:
            end(victim, how)
        except ProcessLookupError:
            expect(moment == "end", "too late:\n" + case.output())
    code, words = TABLE[process][how]
    if moment == "start":
        code, words = AT_START.get(process, (code, words))
    if process == "launch" and how == "STOP":
        # Nobody hears of it: its agents end their workers, and when it wakes up it goes on.
        case.wait("the end of all workers", lambda: not any("worker" in line for host in hosts for line in left_on(host)))
        launch.send_signal(signal.SIGCONT)
        code = 0
    ended = launch.wait(PATIENCE)
    if code is None:
        case.wait("the end of all workers", lambda: not any(left_on(host) for host in hosts))
    else:
        # What is done is done, and a stop may come too late.
        may_be = (code, 0) if code == 75 or moment == "end" else (code,)
        expect(ended in may_be, "exit code %s, not %s:\n%s" % (ended, code, case.output()))
        expect(moment == "end" or words in case.output(), "'%s' is not in:\n%s" % (words, case.output()))
    if how == "STOP":  # what is stopped is ended by its keeper
        case.wait("the end of what was stopped", lambda: not any(left_on(host) for host in hosts))
    expect_no_trace(hosts)
    if ended != 0 or case.steps("run") < STEPS:
        expect_code(case.run("resume", "run"), 0)
        expect_no_trace(hosts)
    expect(case.metrics("run") == expected, "the run differs from an undisturbed one")


def main():
    arguments = [word for word in sys.argv[1:] if word != "--all"]
    trainctl, libtorch, orphan = map(os.path.abspath, arguments[:3])
    wanted = arguments[3] if len(arguments) > 3 else ""
    cells = SAMPLE
    if "--all" in sys.argv:
        cells = [(process, how, moment) for process, row in TABLE.items() for how in row for moment in MOMENTS]
    if not inject_exit.is_possible():
        print("without EXIT0 and EXIT3: they are made for x86-64 alone")
        cells = [cell for cell in cells if not cell[1].startswith("EXIT")]
    with Hosts(2, shared=[os.path.dirname(trainctl), libtorch, orphan]) as hosts:
        straight = Case("straight", hosts, trainctl)
        recipe = straight.recipe("one.toml", 1, 4, 1, 4, steps=STEPS, every=5)
        expect_code(straight.run("launch", recipe, "--run-dir", "run"), 0)
        expected = straight.metrics("run")
        return cluster_case.run_all([("%s %s at %s" % cell, lambda cell=cell: run_cell(hosts, trainctl, orphan, expected, *cell))
                                     for cell in cells if wanted in "-".join(cell)], hosts)


if __name__ == "__main__":
    sys.exit(cluster_case.exit_code_of(main))
