#!/usr/bin/env python3
"""What a person types wrong, and what breaks under a run: the right exit code, an error that names
the matter, nothing left behind, nothing damaged.

    cli_test.py TRAINCTL [FILTER]

FILTER: the cases whose names contain it, or, after a minus, those whose names do not.
"""

import errno
import fcntl
import glob
import json
import math
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

TRAINCTL = os.path.abspath(sys.argv[1])
FILTER = sys.argv[2] if len(sys.argv) > 2 else ""
FAILURES = []
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine but those that a case makes

RECIPE = """
recipe_version = 1
[run]
name = "cli"
[model]
family = "llama"
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
vocab = 257
[data]
seq_len = 32
[[data.train]]
files = ["text/*.txt"]
[[data.eval]]
name = "held-out"
holdout = 0.2
[train]
steps = 6
batch_sequences = 8
precision = "fp32"
[parallel]
zero_stage = 3
[cluster]
devices_per_node = 2
[checkpoint]
every_steps = 2
keep = 3
"""


class Case:
    """A scratch folder with a recipe and text, and the checks."""

    def __init__(self, name):
        self.name = name
        self.dir = tempfile.mkdtemp(prefix="trainctl-cli-")
        os.mkdir(self.dir + "/text")
        for i in range(20):
            with open("%s/text/%02d.txt" % (self.dir, i), "w") as text:
                text.write("the quick brown fox %d jumps over the lazy dog. " % i * 8)
        self.write(RECIPE)

    def write(self, recipe, name="recipe.toml"):
        with open(self.dir + "/" + name, "wb") as file:
            file.write(recipe if isinstance(recipe, bytes) else recipe.encode())

    def run(self, *args, env=None, timeout=120, cwd=None):
        return subprocess.run([TRAINCTL, *args], cwd=cwd or self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=timeout, env={**os.environ, **(env or {})})

    def start(self, *args):
        return subprocess.Popen([TRAINCTL, *args], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, errors="replace")

    def expect(self, result, code, *words):
        output = result.stdout
        if result.returncode != code:
            self.fail("exit code %d, not %d:\n%s" % (result.returncode, code, output))
        for word in words:
            if word not in output:
                self.fail("does not say '%s':\n%s" % (word, output))
        for ugly in ("terminate called", "Segmentation", "core dumped", "internal error", "Exception raised from"):
            if ugly in output:
                self.fail("shows '%s':\n%s" % (ugly, output))

    def fail(self, text):
        FAILURES.append("%s: %s" % (self.name, text))
        print("FAILED", FAILURES[-1], flush=True)

    def close(self):
        left = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                if self.dir.encode() in open(path, "rb").read():
                    left.append(path)
            except OSError:
                pass
        if left:
            self.fail("processes are left: %s" % left)
        shutil.rmtree(self.dir, ignore_errors=True)


def case(function):
    if (FILTER[1:] not in function.__name__) if FILTER.startswith("-") else (FILTER in function.__name__):
        CASES.append(function)
    return function


CASES = []


@case
def recipe_that_cannot_be_read(c):
    c.write("")
    c.expect(c.run("launch", "recipe.toml"), 2, "recipe.toml", "model")
    c.write(bytes(range(256)) * 8)
    c.expect(c.run("launch", "recipe.toml"), 2, "recipe.toml")
    c.write("a = " + "[" * 1000 + "]" * 1000)
    c.expect(c.run("launch", "recipe.toml"), 2, "recipe.toml")
    c.write(RECIPE.replace("recipe_version = 1", "recipe_version = 99"))
    c.expect(c.run("launch", "recipe.toml"), 2, "99")
    c.expect(c.run("launch", "absent.toml"), 2, "absent.toml")
    c.expect(c.run("plan", "absent.toml", "--json"), 2, "trainctl.error.v1")


@case
def values_that_make_no_sense(c):
    for setting, word in [("train.steps=99999999999999999999", "train.steps"), ("train.batch_sequences=7", "7"),
                          ("train.stepz=3", "train.steps"), ("nonsense", "nonsense"), ("=", "="),
                          ("optimizer.lr=fast", "optimizer.lr"), ("parallel.tp=3", "parallel.tp (3)"),
                          ("train.precision=fp8", "fp8"), ("model.vocab=100", "vocab"),
                          ("cluster.device=h1000", "h1000"), ("cluster.device=mi300x", "mi300x")]:
        c.expect(c.run("launch", "recipe.toml", "--set", setting), 2, word)
    # A device that is known, and not here.
    if not os.path.exists("/dev/nvidiactl"):
        for device in ("h100-sxm-80gb", "cuda"):
            c.expect(c.run("launch", "recipe.toml", "--set", f"cluster.device={device}"), 5, "cluster.device")
    if os.path.exists(c.dir + "/runs"):
        c.fail("a refused launch made a run folder")


@case
def not_enough_memory(c):
    c.expect(c.run("launch", "recipe.toml", "--set", "cluster.memory_limit=1KiB"), 3, "memory")


PLAN = """
recipe_version = 1
[run]
name = "big"
[model]
preset = "llama2-7b"
[data]
seq_len = 4096
[train]
tokens = "2000B"
batch_sequences = 64
[cluster]
device = "A100 SXM 80GB"
nodes = 2
[plan]
framework = "megatron-core"
"""


@case
def planning_for_accelerators(c):
    c.write(PLAN)
    result = c.run("plan", "recipe.toml", "--price", "2")
    c.expect(result, 0, "16 x a100-sxm-80gb", "6.74B parameters", "MFU", "Chosen: ", "a run of 2T tokens takes", "$")
    if len([line for line in result.stdout.splitlines() if line.startswith("*")]) != 1:
        c.fail("not one layout is marked:\n" + result.stdout)
    plan = json.loads(c.run("plan", "recipe.toml", "--json", "--top", "3").stdout)
    chosen = plan["chosen"]
    if plan["schema"] != "trainctl.cluster-plan.v1" or len(plan["alternatives"]) != 2:
        c.fail("--json --top 3 has %s and %d alternatives" % (plan["schema"], len(plan["alternatives"])))
    layout = chosen["layout"]
    gpus = layout["tp"] * layout["pp"] * layout["cp"] * layout["dp_replicate"] * layout["dp_shard"]
    if gpus != 16 or chosen["gpus"] != 16 or not chosen["fits"]:
        c.fail("the layout is for %d devices: %s" % (gpus, chosen))
    parts = sum(chosen["time"]["parts_seconds"].values())
    if abs(parts / chosen["time"]["step_seconds"] - 1) > 1e-9:
        c.fail("the terms of time add up to %g: %s" % (parts, chosen["time"]))
    allocated = sum(b for part, b in chosen["memory"]["parts_bytes"].items() if part != "outside")
    if abs(allocated / chosen["memory"]["allocated_bytes"] - 1) > 1e-6:
        c.fail("the terms of memory add up to %g: %s" % (allocated, chosen["memory"]))

    c.expect(c.run("plan", "recipe.toml", "--write", "fixed.toml"), 0, "wrote fixed.toml")
    again = json.loads(c.run("plan", "fixed.toml", "--json").stdout)
    if again["chosen"] != chosen or again["alternatives"]:
        c.fail("the written recipe plans to something else: %s" % again)
    c.expect(c.run("launch", "fixed.toml"), 2, "parallel.offload", "plan.framework")
    c.expect(c.run("recipe", "check", "fixed.toml"), 0, "is valid for planning, but it cannot be launched")
    c.expect(c.run("recipe", "show", "fixed.toml"), 0, "framework = ")

    c.expect(c.run("plan", "recipe.toml", "--explain"), 0, "activations", "What binds", "Why not", "data sheet",
             "measured", "megatron")
    c.expect(c.run("plan", "recipe.toml", "--as", "torchtitan", "--objective", "headroom"), 0, "as torchtitan")
    c.expect(c.run("plan", "recipe.toml", "--draw", "--trace", "t.json", "--html", "p.html"), 0, "wrote p.html")
    if "traceEvents" not in json.load(open(c.dir + "/t.json")) or "<html" not in open(c.dir + "/p.html").read():
        c.fail("the trace or the page is none")

    curve = json.loads(c.run("plan", "recipe.toml", "--json", "--sweep", "model.layers=8,16",
                             "--sweep", "cluster.nodes=1,2,4").stdout)
    if curve["keys"] != ["model.layers", "cluster.nodes"] or len(curve["points"]) != 6:
        c.fail("the sweep has %d points" % len(curve["points"]))
    steps = {tuple(point["values"].values()): point["chosen"]["time"]["step_seconds"] for point in curve["points"]}
    for layers in ("8", "16"):
        if not steps[layers, "1"] > steps[layers, "2"] > steps[layers, "4"]:
            c.fail("more nodes are not faster: %s" % steps)
    c.expect(c.run("plan", "recipe.toml", "--sweep", "parallel.tp=1,16,64"), 0, "parallel.tp", "64")


@case
def plans_that_make_no_sense(c):
    c.write(PLAN)
    for setting, code, word in [
            ("model.layers=0", 2, "model.layers"), ("model.heads=7", 2, "model.heads"), ("cluster.nodes=0", 2, "nodes"),
            ("cluster.nodes=125000000", 2, "cluster.nodes"), ("cluster.nodes=1000000", 2, "cluster.nodes"),
            ("plan.price_per_gpu_hour=-1", 2, "price"), ("cluster.device=h900", 2, "cluster.device"),
            ("model.preset=mixtral-9x7b", 2, "mixtral-8x7b"), ("plan.framework=megatron", 2, "megatron-core"),
            ("parallel.tp=5", 2, "tp"), ("train.batch_sequences=0", 2, "train.batch_sequences"),
            ("model.from=nowhere", 2, "nowhere/config.json"), ("cluster.memory=1GiB", 3, "no layout fits")]:
        sets = ["--set", setting] if "from" not in setting else ["--set", "model.preset=default", "--set", setting]
        c.expect(c.run("plan", "recipe.toml", *sets), code, word)
    c.expect(c.run("plan", "recipe.toml", "--price=-3"), 2, "price")
    c.expect(c.run("plan", "recipe.toml", "--objective", "fun"), 2, "objective")
    c.expect(c.run("plan", "recipe.toml", "--sweep", "cluster.nodes"), 2, "--sweep")
    c.expect(c.run("plan", "recipe.toml", "--sweep", "cluster.nodez=1,2"), 2, "cluster.nodes")
    c.expect(c.run("plan", "recipe.toml", "--top", "0"), 2, "--top")
    c.expect(c.run("plan", "recipe.toml", "--write", "no/such/folder.toml"), 5, "no/such/folder.toml")
    c.expect(c.run("plan", "recipe.toml", "--profile", "nowhere.json"), 2, "nowhere.json")
    c.expect(c.run("plan", "recipe.toml", "--profile", "recipe.toml"), 6, "not valid JSON")
    os.mkdir(c.dir + "/m")
    with open(c.dir + "/m/config.json", "w") as config:
        config.write('{"model_type": "mamba"}')
    c.expect(c.run("plan", "recipe.toml", "--set", "model.preset=default", "--set", "model.from=m"), 2, "--set", "mamba")
    c.write(RECIPE)
    c.expect(c.run("plan", "recipe.toml", "--write", "fixed.toml"), 0, "wrote fixed.toml")
    c.expect(c.run("plan", "fixed.toml"), 0, "what the recipe asks for")
    for option in (["--pareto"], ["--profile", "x.json"]):
        c.expect(c.run("plan", "recipe.toml", *option), 2, option[0], "--as")


@case
def plans_of_our_own_trainer_show_themselves(c):
    for device in ("cpu", "h100-sxm-80gb"):
        own = ["plan", "recipe.toml", "--set", "cluster.device=" + device, "--set", "train.batch_sequences=64",
               "--set", "train.micro_batch=2"]
        plan = json.loads(c.run(*own, "--json", "--explain").stdout)
        memory = sum(term["bytes"] for term in plan["explanation"]["memory"])
        if memory != plan["predicted"]["peak_bytes"]:
            c.fail("the terms of memory add up to %d of %d" % (memory, plan["predicted"]["peak_bytes"]))
        chosen = [candidate for candidate in plan["candidates"] if candidate["chosen"]][0]
        time = sum(term["seconds"] for term in plan["explanation"]["time"]) - plan["explanation"]["overlapped_seconds"]
        if abs(time / chosen["estimated_step_seconds"] - 1) > 1e-6:
            c.fail("the terms of time add up to %g of %g" % (time, chosen["estimated_step_seconds"]))
        c.expect(c.run(*own, "--explain"), 0, "optimizer state", "What binds", "How reliable it is")
        c.expect(c.run(*own, "--sweep", "train.micro_batch=2,3"), 0, "--sweep: train.micro_batch (3) does not divide")
        c.expect(c.run(*own, "--draw", "--trace", "t.json", "--html", "p.html", "--force"), 0, "wrote p.html", "compute |",
                 "F forward", "step hash " + plan["step_hash"])
        trace = json.load(open(c.dir + "/t.json"))
        names = {event["name"] for event in trace["traceEvents"] if event["ph"] == "X"}
        if trace["otherData"]["step_hash"] != plan["step_hash"] or "forward block 1 micro-batch 0" not in names:
            c.fail("the trace is not of the step: %s" % sorted(names)[:5])
        if "<html" not in open(c.dir + "/p.html").read():
            c.fail("the page is none")
        step = plan["explanation"]["time"] and chosen["estimated_step_seconds"]
        if abs(trace["otherData"]["step_us"] / 1e6 / step - 1) > 1e-4:
            c.fail("the trace has a step of %s us, the plan of %g s" % (trace["otherData"]["step_us"], step))
        c.expect(c.run(*own, "--html", "recipe.toml"), 2, "--html", "another file")
        c.expect(c.run(*own, "--trace", "x", "--write", "./x"), 2, "--trace", "another file")
        c.expect(c.run(*own, "--sweep", "train.micro_batch=1,2", "--html", "p.html"), 2, "--html", "--sweep")
        curve = json.loads(c.run(*own, "--json", "--sweep", "cluster.devices_per_node=2,4,3").stdout)
        if [point.get("exit_code", 0) for point in curve["points"]] != [0, 0, 2]:
            c.fail("the sweep says %s" % curve["points"])


