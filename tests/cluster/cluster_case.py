"""A run over several hosts, for tests: its folder, its recipe, and what is left of it."""
import json
import os
import subprocess
import time
import traceback

from hosts import CannotStart

SKIPPED = 77  # exit code of a test
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
batch_sequences = {sequences}
precision = "fp32"
[parallel]
zero_stage = {zero}
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

    def recipe(self, name, nodes, workers, replicas, shards, steps, every=1000000, launch="", backend=None, after="",
               sequences=8, zero=3):
        """`backend`: lines for [launch] of several nodes; None: ssh. `after`: tables of their own."""
        if nodes > 1 and backend is not None:
            launch += backend
        elif nodes > 1:
            names = ", ".join('"node%d"' % (i + 1) for i in range(nodes))
            launch += '\nbackend = "ssh"\n[launch.ssh]\nhosts = [%s]\n' % names
        path = self.dir + "/" + name
        with open(path, "w") as file:
            file.write(RECIPE.format(nodes=nodes, workers=workers, replicas=replicas, shards=shards, steps=steps,
                                     every=every, launch=launch, sequences=sequences, zero=zero) + after)
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

    def launcher_ports(self, run, pid):
        """(that of the agents, that of admins and readers) of the launcher with this pid."""
        with open("%s/%s/reader.json" % (self.dir, run)) as file:
            admin_port = int(json.load(file)["endpoints"][0].rsplit(":", 1)[1])
        agents_port, = listening_ports(pid) - {admin_port}
        return agents_port, admin_port

    def wait(self, what, ready):
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if time.monotonic() > deadline:
                raise RuntimeError("not seen in %d s: %s\n%s" % (PATIENCE, what, self.output()))
            time.sleep(0.05)


def listening_ports(pid):
    """The TCP ports at which the process listens, in its own network."""
    sockets = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            sockets.add(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except OSError:
            pass
    ports = set()
    with open("/proc/%d/net/tcp" % pid) as table:
        for row in list(table)[1:]:
            columns = row.split()
            if columns[3] == "0A" and "socket:[%s]" % columns[9] in sockets:
                ports.add(int(columns[1].split(":")[1], 16))
    return ports


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_code(result, code):
    expect(result.returncode == code, "exit code %s, not %s:\n%s" % (result.returncode, code, result.stdout))


def left_on(host):
    return [line for line in host.processes() if os.path.basename(line.split()[0]).startswith("trainctl")]


def expect_nothing_left(hosts):
    """On a busy machine an agent ends a moment after its launcher."""
    deadline = time.monotonic() + 10
    for host in hosts:
        left = left_on(host)
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = left_on(host)
        expect(not left, "left on %s: %s" % (host.name, left))
        folders = host.run("sh", "-c", "ls -d /tmp/trainctl-agent-* 2>/dev/null; true").stdout.split()
        expect(not folders, "left on %s: %s" % (host.name, folders))


def run_all(cases, hosts=None):
    """Runs (name, function) one after the other and says how each went. True: none has failed. After one that has, the
    next begins with nothing left on `hosts`."""
    all_ok = True
    for name, case in cases:
        begin = time.monotonic()
        verdict = "ok"
        try:
            case()
        except CannotStart:
            raise
        except Exception:  # the other cases run all the same
            traceback.print_exc()
            all_ok = False
            verdict = "FAILED"
            if hosts is not None:
                hosts.heal()
                for host in hosts:
                    host.kill(silent=False)
                    host.start()
        print("%s: %s (%.1f s)" % (name, verdict, time.monotonic() - begin), flush=True)
    return all_ok


def run_cases(cases, name_filter, hosts=None):
    """Those whose name holds the filter; each gets the hosts, where there are any."""
    arguments = [] if hosts is None else [hosts]
    return run_all([(case.__name__, lambda case=case: case(*arguments)) for case in cases
                    if name_filter in case.__name__], hosts)


def exit_code_of(main):
    """Of a test whose main() returns whether all is well."""
    try:
        return 0 if main() else 1
    except CannotStart as why:
        print("skipped: " + str(why))
        return SKIPPED
