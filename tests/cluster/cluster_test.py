#!/usr/bin/env python3
"""Runs over several machines: hosts with a network, processes and a sshd of their own.

    cluster_test.py TRAINCTL LIBTORCH [FILTER]

Skipped (exit code 77) where such hosts cannot be had.
"""
import json
import os
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hosts import CannotStart, Hosts  # noqa: E402

TRAINCTL = os.path.abspath(sys.argv[1])
LIBTORCH = os.path.abspath(sys.argv[2])
FILTER = sys.argv[3] if len(sys.argv) > 3 else ""
PATIENCE = 300  # seconds, for anything that is waited for
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine

RECIPE = """
recipe_version = 1
[model]
family = "llama"
layers = 2
hidden = 32
heads = 4
ffn = 64
vocab = 257
[data]
seq_len = 32
[[data.train]]
files = ["text.txt"]
[train]
steps = {steps}
batch_sequences = 8
precision = "fp32"
[parallel]
zero_stage = 3
dp_replicate = {replicas}
dp_shard = {shards}
[cluster]
nodes = {nodes}
devices_per_node = {workers}
threads_per_worker = 1
[checkpoint]
every_steps = {every}
[launch]
detect_timeout = "5s"
{launch}
"""


class Case:
    """A folder with text, which every host sees; runs are launched from node1."""

    def __init__(self, name, hosts):
        self.hosts = hosts
        self.dir = os.path.join(hosts.dir, name)
        os.mkdir(self.dir)
        with open(self.dir + "/text.txt", "w") as text:
            for i in range(200):
                text.write("the quick brown fox %d jumps over the lazy dog. " % i)

    def recipe(self, name, nodes, workers, replicas, shards, steps, every=1000000, launch=""):
        if nodes > 1:
            names = ", ".join('"node%d"' % (i + 1) for i in range(nodes))
            launch += '\nbackend = "ssh"\n[launch.ssh]\nhosts = [%s]\n' % names
        path = self.dir + "/" + name
        with open(path, "w") as file:
            file.write(RECIPE.format(nodes=nodes, workers=workers, replicas=replicas, shards=shards, steps=steps,
                                     every=every, launch=launch))
        return path

    def run(self, *arguments, timeout=PATIENCE):
        return self.hosts["node1"].run(TRAINCTL, *arguments, cwd=self.dir, timeout=timeout)

    def popen(self, *arguments):
        return self.hosts["node1"].popen([TRAINCTL, *arguments], cwd=self.dir, stdout=open(self.dir + "/out", "ab"),
                                         stderr=subprocess.STDOUT)

    def output(self):
        with open(self.dir + "/out", errors="replace") as file:
            return file.read()

    def metrics(self, run):
        with open("%s/%s/metrics.jsonl" % (self.dir, run)) as file:
            return [json.loads(line) for line in file]

    def steps(self, run):
        try:
            return len(self.metrics(run))
        except (OSError, ValueError):
            return 0

    def checkpoints(self, run):
        folder = "%s/%s/checkpoints" % (self.dir, run)
        return [name for name in os.listdir(folder) if name.startswith("step-")] if os.path.isdir(folder) else []

    def wait(self, what, ready):
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if time.monotonic() > deadline:
                raise RuntimeError("not seen in %d s: %s\n%s" % (PATIENCE, what, self.output()))
            time.sleep(0.05)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_code(result, code):
    expect(result.returncode == code, "exit code %s, not %s:\n%s" % (result.returncode, code, result.stdout))


def left_on(host):
    return [line for line in host.processes() if os.path.basename(line.split()[0]).startswith("trainctl")]


def expect_nothing_left(hosts):
    for host in hosts:
        left = left_on(host)
        expect(not left, "left on %s: %s" % (host.name, left))
        folders = host.run("sh", "-c", "ls -d /tmp/trainctl-agent-* 2>/dev/null; true").stdout.split()
        expect(not folders, "left on %s: %s" % (host.name, folders))


def same_losses_as_one_machine(hosts):
    """Two nodes of two workers, sharded and replicated, compute bit for bit what four workers of one machine do."""
    case = Case("same", hosts)
    for name, replicas, shards in (("zero3", 1, 4), ("hsdp", 2, 2)):
        one = case.recipe(name + "-one.toml", 1, 4, replicas, shards, steps=6)
        two = case.recipe(name + "-two.toml", 2, 2, replicas, shards, steps=6)
        expect_code(case.run("launch", one, "--run-dir", name + "-one"), 0)
        expect_code(case.run("launch", two, "--run-dir", name + "-two"), 0)
        expected, seen = case.metrics(name + "-one"), case.metrics(name + "-two")
        expect(len(expected) == 6 and seen == expected, "%s: %s\n%s" % (name, expected, seen))
        ranks = sorted(os.listdir("%s/%s-two/logs" % (case.dir, name)))
        expect(ranks == ["rank-%05d.log" % i for i in range(4)], ranks)
    expect_nothing_left(hosts)