@case
def data_that_is_not_there(c):
    c.expect(c.run("launch", "recipe.toml", "--set", 'data.train[0].files=["none/*.txt"]'), 2, "none/*.txt")
    os.remove(c.dir + "/text/00.txt")
    os.symlink("nowhere", c.dir + "/text/00.txt")
    result = c.run("launch", "recipe.toml")
    if result.returncode not in (2, 6):
        c.fail("exit code %d for a dangling link:\n%s" % (result.returncode, result.stdout))


@case
def tokens_beyond_the_vocabulary(c):
    tokens = [5, 6, 60000] * 400
    with open(c.dir + "/bad.bin", "wb") as file:
        file.write(struct.pack("<%dH" % len(tokens), *tokens))
    with open(c.dir + "/bad.idx", "wb") as file:  # one sequence, one document
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<i", len(tokens)) +
                   struct.pack("<q", 0) + struct.pack("<qq", 0, 1))
    recipe = RECIPE.replace('text/*.txt', 'bad.bin').replace('[[data.eval]]\nname = "held-out"\nholdout = 0.2\n', "")
    c.write(recipe)
    c.expect(c.run("launch", "recipe.toml"), 6, "60000", "bad")


@case
def nowhere_to_write(c):
    open(c.dir + "/file", "w").close()
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "file/run"), 5, "file/run")


@case
def a_run_folder_of_somebody_else(c):
    """Its recipe would be executed, and links in it would lead writes elsewhere."""
    victim = c.dir + "/precious"
    with open(victim, "w") as file:
        file.write("kept")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--stop-after", "1"), 75)
    for name in ("prepared", "prepared/logs", "prepared/checkpoints"):
        os.mkdir(c.dir + "/" + name)
    for folder, verb in (("run", ("resume", "run")),
                         ("prepared", ("launch", "recipe.toml", "--run-dir", "prepared", "--stop-after", "1"))):
        os.chmod(c.dir + "/" + folder, 0o777)
        c.expect(c.run(*verb), 2, "can be modified by every user", "--trust-folder")
        if os.geteuid() == 0:
            os.chmod(c.dir + "/" + folder, 0o755)
            os.chown(c.dir + "/" + folder, 54321, 54321)
            c.expect(c.run(*verb), 2, "belongs to user 54321", "--trust-folder")
            os.chown(c.dir + "/" + folder, 0, 0)
    # With --trust-folder, trainctl still writes through no planted link. The names are those that a launch uses; the exit
    # code is 5 if the launch cannot run without the file.
    for name, code in (("lock", 5), ("journal.jsonl", 5), ("logs/rank-00000.log", 5), ("metrics.jsonl", 75),
                       ("metrics.jsonl.next", 75), ("plan.json", 75)):
        shutil.rmtree(c.dir + "/prepared")
        os.makedirs(c.dir + "/prepared/logs")
        os.mkdir(c.dir + "/prepared/checkpoints")
        os.symlink(victim, c.dir + "/prepared/" + name)
        c.expect(c.run("launch", "recipe.toml", "--run-dir", "prepared", "--stop-after", "1", "--trust-folder"), code)
        with open(victim) as file:
            if file.read() != "kept":
                c.fail(name + " led elsewhere")
    os.chmod(c.dir + "/run", 0o777)
    c.expect(c.run("resume", "run", "--stop-after", "2", "--trust-folder"), 75)


@case
def logs_that_have_reached_their_limit(c):
    job = c.start("launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=100000")
    for line in job.stdout:
        if re.search(r"step \d+/", line):
            break
    log = c.dir + "/run/logs/rank-00000.log"
    follower = c.start("logs", "run", "--rank", "0", "--follow")
    follower.stdout.readline()
    # The launcher renames the log like this. Here it keeps writing to the file that it has open.
    os.rename(log, log + ".1")
    with open(log, "w") as file:
        file.write("after the limit\n")
    assert any(line == "after the limit\n" for line in follower.stdout)
    c.expect(c.run("stop", "--now", "run"), 0)
    job.communicate()
    follower.communicate()
    result = c.run("logs", "run", "--rank", "0")
    c.expect(result, 0, "after the limit")
    assert result.stdout.index("step ") < result.stdout.index("after the limit")


@case
def two_launches_on_one_folder(c):
    first = c.start("launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=100000")
    try:
        for line in first.stdout:
            if "step 1/" in line:
                break
        c.expect(c.run("resume", "run"), 5, "run")
        c.expect(c.run("launch", "recipe.toml", "--run-dir", "run"), 5, "run")
        c.expect(c.run("status", "run"), 0, "running")
    finally:
        first.send_signal(signal.SIGINT)
        output = first.stdout.read()
        if first.wait(timeout=60) != 75:
            c.fail("Ctrl-C ended with %d:\n%s" % (first.returncode, output))
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run"), 2, "trainctl resume")
    step = len(open(c.dir + "/run/metrics.jsonl").readlines()) - 1
    c.expect(c.run("resume", "run", "--set", "train.steps=%d" % (step + 2)), 0, "finished")


@case
def stop_from_another_terminal(c):
    job = c.start("launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=100000")
    for line in job.stdout:
        if "step 1/" in line:
            break
    c.expect(c.run("stop", "run"), 0)
    job.stdout.read()
    if job.wait(timeout=60) != 75:
        c.fail("stop ended the job with %d" % job.returncode)
    c.expect(c.run("checkpoint", "ls", "run", "--json"), 0, "step")


@case
def save_from_another_terminal(c):
    c.expect(c.run("save", "run"), 2)
    job = c.start("launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=100000", "--set",
                  "checkpoint.every_steps=100000")
    for line in job.stdout:
        if "step 1/" in line:
            break
    steps = [json.loads(c.run("save", "run", "--json").stdout)["step"] for _ in range(2)]
    c.expect(c.run("save", "run"), 0, "run: saved a checkpoint at step ")
    c.expect(c.run("stop", "run"), 0)
    said = job.stdout.read()
    if job.wait(timeout=60) != 75:
        c.fail("stop ended the job with %d" % job.returncode)
    saved = [int(step) for step in re.findall("checkpoint saved after step ([0-9]+)", said)]
    if len(saved) != 4 or saved[:2] != steps or steps[0] >= steps[1]:  # the last one by the stop
        c.fail("asked for %s, saved %s" % (steps, saved))
    c.expect(c.run("save", "run"), 5, "is not running (stopped)")


@case
def stopped_before_the_first_checkpoint(c):
    job = c.start("launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=100000", "--set",
                  "checkpoint.every_steps=100000")
    for line in job.stdout:
        if "step 1/" in line:
            break
    c.expect(c.run("stop", "run", "--now"), 0)
    said = job.stdout.read()
    c.expect(subprocess.CompletedProcess([], job.wait(timeout=60), said), 130, "before the first checkpoint", "trainctl resume")
    if "step -1" in said:
        c.fail("a checkpoint of step -1: %s" % said)
    c.expect(c.run("status", "run"), 0, "stopped without saving", "start it again with: trainctl resume ")
    job = c.start("launch", "recipe.toml", "--run-dir", "early", "--set", "train.steps=100000")
    for line in job.stdout:
        if "run folder: " in line:
            break
    job.send_signal(signal.SIGTERM)
    said = job.stdout.read()
    done = json.loads(c.run("status", "early", "--json").stdout)["checkpoint_step"]
    # A fast machine may have done a step by then.
    told, way_on = ("stopped before the first checkpoint", "start it again with") if done is None else ("saved and stopped", "continue with")
    c.expect(subprocess.CompletedProcess([], job.wait(timeout=60), said), 75, way_on)
    c.expect(c.run("status", "early"), 0, "message     %s\n" % told, "%s: trainctl resume " % way_on)
    c.expect(c.run("events", "early"), 0, told)


@case
def stop_after(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--stop-after", "3"), 75, "trainctl resume",
             "note: --stop-after saves and stops after step 3 of 6\n")
    if "started again" in c.run("logs", "run").stdout:
        c.fail("the log of a first launch has a line between launches")
    c.expect(c.run("resume", "run", "--stop-after", "6"), 0, "resuming after step 3",
             "note: --stop-after 6 has no effect: the run ends at step 6\n")
    log = c.run("logs", "run", "--rank", "0")
    c.expect(log, 0, "-------- started again at 20")
    if not log.stdout.index("before training") < log.stdout.index("started again") < log.stdout.index("resuming after"):
        c.fail("the line between launches is elsewhere:\n" + log.stdout)
    c.expect(c.run("resume", "run"), 0, "train.steps=N")
    c.expect(c.run("resume", "run", "--set", "optimizer.name=sgd"), 2, "optimizer.name")
    moved = c.run("resume", "run", "--set", "train.steps=8", "--set", "parallel.zero_stage=1")
    change = "train.steps is 8 and was 6"
    c.expect(moved, 0, "changed: %s\n" % change)
    c.expect(c.run("events", "run"), 0, change)
    c.expect(moved, 0, "note: layout is ZeRO-1 ", " (was ZeRO-3 ", "results agree up to the order of sums and are not bit-identical")
    if "{" in moved.stdout or "warning" in moved.stdout:
        c.fail("raw JSON, or a warning, where a note was enough:\n%s" % moved.stdout)


@case
def a_named_run_is_the_latest(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "elsewhere/run", "--stop-after", "1"), 75)
    c.expect(c.run("status"), 0, "elsewhere/run")
    # A folder that `latest` cannot be in is no reason not to train.
    c.write("", "runs-file")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--stop-after", "1", "--set", "run.root=runs-file"), 75,
             "note: ", "runs-file/latest does not point to this run")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "runs/tour", "--stop-after", "1"), 75)
    c.expect(c.run("status"), 0, "runs/tour")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "elsewhere/run", "--or-resume", "--stop-after", "2"), 75)
    c.expect(c.run("status"), 0, "elsewhere/run", "step 2")


