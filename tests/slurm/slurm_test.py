#!/usr/bin/env python3
"""Runs under a real batch system: Slurm, several nodes on this machine.

    slurm_test.py TRAINCTL EXPAND_HOSTLISTS [FILTER]

Skipped (exit code 77) where Slurm is not installed or does not start.
"""
import glob
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from slurm_cluster import CannotStart, SlurmCluster, missing_programs  # noqa: E402

TRAINCTL = os.path.abspath(sys.argv[1])
EXPAND_HOSTLISTS = os.path.abspath(sys.argv[2])
FILTER = sys.argv[3] if len(sys.argv) > 3 else ""
PATIENCE = 300  # seconds, for anything that is waited for
FAILURES = []
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine

HOST_LISTS = 60

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
steps = %d
batch_sequences = 8
precision = "fp32"
[parallel]
zero_stage = 3
[cluster]
devices_per_node = 2
[checkpoint]
every_steps = 1000000
"""

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def advised_script():
    """The one of docs/guide/resume.md: one command for every start, and back into the queue after a save."""
    with open(ROOT + "/docs/guide/resume.md", encoding="utf-8") as page:
        script = page.read().split("Under Slurm", 1)[1].split("```bash\n", 1)[1].split("```", 1)[0]
    return script.replace("#SBATCH", "#SBATCH --output=job.out\n#SBATCH", 1).replace("trainctl launch", TRAINCTL + " launch", 1)


class Case:
    """A folder with a recipe and text, seen from every node of a cluster."""

    def __init__(self, name, slurm):
        self.name = name
        self.slurm = slurm
        self.dir = os.path.join(slurm.dir, name)
        os.mkdir(self.dir)
        with open(self.dir + "/text.txt", "w") as text:
            for i in range(200):
                text.write("the quick brown fox %d jumps over the lazy dog. " % i)
        with open(self.dir + "/recipe.toml", "w") as recipe:
            recipe.write(RECIPE % 10000000)

    def run(self, *command):
        return self.slurm.run(*command, cwd=self.dir)

    def submit(self, script):
        with open(self.dir + "/job.sh", "w") as file:
            file.write(script)
        result = self.run("sbatch", "--parsable", "job.sh")
        if result.returncode != 0:
            raise RuntimeError("sbatch: " + result.stdout)
        return result.stdout.strip()

    def step(self):
        """The steps that a worker has done."""
        result = subprocess.run([TRAINCTL, "status", "run", "--json"], cwd=self.dir, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True)
        workers = json.loads(result.stdout)["workers"] if result.returncode == 0 else []
        return max(((worker["step"] or 1) - 1 for worker in workers), default=0)

    def start_again(self, job):
        """Waits until the job stands in the queue again, and submits its script anew in its place: Slurm lets a
        requeued job wait two minutes, and now and then fails one that is told to start before."""
        self.wait("the requeue", lambda: self.slurm.job(job).get("Restarts") == "1" and
                  self.slurm.job(job).get("JobState") == "PENDING")
        self.run("scancel", job)
        return self.submit(advised_script())

    def wait(self, what, ready):
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if time.monotonic() > deadline:
                jobs = self.run("scontrol", "--oneliner", "show", "jobs").stdout
                raise RuntimeError("not seen in %d s: %s\n%s\n%s" % (PATIENCE, what, self.output(), jobs))
            time.sleep(0.05)

    def output(self):
        texts = []
        for name in sorted(glob.glob(self.dir + "/*.out")):
            with open(name, errors="replace") as file:
                texts.append(file.read()[-4000:])
        return "\n".join(texts)

    def expect(self, true, *words):
        if not true:
            self.fail(" ".join(str(word) for word in words))

    def fail(self, text):
        FAILURES.append("%s: %s" % (self.name, text))
        print("FAILED", FAILURES[-1], flush=True)

    def saved_step(self):
        steps = [int(os.path.basename(name).split("-")[-1]) for name in glob.glob(self.dir + "/run/checkpoints/step-*")]
        return max(steps, default=0)

    def logged_steps(self):
        with open(self.dir + "/run/metrics.jsonl") as file:
            return [row["step"] for row in map(json.loads, file) if "loss" in row]


CASES = []


def case(function):
    if FILTER in function.__name__:
        CASES.append(function)
    return function


@case
def a_warned_job_saves_and_goes_on_when_it_is_requeued(c):
    job = c.submit(advised_script())
    c.wait("the first step", lambda: c.step() > 0)
    # As of --signal=USR1@SECONDS: every process of the job's steps gets it, workers too.
    c.run("scancel", "--signal=USR1", job)
    job = c.start_again(job)
    first = c.saved_step()
    c.expect(first > 0, "nothing was saved:", c.output())
    c.wait("steps after step %d" % first, lambda: c.step() > first)
    # The end of a job is SIGTERM for every process of it, and SIGKILL half a minute later.
    c.run("scancel", job)
    c.wait("the end of the job", lambda: c.slurm.job(job).get("JobState") == "CANCELLED" and not c.slurm.is_completing(job))
    last = c.saved_step()
    c.expect(last > first, "scancel lost what was done since step %d:" % first, c.output())
    done = c.run(TRAINCTL, "launch", "recipe.toml", "--run-dir", "run", "--or-resume", "--set", "train.steps=%d" % (last + 3))
    c.expect(done.returncode == 0 and "resuming after step %d" % last in done.stdout, done.stdout)
    c.expect(c.logged_steps() == list(range(1, last + 4)), "steps are missing, or done twice:", c.logged_steps())


@case
def a_job_that_makes_room_saves_and_comes_back(c):
    job = c.submit(advised_script())
    c.wait("the first step", lambda: c.step() > 0)
    urgent = c.run("sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--exclusive", "--output=urgent.out", "--wrap",
                   "touch urgent").stdout.strip()
    c.wait("the urgent job", lambda: os.path.exists(c.dir + "/urgent"))
    first = c.saved_step()
    c.expect(first > 0, "nothing was saved:", c.output())
    job = c.start_again(job)
    c.wait("steps after step %d" % first, lambda: c.step() > first)
    c.run("scancel", job, urgent)


def a_host_list(rng):
    """Random, of what Slurm and we read alike: it takes nothing behind a name's last bracket, and orders the names of
    three brackets in a way of its own."""
    def number():
        return str(rng.randrange(0, 30)).zfill(rng.choice([1, 1, 2, 3]))

    def some():
        first = number()
        return first if rng.random() < 0.5 else "%s-%d" % (first, int(first) + rng.randrange(0, 12))

    def bracket():
        return "[%s]" % ",".join(some() for _ in range(rng.randrange(1, 4)))

    def name():
        word = rng.choice(["n", "gpu-", "rack7-u", "a.b", "x_"])
        return word + rng.choice(["", number(), bracket(), bracket() + rng.choice(["", "-ib"]) + bracket()])

    return ",".join(name() for _ in range(rng.randrange(1, 5)))


@case
def host_lists_as_slurm_reads_them(c):
    rng = random.Random(11)
    lists = [a_host_list(rng) for _ in range(HOST_LISTS)]
    lists += ["n[3-1]", "n[]", "n[a]", "n[-1]", "n[1,]", "n[0-99999]", "a[1[2]]"]
    ours = subprocess.run([EXPAND_HOSTLISTS], input="\n".join(lists) + "\n", stdout=subprocess.PIPE, text=True, check=True)
    for text, mine in zip(lists, ours.stdout.splitlines(), strict=True):
        answer = c.run("scontrol", "show", "hostnames", text)
        theirs = "error" if "Invalid hostlist" in answer.stdout else " ".join(answer.stdout.split())
        c.expect(mine == theirs, "%s is '%s' for us and '%s' for Slurm" % (text, mine, theirs))


@case
def a_command_that_srun_starts_twice_is_refused(c):
    result = c.run("srun", "--nodes=2", "--ntasks=2", TRAINCTL, "launch", "recipe.toml", "--run-dir", "run")
    c.expect(result.returncode == 2 and "started this command 2 times" in result.stdout, result.stdout)
    c.expect(not os.path.exists(c.dir + "/run"), "it made a run")


@case
def nodes_that_a_run_does_not_use_are_named(c):
    c.submit("""#!/bin/bash
