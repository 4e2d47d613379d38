#!/usr/bin/env python3
"""Runs over several machines: hosts with a network, processes and a sshd of their own.

    cluster_test.py TRAINCTL LIBTORCH [FILTER]

Skipped (exit code 77) where such hosts cannot be had.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_case  # noqa: E402
from cluster_case import PATIENCE, expect, expect_code, expect_nothing_left, left_on  # noqa: E402
from hosts import Hosts  # noqa: E402

TRAINCTL = os.path.abspath(sys.argv[1])
LIBTORCH = os.path.abspath(sys.argv[2])
FILTER = sys.argv[3] if len(sys.argv) > 3 else ""
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine

STEPS = 60
STRAIGHT = []  # metrics of a run of one machine with four workers that nobody disturbed


def Case(name, hosts):
    return cluster_case.Case(name, hosts, TRAINCTL)


def straight(hosts):
    if not STRAIGHT:
        case = Case("straight", hosts)
        recipe = case.recipe("one.toml", 1, 4, 1, 4, steps=STEPS)
        expect_code(case.run("launch", recipe, "--run-dir", "one"), 0)
        STRAIGHT.extend(case.metrics("one"))
        expect(len(STRAIGHT) == STEPS, STRAIGHT)
    return STRAIGHT


def same_losses_as_one_machine(hosts):
    """Four nodes of two workers, sharded and replicated, compute bit for bit what eight workers of one machine do."""
    case = Case("same", hosts)
    for name, replicas, shards in (("zero3", 1, 8), ("hsdp", 2, 4)):
        one = case.recipe(name + "-one.toml", 1, 8, replicas, shards, steps=6)
        four = case.recipe(name + "-four.toml", 4, 2, replicas, shards, steps=6)
        expect_code(case.run("launch", one, "--run-dir", name + "-one"), 0)
        expect_code(case.run("launch", four, "--run-dir", name + "-four"), 0)
        expected, seen = case.metrics(name + "-one"), case.metrics(name + "-four")
        expect(len(expected) == 6 and seen == expected, "%s: %s\n%s" % (name, expected, seen))
        ranks = sorted(os.listdir("%s/%s-four/logs" % (case.dir, name)))
        expect(ranks == ["rank-%05d.log" % i for i in range(8)], ranks)
    expect_nothing_left(hosts)


def stops_and_resumes(hosts):
    case = Case("stop", hosts)
    expected = straight(hosts)
    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=STEPS)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    case.wait("a few steps", lambda: case.steps("run") >= 3 or launch.poll() is not None)
    launch.send_signal(signal.SIGTERM)
    code = launch.wait(PATIENCE)
    expect(code in (75, 0), "exit code %s:\n%s" % (code, case.output()))
    expect_nothing_left(hosts)
    if code == 75:
        expect_code(case.run("resume", "run"), 0)
    expect(case.metrics("run") == expected, "the resumed run differs from the straight one")
    expect_nothing_left(hosts)


def restarts_after_a_killed_worker(hosts):
    case = Case("kill", hosts)
    expected = straight(hosts)
    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=STEPS, every=5)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    case.wait("a checkpoint", lambda: case.checkpoints("run"))
    victims = hosts["node2"].pids("trainctl-worker")
    expect(victims, "no worker on node2")
    os.kill(min(victims), signal.SIGKILL)
    code = launch.wait(PATIENCE)
    expect(code == 0, "exit code %s:\n%s" % (code, case.output()))
    out = case.output()
    expect("killed by SIGKILL" in out and "restarting all workers" in out, out)
    expect("rank 2 on node2 failed" in out or "rank 3 on node2 failed" in out, out)
    expect("\n[node1 rank 0] step " in out and "\n[rank " not in out, "lines do not name their node:\n" + out)
    expect(case.metrics("run") == expected, "the restarted run differs from the straight one")
    expect_nothing_left(hosts)


def goes_on_when_a_node_is_back(hosts):
    """A node loses its power in the middle of a run. The launcher names it, waits for it, and goes on."""
    case = Case("power", hosts)
    expected = straight(hosts)
    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=STEPS, every=5)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    case.wait("a checkpoint", lambda: case.checkpoints("run"))
    hosts["node2"].kill()
    case.wait("a restart", lambda: "restarting all workers" in case.output())
    hosts["node2"].start()
    code = launch.wait(PATIENCE)
    expect(code == 0, "exit code %s:\n%s" % (code, case.output()))
    expect("lost with its node node2" in case.output(), case.output())
    expect(case.metrics("run") == expected, "the restarted run differs from the straight one")
    expect_nothing_left(hosts)


def nothing_outlives_a_killed_launcher(hosts):
    case = Case("orphans", hosts)
    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=100000, every=20)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    case.wait("a checkpoint", lambda: case.checkpoints("run"))
    launch.kill()
    launch.wait(PATIENCE)
    case.wait("the end of all workers", lambda: not any(left_on(host) for host in hosts))
    expect_nothing_left(hosts)
    resumed = case.popen("resume", "run", "--set", "train.steps=100001")
    case.wait("progress", lambda: resumed.poll() is not None or "goes on" in case.output() or case.steps("run") > 40)
    resumed.send_signal(signal.SIGTERM)
    code = resumed.wait(PATIENCE)
    expect(code == 75, "exit code %s:\n%s" % (code, case.output()))
    expect_nothing_left(hosts)


def names_a_node_that_cannot_take_part(hosts):
    case = Case("refused", hosts)
    recipe = case.recipe("bad.toml", 2, 1, 1, 2, steps=5)
    with open(recipe) as file:
        text = file.read()
    # A dry run asks every machine, and reports all at once.
    four = case.recipe("four.toml", 4, 1, 1, 4, steps=5, after='options = ["-o", "ConnectTimeout=1"]\n')
    with open(four) as file:
        four_text = file.read()
    with open(four, "w") as file:
        file.write(four_text.replace('"node2"', '"nowhere"'))
    hosts.blackhole("node1", to="node3")
    dry = case.run("launch", four, "--dry-run")
    hosts.heal()
    expect_code(dry, 5)
    missing = [line for line in dry.stdout.splitlines() if line.startswith("missing here: ")]
    expect(len(missing) == 2 and missing[0].startswith("missing here: ssh cannot reach nowhere: ssh: ")
           and missing[1].startswith("missing here: ssh cannot reach node3: ssh: ")
           and "timed out" in missing[1], dry.stdout)
    dry = case.run("launch", recipe, "--dry-run", "--set", 'launch.ssh.program="/nowhere/trainctl"')
    expect_code(dry, 5)
    for name in ("node1", "node2"):
        expect("missing here: %s cannot run /nowhere/trainctl: " % name in dry.stdout, dry.stdout)
    dry = case.run("launch", recipe, "--run-dir", "a", "--dry-run")
    expect_code(dry, 0)
    expect("missing" not in dry.stdout and not os.path.exists(case.dir + "/a"), dry.stdout)
    with open(recipe, "w") as file:
        file.write(text.replace('"node2"', '"nowhere"'))
    result = case.run("launch", recipe, "--run-dir", "a")
    expect_code(result, 5)
    expect("nowhere" in result.stdout and "ssh" in result.stdout.lower(), result.stdout)
    expect(result.stdout.count("Could not resolve") < 2, result.stdout)
    # A folder that is only the launcher's.
    recipe = case.recipe("private.toml", 2, 1, 1, 2, steps=5)
    result = case.run("launch", recipe, "--run-dir", "/tmp/private-run")
    expect_code(result, 5)
    expect("node2" in result.stdout and "file system shared by all nodes" in result.stdout, result.stdout)
    expect_nothing_left(hosts)


def names_a_node_with_another_program(hosts):
    """Nothing is trained by workers of which some compute something else."""
    case = Case("programs", hosts)
    recipe = case.recipe("two.toml", 2, 1, 1, 2, steps=5)
    node = hosts["node2"]
    for path, what in ((TRAINCTL, "trainctl"), (os.path.dirname(TRAINCTL) + "/trainctl-worker", "workers' program")):
        other = case.dir + "/other-" + os.path.basename(path)
        shutil.copy(path, other)
        with open(other, "ab") as file:
            file.write(b"another")
        mounted = node.run("mount", "--bind", other, path)
        expect(mounted.returncode == 0, mounted.stdout)
        try:
            result = case.run("launch", recipe, "--run-dir", "run", "--or-resume")
            expect_code(result, 5)
            expect("node2: its %s is another one" % what in result.stdout, result.stdout)
            expect(not os.path.exists(case.dir + "/run/metrics.jsonl"), "a worker has trained")
        finally:
            node.run("umount", path)
    older = case.dir + "/older"
    with open(older, "w") as file:
        file.write("#!/bin/sh\necho a greeting of the shell\necho trainctl 0.0.1\n")
    os.chmod(older, 0o755)
    mounted = node.run("mount", "--bind", older, TRAINCTL)
    expect(mounted.returncode == 0, mounted.stdout)
    try:
        dry = case.run("resume", "run", "--dry-run")
        expect_code(dry, 5)
        expect("missing here: node2: %s is trainctl 0.0.1, but this machine has trainctl " % TRAINCTL in dry.stdout, dry.stdout)
        expect("node1: " not in dry.stdout, dry.stdout)
    finally:
        node.run("umount", TRAINCTL)
    # A machine on which only the run folder can be written.
    remounted = node.run("mount", "-o", "remount,ro", "/tmp")
    expect(remounted.returncode == 0, remounted.stdout)
    try:
        expect_code(case.run("resume", "run"), 0)
    finally:
        node.run("mount", "-o", "remount,rw", "/tmp")
    left = [name for name in os.listdir(case.dir + "/run") if "agent" in name]
    expect(not left, "left in the run folder: %s" % left)
    expect("] between nodes: " in case.run("logs", "run").stdout, "nothing is said of the network")
    expect_nothing_left(hosts)


def look_as_another_user(case, host):
    """Who may read the run folder may look, and no more."""
    program = case.dir + "/trainctl"
    if not os.path.exists(program):
        shutil.copy(TRAINCTL, program)
        os.chmod(case.hosts.dir, 0o755)

    def ask(verb):
        return host.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, verb, "runs/run",
                        cwd=case.dir)

    status = ask("status")
    expect_code(status, 0)
    expect("rank 3      on node2: running, step " in status.stdout, status.stdout)
    for verb in ("save", "stop"):
        refused = ask(verb)
        expect_code(refused, 5)
        expect("only the user who launched the run may do this" in refused.stdout, refused.stdout)


def is_watched_and_stopped_from_a_login_node(hosts):
    """node3 has no part in the run; it sees the folder and reaches node1."""
    case = Case("watch", hosts)
    login = hosts["node3"]

    def ask(*arguments):
        return login.run(TRAINCTL, *arguments, cwd=case.dir)

    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=1000000)
    launch = case.popen("launch", recipe, "--run-dir", "runs/run")
    case.wait("a few steps", lambda: case.steps("runs/run") >= 3 or launch.poll() is not None)
    status = ask("status", "runs/run")
    expect_code(status, 0)
    for words in ("status      running (running, process ", " on node1)", "rank 0      on node1: running, step ",
                  "rank 3      on node2: running, step ", " ago"):
        expect(words in status.stdout, "no '%s' in:\n%s" % (words, status.stdout))
    report = json.loads(ask("status", "runs/run", "--json").stdout)
    expect([worker["node"] for worker in report["workers"]] == ["node1", "node1", "node2", "node2"], report)
    expect(report["host"] == "node1" and report["nodes"] == ["node1", "node2"], report)
    expect(os.stat(case.dir + "/runs/run/admin.json").st_mode & 0o777 == 0o600, "others can read admin.json")
    look_as_another_user(case, hosts["node1"])
    look_as_another_user(case, login)
    followers = {verb: login.popen([TRAINCTL, verb, "runs/run", "--follow"], cwd=case.dir,
                                   stdout=open("%s/%s" % (case.dir, verb), "w"), stderr=subprocess.STDOUT)
                 for verb in ("logs", "events")}
    refused = ask("resume", "runs/run", "--take-over")
    expect_code(refused, 5)
    expect(" on node1; only one launch at a time can use a run folder" in refused.stdout, refused.stdout)

    hosts.blackhole("node1", to="node3")
    status, runs = ask("status", "runs/run"), ask("runs")
    hosts.heal()
    expect("status      running\n" in status.stdout and "no answer: " in status.stdout, status.stdout)
    expect(" running " in runs.stdout and "interrupted" not in runs.stdout, runs.stdout)

    saved = ask("save", "runs/run")
    expect_code(saved, 0)
    case.wait("a checkpoint", lambda: case.checkpoints("runs/run") or launch.poll() is not None)
    expect_code(ask("stop", "runs/run"), 0)
    code = launch.wait(PATIENCE)
    expect(code == 75, "exit code %s:\n%s" % (code, case.output()))
    for verb, process in followers.items():
        expect(process.wait(PATIENCE) == 0, verb)
    with open(case.dir + "/events") as file:
        events = file.read()
    for words in ("launched: 4 workers on node1, node2; process ", "generation 1: 4 workers",
                  "asked to save and stop: trainctl stop on node3", "  stopped: "):
        expect(words in events, "no '%s' in:\n%s" % (words, events))
    expect(os.path.getsize(case.dir + "/logs") > 0, "nothing of the logs was seen")
    expect(not os.path.exists(case.dir + "/runs/run/admin.json"), "admin.json is left")
    expect(not os.path.exists(case.dir + "/runs/run/reader.json"), "reader.json is left")
    expect("status      stopped" in ask("status", "runs/run").stdout, "the stop is not told")
    expect_nothing_left(hosts)


def is_not_called_interrupted_when_nobody_can_know(hosts):
    """node1, which launched the run, loses its power; then it is switched on again."""
    case = Case("login", hosts)
    login = hosts["node3"]

    def ask(*arguments, timeout=PATIENCE):
        return login.run(TRAINCTL, *arguments, cwd=case.dir, timeout=timeout)

    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=1000000, every=5)
    launch = case.popen("launch", recipe, "--run-dir", "runs/run")
    checkpoints = case.dir + "/runs/run/checkpoints"
    case.wait("a checkpoint", lambda: launch.poll() is not None or os.path.isdir(checkpoints) and any(
        name.startswith("step-") for name in os.listdir(checkpoints)))
    expect(launch.poll() is None, case.output())
    hosts["node1"].kill()
    status = ask("status", "runs/run")
    for words in ("status      unreachable", "launcher    node1 (process ", "does not answer", "--take-over"):
        expect(words in status.stdout, "no '%s' in:\n%s" % (words, status.stdout))
    runs = ask("runs")
    expect(" unreachable " in runs.stdout and "interrupted" not in runs.stdout, runs.stdout)
    refused = ask("resume", "runs/run")
    expect_code(refused, 5)
    expect("has been in use by process " in refused.stdout and "--take-over" in refused.stdout, refused.stdout)

    hosts["node1"].start()
    own = case.run("status", "runs/run")
    expect("status      interrupted" in own.stdout, "node1 knows that its last boot is over:\n" + own.stdout)
    hosts["node2"].kill()  # whatever its agent does without a launcher
    hosts["node2"].start()
    last = max(name for name in os.listdir(checkpoints) if name.startswith("step-"))
    resumed = ask("resume", "runs/run", "--take-over", "--stop-after", str(int(last.split("-")[1]) + 10))
    expect_code(resumed, 75)
    expect("launched: 4 workers on node1, node2; process " in ask("events", "runs/run").stdout, "no second launch")
    expect_nothing_left(hosts)


CASES = [same_losses_as_one_machine, stops_and_resumes, restarts_after_a_killed_worker,
         goes_on_when_a_node_is_back, nothing_outlives_a_killed_launcher, names_a_node_that_cannot_take_part,
         names_a_node_with_another_program,
         is_watched_and_stopped_from_a_login_node, is_not_called_interrupted_when_nobody_can_know]


def main():
    with Hosts(4, shared=[os.path.dirname(TRAINCTL), LIBTORCH]) as hosts:
        return cluster_case.run_cases(CASES, FILTER, hosts)


if __name__ == "__main__":
    sys.exit(cluster_case.exit_code_of(main))