@case
def no_step_is_left_before_the_one_to_stop_after(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--stop-after", "3"), 75)
    lines = open(c.dir + "/run/metrics.jsonl").read()
    for stop in ("3", "2"):
        c.expect(c.run("resume", "run", "--stop-after", stop), 75, "has completed step 3", "trainctl resume")
    result = c.run("resume", "run", "--stop-after", "3", "--json")
    c.expect(result, 75, "trainctl.launch.v1")
    report = json.loads(next(line for line in result.stdout.splitlines() if line.startswith("{")))
    if [report[name] for name in ("step", "loss", "exit_code")] != [3, json.loads(lines.splitlines()[-1])["loss"], 75] or \
            not report["tokens_per_second"] > 0 or not report["peak_bytes"] > 1e4 or list(report["eval"]) != ["held-out"]:
        c.fail("numbers of the run: %s" % report)
    if open(c.dir + "/run/metrics.jsonl").read() != lines:
        c.fail("another step was trained")
    c.expect(c.run("resume", "run", "--stop-after", "4"), 75, "resuming after step 3")


@case
def started_without_standard_streams(c):
    whole = subprocess.run([TRAINCTL, "launch", "recipe.toml", "--run-dir", "whole"], cwd=c.dir, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    names = sorted(os.listdir(c.dir + "/whole"))
    if whole.returncode != 0:
        c.fail("ended with %d" % whole.returncode)
    for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
        run = "run" + str(len(closed)) + closed[0]
        result = subprocess.run(["bash", "-c", 'exec "$0" launch recipe.toml --run-dir %s %s' % (run, closed), TRAINCTL],
                                cwd=c.dir, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if result.returncode != whole.returncode:
            c.fail("%s: ended with %d" % (closed, result.returncode))
        for line in open(c.dir + "/%s/journal.jsonl" % run):
            json.loads(line)
        if not open(c.dir + "/%s/lock" % run).read().strip().isdigit():
            c.fail("%s: the lock holds %r" % (closed, open(c.dir + "/%s/lock" % run).read()))
        if sorted(os.listdir(c.dir + "/" + run)) != names:
            c.fail("%s: %s" % (closed, os.listdir(c.dir + "/" + run)))


@case
def whoever_read_the_output_has_gone(c):
    job = subprocess.Popen([TRAINCTL, "launch", "recipe.toml", "--run-dir", "run"], cwd=c.dir, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    job.stdout.close()
    job.stderr.close()
    if job.wait(timeout=120) not in (0, 5):  # done; or 5: its last line was lost
        c.fail("ended with %d" % job.returncode)
    c.expect(c.run("status", "run"), 0, "finished")


@case
def data_changed_before_a_resume(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--stop-after", "2"), 75)
    with open(c.dir + "/text/03.txt", "a") as text:
        text.write("more")
    c.expect(c.run("resume", "run"), 6, "03.txt")


@case
def damaged_checkpoints(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--stop-after", "5"), 75)
    saved = sorted(glob.glob(c.dir + "/run/checkpoints/step-*"))
    keep = tempfile.mkdtemp(prefix="trainctl-cli-")
    shutil.copytree(c.dir + "/run", keep + "/run", symlinks=True)

    def again():
        shutil.rmtree(c.dir + "/run")
        shutil.copytree(keep + "/run", c.dir + "/run", symlinks=True)

    def flip(path):
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) * 2 // 3)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 4]))

    def truncate(path):
        os.truncate(path, os.path.getsize(path) // 2)

    try:
        for damage in (flip, truncate, os.remove):
            for name in ("rank-00001.safetensors", "manifest.json"):
                damage(saved[-1] + "/" + name)
                c.expect(c.run("checkpoint", "verify", "run"), 6, os.path.basename(saved[-1]))
                c.expect(c.run("resume", "run"), 0, "warning", "resuming after step 4")
                again()
        c.expect(c.run("resume", "run"), 0, "finished")
        flip(sorted(glob.glob(c.dir + "/run/checkpoints/step-*"))[-1] + "/rank-00000.safetensors")
        c.expect(c.run("resume", "run"), 0, "warning", "finished")  # "done" needs a checkpoint that can be read
        again()
        c.expect(c.run("launch", "recipe.toml", "--set", "model.weights=" + saved[-1],
                       "--set", "model.tie_embeddings=true"), 6, "lm_head.weight")
        for folder in saved:
            flip(folder + "/rank-00000.safetensors")
        c.expect(c.run("resume", "run"), 6, "rank-00000.safetensors")
        for folder in saved:
            if not os.path.isdir(folder):
                c.fail("a damaged checkpoint was removed")
    finally:
        shutil.rmtree(keep)


@case
def what_is_no_good_checkpoint_is_told_alike(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--stop-after", "5"), 75)
    root = c.dir + "/run/checkpoints/"

    def told(step, state, words, goes_on_from, committed):
        """By everyone, of the newest one."""
        name = "step-%08d" % step
        listed = json.loads(c.run("checkpoint", "ls", "run", "--json").stdout)["checkpoints"][-1]
        if (listed["step"], listed["state"]) != (step, "committed" if state == "non-finite" else state):
            c.fail("checkpoint ls: %s" % listed)
        if committed:
            c.expect(c.run("status", "run"), 0, "checkpoint  step %d\n" % committed)
        if state != "non-finite":
            c.expect(c.run("checkpoint", "ls", "run"), 0, state + ": ", words)
            c.expect(c.run("status", "run"), 0, "checkpoint at step %d is %s: " % (step, state), words)
            c.expect(c.run("runs", "run"), 0, "checkpoint at step %d is %s: " % (step, state), words)
        c.expect(c.run("checkpoint", "verify", "run"), 6, "%-10s  run/checkpoints/%s" % (state, name), words)
        c.expect(c.run("checkpoint", "verify", "run/checkpoints/" + name), 6, "%-10s" % state, words)
        goes_on(step, state, words, goes_on_from)

    def goes_on(step, state, words, goes_on_from):
        passed_over = "checkpoint at step %d is %s and was skipped: " % (step, state)
        c.expect(c.run("generate", "run", "--prompt", "the", "--max-tokens", "1"), 0, passed_over, words)
        c.expect(c.run("resume", "run", "--stop-after", "6", "--set", "train.steps=20"), 75, passed_over, words,
                 "resuming after step %d" % goes_on_from)
        shutil.rmtree(c.dir + "/run")
        shutil.copytree(keep + "/run", c.dir + "/run", symlinks=True)

    keep = tempfile.mkdtemp(prefix="trainctl-cli-")
    try:
        shutil.copytree(c.dir + "/run", keep + "/run", symlinks=True)
        os.rename(root + "step-00000005", root + "step-00000008")
        told(8, "damaged", "contains step 5, not 8", 4, 4)
        os.mkdir(root + "step-99999999")
        told(99999999, "damaged", "it does not contain manifest.json", 5, 5)
        os.symlink("step-00000005", root + "step-00000009")
        told(9, "damaged", "a symbolic link", 5, 5)
        part = root + "step-00000005/rank-00001.safetensors"  # what the other rank alone reads
        with open(part, "r+b") as f:
            f.seek(-1, os.SEEK_END)
            last = f.read(1)[0]
            f.seek(-1, os.SEEK_END)
            f.write(bytes([last ^ 1]))
        goes_on(5, "damaged", "rank-00001.safetensors", 4)
        poison = os.path.dirname(TRAINCTL) + "/poison_checkpoint"
        subprocess.run([poison, root + "step-00000005", "model.norm.weight"], check=True)
        told(5, "non-finite", "NaN or infinite values in model.norm.weight", 4, 5)
        for step in (2, 4, 5):
            subprocess.run([poison, root + "step-%08d" % step, "model.norm.weight"], check=True)
        for verb in (["generate", "run", "--prompt", "the"], ["eval", "run"], ["checkpoint", "export", "run", "--out", "model"]):
            c.expect(c.run(*verb), 6, "no checkpoint is valid", "NaN or infinite values in model.norm.weight")
    finally:
        shutil.rmtree(keep)


@case
def checkpoints_beside_training(c):
    def saved(result, words):
        return [int(step) for step in re.findall(words + " after step ([0-9]+)", result.stdout)]

    beside = ["--set", "checkpoint.async=true", "--set", "checkpoint.every_steps=1", "--set", "train.steps=30"]
    waits = c.run("launch", "recipe.toml", "--run-dir", "wait", *beside)
    c.expect(waits, 0, "training waited", "finished")
    if saved(waits, "checkpoint saved") != list(range(1, 31)):
        c.fail("not every checkpoint was saved, in order: %s" % saved(waits, "checkpoint saved"))
    skips = c.run("launch", "recipe.toml", "--run-dir", "skip", *beside, "--set", "checkpoint.when_busy=skip")
    c.expect(skips, 0, "finished")
    both = saved(skips, "checkpoint saved") + saved(skips, "no checkpoint")
    if sorted(both) != list(range(1, 31)) or saved(skips, "checkpoint saved")[-1] != 30:
        c.fail("a checkpoint is neither saved nor skipped, or the last one is missing: %s\n%s" % (both, skips.stdout))
    for run in ("wait", "skip"):
        c.expect(c.run("checkpoint", "verify", run), 0)
    contents = [open(c.dir + "/%s/checkpoints/step-00000030/rank-00000.safetensors" % run, "rb").read()
                for run in ("wait", "skip")]
    if contents[0] != contents[1]:
        c.fail("waiting and skipping end in different weights")


@case
def the_same_command_for_every_requeue(c):
    again = ["launch", "recipe.toml", "--run-dir", "run", "--or-resume"]
    c.expect(c.run("launch", "recipe.toml", "--or-resume"), 2, "--run-dir")
    c.expect(c.run(*again, "--stop-after", "2"), 75)
    # The length counts from the first step, and completed steps cannot be undone.
    c.expect(c.run("resume", "run", "--set", "train.steps=1"), 2, "train.steps = 1 is below the 2 steps that",
             "its length is 6 steps", "to continue: trainctl resume ")
    c.expect(c.run(*again), 0, "resuming after step 2", "finished")
    c.expect(c.run(*again), 0, "has completed its")
    c.expect(c.run("resume", "run", "--set", "train.steps=3"), 2, "train.steps = 3 is below the 6 steps that",
             "--set train.steps=N")
    c.expect(c.run(*again, "--set", "train.steps=8"), 0, "note: the learning rate is 0 starting at step 7",
             "resuming after step 6", "finished")
    # From elsewhere, and with what the recipe says now, "auto" included.
    os.mkdir(c.dir + "/elsewhere")
    c.expect(c.run("launch", c.dir + "/recipe.toml", "--run-dir", c.dir + "/run", "--or-resume", "--set", "train.steps=8",
                   cwd=c.dir + "/elsewhere"), 0, "has completed its")
    c.expect(c.run(*again, "--set", "train.steps=9", "--set", "cluster.memory_limit=1GiB"), 0,
             'changed: cluster.memory_limit is "1GiB" and was "auto"', "finished")
    c.expect(c.run(*again, "--set", "train.steps=10"), 0, 'changed: cluster.memory_limit is "auto" and was "1GiB"')
    c.expect(c.run(*again, "--set", "run.seed=5", "--set", "model.layers=3"), 2, "run.seed", "model.layers", "--run-dir")
    refused = c.run("launch", "recipe.toml", "--run-dir", "run")
    c.expect(refused, 2, "--or-resume")
    if "predicted" in refused.stdout:
        c.fail("planned and read the data before it looked at the folder:\n" + refused.stdout)


def launched_until_step(c, step, *args):
    """(launcher, workers) once every worker is that far; None, None after a minute."""
    launch = c.start(*args)
    workers = []
    deadline = time.monotonic() + 60
    while not workers or min(worker["step"] or 0 for worker in workers) < step:
        if time.monotonic() > deadline:
            launch.kill()
            c.fail("no step %d in a minute: %s" % (step, launch.communicate()[0]))
            return None, None
        time.sleep(0.05)
        status = c.run("status", "run", "--json")
        workers = json.loads(status.stdout)["workers"] if status.returncode == 0 else []
    return launch, workers


@case
def checkpoints_that_are_gone(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", env={"TRAINCTL_FAULT": "forward:1:worker:0"},
                   ), 0, "restarting", "finished")
    shutil.rmtree(c.dir + "/run")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--set", "launch.max_restarts=0",
                   env={"TRAINCTL_FAULT": "forward:1:worker:0"}), 4)
    c.expect(c.run("resume", "run", "--stop-after", "4"), 75, "step 1/6")  # there was none yet
    metrics = open(c.dir + "/run/metrics.jsonl").read()
    shutil.move(c.dir + "/run/checkpoints", c.dir + "/elsewhere")
    words = ["records a checkpoint at step 4", "checkpoints contains none", "--from-scratch"]
    c.expect(c.run("resume", "run"), 6, *words)
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--or-resume"), 6, *words)
    if open(c.dir + "/run/metrics.jsonl").read() != metrics:
        c.fail("metrics.jsonl was cut")
    shutil.move(c.dir + "/elsewhere", c.dir + "/run/checkpoints")
    os.remove(c.dir + "/run/metrics.jsonl")
    c.expect(c.run("resume", "run", "--from-scratch"), 2, "has a valid checkpoint at step 4")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "new", "--from-scratch"), 2, "--or-resume")
    resumed = c.run("resume", "run", "--stop-after", "5")
    c.expect(resumed, 75, "metrics.jsonl is missing", "resuming after step 4")
    c.expect(c.run("resume", "run", "--set", "train.steps=8", "--stop-after", "6"), 75)
    shutil.rmtree(c.dir + "/run/checkpoints/step-00000006")
    c.expect(c.run("resume", "run", "--set", "train.steps=8", "--stop-after", "5"), 75,
             "records a checkpoint at step 6, which is missing; the newest one is at step 5")

    # What is left but cannot be used is kept where a run begins anew.
    for manifest in glob.glob(c.dir + "/run/checkpoints/*/manifest.json"):
        os.remove(manifest)
    c.expect(c.run("resume", "run"), 6, "step 5 is damaged", "--from-scratch")
    c.expect(c.run("resume", "run", "--from-scratch", "--dry-run"), 0)
    again = c.run("launch", "recipe.toml", "--run-dir", "run", "--or-resume", "--from-scratch", "--set", "train.steps=8")
    c.expect(again, 0, "checkpoints is now checkpoints.set-aside-1", "metrics.jsonl is now metrics.jsonl.set-aside-1",
             "before training", "finished")
    if not os.path.isdir(c.dir + "/run/checkpoints.set-aside-1/step-00000005"):
        c.fail("what was left is gone")
    if [json.loads(line)["step"] for line in open(c.dir + "/run/metrics.jsonl")] != list(range(9)):
        c.fail("metrics.jsonl does not begin anew")


@case
def checkpoints_that_go_while_a_run_goes_on(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--stop-after", "2"), 75)
    launch, workers = launched_until_step(c, 3, "resume", "run", "--set", "train.steps=100000", "--set",
                                          "checkpoint.every_steps=100000")
    if launch is None:
        return
    shutil.rmtree(c.dir + "/run/checkpoints")
    os.kill(workers[1]["pid"], signal.SIGKILL)
    output = launch.communicate(timeout=60)[0]
    c.expect(subprocess.CompletedProcess([], launch.returncode, output), 6, "records a checkpoint at step 2",
             "--from-scratch")


@case
def a_journal_of_rubbish(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--stop-after", "2"), 75)
    with open(c.dir + "/run/journal.jsonl", "w") as journal:
        journal.write("no json\n")
    c.expect(c.run("resume", "run", "--stop-after", "3"), 75, "journal.jsonl:1:", "it is moved aside",
             "journal.jsonl is now journal.jsonl.set-aside-1", "resuming after step 2")
    if open(c.dir + "/run/journal.jsonl.set-aside-1").read() != "no json\n":
        c.fail("the old journal is gone")
    shutil.rmtree(c.dir + "/run/checkpoints")
    c.expect(c.run("resume", "run"), 6, "records a checkpoint at step 3")
    with open(c.dir + "/run/journal.jsonl", "w") as journal:
        journal.write("no json\n")
    c.expect(c.run("resume", "run"), 6, "none of its lines can be read", "--from-scratch")
    c.expect(c.run("resume", "run", "--from-scratch"), 0, "journal.jsonl.set-aside-2", "finished")


@case
def a_run_folder_that_goes_away(c):
    def ended(launch, *words):
        output = launch.communicate(timeout=60)[0]
        c.expect(subprocess.CompletedProcess([], launch.returncode, output), 5, "while the run was in progress", *words)

    endless = ["launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=100000"]
    launch, _ = launched_until_step(c, 3, *endless)
    if launch is None:
        return
    os.rename(c.dir + "/run", c.dir + "/moved")
    ended(launch, "was moved to %s/moved" % os.path.realpath(c.dir), "It contains the checkpoint at step ")
    if os.path.exists(c.dir + "/run"):
        c.fail("the folder was made anew: %s" % os.listdir(c.dir + "/run"))
    done = json.loads(c.run("status", "moved", "--json").stdout)["checkpoint_step"]
    c.expect(c.run("checkpoint", "verify", "moved"), 0)
    c.expect(c.run("resume", "moved", "--stop-after", str(done + 1)), 75, "resuming after step %d" % done)

    launch, _ = launched_until_step(c, 3, *endless)
    if launch is None:
        return
    while os.path.exists(c.dir + "/run"):
        shutil.rmtree(c.dir + "/run", ignore_errors=True)  # what is being written comes back
    ended(launch, "it was removed", "Start a new launch")
    if os.path.exists(c.dir + "/run"):
        c.fail("the folder was made anew: %s" % os.listdir(c.dir + "/run"))

    os.mkdir(c.dir + "/run")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", c.dir + "/run"], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    if mounted.returncode != 0:
        print("a_run_folder_that_goes_away: not unmounted, nothing can be mounted here: " + mounted.stdout.strip())
        return
    try:
        launch, _ = launched_until_step(c, 3, *endless)
    finally:
        subprocess.run(["umount", "--lazy", c.dir + "/run"], check=False)
    if launch is not None:
        ended(launch, "was unmounted", "mount it again")


@case
def data_that_is_overwritten_ends_a_run(c):
    launch, _ = launched_until_step(c, 3, "launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=100000")
    if launch is None:
        return
    path = c.dir + "/text/07.txt"
    text = open(path).read()
    os.utime(path, (1, 1))
    shutil.copy(c.dir + "/text/08.txt", c.dir + "/copy")
    os.rename(c.dir + "/copy", c.dir + "/text/08.txt")
    # The bytes are the same, so the run continues. A checkpoint that was in progress had its look at the data before.
    log = c.dir + "/run/logs/rank-00000.log"
    deadline = time.monotonic() + 60
    while "08.txt was touched or replaced" not in open(log).read() and time.monotonic() < deadline:
        c.expect(c.run("save", "run"), 0)
    with open(path, "r+") as file:
        file.write(text.upper())
    output = launch.communicate(timeout=60)[0]
    c.expect(subprocess.CompletedProcess([], launch.returncode, output), 6, "07.txt changed while the run was reading it",
             "it was modified", "07.txt was touched or replaced", "08.txt was touched or replaced")
    done = json.loads(c.run("status", "run", "--json").stdout)["checkpoint_step"]
    if "onward may have read the changed bytes; to repeat them, move the checkpoints after step" not in output:
        c.fail("the last message does not name the steps: " + output)
    c.expect(c.run("resume", "run"), 6, "07.txt has changed since the run started")
    with open(path, "w") as file:
        file.write(text)
    suspect = "the steps from %s onward may have read the changed bytes" % re.search(r"the steps from (\d+) on", output).group(1)
    c.expect(c.run("resume", "run", "--stop-after", str(done + 1)), 75, "resuming after step %d" % done,
             suspect, "note: an earlier launch failed: ")
    if "changed" in c.run("resume", "run", "--stop-after", str(done + 2)).stdout:
        c.fail("a resume after a checkpoint repeats failures before it")


@case
def a_limit_of_the_system_is_named(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "old"), 0)
    launch, job = ["launch", "recipe.toml", "--run-dir", "run"], ["generate", "old", "--prompt", "a"]
    for limit, verb, said in (
            ("-v 700000", launch, ["ulimit -v: 683.59 MiB"]),
            ("-n 12", launch, ["the launcher needs", "more open files", "ulimit -n: 12"]),
            ("-n 16", launch, ["the launcher needs", "ulimit -n: 16"]),
            ("-s 64", launch, ["ulimit -s: 64.00 KiB"]),
            ("-d 50000", launch, ["ulimit -d: 48.83 MiB"]), ("-d 40000", ["resume", "old", "--set", "train.steps=9"],
                                                             ["ulimit -d: 39.06 MiB"]),
            ("-d 20000", job, ["ulimit -d: 19.53 MiB"]), ("-v 300000", job, ["ulimit -v: 292.97 MiB"]),
            ("-s 64", ["eval", "old"], ["ulimit -s: 64.00 KiB"]),
            ("-f 100", launch, ["File too large", "ulimit -f: 100.00 KiB"])):
        result = subprocess.run(["bash", "-c", 'ulimit %s; exec "$0" "$@"' % limit, TRAINCTL, *verb], cwd=c.dir,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        c.expect(result, 5, *said)
        if "restarting" in result.stdout:
            c.fail("a start that must fail again is repeated:\n" + result.stdout)
    left = [name for name in os.listdir(c.dir + "/run/checkpoints") if name.startswith(".")]
    if left:
        c.fail("a save that failed leaves %s" % left)


@case
def a_limit_on_processes_is_named_before_a_run_starts(c):
    """As a user who is not root, because the limit does not apply to root."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return
    shutil.copy(TRAINCTL, c.dir + "/trainctl")
    os.chmod(c.dir, 0o755)
    script = 'ulimit -u 12; exec setpriv --reuid=65534 --regid=65534 --clear-groups ./trainctl launch recipe.toml'
    result = subprocess.run(["bash", "-c", script], cwd=c.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    c.expect(result, 5, "ulimit -u: limit of 12 processes and threads (", " in use); this run needs at least ")


@case
def a_working_folder_that_was_removed(c):
    verbs = [["launch", "r.toml"], ["resume"], ["status"], ["runs"], ["logs"], ["plan", "r.toml"], ["recipe", "check", "r.toml"],
             ["data", "prepare", "a.txt", "--out", "b"], ["checkpoint", "ls"], ["generate", "--prompt", "a"],
             ["doctor"], ["new", "text"], ["version", "--json"]]
    for verb in verbs:
        script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" "$@"'
        result = subprocess.run(["bash", "-c", script, TRAINCTL, *verb], cwd=c.dir, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
        c.expect(result, 5, "the working folder was removed")


# Lets a call fail with the error number in the variable of its name, as file systems do that lack it. bind() and
# chmod() fail in the run folder only, which is on such a file system.
FILE_SYSTEM_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>
static int fails(const char *call) {
  const char *number = getenv(call);
  if (number == NULL) return 0;
  errno = atoi(number);
  return 1;
}
static int is_folder(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
}
static int in_run(const char *path) { return strstr(path, "/run/") != NULL; }
int fsync(int fd) {
  return fails(is_folder(fd) ? "FSYNC_FOLDER" : "FSYNC_FILE") ? -1 : (int)syscall(SYS_fsync, fd);
}
int fdatasync(int fd) { return fails("FSYNC_FILE") ? -1 : (int)syscall(SYS_fdatasync, fd); }
int flock(int fd, int operation) { return fails("FLOCK") ? -1 : (int)syscall(SYS_flock, fd, operation); }
int statvfs(const char *path, struct statvfs *info) {
  int (*next)(const char *, struct statvfs *) = dlsym(RTLD_NEXT, "statvfs");
  return fails("STATVFS") ? -1 : next(path, info);
}
int statvfs64(const char *path, struct statvfs64 *info) { return statvfs(path, (struct statvfs *)info); }
int bind(int fd, const struct sockaddr *address, socklen_t length) {
  if (address->sa_family == AF_UNIX && in_run(address->sa_data) && fails("BIND")) return -1;
  return (int)syscall(SYS_bind, fd, address, length);
}
int fchmod(int fd, mode_t mode) { return fails("CHMOD") ? -1 : (int)syscall(SYS_fchmod, fd, mode); }
int chmod(const char *path, mode_t mode) {
  if (in_run(path) && fails("CHMOD")) return -1;
  return (int)syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}
"""


@case
def a_file_system_that_lacks_something(c):
    with open(c.dir + "/shim.c", "w") as source:
        source.write(FILE_SYSTEM_SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "shim.so", "shim.c"], cwd=c.dir, check=True)
    folders = "cannot sync folders, so a power failure may lose the newest checkpoint"
    files = "cannot sync files, so a power failure may lose checkpoints and logs"
    locks = "the file locks of its file system fail"
    for call, number, code, said in (
            ("FSYNC_FOLDER", errno.EINVAL, 0, folders), ("FSYNC_FOLDER", errno.EBADF, 0, folders),
            ("FSYNC_FOLDER", errno.EACCES, 0, folders), ("FSYNC_FOLDER", errno.EIO, 5, "sync folder"),
            ("FSYNC_FILE", errno.EINVAL, 0, files), ("FLOCK", errno.ENOSYS, 0, "finished"), ("FLOCK", errno.EIO, 5, locks),
            ("STATVFS", errno.ENOSYS, 0, "does not report its free space"), ("BIND", errno.EOPNOTSUPP, 0, "finished"),
            ("CHMOD", errno.EPERM, 0, "finished")):
        shutil.rmtree(c.dir + "/run", ignore_errors=True)
        result = c.run("launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=2",
                       env={"LD_PRELOAD": c.dir + "/shim.so", call: str(number)})
        c.expect(result, code, said)
        if code == 0 and not os.path.exists(c.dir + "/run/checkpoints/step-00000002/manifest.json"):
            c.fail("%s %d: no checkpoint: %s" % (call, number, os.listdir(c.dir + "/run/checkpoints")))
    with open(c.dir + "/text.txt", "w") as text:
        text.write("a text")
    for number, *words in (
            (errno.EOPNOTSUPP, "status", "run"), (errno.EOPNOTSUPP, "logs", "run"), (errno.EOPNOTSUPP, "checkpoint", "ls", "run"),
            (errno.ENOLCK, "data", "prepare", "text.txt", "--out", "set"), (errno.ENOLCK, "resume", "run", "--set", "train.steps=3")):
        c.expect(c.run(*words, env={"LD_PRELOAD": c.dir + "/shim.so", "FLOCK": str(number)}), 0)


@case
def a_long_run_path_without_a_temporary_folder(c):
    """Only the run folder can be written, and its path is too long for a socket."""
    script = ('mount --bind "$1" "$1" && mount --rbind /tmp /tmp && mount -o remount,bind,ro /tmp && cd "$1" || exit 77; '
              'exec "$0" launch recipe.toml --run-dir "$2"')
    environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    result = subprocess.run(["unshare", "-m", "sh", "-c", script, TRAINCTL, c.dir, "r" * 120], env=environment, cwd=c.dir,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode == 77 or "unshare failed" in result.stdout:
        print("a_long_run_path_without_a_temporary_folder: not tried, nothing can be mounted here: " + result.stdout.strip())
        return
    c.expect(result, 0, "finished")


@case
def a_launch_that_failed_before_its_first_step_does_not_block_its_folder(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--set", "launch.max_restarts=0",
                   env={"TRAINCTL_FAULT": "startup:1:worker:0"}), 4)
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--dry-run"), 0)
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--set", "optimizer.lr=1e-4", "--stop-after", "1"), 75,
             "the previous launch in this folder ended before its first step")
    if not os.path.exists(c.dir + "/run/journal.jsonl.set-aside-1"):
        c.fail("the journal of the first launch is gone")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run"), 2, "already contains a run")


@case
def data_that_changes_ends_a_run_at_its_restart(c):
    # No checkpoint before the restart: it would look at the data first.
    launch, workers = launched_until_step(c, 1, "launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=100000",
                                          "--set", "checkpoint.every_steps=100000")
    if launch is None:
        return
    with open(c.dir + "/text/07.txt", "a") as text:
        text.write("more")
    os.kill(workers[1]["pid"], signal.SIGKILL)
    output = launch.communicate(timeout=60)[0]
    c.expect(subprocess.CompletedProcess([], launch.returncode, output), 4, "not restarted", "07.txt has changed")
    if not re.search(r"^trainctl: rank 1 failed in step \d+: killed by SIGKILL \(9\)[^;]*; not restarted: ", output, re.M):
        c.fail("the failure is not told in one sentence:\n" + output)


@case
def detached(c):
    left = c.run("launch", "recipe.toml", "--run-dir", "run", "--detach", "--json", "--set", "train.steps=100000")
    c.expect(left, 0, '"detached":true', "step 1/100000")
    process = json.loads(left.stdout.strip().splitlines()[-1])["pid"]
    try:
        status = json.loads(c.run("status", "run", "--json").stdout)
        if status["status"] != "running" or status["launcher_pid"] != process:
            c.fail("the run does not go on: %s" % status)
        if os.getsid(process) != process:
            c.fail("the launcher is not in a session of its own")
        if open("/proc/%d/comm" % process).read() != "trainctl\n":
            c.fail("the launcher is called %s" % open("/proc/%d/comm" % process).read())
        c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--or-resume", "--detach"), 5, str(process))
        c.expect(c.run("stop", "run"), 0)
        descriptor = os.pidfd_open(process)
        if not select.select([descriptor], [], [], 60)[0]:
            c.fail("the launcher did not end")
        os.close(descriptor)
    except ProcessLookupError:
        c.fail("the launcher ended by itself")
    with open(c.dir + "/run/logs/launcher.log") as log:
        if "stopped after saving step" not in log.read():
            c.fail("launcher.log does not tell the end")
    # What ends before the first step is told here, each stream on its own, with its exit code.
    done = subprocess.run([TRAINCTL, "launch", "recipe.toml", "--run-dir", "done", "--detach", "--json", "--set", "data.seq_len=0"],
                          cwd=c.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if json.loads(done.stdout)["exit_code"] != 2 or "seq_len" not in done.stderr:
        c.fail("--json --detach of a refused recipe prints %s and %s" % (done.stdout, done.stderr))
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "other", "--detach", "--set", "data.seq_len=0"), 2, "seq_len")
    again = c.run("resume", "run", "--detach", env={"TRAINCTL_FAULT": "startup:1:worker:0"})
    c.expect(again, 0, "restarting", "step ")
    c.expect(c.run("stop", "run", "--now"), 0)


@case
def large_data_is_read_once(c):
    with open(c.dir + "/large.jsonl", "w") as file:
        for i in range(5000):
            file.write(json.dumps({"text": "document %d " % i * 80}) + "\n")
    c.write(RECIPE.replace("text/*.txt", "large.jsonl"))
    kept = c.dir + "/run/documents/"
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--detach", "--set", "train.steps=100000"), 0,
             "are cached in " + os.path.realpath(kept))
    status = json.loads(c.run("status", "run", "--json").stdout)
    pids = [worker["pid"] for worker in status["workers"]]
    maps = [open("/proc/%d/maps" % pid).read() for pid in pids]
    if len(pids) != 2 or not all("/run/documents/" in lines for lines in maps):
        c.fail("workers %s do not use what is kept" % pids)
    launcher = os.pidfd_open(status["launcher_pid"])
    c.expect(c.run("stop", "run"), 0)
    if not select.select([launcher], [], [], 60)[0]:
        c.fail("the launcher did not end")
    os.close(launcher)
    files = sorted(os.listdir(kept))
    if len(files) != 3:
        c.fail("a stopped run keeps %s" % files)
    step = json.loads(c.run("status", "run", "--json").stdout)["checkpoint_step"]
    times = [os.stat(kept + file).st_mtime_ns for file in files]
    again = c.run("resume", "run", "--set", "train.steps=%d" % (step + 1), "--stop-after", str(step + 1), "--dry-run")
    c.expect(again, 0)
    if times != [os.stat(kept + file).st_mtime_ns for file in files]:
        c.fail("a dry run changes what is kept")
    again = c.run("resume", "run", "--set", "train.steps=%d" % (step + 1))
    c.expect(again, 0, "finished")
    if "are cached in" in again.stdout:
        c.fail("a resume reads the data again:\n" + again.stdout)
    if os.path.exists(kept):
        c.fail("a finished run keeps %s" % os.listdir(kept))


