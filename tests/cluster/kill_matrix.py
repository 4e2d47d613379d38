#!/usr/bin/env python3
"""Ends each kind of process of a run on two hosts, in each way, at each moment, and looks at what became of it.

    kill_matrix.py TRAINCTL LIBTORCH LIBORPHAN [--all] [FILTER]

Without --all a sample with each row and each column. Skipped (exit code 77) where hosts cannot be had.

After each cell: the exit code and the culprit that the table says, no process of the run, no folder of an agent, no port
that listens, no shared memory, and after a resume where one is needed the metrics of a run that nobody disturbed, to the
byte.
"""
import contextlib
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_case  # noqa: E402
import inject  # noqa: E402
from cluster_case import PATIENCE, Case, expect, expect_code, expect_nothing_left, left_on  # noqa: E402
from hosts import Hosts  # noqa: E402

os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine
STEPS = 60

# What the launch must end with, and what must be said; code None: the launcher itself was ended, or stopped for good.
UNMOVED = (0, "")
SAVED = (75, "saving and stopping")
GONE = (None, "")
NODE = (0, "lost with its node node2")
KEEPER = (0, "trainctl-keeper, was killed on node2")
ONLY_KEEPER = (0, "trainctl-keeper, was killed")
RESTARTED = (0, "restarting all workers")
ENDS = ("KILL", "STOP", "TERM", "SEGV", "EXIT0", "EXIT3", "OOM")
# This does not end the process. Its socket and token files are removed, as a cleanup program would do, and then a worker
# on its host is killed. The worker's successor needs those files.
CLEANED = "CLEANED"
GROUP_BYTES, EATEN_BYTES = 3 << 28, 1 << 30

# process: {end: outcome}. EXIT0 and EXIT3: it calls exit_group(2) itself. OOM: it asks for more memory than the control
# group has in which its host's processes are, and the kernel ends it. A worker leaves TERM to its launcher: a
# stranger's has no effect. What a worker has started, in a session of its own, is nothing to the run, and ends with it.
TABLE = {
    "launch": {"KILL": GONE, "TERM": SAVED, "SEGV": GONE, "STOP": GONE, "EXIT0": GONE, "EXIT3": GONE,
               "OOM": GONE, CLEANED: RESTARTED},
    "agent": {"KILL": NODE, "TERM": SAVED, "SEGV": NODE, "STOP": NODE, "EXIT0": NODE, "EXIT3": NODE,
              "OOM": NODE, CLEANED: RESTARTED},
    # It blocks what can be blocked.
    "keeper": {"KILL": KEEPER, "TERM": UNMOVED, "SEGV": UNMOVED, "STOP": UNMOVED, "EXIT0": KEEPER, "EXIT3": KEEPER,
               "OOM": KEEPER},
    # It has nothing to do while its agent lives.
    "guard": dict.fromkeys(ENDS, UNMOVED),
    "worker": {"KILL": (0, "killed by SIGKILL"), "TERM": UNMOVED, "SEGV": (0, "killed by SIGSEGV"),
               "STOP": (0, "restarting all workers"), "EXIT0": (0, "exited with code 0 before "),
               "EXIT3": (3, "exited with code 3"), "OOM": (0, "memory ran out")},
    "orphan": dict.fromkeys(ENDS, UNMOVED),
    "orphan without environment": dict.fromkeys(ENDS, UNMOVED),
    # One machine: no agent, and a keeper that does not mind a launcher that stands still.
    "only launch": {"KILL": GONE, "TERM": SAVED, "SEGV": GONE, "STOP": UNMOVED, "EXIT0": GONE, "EXIT3": GONE, "OOM": GONE,
                    CLEANED: RESTARTED},
    "only keeper": {"KILL": ONLY_KEEPER, "TERM": UNMOVED, "SEGV": UNMOVED, "STOP": UNMOVED, "EXIT0": ONLY_KEEPER,
                    "EXIT3": ONLY_KEEPER, "OOM": ONLY_KEEPER},
}
# A node that cannot be reached at the very first is a mistake to be told at once, or after two minutes of silence.
AT_START = {"agent": (5, "node2: ")}
MOMENTS = ("start", "joined", "step", "saving", "commit", "restart", "end")
SAMPLE = [("launch", "TERM", "start"), ("agent", "KILL", "step"), ("agent", "TERM", "saving"), ("agent", "EXIT3", "joined"),
          ("keeper", "EXIT0", "commit"), ("guard", "KILL", "step"),
          ("worker", "SEGV", "restart"), ("worker", "OOM", "step"), ("worker", "KILL", "end"),
          ("orphan", "TERM", "saving"), ("orphan without environment", "KILL", "step"), ("only launch", "STOP", "step"),
          ("only keeper", "KILL", "saving"), ("agent", CLEANED, "step"), ("only launch", CLEANED, "step")]
