#!/usr/bin/env python3
"""Runs under a real batch system: Slurm, several nodes on this machine.

    slurm_test.py TRAINCTL EXPAND_HOSTLISTS [FILTER]

Skipped (exit code 77) where Slurm is not installed or does not start.
"""
import contextlib
import glob
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from slurm_cluster import CannotStart, SlurmCluster, missing_programs  # noqa: E402

TRAINCTL = os.path.abspath(sys.argv[1])
EXPAND_HOSTLISTS = os.path.abspath(sys.argv[2])
FILTER = sys.argv[3] if len(sys.argv) > 3 else ""
ALIVE = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", None)
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
    """The one of docs/guide/slurm.md: one command for every start, and back into the queue after a save."""
    with open(ROOT + "/docs/guide/slurm.md", encoding="utf-8") as page:
        script = page.read().split("## Your own script on one node", 1)[1].split("```bash\n", 1)[1].split("```", 1)[0]
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
                raise RuntimeError("not seen in %d s: %s\n%s\n%s\n%s" % (PATIENCE, what, self.output(), jobs,
                                                                        self.slurm.logs()))
            time.sleep(0.05)

    def output(self):
        texts = []
        for name in sorted(glob.glob(self.dir + "/*.out") + glob.glob(self.dir + "/run/*.out")):
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


# What waits for Slurm's clock goes on beside the rest, in a partition of its own.
LANES = {"all": [], "minute": [], "loss": []}


def case(function=None, partition="all"):
    if function is None:
        return lambda of_lane: case(of_lane, partition)
    if FILTER in function.__name__:
        LANES[partition].append(function)
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
    c.expect("; this node is n" in found.get("value", "") and "cluster.nodes = 3" in found.get("advice", ""), findings)