@case
def epochs_are_steps_that_see_the_data_so_often(c):
    for path in glob.glob(c.dir + "/text/*.txt")[5:]:
        os.remove(path)
    stream = re.sub(r"\[\[data.eval\]\]\n.*\n.*\n", "", RECIPE).replace("steps = 6", "epochs = 1")
    c.write(stream)
    # The bytes of the files, and the token that ends each.
    tokens = sum(os.path.getsize(path) + 1 for path in glob.glob(c.dir + "/text/*.txt"))
    step_tokens = 8 * 32

    def steps_of(*args):
        return json.loads(c.run("recipe", "check", *args, "--json").stdout)["steps"]

    for packing in ("documents", "continuous"):
        for epochs in (1, 3, 0.5):
            steps = steps_of("recipe.toml", "--set", "data.packing=" + packing, "--set", "train.epochs=%s" % epochs)
            if steps != math.ceil(epochs * tokens / step_tokens):
                c.fail("%s epochs of %d tokens, %s: %d steps" % (epochs, tokens, packing, steps))
    # 19 bytes and their end: two do not fit 32 tokens. 21 sequences are 2.6 steps of 8.
    with open(c.dir + "/short.jsonl", "w") as file:
        file.writelines('{"text": "document number %03d"}\n' % i for i in range(21))
    whole = ["whole.toml", "--set", "data.packing=whole"]
    c.write(stream.replace("text/*.txt", "short.jsonl"), "whole.toml")
    if [steps_of(*whole, "--set", "train.epochs=%d" % epochs) for epochs in (1, 2, 8)] != [3, 6, 21]:
        c.fail("whole documents: other steps than 3, 6, 21")
    texts = []
    for step in range(1, 4):
        batch = json.loads(c.run("data", "batch", *whole, "--step", str(step), "--json").stdout)
        texts += [bytes(sequence["tokens"][:19]).decode() for sequence in batch["sequences"]]
    if sorted(texts[:21]) != ["document number %03d" % i for i in range(21)]:
        c.fail("an epoch has %s" % sorted(texts[:21]))
    c.expect(c.run("launch", *whole, "--dry-run"), 0, "21 documents packed whole", "the run covers 1.14 epochs")

    steps = math.ceil(tokens / step_tokens)

    def said_of_data(data):
        if [(use["source"], use["epoch_tokens"]) for use in data] != [("train-0", tokens)] or \
                abs(data[0]["epochs"] - steps * step_tokens / tokens) > 1e-9:
            c.fail("%d epochs of %d tokens: %s" % (1, tokens, data))

    for verb in (["recipe", "check"], ["plan"]):
        fixed = [*verb, "recipe.toml", "--set", "train.steps=%d" % steps]
        c.write(stream.replace("epochs = 1\n", ""))
        c.expect(c.run(*fixed), 0, "the run covers %.2f epochs" % (steps * step_tokens / tokens))
        said_of_data(json.loads(c.run(*fixed, "--json").stdout)["data"])
    c.write(stream)
    for workers in ("1", "2"):
        run = "run" + workers
        said = c.run("launch", "recipe.toml", "--run-dir", run, "--set", "cluster.devices_per_node=" + workers,
                     "--set", "parallel.zero_stage=0")
        c.expect(said, 0, "the run covers %.2f epochs" % (steps * step_tokens / tokens), "finished")
        status = json.loads(c.run("status", run, "--json").stdout)
        c.expect(c.run("status", run), 0, "epochs      %.2f of %.2f, " % ((steps * step_tokens / tokens,) * 2))
        said_of_data(status["data"])
        if (status["step"], status["total_steps"], metrics_of(c, run)[-1]["step"]) != (steps, steps, steps):
            c.fail("%s workers: %s of %s steps, not %d" % (workers, status["step"], status["total_steps"], steps))
        stored = json.load(open(c.dir + "/" + run + "/recipe.json"))
        if stored["train"]["steps"] != steps or "epochs" in stored["train"] or stored["optimizer"]["decay_steps"] != steps:
            c.fail("stored: %s" % stored["train"])
    # Four in total.
    longer = math.ceil(4 * tokens / step_tokens)
    c.expect(c.run("resume", "run1", "--set", "train.epochs=4", "--set", "optimizer.min_lr=1e-4"), 0, "finished")
    if metrics_of(c, "run1")[-1]["step"] != longer:
        c.fail("four epochs end at step %d, not %d" % (metrics_of(c, "run1")[-1]["step"], longer))
    c.expect(c.run("resume", "run2", "--set", "train.epochs=1"), 0, "has completed its %d steps" % steps)
    c.write(stream.replace("epochs = 1", "epochs = 2"), "more.toml")
    c.expect(c.run("launch", "more.toml", "--run-dir", "run2", "--or-resume", "--dry-run"), 0,
             "changed: train.steps is %d and was %d" % (math.ceil(2 * tokens / step_tokens), steps))
    c.expect(c.run("launch", "recipe.toml", "--set", "train.steps=2", "--set", "train.epochs=2"), 2, "exclude each other")
    two = "files = [\"text/*.txt\"]\nweight = 0.5\n[[data.train]]\nfiles = [\"short.jsonl\"]\nweight = 0.5\n"
    c.write(stream.replace('files = ["text/*.txt"]\n', two), "two.toml")
    c.expect(c.run("launch", "two.toml"), 2, "train.epochs: sources with weights", "set train.steps or train.tokens")