#SBATCH --nodes=3 --output=job.out
%s doctor --json > doctor.json
%s launch recipe.toml --run-dir run --set train.steps=2
touch done
""" % (TRAINCTL, TRAINCTL))
    c.wait("the end of the job", lambda: os.path.exists(c.dir + "/done"))
    c.expect("has 3 nodes" in c.output() and "finished" in c.output(), c.output())
    with open(c.dir + "/doctor.json") as file:
        findings = {finding["name"]: finding for finding in json.load(file)["findings"]}
    found = findings.get("batch job", {})
    c.expect("; this is n" in found.get("value", "") and "cluster.nodes = 3" in found.get("advice", ""), findings)


@case
def an_allocation_of_several_nodes_trains_on_all_of_them(c):
    """An agent on each node, in one step of Slurm: what is computed is what one machine computes."""
    several = '--set cluster.nodes=%d --set launch.backend=slurm --set train.steps=5'
    c.submit("""#!/bin/bash
#SBATCH --nodes=2 --output=job.out
%s launch recipe.toml --run-dir one --set cluster.devices_per_node=4 --set train.steps=5
%s launch recipe.toml --run-dir two --json %s > two.json
%s launch recipe.toml --run-dir three %s
echo "code $?" > done
""" % (TRAINCTL, TRAINCTL, several % 2, TRAINCTL, several % 4))
    c.wait("the end of the job", lambda: os.path.exists(c.dir + "/done"))
    with open(c.dir + "/one/metrics.jsonl") as one, open(c.dir + "/two/metrics.jsonl") as two:
        expected, seen = one.read(), two.read()
    c.expect(expected == seen and expected.count("\n") == 5, "not the same:", expected, seen, c.output())
    with open(c.dir + "/done") as done:
        c.expect(done.read() == "code 5\n" and "ask it for --nodes=4" in c.output(), c.output())


@case
def several_nodes_save_when_they_are_warned(c):
    """The step's agents get the signal of the warning too, and none of them ends before the save."""
    c.submit("""#!/bin/bash
#SBATCH --nodes=2 --output=job.out
%s launch recipe.toml --run-dir run --set cluster.nodes=2 --set launch.backend=slurm &
wait
wait
""" % TRAINCTL)
    c.wait("the first step", lambda: c.step() > 0)
    job = c.run("squeue", "--noheader", "--format=%i").stdout.split()[0]
    c.run("scancel", "--signal=USR1", job)
    c.wait("the end of the run", lambda: "stopped after saving" in c.output())
    c.expect(c.saved_step() > 0, c.output())
    c.run("scancel", job)


def run_cases(slurm):
    for function in CASES:
        start = time.monotonic()
        c = Case(function.__name__, slurm)
        try:
            function(c)
        except Exception as error:  # the other cases are told too
            c.fail(repr(error))
        print("%s: %.1f s" % (function.__name__, time.monotonic() - start), flush=True)


def main():
    missing = missing_programs()
    if missing:
        print("skipped: no Slurm on this machine (missing: %s; Debian: slurm-wlm, munge)" % " ".join(missing))
        return 77
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # clears away first
    try:
        with SlurmCluster(nodes=4) as slurm:
            run_cases(slurm)
    except CannotStart as error:
        print("skipped: Slurm does not start on this machine: %s" % error)
        return 77
    return 1 if FAILURES else 0


sys.exit(main())
