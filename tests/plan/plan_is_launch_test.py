"""What `plan` shows is what `launch` runs: random recipes through the programs, on machines that the test states.

    plan_is_launch_test.py TRAINCTL REBUILD_STEP [--recipes N] [--seed S]

For each recipe: `plan` and `launch --dry-run` end in the same layout, the same memory and the same step hash, or in the
same words of refusal. What `plan --write` writes launches to that step on a machine with other free memory and other
cores, and a worker that rebuilds the step from plan.json and the recipe arrives at it too. Then some small recipes run:
workers compute the hash of what they execute, and a resumed run keeps its layout whatever memory is free by then.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

PRESETS = ["toy-1m", "toy-5m", "llama-25m", "llama-120m", "llama-1b", "llama3.2-1b", "llama3.1-8b", "llama2-70b"]
MIXTURES = ["qwen3-30b-a3b", "mixtral-8x7b"]
DEVICES = ["cpu"] * 4 + ["cuda"] * 2 + ["h100-sxm-80gb", "a100-sxm-40gb", "b200", "H200"] * 2 + ["mi300x", "h1000"]
FAILURES = []


def fail(what, text):
    FAILURES.append(what)
    print("FAILED %s: %s" % (what, text), flush=True)


class Machine:
    """Writes what HostOfRun reads instead of the real machine."""

    def __init__(self, folder, name, cores, memory_gib, accelerator=""):
        self.path = os.path.join(folder, name + ".json")
        with open(self.path, "w") as file:
            json.dump({"cpu": "a CPU", "allowed_cores": cores, "memory_available_bytes": int(memory_gib * 2**30),
                       "native_bf16": True, "accelerator": accelerator,
                       "accelerator_memory_bytes": 40 * 2**30 if accelerator else 0}, file)


class Programs:
    def __init__(self, trainctl, folder):
        self.trainctl = trainctl
        self.folder = folder

    def run(self, machine, *arguments):
        environment = {**os.environ, "TRAINCTL_TEST_HOST": machine.path, "XDG_CONFIG_HOME": self.folder + "/none"}
        environment.pop("TRAINCTL_DEVICE_PLUGIN", None)
        return subprocess.run([self.trainctl, *arguments], env=environment, cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=300)


def recipe_text(draw):
    """A recipe of what people write, and of what they write by mistake."""
    some = draw.random
    lines = ["recipe_version = 1", "[run]", 'name = "drawn"', "[model]"]
    if some() < 0.08:
        lines.append('preset = "%s"' % draw.choice(MIXTURES))
    elif some() < 0.4:
        heads = draw.choice([2, 4, 6])
        lines += ['family = "llama"', "layers = %d" % draw.randint(1, 5), "hidden = %d" % (heads * 16),
                  "heads = %d" % heads, "kv_heads = %d" % draw.choice([1, 2, heads]), "ffn = %d" % draw.choice([48, 96]),
                  "vocab = %d" % draw.choice([256, 259, 1000]), "tie_embeddings = %s" % draw.choice(["true", "false"])]
    else:
        lines.append('preset = "%s"' % draw.choice(PRESETS))
    device = draw.choice(DEVICES)
    nodes = 1 if some() < 0.4 else 2 ** draw.randint(0, 11)
    each = None if some() < 0.3 else draw.choice([1, 2, 3, 4, 8])
    guess = nodes * (each or (1 if device in ("cpu", "cuda") else 8))
    batch = guess * draw.choice([1, 1, 2, 3, 4, 12])
    if some() < 0.1:
        batch += 1
    lines += ["[data]", "seq_len = %d" % draw.choice([32, 128, 512, 2048])]
    lines += ["[train]", "batch_sequences = %d" % batch]
    if some() < 0.5:
        lines.append("steps = 10")
    if some() < 0.3:
        lines.append("micro_batch = %d" % draw.choice([1, 2, 3]))
    lines.append('precision = "%s"' % draw.choice(["fp32", "fp32", "bf16", "auto", "fp8"] if some() < 0.3 else ["bf16", "auto"]))
    lines.append("[parallel]")
    if some() < 0.3:
        lines.append("zero_stage = %d" % draw.randint(0, 3))
    degrees = [degree for degree in (1, 2, 3, 4, 8, 64) if guess % degree == 0 or some() < 0.1]
    if some() < 0.2:
        lines.append("dp_shard = %d" % draw.choice(degrees))
    elif some() < 0.15:
        lines.append("dp_replicate = %d" % draw.choice(degrees))
    if some() < 0.1:
        lines.append("%s = %d" % (draw.choice(["tp", "pp", "cp", "ep"]), draw.choice([1, 1, 2, 8])))
    if some() < 0.3:
        lines.append('recompute = "%s"' % draw.choice(["none", "none", "full", "full", "full", "selective"]))
        if lines[-1].endswith('"full"') and some() < 0.4:
            lines.append("recomputed_layers = %d" % draw.choice([0, 1, 2, 5]))
    if some() < 0.2:
        lines.append("prefetch = false")
    lines += ["[cluster]", 'device = "%s"' % device, "nodes = %d" % nodes]
    if each:
        lines.append("devices_per_node = %d" % each)
    if some() < 0.3:
        lines.append('memory_limit = "%dMiB"' % draw.choice([200, 2000, 20000, 70000]))
    if some() < 0.2:
        lines += ["[checkpoint]", "async = true"]
    if some() < 0.1:
        lines += ["[plan]", 'framework = "trainctl"']
    return "\n".join(lines) + "\n"


def words_of(result):
    """The refusal, without what a dry run finds missing besides."""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("missing here: ")]
    return "\n".join(lines).strip().removeprefix("trainctl: ")


def compare_recipe(programs, machine, other, name, pairs):
    """Whether the recipe has a plan."""
    fixed, stored = name + ".fixed.toml", name + ".plan.json"
    plan = programs.run(machine, "plan", name + ".toml", "--json", "--write", fixed)
    launch = programs.run(machine, "launch", name + ".toml", "--dry-run", "--json")
    if plan.returncode != 0:
        if launch.returncode != plan.returncode or launch.stdout.replace('"launch"', '"plan"') != plan.stdout or \
                words_of(launch) != words_of(plan):
            fail(name, "plan ends with %d: %s\n%s\nlaunch with %d: %s\n%s" % (
                plan.returncode, plan.stdout, plan.stderr, launch.returncode, launch.stdout, launch.stderr))
        return False
    shown = json.loads(plan.stdout)
    if launch.returncode not in (0, 2, 5) or not launch.stdout.startswith("{"):
        fail(name, "launch --dry-run ends with %d: %s" % (launch.returncode, launch.stderr))
        return True
    run = json.loads(launch.stdout)
    missing = run.pop("missing")
    shown.pop("changes")  # advice of `plan`: a launch makes no use of it
    shown.pop("data")
    if not set(shown.pop("missing")) <= set(missing):
        fail(name, "launch misses less than plan says: %s" % missing)
    if (launch.returncode == 0) != (not missing):
        fail(name, "exit code %d with %s missing" % (launch.returncode, missing))
    for key in shown:
        if shown[key] != run.get(key):
            fail(name, "%s: plan %s, launch %s" % (key, shown[key], run.get(key)))
    again = programs.run(other, "launch", fixed, "--dry-run", "--json")
    if not again.stdout.startswith("{"):
        fail(name, "what plan --write wrote: %s" % again.stderr)
        return True
    frozen = json.loads(again.stdout)
    for key in ("layout", "step_hash", "predicted", "memory_limit_bytes", "compute_dtype"):
        if frozen[key] != shown[key]:
            fail(name, "written and launched, %s is %s and was %s" % (key, frozen[key], shown[key]))
    with open(os.path.join(programs.folder, stored), "w") as file:
        json.dump(shown, file)
    pairs.append((name, fixed, stored, shown["step_hash"]))
    return True


def compare_rebuilt(programs, rebuild_step, pairs):
    lines = "".join("%s %s\n" % (fixed, stored) for _, fixed, stored, _ in pairs)
    result = subprocess.run([rebuild_step], input=lines, cwd=programs.folder, stdout=subprocess.PIPE, text=True,
                            timeout=600, check=True)
    rebuilt = result.stdout.splitlines()
    if len(rebuilt) != len(pairs):
        fail("rebuild", "%d answers to %d plans" % (len(rebuilt), len(pairs)))
    for (name, _, _, expected), hash_ in zip(pairs, rebuilt):
        if hash_ != expected:
            fail(name, "a worker rebuilds %s, but the plan is for %s" % (hash_, expected))


SMALL = """recipe_version = 1
[run]
name = "small"
[model]
family = "llama"
layers = 2
hidden = 32
heads = 2
kv_heads = 1
ffn = 48
vocab = 256
[data]
seq_len = 32
[[data.train]]
files = ["text.txt"]
[train]
steps = 3
batch_sequences = 16
precision = "fp32"
[cluster]
devices_per_node = 2
"""


def tight_for(programs, roomy, arguments):
    """A machine whose free memory is a little less than what the plan for a roomy one needs."""
    peak = json.loads(programs.run(roomy, "plan", "small.toml", "--json", *arguments).stdout)["predicted"]["peak_bytes"]
    # Two workers; lib/planner/make_plan.cc leaves 15 % and 512 MiB for each.
    return Machine(programs.folder, "tight", 2, (peak - 4096 + 512 * 2**20) * 2 / 0.85 / 2**30)


def runs(programs, roomy):
    """What workers execute is what was planned; a resume keeps it."""
    with open(programs.folder + "/text.txt", "w") as file:
        file.write("words of a text that is long enough\n" * 500)
    with open(programs.folder + "/small.toml", "w") as file:
        file.write(SMALL)
    for number, sets in enumerate([[], ["parallel.zero_stage=3"], ["parallel.zero_stage=2", "parallel.recompute=full"]]):
        arguments = [word for setting in sets for word in ("--set", setting)]
        folder = "run-%d" % number
        tight = tight_for(programs, roomy, arguments)
        planned, free = (json.loads(programs.run(machine, "plan", "small.toml", "--json", *arguments).stdout)
                         for machine in (tight, roomy))
        if planned["step_hash"] == free["step_hash"]:
            fail(folder, "both machines plan the same, so nothing is tested")
        ran = programs.run(tight, "launch", "small.toml", "--run-dir", folder, "--stop-after", "1", *arguments)
        if ran.returncode != 75:
            fail(folder, "launch ends with %d: %s" % (ran.returncode, ran.stderr))
            continue
        # By now more memory is free, for which another layout would be chosen: the run keeps its own.
        resumed = programs.run(roomy, "resume", folder)
        if resumed.returncode != 0:
            fail(folder, "resume ends with %d: %s" % (resumed.returncode, resumed.stderr))
            continue
        for file in ("plan.json", "report.json"):
            with open(os.path.join(programs.folder, folder, file)) as stored:
                found = json.load(stored)["step_hash"]
            if found != planned["step_hash"]:
                fail(folder, "%s has step %s, plan showed %s" % (file, found, planned["step_hash"]))
    # "auto" asks for a layout, too; what decides none keeps it; a plan that cannot be any more does not hold up a run.
    dry = lambda *arguments: json.loads(programs.run(roomy, "resume", "run-0", "--dry-run", "--json", "--set",
                                                     "train.steps=9", *arguments).stdout)
    kept = dry()["step_hash"]
    if dry("--set", "checkpoint.keep=2", "--set", "cluster.memory_limit=5GiB")["step_hash"] != kept:
        fail("run-0", "a setting that decides no layout changed it")
    if dry("--set", "train.micro_batch=auto")["step_hash"] == kept:
        fail("run-0", "train.micro_batch=auto did not ask for another layout")
    stored = os.path.join(programs.folder, "run-0", "plan.json")
    with open(stored) as file:
        text = file.read()
    for damaged in (text.replace('"micro_batch": ', '"micro_batch": 7'), "{}"):
        with open(stored, "w") as file:
            file.write(damaged)
        anew = programs.run(roomy, "resume", "run-0", "--dry-run", "--set", "train.steps=9")
        if anew.returncode != 0 or "computing a new plan" not in anew.stderr:
            fail("run-0", "a plan that does not hold: %d %s" % (anew.returncode, anew.stderr))
    with open(stored, "w") as file:
        file.write(text)
    held = programs.run(roomy, "launch", "small.toml", "--run-dir", "run-0", "--dry-run")
    if held.returncode != 2 or "already contains a run" not in held.stderr:
        fail("run-0", "a dry run into a run's folder: %d %s" % (held.returncode, held.stderr))
    # Another layout is planned when one is asked for.
    changed = programs.run(roomy, "resume", "run-1", "--set", "train.steps=4", "--set", "parallel.zero_stage=0")
    if changed.returncode != 0 or "DDP" not in changed.stderr:
        fail("run-1", "asked for another layout: %d %s" % (changed.returncode, changed.stderr))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("rebuild_step")
    parser.add_argument("--recipes", type=int, default=130)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="trainctl-plan-is-launch-"))
    try:
        programs = Programs(os.path.abspath(arguments.trainctl), folder)
        machines = [Machine(folder, "large", 64, 512), Machine(folder, "small", 2, 3),
                    Machine(folder, "gpu", 32, 256, "NVIDIA A100-SXM4-40GB"),
                    Machine(folder, "unknown", 16, 64, "NVIDIA Z9000")]
        draw = random.Random(arguments.seed)
        pairs, refused = [], 0
        for number in range(arguments.recipes):
            name = "recipe-%d" % number
            with open("%s/%s.toml" % (folder, name), "w") as file:
                file.write(recipe_text(draw))
            machine, other = draw.choice(machines), draw.choice(machines)
            # A CUDA device has to be there for its memory to be known.
            if not compare_recipe(programs, machine, other if "cuda" not in open("%s/%s.toml" % (folder, name)).read()
                                  else machine, name, pairs):
                refused += 1
        compare_rebuilt(programs, os.path.abspath(arguments.rebuild_step), pairs)
        print("%d recipes: %d planned alike, %d refused in the same words" % (arguments.recipes, len(pairs), refused))
        if len(pairs) < arguments.recipes / 5 or refused < arguments.recipes / 5:
            fail("recipes", "too few of one kind say little")
        runs(programs, Machine(folder, "roomy", 2, 8))
    finally:
        if FAILURES:
            print("kept: " + folder)
        else:
            shutil.rmtree(folder)
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