@case
def a_run_of_before_ends_its_documents_as_it_did(c):
    c.expect(c.run("tokenizer", "train", "--vocab", "300", "--out", "own.json", *sorted(os.listdir(c.dir + "/text")),
                   cwd=c.dir + "/text"), 0)
    shutil.move(c.dir + "/text/own.json", c.dir + "/own.json")
    own = ["--set", "data.tokenizer=own.json", "--set", "model.vocab=300"]
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", *own, "--stop-after", "2"), 75)
    path = c.dir + "/run/recipe.json"
    stored = json.load(open(path))
    end = stored["data"].pop("end_of_document")
    with open(path, "w") as file:
        json.dump(stored, file)
    # "e" ends a text of this model from now on; it did not when the run began.
    with open(c.dir + "/tokenizer_config.json", "w") as file:
        json.dump({"eos_token": "e"}, file)
    c.expect(c.run("resume", "run"), 0, "its documents still end with %s; in a new run" % end, "finished")
    if json.load(open(path))["data"]["end_of_document"] != end:
        c.fail("the resumed run has another end of its documents")
    again = c.run("resume", "run", "--set", "train.steps=7")
    c.expect(again, 0, "finished")
    if "earlier version" in again.stdout:
        c.fail("told again:\n" + again.stdout)


@case
def a_tokenizer_of_ones_own(c):
    c.expect(c.run("tokenizer", "train", "--vocab", "300", "--out", "own.json", *sorted(os.listdir(c.dir + "/text")),
                   cwd=c.dir + "/text"), 0)
    shutil.move(c.dir + "/text/own.json", c.dir + "/own.json")
    own = ["--set", "data.tokenizer=own.json", "--set", "model.vocab=300"]
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", *own, "--set", "model.vocab=299"), 2, "model.vocab")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run2", *own, "--set", "train.steps=60", "--set",
                   "optimizer.lr=0.01"), 0, "finished")
    said = c.run("generate", "run2", "--prompt", "the quick brown", "--max-tokens", "12", "--temperature", "0")
    c.expect(said, 0, "the quick brown fox")
    if not said.stdout.endswith("\n"):
        c.fail("generate has no newline at its end: %r" % said.stdout[-20:])
    c.expect(c.run("generate", "run2", "--prompt", "x", "--temperature", "nan"), 2, "'nan' is not a number from 0 to 100")
    # Its threads sleep where another program wants the cores, as those of a run do.
    goes_on = c.start("generate", "run2", "--prompt", "x", "--max-tokens", "100000")
    while b"trainctl-worker" not in open("/proc/%d/cmdline" % goes_on.pid, "rb").read():
        time.sleep(0.01)
    if b"GOMP_SPINCOUNT=4000" not in open("/proc/%d/environ" % goes_on.pid, "rb").read().split(b"\0"):
        c.fail("generate's threads spin as long as they like")
    goes_on.kill()
    goes_on.wait()