def stops_and_resumes(hosts):
    case = Case("stop", hosts)
    straight = case.recipe("one.toml", 1, 4, 1, 4, steps=40)
    expect_code(case.run("launch", straight, "--run-dir", "one"), 0)
    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=40)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    case.wait("a few steps", lambda: case.steps("run") >= 3 or launch.poll() is not None)
    launch.send_signal(signal.SIGTERM)
    code = launch.wait(PATIENCE)
    expect(code in (75, 0), "exit code %s:\n%s" % (code, case.output()))
    expect_nothing_left(hosts)
    if code == 75:
        expect_code(case.run("resume", "run"), 0)
    expect(case.metrics("run") == case.metrics("one"), "the resumed run differs from the straight one")
    expect_nothing_left(hosts)


def restarts_after_a_killed_worker(hosts):
    case = Case("kill", hosts)
    straight = case.recipe("one.toml", 1, 4, 1, 4, steps=60)
    expect_code(case.run("launch", straight, "--run-dir", "one"), 0)
    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=60, every=5)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    case.wait("a checkpoint", lambda: case.checkpoints("run"))
    victims = hosts["node2"].pids("trainctl-worker")
    expect(victims, "no worker on node2")
    os.kill(min(victims), signal.SIGKILL)
    code = launch.wait(PATIENCE)
    expect(code == 0, "exit code %s:\n%s" % (code, case.output()))
    out = case.output()
    expect("killed by SIGKILL" in out and "restarting all workers" in out, out)
    expect("rank 2 failed" in out or "rank 3 failed" in out, out)
    expect(case.metrics("run") == case.metrics("one"), "the restarted run differs from the straight one")
    expect_nothing_left(hosts)


def goes_on_when_a_node_is_back(hosts):
    """A node loses its power in the middle of a run. The launcher names it, waits for it, and goes on."""
    case = Case("power", hosts)
    straight = case.recipe("one.toml", 1, 4, 1, 4, steps=60)
    expect_code(case.run("launch", straight, "--run-dir", "one"), 0)
    recipe = case.recipe("two.toml", 2, 2, 1, 4, steps=60, every=5)
    launch = case.popen("launch", recipe, "--run-dir", "run")
    case.wait("a checkpoint", lambda: case.checkpoints("run"))
    hosts["node2"].kill()
    case.wait("a restart", lambda: "restarting all workers" in case.output())
    hosts["node2"].start()
    code = launch.wait(PATIENCE)
    expect(code == 0, "exit code %s:\n%s" % (code, case.output()))
    expect("lost with its node node2" in case.output(), case.output())
    expect(case.metrics("run") == case.metrics("one"), "the restarted run differs from the straight one")
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
    with open(recipe, "w") as file:
        file.write(text.replace('"node2"', '"nowhere"'))
    result = case.run("launch", recipe, "--run-dir", "a")
    expect_code(result, 5)
    expect("nowhere" in result.stdout and "ssh" in result.stdout.lower(), result.stdout)
    # A folder that is only the launcher's.
    recipe = case.recipe("private.toml", 2, 1, 1, 2, steps=5)
    result = case.run("launch", recipe, "--run-dir", "/tmp/private-run")
    expect_code(result, 5)
    expect("node2" in result.stdout and "file system that all nodes see" in result.stdout, result.stdout)
    expect_nothing_left(hosts)


CASES = [same_losses_as_one_machine, stops_and_resumes, restarts_after_a_killed_worker, goes_on_when_a_node_is_back,
         nothing_outlives_a_killed_launcher, names_a_node_that_cannot_take_part]


def main():
    failed = []
    try:
        with Hosts(2, shared=[os.path.dirname(TRAINCTL), LIBTORCH]) as hosts:
            for case in CASES:
                if FILTER not in case.__name__:
                    continue
                begin = time.monotonic()
                try:
                    case(hosts)
                    verdict = "ok"
                except Exception:  # every case is told
                    traceback.print_exc()
                    failed.append(case.__name__)
                    verdict = "FAILED"
                print("%s: %s (%.1f s)" % (case.__name__, verdict, time.monotonic() - begin), flush=True)
    except CannotStart as why:
        print("skipped: " + str(why))
        return 77
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