assert all({cell[i] for cell in SAMPLE} == set(whole) for i, whole in enumerate((TABLE, (*ENDS, CLEANED), MOMENTS)))
ORPHAN = "sleep 98765"  # of tests/tools/orphan.cc


def find(hosts, launch, process):
    """The process to end: of node2, but for the launcher, and of node1 where there is no other."""
    if process in ("launch", "only launch"):
        return launch.pid
    if process == "only keeper":
        return find_fork("trainctl-keeper", hosts["node1"], "trainctl launch", "trainctl resume")
    node = hosts["node2"]
    if process in ("keeper", "guard"):
        return find_fork("trainctl-" + process, node, "trainctl agent")
    if process.startswith("orphan"):
        return min(node.pids(ORPHAN), default=None)
    # The first of its name may be the shell that ssh has started, with the command in its own line.
    for pid, line in sorted(node.pids({"agent": "trainctl agent", "worker": "trainctl-worker"}[process]).items()):
        if os.path.basename(line.split()[0]).startswith("trainctl"):
            return pid
    return None


def find_fork(name, node, *owners):
    """Of one of these: the same command line, another name."""
    for pid in [pid for owner in owners for pid in node.pids(owner)]:
        try:
            with open("/proc/%d/comm" % pid) as comm:
                if comm.read().strip() == name:
                    return pid
        except OSError:
            pass
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
    if process == "agent":  # else nothing but it is there, and nobody who would notice
        case.wait("its guard", lambda: ended() or find(hosts, launch, "guard") is not None)
    if moment == "joined":
        wait_at_once(lambda: has_generation(case), ended)
    elif moment == "end":
        wait_at_once(lambda: case.steps("run") == STEPS, ended)
    elif moment != "start":
        case.wait("a checkpoint", lambda: ended() or case.checkpoints("run"))
    if moment == "restart":
        other = hosts["node1" if process.startswith("only ") else "node2"]
        os.kill(min(other.pids("trainctl-worker")), signal.SIGKILL)
        case.wait("a restart", lambda: ended() or "restarting all workers" in case.output())
        case.wait("its start", lambda: ended() or find(hosts, launch, process) is not None)
    elif moment == "saving":
        wait_at_once(lambda: is_saving(case), ended)
    elif moment == "commit":
        before = case.checkpoints("run")
        wait_at_once(lambda: case.checkpoints("run") != before, ended)


def end(victim, how, host, stack, run):
    if how == CLEANED:
        files = host.run("sh", "-c", 'ls -d /tmp/trainctl-agent-*/* "$0"/control.sock "$0"/token*', run).stdout.split("\n")
        removed = [file for file in files if file.startswith("/")]
        expect(removed, "no files: %s" % files)
        expect_code(host.run("rm", "--", *removed), 0)
        deadline = time.monotonic() + PATIENCE
        while not host.pids("trainctl-worker") and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(min(host.pids("trainctl-worker")), signal.SIGKILL)
    elif how.startswith("EXIT"):
        inject.exit(victim, int(how[len("EXIT"):]))
    elif how == "OOM":
        stack.enter_context(inject.MemoryGroup("trainctl-%d" % os.getpid(), list(host.pids()), GROUP_BYTES))
        inject.eat(victim, EATEN_BYTES)
    else:
        os.kill(victim, getattr(signal, "SIG" + how))