@case
def a_text_that_comes_as_it_is_known(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=2", "--set", "model.vocab=256"), 0)
    endless = [TRAINCTL, "generate", "run", "--prompt", "naïve fox", "--max-tokens", "1000000"]

    def text_of(process, count):
        text = b""
        while len(text) < count:
            part = process.stdout.read(count - len(text))
            if not part:
                c.fail("generate ended after %r" % text)
                break
            text += part
        return text

    for end in ("interrupt", "close"):
        process = subprocess.Popen(endless, cwd=c.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        text = text_of(process, 200)
        if not text.startswith("naïve fox".encode()):
            c.fail("the text is %r" % text)
        if end == "interrupt":
            process.send_signal(signal.SIGINT)
            text += process.stdout.read()
            text.decode()  # whole characters
        else:
            process.stdout.close()
        noted = process.stderr.read().decode()
        process.stderr.close()
        wanted = -signal.SIGINT if end == "interrupt" else -signal.SIGPIPE  # 130 and 141 in a shell
        if process.wait(timeout=60) != wanted:
            c.fail("%s: generate ends with %d: %s" % (end, process.returncode, noted))
        if "at most 8192 tokens" in noted:
            c.fail("generate tells a window that the text has not filled: %r" % noted)
    with open("/dev/full", "w") as full:
        done = subprocess.run([*endless[:-1], "5"], cwd=c.dir, stdout=full, stderr=subprocess.PIPE, text=True)
    if done.returncode != 5 or "No space left" not in done.stderr:
        c.fail("what cannot be written ends with %d: %s" % (done.returncode, done.stderr))


@case
def full_disk(c):
    os.mkdir(c.dir + "/small")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2500k", "none", c.dir + "/small"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if mounted.returncode != 0:
        print("full_disk: not tried, a small file system cannot be mounted here: " + mounted.stdout.strip())
        return
    try:
        c.expect(c.run("launch", "recipe.toml", "--run-dir", "small/run", "--stop-after", "2"), 75)
        def fill():
            filler = os.open(c.dir + "/small/filler", os.O_WRONLY | os.O_CREAT)
            try:
                while True:
                    os.write(filler, b"x" * 4096)
            except OSError:
                os.close(filler)

        # Full before it starts: nothing is started.
        fill()
        c.expect(c.run("resume", "small/run"), 5, " free, ", "lower checkpoint.keep")
        # Full while it runs.
        for beside in ("false", "true"):
            os.remove(c.dir + "/small/filler")
            job = c.start("resume", "small/run", "--set", "train.steps=100000", "--set", "checkpoint.async=" + beside)
            for line in job.stdout:
                if re.search(r"step \d+/", line):
                    break
            fill()
            for line in job.stdout:
                if "training continues, and the next save will be attempted as scheduled" in line:
                    break
            c.expect(c.run("stop", "small/run"), 0)  # a requested save fails the run
            said = job.stdout.read()
            if job.wait(timeout=60) != 5 or "No space left" not in said:
                c.fail("with checkpoint.async = %s it ends with %d:\n%s" % (beside, job.returncode, said))
        os.remove(c.dir + "/small/filler")
        step = len(open(c.dir + "/small/run/metrics.jsonl").readlines())
        c.expect(c.run("resume", "small/run", "--set", "train.steps=%d" % (step + 4)), 0, "resuming after step", "finished")
    finally:
        subprocess.run(["umount", c.dir + "/small"], check=False)


@case
def exported_weights_and_a_loss_that_is_not_finite(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=2"), 0)
    evaluated = subprocess.run([TRAINCTL, "eval", "run"], cwd=c.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    logged = json.loads(open(c.dir + "/run/metrics.jsonl").readlines()[-1])["eval"]["held-out"]
    if evaluated.stderr != "evaluating %s/run/checkpoints/step-00000002\n" % c.dir or \
            abs(json.loads(evaluated.stdout)["sets"][0]["loss"] - logged) > 1e-6:
        c.fail("eval says %s%s, and the run's own held-out loss was %r" % (evaluated.stderr, evaluated.stdout, logged))
    # The same where a block at a time is there.
    for verb in (["eval", "run"], ["generate", "run", "--prompt", "the", "--max-tokens", "20", "--temperature", "0"]):
        whole, blocks = (c.run(*verb, *memory) for memory in ([], ["--memory", "1KiB"]))
        if whole.stdout != blocks.stdout or whole.returncode or blocks.returncode:
            c.fail("%s with little memory: %s%s, with all: %s" % (verb, blocks.stdout, blocks.stderr, whole.stdout))
        c.expect(c.run(*verb, "--memory", "much"), 2, "much")
    result = subprocess.run([TRAINCTL, "checkpoint", "export", "run", "--out", "model", "--json"], cwd=c.dir,
                            stdout=subprocess.PIPE, text=True)
    report = json.loads(result.stdout)
    sizes = {name: os.path.getsize(c.dir + "/model/" + name) for name in os.listdir(c.dir + "/model")}
    if (report["schema"], report["dtype"], report["checkpoint"], os.path.join(c.dir, report["folder"])) != (
            "trainctl.export.v1", "fp32", c.dir + "/run/checkpoints/step-00000002", c.dir + "/model") or \
            {one["name"]: one["bytes"] for one in report["files"]} != sizes or "model.safetensors" not in sizes:
        c.fail("export --json says %s; the files are %s" % (result.stdout, sizes))
    c.expect(c.run("checkpoint", "export", "run", "--out", "model"), 2, "model")
    # The folder is the same model as the checkpoint, to the last bit.
    with open(c.dir + "/lines.jsonl", "w") as file:
        file.writelines(json.dumps({"text": "the lazy dog %d jumps" % i}) + "\n" for i in range(30))
    for verb, of_folder in ((["eval", "--data", "lines.jsonl"], ["--seq-len", "32"]),
                            (["generate", "--prompt", "the", "--max-tokens", "20", "--temperature", "0", "--json"], [])):
        said = [subprocess.run([TRAINCTL, *verb, *words], cwd=c.dir, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True).stdout
                for words in (["run"], ["model", *of_folder])]
        of_run, exported = (json.loads(text) for text in said)
        names = of_run.pop("checkpoint"), exported.pop("model")
        if names != (c.dir + "/run/checkpoints/step-00000002", c.dir + "/model") or of_run != exported:
            c.fail("%s of the run and of its exported folder: %s" % (verb[0], said))
    c.expect(c.run("eval", "run", "--seq-len", "16"), 2, "--seq-len applies only to a Hugging Face folder")
    family = 'family = "llama"\nlayers = 2\nhidden = 32\nheads = 4\nkv_heads = 2\nffn = 64\nvocab = 257\n'
    c.write(RECIPE.replace(family, 'from = "model"\nweights = "from"\n'))
    # If a weight is not finite, the launch fails before its first step.
    with open(c.dir + "/model/model.safetensors", "r+b") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        begin = json.loads(file.read(length))["model.embed_tokens.weight"]["data_offsets"][0]
        place = 8 + length + begin + 4 * (5 * 32 + 3)  # element 3 of row 5; a row has 32 fp32 elements
        file.seek(place)
        kept = file.read(4)
        file.seek(place)
        file.write(struct.pack("<f", math.nan))
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "broken", "--set", "train.steps=1"), 6,
             "model.embed_tokens.weight: row 5 contains a NaN or infinite value")
    if os.path.exists(c.dir + "/broken/metrics.jsonl") and os.path.getsize(c.dir + "/broken/metrics.jsonl"):
        c.fail("a launch with a NaN in its weights logged a step")
    with open(c.dir + "/model/model.safetensors", "r+b") as file:
        file.seek(place)
        file.write(kept)
    # The launch reports a tensor that has no effect and is not loaded.
    with open(c.dir + "/model/model.safetensors", "rb") as file:
        whole = file.read()
    header = json.loads(whole[8:8 + length])
    end = len(whole) - 8 - length
    header["model.rotary_emb.inv_freq"] = {"dtype": "F32", "shape": [4], "data_offsets": [end, end + 16]}
    text = json.dumps(header).encode()
    with open(c.dir + "/model/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + whole[8 + length:] + bytes(16))
    c.expect(c.run("launch", "recipe.toml", "--dry-run"), 0,
             "model: tensor model.rotary_emb.inv_freq has no effect and is not loaded")
    with open(c.dir + "/model/model.safetensors", "wb") as file:
        file.write(whole)
    ends = '{"eos_token_id": [7, 9]}'
    c.write(ends, "model/generation_config.json")
    # The exported config.json is the folder's own, with fields that trainctl does not use and its spelling of numbers.
    config = open(c.dir + "/model/config.json").read().replace('"rms_norm_eps": 1e-05', '"rms_norm_eps": 1E-5, "use_cache": false')
    config = config.replace('"attention_dropout": 0.0', '"attention_dropout": 0.1')
    c.write(config, "model/config.json")
    result = c.run("launch", "recipe.toml", "--run-dir", "second", "--set", "train.steps=1")
    c.expect(result, 0, "model/config.json has attention_dropout = 0.1, but trainctl trains without dropout")
    c.expect(c.run("checkpoint", "export", "second", "--out", "next"), 0, "generation_config.json")
    for name in ("config.json", "generation_config.json"):  # the trained token, and the original model's
        exported = json.load(open(c.dir + "/next/" + name))["eos_token_id"]
        if exported != ([256, 7, 9] if name[0] == "g" else 256):
            c.fail("%s of an exported model has eos_token_id %s" % (name, exported))
    if "1E-5" not in config or open(c.dir + "/next/config.json").read() != config:
        c.fail("the exported config.json is %s; the folder's was %s" % (open(c.dir + "/next/config.json").read(), config))
    before, after = (json.loads(open(c.dir + "/" + run + "/metrics.jsonl").readlines()[i])["eval"]["held-out"]
                     for run, i in (("run", -1), ("second", 0)))
    if abs(before - after) > 1e-6:
        c.fail("the exported model's held-out loss is %r, it was %r" % (after, before))
    def set_first_weight(tensor, value):
        with open(c.dir + "/model/model.safetensors", "r+b") as weights:
            length = struct.unpack("<Q", weights.read(8))[0]
            weights.seek(8 + length + json.loads(weights.read(length))[tensor]["data_offsets"][0])
            weights.write(struct.pack("<f", value))

    unused = "model.embed_tokens.weight"  # its first row, which no byte of the text has
    set_first_weight(unused, float("nan"))
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "third"), 6, unused + ": row 0 contains a NaN or infinite value")
    c.expect(c.run("checkpoint", "ls", "third"), 0, "no checkpoints yet")
    # Weights that the run itself drives out of their range are not saved.
    set_first_weight(unused, 3e38)
    wild = ["optimizer.lr=1000", "optimizer.weight_decay=1", "optimizer.no_decay=[]", "checkpoint.every_steps=1"]
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "wild", *(word for setting in wild for word in ("--set", setting))), 7,
             "weights after step 1 are not finite")
    c.expect(c.run("checkpoint", "ls", "wild"), 0, "no checkpoints yet")
    set_first_weight("model.norm.weight", 3e38)
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "fourth"), 7, "not finite",
             "no update preceded it, so changing the learning rate will not help")
    # A run without a checkpoint begins again, for which it needs its first weights.
    os.truncate(c.dir + "/model/model.safetensors", 100)
    c.expect(c.run("resume", "third", "--dry-run"), 6, "model.safetensors", "truncated")


@case
def a_checkpoint_is_chosen_by_its_step(c):
    # A LibTorch in LD_LIBRARY_PATH is not the worker's: these would not even load.
    os.mkdir(c.dir + "/other")
    for name in ("libtorch_cpu.so", "libc10.so"):
        open("%s/other/%s" % (c.dir, name), "w").close()
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=6", "--set", "train.eval_every=2",
                   env={"LD_LIBRARY_PATH": c.dir + "/other"}), 0)
    losses = {line["step"]: line["eval"]["held-out"] for line in metrics_of(c, "run") if line.get("eval")}
    steps = [int(name[5:]) for name in sorted(os.listdir(c.dir + "/run/checkpoints"))]
    best = min(steps, key=losses.get)

    def evaluated(*chosen):
        result = subprocess.run([TRAINCTL, "eval", *chosen], cwd=c.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if result.returncode:
            return c.fail("eval %s: %s" % (chosen, result.stderr))
        return json.loads(result.stdout)["sets"][0]["loss"]

    for chosen, step in ((["run", "--step", "4"], 4), (["run/checkpoints/step-00000002"], 2), (["run", "--step", "best"], best),
                         (["run", "--step", "best:held-out"], best), (["run"], 6)):
        loss = evaluated(*chosen)
        if loss is None or abs(loss - losses[step]) > 1e-6:
            c.fail("eval %s: %s, but step %d had %s" % (chosen, loss, step, losses[step]))
    c.expect(c.run("generate", "run", "--step", "best", "--prompt", "a", "--max-tokens", "3"), 0,
             "step %d has the lowest loss of held-out" % best)
    c.expect(c.run("checkpoint", "export", "run", "--step", "2", "--out", "two"), 0, "step-00000002 as a model")
    # A file of its own, all of it: 950 bytes and the end have 950 targets.
    with open(c.dir + "/other.txt", "w") as file:
        file.write("the quick brown fox" * 50)
    result = subprocess.run([TRAINCTL, "eval", "run", "--data", "other.txt"], cwd=c.dir, stdout=subprocess.PIPE, text=True)
    found = json.loads(result.stdout)["sets"]
    if [one["name"] for one in found] != [os.path.realpath(c.dir) + "/other.txt"] or found[0]["loss_tokens"] != 50 * 19 or \
            abs(math.log(found[0]["perplexity"]) - found[0]["loss"]) > 1e-9:
        c.fail("eval --data: %s" % found)
    c.expect(c.run("eval", "run", "--data", "absent.txt"), 2, "--data: no such file: absent.txt")
    c.expect(c.run("eval", "run", "--step", "3"), 2, "no checkpoint at this step; available: 2, 4, 6")
    c.expect(c.run("eval", "run", "--step", "last"), 2, "--step last is not a step, best or best:SET")
    c.expect(c.run("eval", "run", "--step", "best:other"), 2, "the run has no evaluation set other; it has held-out")
    c.expect(c.run("eval", "run/checkpoints/step-00000002", "--step", "2"), 2, "is a checkpoint")
    shutil.copytree(c.dir + "/run/checkpoints/step-00000002", c.dir + "/alone")
    c.expect(c.run("eval", "alone"), 2, "is not inside a run folder", "model.weights")
    with open(glob.glob(c.dir + "/run/checkpoints/step-00000004/*.safetensors")[0], "r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    c.expect(c.run("eval", "run", "--step", "4"), 6, "step-00000004")


def metrics_of(c, run):
    return [json.loads(line) for line in open("%s/%s/metrics.jsonl" % (c.dir, run))]


def journal_of(c, run):
    return [json.loads(line) for line in open("%s/%s/journal.jsonl" % (c.dir, run))]


@case
def a_changed_rate_computes_what_a_schedule_with_it_would(c):
    c.write(RECIPE.replace("every_steps = 2", "every_steps = 4") + """
[metrics]
tensorboard = true
[optimizer]
lr_schedule = "constant"
lr = 0.0009765625
""")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "changed", "--set", "train.steps=8", "--stop-after", "4"), 75)
    c.expect(c.run("resume", "changed", "--set", "optimizer.lr=0.00048828125", "--dry-run"), 0, "changed: optimizer.lr")
    c.expect(c.run("resume", "changed", "--set", "optimizer.lr=0.00048828125"), 0,
             "changed: optimizer.lr is 0.00048828125 and was 0.0009765625",
             "learning rate of step 5: 0.0004883 (was 0.0009766)", "resuming after step 4", "finished")
    # By itself: four steps of the one rate, then, as the decay takes a single step, of the other.
    by_schedule = ["optimizer.lr_schedule=wsd", "optimizer.decay_steps=4", "optimizer.decay_fraction=0.25",
                   "optimizer.min_lr=0.00048828125", "train.steps=8"]
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "schedule",
                   *(word for field in by_schedule for word in ("--set", field))), 0, "finished")
    changed, schedule = metrics_of(c, "changed"), metrics_of(c, "schedule")
    if [line.get("lr") for line in schedule[-8:]] != [2 ** -10] * 4 + [2 ** -11] * 4:
        c.fail("the schedule is not the one to compare with: %s" % schedule)
    marks = {line["step"]: line.pop("changed") for line in changed if "changed" in line}
    if marks != {5: ["optimizer.lr is 0.00048828125 and was 0.0009765625"]}:
        c.fail("the curves do not tell the change at step 5 alone: %s" % marks)
    if changed != schedule:
        c.fail("other numbers than by a schedule with the same rates:\n%s\n%s" % (changed, schedule))
    for file in glob.glob(c.dir + "/schedule/checkpoints/step-00000008/*.safetensors"):
        if open(file, "rb").read() != open(file.replace("/schedule/", "/changed/"), "rb").read():
            c.fail("%s: other weights than by a schedule with the same rates" % os.path.basename(file))
    events = b"".join(open(file, "rb").read() for file in glob.glob(c.dir + "/changed/tensorboard/events*"))
    if b"optimizer.lr is 0.00048828125" not in events:
        c.fail("TensorBoard does not show the change")
    noted = [(event["step"], event["message"]) for event in journal_of(c, "changed") if event["event"] == "change"]
    if noted != [(4, "optimizer.lr is 0.00048828125 and was 0.0009765625")]:
        c.fail("the journal does not have the change, once: %s" % noted)
    # An edited recipe is no explicit change, and names both.
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "changed", "--or-resume", "--set", "train.steps=9"), 2,
             "optimizer.lr: is 0.0009765625 and was 0.00048828125; only `trainctl resume --set` can change it")
    c.expect(c.run("resume", "changed", "--set", "run.seed=5"), 2, "cannot change run.seed, which determines the data")


