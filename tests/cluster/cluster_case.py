"""A run over several hosts, for tests: its folder, its recipe, and what is left of it."""
import json
import os
import subprocess
import time

PATIENCE = 300  # seconds, for anything that is waited for

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
    """A folder with text, which every host sees; runs are launched from `launcher`."""

    def __init__(self, name, hosts, trainctl, launcher="node1"):
        self.hosts = hosts
        self.launcher = hosts[launcher]
        self.trainctl = trainctl
        self.dir = os.path.join(hosts.dir, name)
        os.mkdir(self.dir)
        with open(self.dir + "/text.txt", "w") as text:
            for i in range(200):
                text.write("the quick brown fox %d jumps over the lazy dog. " % i)

    def recipe(self, name, nodes, workers, replicas, shards, steps, every=1000000, launch="", backend=None):
        """`backend`: lines for [launch] of several nodes; None: ssh."""
        if nodes > 1 and backend is not None:
            launch += backend
        elif nodes > 1:
            names = ", ".join('"node%d"' % (i + 1) for i in range(nodes))
            launch += '\nbackend = "ssh"\n[launch.ssh]\nhosts = [%s]\n' % names
        path = self.dir + "/" + name
        with open(path, "w") as file:
            file.write(RECIPE.format(nodes=nodes, workers=workers, replicas=replicas, shards=shards, steps=steps,
                                     every=every, launch=launch))
        return path

    def run(self, *arguments, timeout=PATIENCE):
        return self.launcher.run(self.trainctl, *arguments, cwd=self.dir, timeout=timeout)

    def popen(self, *arguments, env=None):
        return self.launcher.popen([self.trainctl, *arguments], cwd=self.dir, env=env,
                                   stdout=open(self.dir + "/out", "ab"), stderr=subprocess.STDOUT)

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