def expect_no_trace(hosts):
    expect_nothing_left(hosts)
    for host in hosts:
        expect(not host.pids(ORPHAN), "a grandchild is left on " + host.name)
        ports = [line.split()[3] for line in host.run("ss", "-Hltn").stdout.splitlines()]
        expect(all(port.endswith(":22") for port in ports), "%s listens on %s" % (host.name, ports))
        sockets = [line for line in host.run("ss", "-Hxl").stdout.splitlines() if "trainctl" in line]
        expect(not sockets, "%s listens on %s" % (host.name, sockets))
        shared = host.run("ls", "-A", "/dev/shm").stdout.split()
        expect(not shared, "shared memory is left on %s: %s" % (host.name, shared))


def run_cell(hosts, *arguments):
    with contextlib.ExitStack() as stack:
        run_cell_in(stack, hosts, *arguments)


def run_cell_in(stack, hosts, trainctl, orphan, expected, process, how, moment):
    case = Case("-".join((process, how, moment)).replace(" ", "-"), hosts, trainctl)
    kind = {"orphan": "plain", "orphan without environment": "bare"}.get(process)
    is_alone = process.startswith("only ")
    nodes, workers = (1, 4) if is_alone else (2, 2)
    env = '[launch.env]\nLD_PRELOAD = "%s"\nORPHAN = "%s"\n' % (orphan, kind) if kind else ""
    recipe = case.recipe("killed.toml", nodes, workers, 1, 4, steps=STEPS, every=5, after=env)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    wait_for(case, hosts, launch, moment, process)
    victim = find(hosts, launch, process)
    if moment == "end" and (victim is None or launch.poll() is not None):
        victim = None  # it was faster
    else:
        expect(victim is not None and launch.poll() is None, "too late:\n" + case.output())
        try:
            end(victim, how, hosts["node1" if is_alone or process == "launch" else "node2"], stack, case.dir + "/run")
        except ProcessLookupError:
            expect(moment == "end", "too late:\n" + case.output())
    code, words = TABLE[process][how]
    if moment == "start":
        code, words = UNMOVED if how == CLEANED else AT_START.get(process, (code, words))
    if process == "launch" and how == "STOP":
        # Nobody hears of it: its agents end their workers, and when it wakes up it goes on.
        case.wait("the end of all workers", lambda: not any("worker" in line for host in hosts for line in left_on(host)))
        launch.send_signal(signal.SIGCONT)
        code = 0
    elif is_alone and how == "STOP":
        os.kill(victim, signal.SIGCONT)
    ended = launch.wait(PATIENCE)
    if (process, how, moment, ended) == ("agent", "TERM", "start", 75):
        code, words = SAVED  # the launcher could be told
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
    if not inject.is_possible():
        print("without EXIT0, EXIT3 and OOM: they are made for x86-64 alone")
        cells = [cell for cell in cells if not cell[1].startswith("EXIT") and cell[1] != "OOM"]
    if not inject.MemoryGroup("", [], 0).is_possible():
        print("without OOM: no control group with a limit can be made here")
        cells = [cell for cell in cells if cell[1] != "OOM"]
    with Hosts(2, shared=[os.path.dirname(trainctl), libtorch, os.path.dirname(orphan)]) as hosts:
        straight = Case("straight", hosts, trainctl)
        recipe = straight.recipe("one.toml", 1, 4, 1, 4, steps=STEPS, every=5)
        expect_code(straight.run("launch", recipe, "--run-dir", "run"), 0)
        expected = straight.metrics("run")
        return cluster_case.run_all([("%s %s at %s" % cell, lambda cell=cell: run_cell(hosts, trainctl, orphan, expected, *cell))
                                     for cell in cells if wanted in "-".join(cell)], hosts)


if __name__ == "__main__":
    sys.exit(cluster_case.exit_code_of(main))