@case
def the_way_on_after_a_loss_that_is_not_finite(c):
    # The decay multiplies the weights by -999 at each step.
    wild = ["--set", "optimizer.lr=1000", "--set", "optimizer.weight_decay=1", "--set", "train.steps=20"]

    def follow(result, begins):
        command = re.search(r"^  (trainctl resume .*)$", result.stdout, re.M)
        if begins not in result.stdout or not command:
            return c.fail("no command that goes on, '%s':\n%s" % (begins, result.stdout))
        path = os.path.dirname(TRAINCTL) + ":" + os.environ["PATH"]
        followed = subprocess.run(command[1], shell=True, cwd="/", env={**os.environ, "PATH": path}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        c.expect(followed, 0, "changed: optimizer.lr is 3e-4 and was 1000.0", "finished")
        return command[1]

    failed = c.run("launch", "recipe.toml", "--run-dir", "run", *wild, "--set", "checkpoint.every_steps=100")
    c.expect(failed, 7, "are not finite (learning rate 9", "); all weights are finite; there is no checkpoint yet")
    skipping = c.run("launch", "recipe.toml", "--run-dir", "skips", *wild, "--set", "train.on_nonfinite=skip")
    skipped = sum(line.get("skipped", False) for line in metrics_of(c, "skips"))
    c.expect(c.run("status", "skips"), 0, "skipped     %d update" % skipped)
    if skipped == 0 or json.loads(c.run("status", "skips", "--json").stdout)["skipped_steps"] != skipped:
        c.fail("the status tells another number of skipped updates: " + skipping.stdout)
    status = c.run("status", "run")
    c.expect(status, 0, "status      failed", "; its end:", "there is no checkpoint yet", "restart at step 1")
    report = json.loads(c.run("status", "run", "--json").stdout)
    command = follow(failed, "restart at step 1 with a lower learning rate (now 1000.0)")
    if command and (command not in status.stdout or command not in report["advice"] or
                    "there is no checkpoint yet" not in report["last_words"][-1]):
        c.fail("status does not tell it: %s\n%s" % (status.stdout, report))
    if any(isinstance(line["loss"], str) for line in metrics_of(c, "run")):
        c.fail("the lower rate did not help: %s" % metrics_of(c, "run"))
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "second", "--stop-after", "4", "--set", "train.steps=20"), 75)
    failed = c.run("resume", "second", *wild[:4], "--set", "checkpoint.every_steps=100")
    c.expect(failed, 7, "; the last checkpoint, at step 4, is valid")
    follow(failed, "continue from step 4 with a lower learning rate (now 1000.0)")
    if [line["step"] for line in metrics_of(c, "second") if "changed" in line] != [5]:
        c.fail("the curves do not tell both changes at step 5: %s" % metrics_of(c, "second"))


@case
def status_of_a_run_that_trains_and_of_one_that_failed(c):
    endless = ["launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=1000000", "--set",
               "checkpoint.every_steps=1000000", "--set", "launch.max_restarts=0"]
    launch, workers = launched_until_step(c, 30, *endless)
    if launch is None:
        return
    shown = c.run("status", "run").stdout
    for pattern in (r"status      running", r"last event  .* generation 1: 2 workers\n", r"rank 1      running, .* [KM]iB, process",
                    r"step        \d+ of 1000000 \[\.+\] [\d:]+ left, done \d+\.\d s ago",
                    r"loss        \d\.\d{4}", r"speed       \d+ tokens/s, [\d.]+ s per step",
                    r"memory      [\d.]+ [KM]iB of tensors"):
        if not re.search(pattern, shown):
            c.fail("status of a run that trains does not show '%s':\n%s" % (pattern, shown))
    report = json.loads(c.run("status", "run", "--json").stdout)
    expected = {"step": (30, 1000000), "total_steps": (1000000, 1000000), "loss": (0.1, 20), "loss_step": (30, 1000000),
                "tokens_per_second": (100, 1e8), "seconds_per_step": (1e-4, 2), "seconds_left": (10, 2e6),
                "last_step_age_seconds": (0, 30), "memory_bytes": (1 << 14, 1 << 30)}
    wrong = {key: report.get(key) for key, (low, high) in expected.items()
             if not isinstance(report.get(key), (int, float)) or not low <= report[key] <= high}
    left = (report["total_steps"] - report["step"]) * report["seconds_per_step"]
    if wrong or abs(left - report["seconds_left"]) > 1e-6 * left or report["activity"] not in ("data", "step"):
        c.fail("status --json of a run that trains: %s of %s" % (wrong, report))
    runs = json.loads(c.run("runs", ".", "--json").stdout)["runs"]
    if not runs[0]["seconds_left"]:
        c.fail("runs does not tell the time left: %s" % runs)
    os.kill(workers[1]["pid"], signal.SIGKILL)
    said = launch.communicate()[0]
    shown = c.run("status", "run")
    c.expect(shown, 0, "status      failed", "killed by SIGKILL", "once the cause is fixed: trainctl resume ")
    for pattern in (r"trainctl: rank 1 failed in step \d+: killed by SIGKILL", r"\nwhen        20\d\d-\d\d-\d\d .* s after the launch\n",
                    r"\ndone        \d+ of 1000000 steps; there is no checkpoint\n", r"\nlog         .*/logs/rank-00001.log",
                    r"\nonce the cause is fixed: trainctl resume .*/run\n$"):
        if not re.search(pattern, said):
            c.fail("launch does not end with '%s':\n%s" % (pattern, said))
    report = json.loads(c.run("status", "run", "--json").stdout)
    if report["seconds_left"] is not None or report["step"] < 30 or report["advice"] is not None:
        c.fail("status --json of a run that failed: %s" % report)
    shutil.rmtree(c.dir + "/run")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--set", "launch.max_restarts=0",
                   env={"TRAINCTL_FAULT": "forward:1:worker:0"}), 4)
    c.expect(c.run("status", "run"), 0, "step        none completed yet", "/logs/rank-00000.log; its end:", "  | fault injected at forward")


@case
def status_of_a_run_that_has_done_no_step(c):
    with open(c.dir + "/text/long.txt", "w") as text:
        text.write("the quick brown fox jumps over the lazy dog. " * 200000)
    launch = c.start("launch", "recipe.toml", "--run-dir", "run", "--set", "data.eval[0].holdout=0.9", "--set",
                     "train.eval_batches=1000000")
    seen, deadline = set(), time.monotonic() + 60
    while "starting: evaluating before the first step" not in seen and launch.poll() is None and time.monotonic() < deadline:
        report = c.run("status", "run", "--json")
        if report.returncode == 0:
            seen.add(json.loads(report.stdout)["activity"])
    shown = c.run("status", "run").stdout
    if "step        none completed yet\n" not in shown or "\nnow         starting: evaluating before the first step\n" not in shown:
        c.fail("status before the first step: %s\n%s" % (seen, shown))
    # The evaluation has 200,000 batches, but a stop does not wait for them.
    c.run("stop", "run")
    said, _ = launch.communicate(timeout=60)
    if launch.returncode != 75 or "before training" in said:
        c.fail("a stop during the first evaluation: %d\n%s" % (launch.returncode, said))
    # Restarted workers have their own first step; the workers before them have completed one.
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "again", "--set", "train.batch_sequences=4000", "--set",
                   "train.eval_batches=1", "--stop-after", "1"), 75)
    resume, seen = c.start("resume", "again", "--stop-after", "2"), set()
    while resume.poll() is None:
        report = c.run("status", "again", "--json")
        if report.returncode == 0:
            seen.add(json.loads(report.stdout)["activity"])
    if resume.wait() != 75 or "first step (2)" not in seen:
        c.fail("status of workers that begin again: %d %s" % (resume.returncode, seen))
    resume.communicate()
    # If a later evaluation is stopped, the step is saved, and it is evaluated when the run is resumed.
    shutil.rmtree(c.dir + "/run")
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", "--set", "data.eval[0].holdout=0.9", "--set",
                   "train.eval_batches=1", "--stop-after", "1"), 75)
    resume = c.start("resume", "run", "--set", "train.eval_batches=1000000", "--set", "train.eval_every=1",
                     "--set", "checkpoint.every_steps=1000")
    report, deadline = {"activity": None}, time.monotonic() + 60
    while report["activity"] != "evaluate" and resume.poll() is None and time.monotonic() < deadline:
        report = json.loads(c.run("status", "run", "--json").stdout)
    resume.send_signal(signal.SIGTERM)
    said, _ = resume.communicate(timeout=60)
    last = metrics_of(c, "run")[-1]
    if resume.returncode != 75 or report["step"] != 2 or "stopped after saving step 2;" not in said or \
            last["step"] != 2 or "eval" in last:
        c.fail("a stop during an evaluation: %d, %s, %s\n%s" % (resume.returncode, report, last, said))
    c.expect(c.run("resume", "run", "--set", "train.eval_batches=1", "--stop-after", "2"), 75, "after step 2: held-out")
    lines = metrics_of(c, "run")
    if [line["step"] for line in lines] != [0, 1, 2] or "eval" not in lines[-1]:
        c.fail("the evaluation was not done when the run was resumed: %s" % lines)