@case
def an_allocation_of_several_nodes_trains_on_all_of_them(c):
    """An agent on each node, in one step of Slurm: what is computed is what one machine computes. Of the three nodes
    the two below one switch are taken."""
    several = '--set cluster.nodes=%d --set launch.backend=slurm --set train.steps=5'
    c.submit("""#!/bin/bash
#SBATCH --nodelist=n1,n2,n3 --output=job.out
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
        c.expect(done.read() == "code 5\n" and "request --nodes=4" in c.output(), c.output())
    c.expect(status(c, "two")["nodes"] == ["n1", "n3"], status(c, "two"))


@case
def a_shell_of_srun_launches_on_the_whole_allocation(c):
    """`srun --pty bash` is a step of one task on one node; commands typed there inherit the task's variables."""
    script = """env | grep ^SLURM_ | sort > variables
%s launch recipe.toml --run-dir two --set cluster.nodes=2 --set launch.backend=slurm --set train.steps=5
echo "code $?" > two.done
%s launch recipe.toml --run-dir one --set train.steps=5
echo "code $?" > one.done
""" % (TRAINCTL, TRAINCTL)
    with open(c.dir + "/typed.sh", "w") as file:
        file.write(script)
    ours, theirs = pty.openpty()
    # salloc wants a terminal that controls it.
    command = ["setsid", "--ctty", "--wait", "salloc", "--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=1",
               "srun", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--pty", "bash", "typed.sh"]
    shell = subprocess.Popen(command, cwd=c.dir, env=c.slurm.env, stdin=theirs, stdout=theirs, stderr=theirs,
                             start_new_session=True)
    os.close(theirs)
    too_long = threading.Timer(PATIENCE, shell.kill)
    too_long.start()
    said = b""
    with contextlib.suppress(OSError):  # the terminal closes
        while piece := os.read(ours, 65536):
            said += piece
    os.close(ours)
    shell.wait(PATIENCE)
    too_long.cancel()
    said = said.decode(errors="replace")
    for name in ("one", "two"):
        with contextlib.suppress(OSError), open(c.dir + "/%s.done" % name) as done:
            c.expect(done.read() == "code 0\n", name, said)
            continue
        c.expect(False, name, "has not ended", said)
    with open(c.dir + "/variables") as file:
        variables = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
    c.expect(variables.get("SLURM_STEP_NUM_TASKS") == "1", "not a step of one task", variables)
    report = status(c, "two")
    c.expect(len(report["nodes"]) == 2, report)
    with open(c.dir + "/two/metrics.jsonl") as two:
        c.expect(two.read().count("\n") == 5, said)


@case
def agents_get_all_gpus_that_a_run_uses(c):
    """However the job asked for them: left to itself Slurm gives a step of one task per node the GPUs of one task."""
    recipe = c.dir + "/gpu.toml"
    with open(recipe, "w") as file:
        file.write((RECIPE % 5).replace("[cluster]", '[cluster]\ndevice = "h100"\nnodes = 2') + '[launch]\nbackend = "slurm"\n')
    for options in (["--gpus-per-task=1", "--ntasks-per-node=2"], ["--gpus=4"], ["--gres=gpu:2", "--mem-per-cpu=100"]):
        # The command that a dry run prints, with another program in the agent's place.
        c.run("sbatch", "--wait", "--nodes=2", "--output=gpu.out", *options, "--wrap", """
%s launch %s --dry-run 2> said
for name in $(env | grep -oE '^SLURM_(MEM|GPUS?|CPUS|TRES)_PER_[A-Z]+|^SLURM_GPUS='); do unset ${name%%=}; done
command=$(grep -o 'srun .*' said | sed "s, agent --invitations.*,,; s,[^ ]*trainctl$,env,")
$command
""" % (TRAINCTL, recipe))
        with open(c.dir + "/gpu.out") as file, open(c.dir + "/said") as said:
            output = file.read()
            c.expect(output.count("SLURM_GPUS_ON_NODE=2\n") == 2, options, output, said.read())


@case
def several_nodes_save_when_they_are_warned(c):
    """The step's agents get the signal of the warning too, and none of them ends before the save."""
    job = c.submit("""#!/bin/bash
#SBATCH --nodes=2 --output=job.out
%s launch recipe.toml --run-dir run --set cluster.nodes=2 --set launch.backend=slurm &
wait
wait
""" % TRAINCTL)
    c.wait("the first step", lambda: c.step() > 0)
    c.run("scancel", "--signal=USR1", job)
    c.wait("the end of the run", lambda: "stopped after saving" in c.output())
    c.expect(c.saved_step() > 0, c.output())
    c.run("scancel", job)


def environments_of_workers(c):
    """Of each worker of the case, as its kernel has it: {name: value}."""
    found = []
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
            if os.path.basename(words[0]) != "trainctl-worker" or not any(c.dir in word for word in words):
                continue
            with open(path + "/environ", "rb") as file:
                entries = file.read().decode(errors="replace").split("\0")
            found.append(dict(entry.split("=", 1) for entry in entries if "=" in entry))
        except OSError:
            pass  # gone
    return found


@case
def workers_get_what_the_recipe_names_and_not_the_callers_environment(c):
    with open(c.dir + "/recipe.toml", "a") as recipe:
        recipe.write('[launch]\nbackend = "slurm"\npass_env = ["PASSED", "NOT_SET"]\n[launch.env]\nGIVEN = "by the recipe"\n')
    job = c.submit("""#!/bin/bash
#SBATCH --nodes=2 --output=job.out
export PASSED='by name' OF_THE_CALLER=1 LD_LIBRARY_PATH=/nowhere:/else
exec %s launch recipe.toml --run-dir run --set cluster.nodes=2
""" % TRAINCTL)
    c.wait("the first step", lambda: c.step() > 0)
    workers = environments_of_workers(c)
    c.expect(len(workers) == 4, "%d workers" % len(workers))
    for worker in workers:
        names = sorted(worker)
        c.expect(worker.get("PASSED") == "by name" and worker.get("GIVEN") == "by the recipe", names)
        c.expect("OF_THE_CALLER" not in worker and "NOT_SET" not in worker, names)
        c.expect(worker.get("HOME") == os.environ["HOME"] and worker.get("LD_LIBRARY_PATH") == "/nowhere:/else", names)
    c.run("scancel", job)
    end_of(c, job)


SUBMITTED = """
[launch]
backend = "slurm"
max_restarts = 2
[launch.slurm]
submit_options = [%s]
save_before = "%s"
"""


def submit(c, *arguments, nodes=2, options=(), save_before="60s", partition="all"):
    """A run that `launch` itself submits; the number of its job."""
    options = ["--partition=" + partition, *options]
    with open(c.dir + "/recipe.toml") as recipe:
        text = recipe.read().replace("[cluster]", "[cluster]\nnodes = %d" % nodes)
    with open(c.dir + "/several.toml", "w") as recipe:
        recipe.write(text + SUBMITTED % (", ".join('"%s"' % option for option in options), save_before))
    result = c.run(TRAINCTL, "launch", "several.toml", "--run-dir", "run", *arguments)
    job = re.search(r"submitted as Slurm job (\d+): ", result.stdout)
    if result.returncode != 0 or job is None:
        raise RuntimeError("not submitted, code %d: %s" % (result.returncode, result.stdout))
    return job.group(1)


def status(c, run="run"):
    result = c.run(TRAINCTL, "status", run, "--json")
    return json.loads(result.stdout[result.stdout.index("{"):])


def straight(c, steps):
    """The metrics of the same run on one machine."""
    done = c.run(TRAINCTL, "launch", "recipe.toml", "--run-dir", "one", "--set", "train.steps=%d" % steps, "--set",
                 "cluster.devices_per_node=4")
    if done.returncode != 0:
        raise RuntimeError(done.stdout)
    with open(c.dir + "/one/metrics.jsonl") as one:
        return one.read()


def metrics(c):
    with open(c.dir + "/run/metrics.jsonl") as run:
        return run.read()


def start_next(c, job):
    """Starts a job that is back in the queue soon; Slurm lets it wait two minutes. It now and then forgets to start one
    that early, and is then asked again."""
    c.wait("job %s to wait in the queue" % job, lambda: c.slurm.job(job).get("JobState") == "PENDING")
    c.expect(status(c)["status"] == "queued" and status(c)["batch_job"]["id"] == job, status(c))

    # A node counts in whole seconds: what is to start in the second in which it was ended before is "already killed".
    c.wait("the last traces of job %s" % job, lambda: not c.slurm.has_traces(job))
    gone = int(time.time())
    c.wait("another second", lambda: int(time.time()) > gone + 1)

    def is_started():
        c.run("scontrol", "update", "JobId=" + job, "StartTime=now")
        return c.slurm.job(job).get("JobState") == "RUNNING"

    c.wait("job %s to start again" % job, is_started)


def end_of(c, job):
    c.wait("the end of job %s" % job, lambda: c.slurm.job(job).get("JobState") not in ALIVE)
    return c.slurm.job(job).get("JobState"), c.slurm.job(job).get("ExitCode")


@case
def a_run_is_submitted_and_goes_on_after_a_warning(c):
    expected = straight(c, 40)
    job = submit(c, "--set", "train.steps=40", "--stop-after", "30")
    again = c.run(TRAINCTL, "launch", "several.toml", "--run-dir", "run", "--or-resume")
    c.expect(again.returncode == 2 and "is already Slurm job %s" % job in again.stdout, again.stdout)
    c.wait("the first step", lambda: c.step() > 0)
    c.run("scancel", "--batch", "--signal=USR1", job)  # as --signal=B:USR1@SECONDS does
    start_next(c, job)
    c.expect("stopped after saving step" in c.output() and "Slurm job %s is requeued" % job in c.output(),
             c.output())
    c.expect(end_of(c, job) == ("FAILED", "75:0"), c.slurm.job(job), c.output())  # --stop-after
    # A resume is a job of its own.
    resumed = c.run(TRAINCTL, "resume", "run", "--json")
    c.expect(resumed.returncode == 0, resumed.stdout)
    number = json.loads(resumed.stdout[resumed.stdout.index("{"):].splitlines()[0])["job"]
    c.expect(number != job and end_of(c, number) == ("COMPLETED", "0:0"), c.slurm.job(number), c.output())
    c.expect(metrics(c) == expected, "not the same:", expected, metrics(c))
    c.expect(status(c)["status"] == "finished", status(c))


@case
def a_submitted_job_that_makes_room_saves_and_comes_back(c):
    job = submit(c)
    c.wait("the first step", lambda: c.step() > 0)
    urgent = c.run("sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--exclusive", "--output=urgent.out", "--wrap",
                   "touch urgent").stdout.strip()
    c.wait("the urgent job", lambda: os.path.exists(c.dir + "/urgent"))
    c.expect(end_of(c, urgent) == ("COMPLETED", "0:0"), c.slurm.job(urgent))
    first = c.saved_step()
    c.expect(first > 0, "nothing was saved:", c.output())
    start_next(c, job)
    c.wait("steps after step %d" % first, lambda: c.step() > first)
    # A request to stop is no reason to come back.
    c.expect(c.run(TRAINCTL, "stop", "run").returncode == 0, "not stopped")
    c.expect(end_of(c, job) == ("FAILED", "75:0"), c.slurm.job(job), c.output())
    c.expect(c.saved_step() > first and status(c)["status"] == "stopped", status(c), c.output())


@case(partition="minute")
def a_job_that_cannot_come_back_is_followed_by_another(c):
    """Its time is up after a minute; Slurm warns up to a minute before that is asked for."""
    job = submit(c, options=["--no-requeue", "--time=1"], save_before="30s", partition="minute")
    c.wait("the warning", lambda: "stopped after saving step" in c.output())
    c.expect(end_of(c, job)[0] == "FAILED", c.slurm.job(job), c.output())
    c.wait("the next job", lambda: status(c)["batch_job"]["id"] != job)
    first = c.saved_step()
    job = status(c)["batch_job"]["id"]
    c.wait("steps after step %d" % first, lambda: c.step() > first)
    # The time limit of a job that was warned too late, and cancelling: both end it for good.
    c.run("scancel", job)
    c.expect(end_of(c, job)[0] == "CANCELLED" and c.saved_step() > first, c.slurm.job(job), c.output())
    c.expect(status(c)["status"] == "stopped", status(c))


@case
def jobs_that_cannot_launch_are_followed_by_a_few(c):
    """Each fails before there is a worker; the last says that no other follows."""
    job = submit(c, "--set", 'launch.interface="nowhere0"', options=["--no-requeue"])
    c.wait("the last job", lambda: "is not requeued: the last 3 launches saved no checkpoint" in c.output())
    last = status(c)["batch_job"]["id"]
    c.expect(int(last) == int(job) + 2, job, last, c.output())
    c.expect(end_of(c, last) == ("FAILED", "5:0"), c.slurm.job(last))
    c.expect(status(c)["status"] == "failed" and "nowhere0" in status(c)["message"], status(c))


@case(partition="loss")
def a_job_goes_on_with_other_nodes_when_one_is_down(c):
    expected = straight(c, 60)
    job = submit(c, "--set", "train.steps=60", "--set", "checkpoint.every_steps=5", partition="loss")
    c.wait("a checkpoint", lambda: c.saved_step() > 0)
    nodes = status(c)["nodes"]
    c.expect(len(nodes) == 2, nodes)
    try:
        c.run("scontrol", "update", "NodeName=" + nodes[1], "State=DOWN", "Reason=test")
        start_next(c, job)
        # Slurm may kill a worker before it kills the agent, which then still tells of it.
        c.expect(re.search("lost with its node %s|on %s failed in step" % (nodes[1], nodes[1]), c.output()), c.output())
        c.expect(end_of(c, job) == ("COMPLETED", "0:0"), c.slurm.job(job), c.output())
        c.expect(nodes[1] not in status(c)["nodes"], status(c))
    finally:
        c.run("scontrol", "update", "NodeName=" + nodes[1], "State=RESUME")
    c.expect(metrics(c) == expected, "not the same:", expected, metrics(c))


@case
def a_job_that_waits_is_taken_out_of_the_queue(c):
    job = submit(c, options=["--begin=now+1hour"])
    c.expect(status(c)["status"] == "queued", status(c))
    shown = c.run(TRAINCTL, "status", "run").stdout
    c.expect("job         %s in Slurm: PENDING" % job in shown, shown)
    stopped = c.run(TRAINCTL, "stop", "run")
    c.expect("canceled Slurm job %s" % job in stopped.stdout, stopped.stdout)
    c.expect(end_of(c, job)[0] == "CANCELLED", c.slurm.job(job))
    # What is submitted is what a dry run prints, and Slurm takes it as it is.
    printed = subprocess.run([TRAINCTL, "launch", "several.toml", "--run-dir", "run", "--dry-run"], cwd=c.dir, env=c.slurm.env,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    with open(c.dir + "/run/slurm-job.sh") as script:
        c.expect(script.read() == printed, printed)
    with open(c.dir + "/job.sh", "w") as script:
        script.write(printed)
    taken = c.run("sbatch", "--test-only", "job.sh")
    c.expect(taken.returncode == 0, taken.stdout)
    # What Slurm refuses, in its own words.
    refused = c.run(TRAINCTL, "launch", "several.toml", "--run-dir", "other", "--set",
                    'launch.slurm.submit_options=["--partition=nowhere"]')
    c.expect(refused.returncode == 5 and "invalid partition specified: nowhere" in refused.stdout, refused.stdout)


def run_cases(slurm, functions):
    for function in functions:
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
        with SlurmCluster({"all": 4, "minute": 2, "loss": 4}) as slurm:
            lanes = [threading.Thread(target=run_cases, args=(slurm, functions)) for functions in LANES.values()]
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()
    except CannotStart as error:
        print("skipped: Slurm does not start on this machine: %s" % error)
        return 77
    return 1 if FAILURES else 0


sys.exit(main())