def on_a_terminal(c, columns, *args, **env):
    """What the command writes to a terminal of its own."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(c.dir)
        os.execve(TRAINCTL, [TRAINCTL, *args], {**os.environ, **env})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    output = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        output += part
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    if status != 0:
        c.fail("ended with status %d:\n%s" % (status, output.decode(errors="replace")))
    return output.decode(errors="replace")


@case
def progress_on_a_terminal(c):
    os.environ.pop("NO_COLOR", None)
    # Long enough that a second passes, and with it a step line that is not the last.
    launch = ["launch", "recipe.toml", "--set", "train.steps=400", "--set", "checkpoint.every_steps=400"]
    shown = on_a_terminal(c, 100, *launch)
    bars = re.findall(r"\[(#*)(\.*)\] (\d+)/400 loss [\d.]+ \d+ tok/s [\d.]+ [KMG]iB(?: \d+:\d\d left)?", shown)
    if not bars or bars[-1][2] != "400" or bars[-1][1]:
        c.fail("the bar does not end full at step 400: %s\n%s" % (bars[-1:], shown))
    if not any(0 < len(done) < len(done + rest) for done, rest, _ in bars):
        c.fail("the bar was never in between:\n%s" % shown)
    if " left" not in shown:
        c.fail("no time left is shown:\n%s" % shown)
    if "\x1b[36m" not in shown:
        c.fail("no colour on a terminal:\n%s" % shown)
    if "held-out" not in re.sub(r"\x1b[^\n]*\[#", "", shown):
        c.fail("the evaluation is not kept above the bar:\n%s" % shown)
    plain = on_a_terminal(c, 40, *launch, NO_COLOR="1")
    if "\x1b[36m" in plain:
        c.fail("colour in spite of NO_COLOR")
    widest = max(len(line) for line in re.findall(r"\[#*\.*\] [^\r\n\x1b]*", plain))
    if widest > 39:
        c.fail("a bar of %d characters on a terminal of 40" % widest)
    if "\x1b" in c.run(*launch).stdout:
        c.fail("escape sequences without a terminal")


@case
def a_run_that_is_done(c):
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run"), 0)
    result = subprocess.run([TRAINCTL, "resume", "run", "--json"], cwd=c.dir, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
    report = json.loads(result.stdout)
    if report["schema"] != "trainctl.launch.v1" or report["exit_code"] != 0 or report["checkpoint_step"] != 6:
        c.fail("resume --json of a finished run reports %s" % report)
    memory = json.load(open(c.dir + "/run/report.json"))
    if sum(memory["measured_at_peak"].values()) != memory["measured_peak_bytes"]:
        c.fail("the measured categories do not sum to the peak: %s" % memory)
    plan = json.loads(c.run("plan", "recipe.toml", "--json").stdout)["chosen"]
    if abs(memory["predicted_step_seconds"] / plan["estimated_step_seconds"] - 1) > 1e-9:
        c.fail("report.json predicts %g s, the plan %g s" % (memory["predicted_step_seconds"], plan["estimated_step_seconds"]))
    for category, predicted in memory["predicted_at_peak"].items():
        # Small tensors that the libraries keep for themselves count as activations.
        slack = 2 << 20 if category == "activations" else 0
        if abs(memory["measured_at_peak"][category] - predicted) > slack:
            c.fail("%s: predicted %d, measured %d" % (category, predicted, memory["measured_at_peak"][category]))


@case
def calibrate_measures_and_plans_and_reports_say_so(c):
    env = {"XDG_CONFIG_HOME": c.dir + "/config"}
    one = ["--set", "cluster.devices_per_node=1", "--set", "cluster.threads_per_worker=1", "--set", "parallel.zero_stage=0"]
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "rough", *one, env=env), 0, "trainctl calibrate")
    c.expect(c.run("calibrate", "--precision", "fp32", "--workers", "1", "--threads", "1", "--rounds", "1", env=env, timeout=600), 0,
             "fp32, 1 worker x 1 thread", "matmul_flops", "config/trainctl/machine.json")
    rates = json.loads(c.run("plan", "recipe.toml", "--json", *one, env=env).stdout)["rates"]
    profile = json.load(open(c.dir + "/config/trainctl/machine.json"))["measured"][0]["seconds_per_unit"]
    if not rates["measured"] or rates["matmul_flops_seconds"] != profile["matmul_flops"]:
        c.fail("the plan does not use what was measured: %s, %s" % (rates, profile))
    c.expect(c.run("launch", "recipe.toml", "--run-dir", "run", *one, env=env), 0, "step time: predicted")
    report = json.load(open(c.dir + "/run/report.json"))
    if not report["rates_measured"] or set(report["predicted_seconds"]) != set(report["measured_seconds"]):
        c.fail("the report does not compare: %s" % report)
    if abs(sum(report["measured_seconds"].values()) / report["measured_mean_step_seconds"] - 1) > 0.01:
        c.fail("the parts are not those of the step: %s" % report)
    # A damaged profile is an error, not a guess.
    c.write("{", "config/trainctl/machine.json")
    c.expect(c.run("plan", "recipe.toml", *one, env=env), 6, "machine.json")
    c.expect(c.run("calibrate", "--workers", "0", env=env), 2, "--workers")


@case
def plan_in_a_table_and_in_json(c):
    result = c.run("plan", "recipe.toml", "--set", "parallel.zero_stage=auto")
    c.expect(result, 0, "strategy", "memory", "step", "tok/s each", " a step, ", " tokens/s; ", "Chosen:")
    rows = [line for line in result.stdout.splitlines() if re.match(r"(\*|\s)\s+(DDP|ZeRO-\d)\s", line)]
    if len(rows) < 4 or sum(row.startswith("*") for row in rows) != 1:
        c.fail("not all strategies, or not one choice:\n%s" % result.stdout)
    for row in rows:
        if not re.search(r" [mu]?s  +[\d,]+  +\w.*$", row):
            c.fail("a row without a time, a speed or a reason: %s" % row)
    every = c.run("plan", "recipe.toml", "--set", "parallel.zero_stage=auto", "--all")
    plan = json.loads(c.run("plan", "recipe.toml", "--set", "parallel.zero_stage=auto", "--json").stdout)
    if not plan["schema"].startswith("trainctl.plan."):
        c.fail("the plan's schema is %s" % plan["schema"])
    rows = [line for line in every.stdout.splitlines() if re.match(r"(\*|\s)\s+(DDP|ZeRO-\d|-)\s", line)]
    if len(rows) != len(plan["candidates"]):
        c.fail("--all shows %d of %d candidates" % (len(rows), len(plan["candidates"])))
    # The same numbers wherever they are shown.
    chosen, = (candidate for candidate in plan["candidates"] if candidate["chosen"])
    for candidate in plan["candidates"]:
        if sum(candidate["memory_by_category"].values()) != candidate["peak_bytes"]:
            c.fail("the categories do not sum to the peak: %s" % candidate)
        tokens = candidate["tokens_per_second"] * candidate["estimated_step_seconds"]
        if abs(tokens - 8 * 32) > 1e-6:
            c.fail("%g tokens a step" % tokens)
    sweep = json.loads(c.run("plan", "recipe.toml", "--set", "parallel.zero_stage=auto", "--json", "--sweep",
                             "train.steps=6").stdout)
    for other in (plan["chosen"], sweep["points"][0]["chosen"]):
        if other["estimated_step_seconds"] != chosen["estimated_step_seconds"]:
            c.fail("%s is not the plan's %s" % (other, chosen["estimated_step_seconds"]))
    c.expect(c.run("plan", "recipe.toml", "--set", "parallel.zero_stage=auto", "--html", "plan.html"), 0)
    with open(c.dir + "/plan.html") as page:
        seconds = [float(text) for text in re.findall(r'"step_s":([0-9.e+-]+)', page.read())]
    if not any(abs(shown / chosen["estimated_step_seconds"] - 1) < 1e-9 for shown in seconds):
        c.fail("--html shows %s, not the plan's %s" % (seconds, chosen["estimated_step_seconds"]))


@case
def plan_tells_what_is_waited_for(c):
    local = c.run("plan", "recipe.toml", "--explain", "--set", "launch.detect_timeout=9s", "--set", "launch.stop_timeout=40s")
    c.expect(local, 0, "Timeouts", "launch.hang_timeout", "launch.collective_timeout")
    waits = {what: after for after, what in re.findall(r"^ *(\S+ \S+)  (a .*?)  +launch", local.stdout, re.M)}
    if waits.get("a silent worker is declared failed") != "9 s" or waits.get("a worker that was asked to stop is killed") != "40 s":
        c.fail("not the times of the recipe:\n%s" % local.stdout)
    several = ["--set", "cluster.nodes=2", "--set", "launch.backend=ssh", "--set", 'launch.ssh.hosts=["a", "b"]']
    c.expect(c.run("plan", "recipe.toml", *several), 0, "launch.coordinator_timeout", "a silent machine is given up")
    c.expect(c.run("plan", "recipe.toml", *several, "--set", "launch.coordinator_timeout=5s"), 2,
             "must be at least twice launch.detect_timeout")
    c.expect(c.run("plan", "recipe.toml", "--set", "launch.detect_timeout=9s"), 0, "waits up to 9 s for a silent worker, 10 min")
    for what in ("a connection without a certificate is closed", "a failure that no crash explains is reported"):
        c.expect(c.run("plan", "recipe.toml", *several), 0, what)


@case
def score_of_measured_runs(c):
    columns = ("id,source,model,n_params_b,layers,hidden,ffn,heads,kv_heads,vocab,seq_len,gpu_type,n_gpus,tp,pp,vpp,cp,ep,"
               "dp_replicate,dp_shard,micro_batch,global_batch_seqs,precision,activation_recompute,optimizer,peak_mem_gib,"
               "tokens_per_sec_per_gpu,notes,framework")
    row = "a,me/runs@1,Llama 3 8B,8.03,32,4096,14336,32,8,128256,8192,H100,8,1,1,,,,1,fsdp2(8),1,8,bf16,full,,30,5000,,torchtitan"
    c.write(columns + "\n" + row + "\n", "runs.csv")
    c.expect(c.run("score", "runs.csv", "--out", "scored.csv"), 0, "me/runs", "all")
    with open(c.dir + "/scored.csv") as scored:
        lines = scored.read().splitlines()
    if len(lines) != 2 or not lines[1].startswith("a,me/runs@1,scored,"):
        c.fail("scored.csv holds %s" % lines)
    report = json.loads(c.run("score", "runs.csv", "--json").stdout)
    if report["schema"] != "trainctl.score.v1" or report["sources"][-1]["scored"] != 1:
        c.fail("the report is %s" % report)
    c.write(columns + "\n" + row.replace(",8,1,1,", ",eight,1,1,", 1) + "\n", "words.csv")
    c.expect(c.run("score", "words.csv"), 6, "words.csv:2", "n_gpus is 'eight', not a number")
    c.write("id,model\n", "columns.csv")
    c.expect(c.run("score", "columns.csv"), 6, "missing columns: source")
    c.expect(c.run("score", "absent.csv"), 2, "no such file: absent.csv")
    c.write("a\nelsewhere # not in the file\n", "list.txt")
    c.expect(c.run("score", "runs.csv", "--complete", "list.txt"), 0, "complete rows: 1 listed, 1 more not in the file")
    c.write("elsewhere\n", "other.txt")
    c.expect(c.run("score", "runs.csv", "--complete", "other.txt"), 2, "none of its IDs occurs in runs.csv")
    c.expect(c.run("score", "runs.csv", "--ranking", "--leave-one-out"), 0, "Kendall tau", "when fitted to all the others")


@case
def score_of_runs_in_columns(c):
    columns = ("id,source,model,n_params_b,layers,hidden,ffn,heads,kv_heads,vocab,seq_len,gpu_type,n_gpus,tp,pp,vpp,cp,ep,"
               "dp_replicate,dp_shard,micro_batch,global_batch_seqs,precision,activation_recompute,optimizer,peak_mem_gib,"
               "tokens_per_sec_per_gpu,notes,framework,model_config,settings")
    row = "a,me/runs@1,mine,,32,4096,14336,32,8,128256,8192,H100,8,1,1,,,,1,fsdp2(8),1,8,bf16,full,,30,5000,nvidia-smi,%s,%s,%s"
    os.makedirs(c.dir + "/models")
    c.write('{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, '
            '"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}', "models/mine.json")
    c.write("\n".join([columns, row % ("torchtitan", "mine.json", "loss_chunks=4; memory_figure=allocated"),
                       (row % ("", "", "")).replace("a,", "b,", 1)]) + "\n", "models/runs.csv")
    # Nothing is read from source and notes.
    c.expect(c.run("score", "models/runs.csv", "--out", "scored.csv"), 0, "rows that can be estimated: 1")
    with open(c.dir + "/scored.csv") as scored:
        lines = scored.read().splitlines()
    if ",scored," not in lines[1] or not lines[2].startswith("b,me/runs@1,skipped,framework is not stated,"):
        c.fail("scored.csv holds %s" % lines)
    c.expect(c.run("calibrate", "models/runs.csv"), 0, "step time")
    c.write("\n".join([columns, row % ("torchtitn", "none.json", "attention=flash9;loss_chunk=1")]) + "\n", "wrong.csv")
    c.expect(c.run("score", "wrong.csv"), 6, "wrong.csv:2: framework: 'torchtitn' is not known; nearest: torchtitan",
             "wrong.csv:2: model_config: no such file: none.json",
             "wrong.csv:2: settings: attention is 'flash9' but must be one of scores, flash1, flash2, vendor",
             "wrong.csv:2: settings: 'loss_chunk' is not a setting; nearest: loss_chunks")
    c.expect(c.run("score", "--settings"), 0, "| `loss_chunks` |")
    c.expect(c.run("score"), 2, "score requires a CSV of measured runs")


@case
def calibrated_to_the_runs_of_a_machine(c):
    columns = ("id,source,model,n_params_b,layers,hidden,ffn,heads,kv_heads,vocab,seq_len,gpu_type,n_gpus,tp,pp,vpp,cp,ep,"
               "dp_replicate,dp_shard,micro_batch,global_batch_seqs,precision,activation_recompute,optimizer,peak_mem_gib,"
               "tokens_per_sec_per_gpu,notes,framework")
    row = "%d,me/runs@1,Llama 3 8B,8.03,32,4096,14336,32,8,128256,%d,H100,8,1,1,,,,1,fsdp2(8),1,8,bf16,full,,,%d,,torchtitan"
    # A machine on which everything takes some twice as long as it should.
    c.write("\n".join([columns] + [row % (i, 1024 * i, 4000) for i in range(4, 16)]) + "\n", "slow.csv")
    c.expect(c.run("calibrate", "slow.csv", "--out", "slow.json"), 0, "h100-sxm-80gb", "matmul_rate", "before", "wrote slow.json")
    before = json.loads(c.run("score", "slow.csv", "--json").stdout)["sources"][-1]["time"]["mean_absolute_percent"]
    after = json.loads(c.run("score", "slow.csv", "--profile", "slow.json", "--json").stdout)["sources"][-1]["time"]["mean_absolute_percent"]
    if not after < before / 2:
        c.fail("errors of %s %% became %s %%" % (before, after))
    c.write(open(c.dir + "/slow.json").read().replace("link_bandwidth", "link_width"), "odd.json")
    c.expect(c.run("score", "slow.csv", "--profile", "odd.json"), 6, "odd.json: tuning: 'link_width' is not a field")
    c.write("x" * 100, "words.json")
    c.expect(c.run("score", "slow.csv", "--profile", "words.json"), 6, "words.json")
    c.expect(c.run("score", "slow.csv", "--profile", "absent.json"), 2, "no such file: absent.json")
    c.write("\n".join([columns, (row % (1, 4096, 4000)).replace("H100", "")]) + "\n", "nothing.csv")
    c.expect(c.run("calibrate", "nothing.csv", "--out", "nothing.json"), 2, "no row can be priced")
    if os.path.exists(c.dir + "/nothing.json"):
        c.fail("a profile of nothing was written")


@case
def prepared_data_is_the_text_it_was_made_of(c):
    texts = sorted(glob.glob(c.dir + "/text/*.txt"))
    c.expect(c.run("data", "prepare", *texts, "--tokenizer", "byte", "--end-of-document", "--out", "set"), 0, "20 documents")
    c.expect(c.run("data", "prepare", *texts, "--tokenizer", "byte", "--out", "set"), 2, "set.bin")
    c.expect(c.run("data", "prepare", "absent.txt", "--tokenizer", "byte", "--out", "other"), 2, "absent.txt")
    c.expect(c.run("data", "prepare", *texts, "--tokenizer", "nonsense", "--out", "other"), 2, "nonsense")
    c.write(RECIPE.replace('files = ["text/*.txt"]', 'files = ["set.bin"]'), "prepared.toml")
    documents = {open(text, "rb").read() for text in texts}
    for step in ("1", "8"):
        batch = json.loads(c.run("data", "batch", "prepared.toml", "--step", step, "--json").stdout)
        if batch["schema"] != "trainctl.batch.v1" or len(batch["sequences"]) != 8:
            c.fail("a batch of %d sequences, schema %s" % (len(batch["sequences"]), batch["schema"]))
        for sequence in batch["sequences"]:
            for piece in "".join(map(chr, sequence["tokens"])).split(chr(256)):
                if not any(piece.encode("latin-1") in document for document in documents):
                    c.fail("step %s: %r stands in no document" % (step, piece))
    if c.run("data", "batch", "prepared.toml", "--step", "8", "--json").stdout == c.run(
            "data", "batch", "prepared.toml", "--step", "9", "--json").stdout:
        c.fail("two steps have the same batch")
    c.expect(c.run("launch", "prepared.toml"), 0)


def verbs_of(help_text):
    """The subcommands that a help page lists."""
    return re.findall(r"^  ([a-z]+) ", help_text.partition("\nUsage:")[2], re.M)


@case
def help_has_an_example(c):
    verbs = verbs_of(c.run("--help").stdout)
    if len(verbs) < 12:
        c.fail("too few verbs: %s" % verbs)
    for verb in verbs:
        for nested in verbs_of(c.run(verb, "--help").stdout) or [""]:
            words = [verb, nested] if nested else [verb]
            c.expect(c.run(*words, "--help"), 0, "Example:", "trainctl " + " ".join(words))


def main():
    for function in CASES:
        begin = time.monotonic()
        c = Case(function.__name__)
        before = len(FAILURES)
        try:
            function(c)
        except Exception as error:  # a check that broke is a failure of its case
            c.fail(repr(error))
        c.close()
        print("%-36s %s  %.1f s" % (function.__name__, "ok" if len(FAILURES) == before else "FAILED",
                                    time.monotonic() - begin), flush=True)
    print("%d passed, %d failed" % (len(CASES) - len({f.split(":")[0] for f in FAILURES}), len({f.split(":")[0] for f in FAILURES})))
    sys.exit(1 if FAILURES else 0)


main()
