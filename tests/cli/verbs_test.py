#!/usr/bin/env python3
"""Verbs that need no worker, as a person uses them: new, runs, doctor, tokenizer.

    verbs_test.py TRAINCTL [FILTER]
"""
import gzip
import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time

TRAINCTL = os.path.abspath(sys.argv[1])
FILTER = sys.argv[2] if len(sys.argv) > 2 else ""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAILURES = []
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"


class Case:
    def __init__(self, name):
        self.name = name
        self.dir = tempfile.mkdtemp(prefix="trainctl-verbs-")

    def write(self, path, text):
        path = os.path.join(self.dir, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def read(self, path):
        with open(os.path.join(self.dir, path)) as file:
            return file.read()

    def run(self, *args):
        return subprocess.run([TRAINCTL, *args], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=120)

    def expect(self, code, args, *words):
        result = self.run(*args)
        if result.returncode != code:
            self.fail("%s: exit code %d, not %d:\n%s" % (args, result.returncode, code, result.stdout))
        for word in words:
            if word not in result.stdout:
                self.fail("%s does not say '%s':\n%s" % (args, word, result.stdout))
        return result.stdout

    def fail(self, text):
        FAILURES.append("%s: %s" % (self.name, text))
        print("FAILED", FAILURES[-1], flush=True)


CASES = []


def case(function):
    if FILTER in function.__name__:
        CASES.append(function)
    return function


@case
def new_recipes_are_ready_to_use(c):
    presets = [preset["name"] for preset in json.loads(c.run("new", "--list", "--json").stdout)["presets"]]
    if len(presets) < 5:
        c.fail("only these presets: %s" % presets)
    c.write("data/a.txt", "some text of mine\n" * 2000)
    for name in ("web", "books", "eval"):
        c.write("data/%s.jsonl" % name, "".join('{"text": "line %d of it"}\n' % i for i in range(500)))
    c.write("data/train.jsonl", "".join('{"prompt": "%d+1=", "text": "%d"}\n' % (i, i + 1) for i in range(500)))
    shutil.copytree(ROOT + "/tests/goldens/plain", c.dir + "/model")
    with open(c.dir + "/model/config.json") as file:
        config = json.load(file)
    c.write("model/config.json", json.dumps({**config, "vocab_size": 256, "max_position_embeddings": 2048}))
    # Bytes as GPT-2 writes them, and no merges.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)}
    c.write("model/tokenizer.json", json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {letter: byte for byte, letter in letters.items()}, "merges": []}}))
    for preset in presets:
        file = preset + ".toml"
        c.expect(0, ["new", preset, "--out", file], file, "trainctl plan " + file)
        c.expect(0, ["plan", file], "Chosen" if "h100" not in preset else "")
        if "h100" not in preset:
            c.expect(0, ["recipe", "check", file], "is valid")


@case
def a_plan_needs_no_data(c):
    c.expect(0, ["new"])
    c.expect(0, ["plan", "recipe.toml"], "Chosen: ", "no file matches " + c.dir + "/data/**/*.txt", "missing for a launch: ")
    c.expect(0, ["plan", "recipe.toml", "--set", 'data.train[0].files=["${TRAINCTL_NOT_SET}/x.txt"]'], "Chosen: ",
             "the variable TRAINCTL_NOT_SET is not set", "${TRAINCTL_NOT_SET}/x.txt")
    plan = json.loads(c.expect(0, ["plan", "recipe.toml", "--json"]))
    # What is written can be launched where the data is.
    c.expect(0, ["plan", "recipe.toml", "--write", "fixed.toml"], "no file matches", "written to fixed.toml")
    c.expect(2, ["plan", "recipe.toml", "--write", "other.toml", "--set",
                 'data.train[0].files=["${TRAINCTL_NOT_SET}/x.txt"]'], "TRAINCTL_NOT_SET")
    # A dry run says as much as the plan, then what is missing, and ends as the launch would.
    c.expect(2, ["launch", "recipe.toml", "--dry-run"], "step " + plan["step_hash"], "missing here: ", "no file matches")
    c.expect(2, ["launch", "recipe.toml"], "no file matches")
    c.write("data/a.txt", "some text of mine\n" * 2000)
    c.expect(0, ["launch", "fixed.toml", "--dry-run"], "step " + plan["step_hash"])


def write_weights(path, tensors):
    """A safetensors file: {name: (shape, numbers)} in fp16."""
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        packed = struct.pack("<%de" % len(numbers), *numbers)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def tiny_llama(folder):
    """Writes its config.json and returns its tensors, all zeros."""
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/config.json", "w") as file:
        json.dump({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
                   "num_attention_heads": 2, "vocab_size": 256}, file)
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [256, 8], layer + "input_layernorm.weight": [8],
              layer + "self_attn.q_proj.weight": [8, 8], layer + "self_attn.k_proj.weight": [8, 8],
              layer + "self_attn.v_proj.weight": [8, 8], layer + "self_attn.o_proj.weight": [8, 8],
              layer + "post_attention_layernorm.weight": [8], layer + "mlp.gate_proj.weight": [12, 8],
              layer + "mlp.up_proj.weight": [12, 8], layer + "mlp.down_proj.weight": [8, 12],
              "model.norm.weight": [8], "lm_head.weight": [256, 8]}
    return {name: (shape, [0.0] * (shape[0] * (shape[1:] or [1])[0])) for name, shape in shapes.items()}


@case
def what_a_launch_lacks_is_listed_in_one_go(c):
    tensors = tiny_llama(c.dir + "/m")
    weights = c.dir + "/m/model.safetensors"
    c.write("a.txt", "some text of mine\n" * 200)
    c.write("r.toml", 'recipe_version = 1\n[model]\nfrom = "m"\n[data]\nseq_len = 8\n[[data.train]]\n'
                      'files = ["a.txt"]\n[train]\nsteps = 3\nbatch_sequences = 1\n')
    checks = (["recipe", "check", "r.toml", "--all"], ["launch", "r.toml", "--dry-run"])
    from_folder = ["--set", 'model.weights="from"']

    def expect(code, sets, *words):
        for command in checks:
            c.expect(code, [*command, *sets], *words)
        # The launch itself asks the same list.
        if code:
            c.expect(code, ["launch", "r.toml", *sets], *words)

    expect(0, [], "starts from random weights", 'model.weights = "from"')
    expect(5, from_folder, "has neither model.safetensors nor")
    write_weights(weights, tensors)
    expect(0, from_folder)
    # Mistakes of all kinds at once: a list with the code of the first.
    other = {**tensors, "model.norm.weight": ([4], [0.0] * 4), "odd": ([1], [0.0])}
    del other["lm_head.weight"]
    write_weights(weights, other)
    expect(6, from_folder, "3 tensors", "model.norm.weight is [4]; the model's is [8]", "no place for odd",
           "lm_head.weight is missing")
    wide = ["--set", "train.steps=1000000000", "--set", "checkpoint.every_steps=1", "--set", "checkpoint.keep=1000000",
            "--set", "model.ffn=65536"]
    expect(6, [*from_folder, *wide], "mlp.up_proj.weight is [12, 8]; the model's is [65536, 8]", " free; 1000001 checkpoints of ")
    expect(5, wide, "lower checkpoint.keep, or put run.root on another disk")
    # Of each parameter a checkpoint has the two moments, in fp32, and the weight.
    alone = ["--set", "train.precision=\"bf16\"", "--set", "train.master_dtype=\"bf16\""]
    of_each = [float(re.search(r"1000001 checkpoints of ([0-9.]+) MiB", c.expect(5, [*checks[0], *wide, *sets]))[1])
               for sets in ([], alone)]
    if abs(of_each[1] / of_each[0] - (2 + 8) / (4 + 8)) > 0.001:
        c.fail("checkpoints with masters in fp32 and in bf16 take %s MiB" % of_each)
    for command in checks:
        c.expect(2, [*command, *from_folder, "--set", 'data.train[0].files=["no/*.txt"]', "--set", 'data.tokenizer="t.json"'],
                 "no file matches", "t.json: no such tokenizer file", "lm_head.weight is missing")
    report = json.loads(c.expect(6, [*checks[0], *from_folder, "--json"]))
    if report["ok"] or len(report["missing"]) != 1:
        c.fail("the report is %s" % report)
    write_weights(weights, tensors)
    os.truncate(weights, os.path.getsize(weights) - 1)
    expect(6, from_folder, "truncated")
    os.remove(weights)
    os.mkfifo(weights)
    expect(6, from_folder, "not a regular file")


WHAT_IF = """recipe_version = 1
[model]
preset = "deepseek-v3"
[data]
seq_len = 4096
[train]
batch_sequences = 960
[cluster]
device = "h100-sxm-80gb"
nodes = 8
[plan]
framework = "megatron-core"
"""


@case
def a_search_for_the_least_memory_prices_few_times(c):
    c.write("r.toml", WHAT_IF)
    counts = json.loads(c.expect(0, ["plan", "r.toml", "--objective", "headroom", "--json"]))["counts"]
    if counts["simulated"] > 1000:  # 2,750 where every candidate's time is priced whatever it needs
        c.fail("of %(bounded)d layouts %(simulated)d were priced" % counts)


@case
def rows_of_a_sweep_appear_as_they_come(c):
    c.write("r.toml", WHAT_IF)
    values = ",".join(str(960 * i) for i in range(1, 5001))  # half an hour
    sweep = subprocess.Popen([TRAINCTL, "plan", "r.toml", "--sweep", "train.batch_sequences=" + values], cwd=c.dir,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = [sweep.stdout.readline(), sweep.stdout.readline()]
    if sweep.poll() is not None:
        c.fail("the sweep had ended before its first row was read")
    sweep.kill()
    sweep.communicate()
    if "tok/s each" not in lines[0] or lines[1].split()[:2] != ["960", "64"]:
        c.fail("it begins with %s" % lines)


@case
def what_cannot_be_trained_says_how_it_is_planned(c):
    c.write("m/config.json", json.dumps({
        "model_type": "mistral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 300}))
    c.write("a.txt", "some text of mine\n" * 200)
    c.write("r.toml", 'recipe_version = 1\n[model]\nfrom = "m"\n[data]\nseq_len = 8\n[[data.train]]\n'
                      'files = ["a.txt"]\n[train]\nsteps = 3\nbatch_sequences = 8\n')
    for verb in (["recipe", "check"], ["plan"], ["launch"]):
        said = c.expect(2, [*verb, "r.toml"], "cannot train the model", "model_type llama or qwen2")
    way = re.search(r"trainctl (plan RECIPE --as \S+ --set \S+)", said)
    c.expect(0, way.group(1).replace("RECIPE", "r.toml").split(), "A what-if", "Chosen: ")


@case
def new_overwrites_only_with_force(c):
    c.expect(0, ["new"], "recipe.toml")
    c.write("recipe.toml", "mine")
    c.expect(2, ["new"], "recipe.toml exists", "--force")
    c.expect(2, ["new", "jsonl", "--out", "recipe.toml", "--json"], "trainctl.error.v1")
    if c.read("recipe.toml") != "mine":
        c.fail("recipe.toml was changed")
    c.expect(0, ["new", "jsonl", "--force"], "recipe.toml")
    if "jsonl" not in c.read("recipe.toml"):
        c.fail("--force wrote nothing")
    c.expect(5, ["new", "--out", "no/such/folder.toml"], "no/such/folder.toml")
    c.expect(2, ["new", "tekst"], "did you mean text?")
    c.expect(0, ["new", "--out", "-"], "recipe_version = 1")


def make_run(c, folder, events, steps=0, total=40):
    c.write(folder + "/journal.jsonl", "".join(json.dumps({"v": 1, **event}) + "\n" for event in events))
    c.write(folder + "/recipe.json", json.dumps({"train": {"steps": total}}))
    c.write(folder + "/metrics.jsonl", "".join('{"step":%d,"loss":%.2f}\n' % (i, 4 - i / 10) for i in range(1, steps + 1)))
    c.write(folder + "/timings.jsonl", "".join('{"step":%d,"tokens_per_second":5000,"mfu":0.4}\n' % i for i in range(1, steps + 1)))


@case
def runs_are_listed(c):
    c.expect(0, ["runs"], "no runs in runs")
    if json.loads(c.expect(0, ["runs", "--json"]))["runs"] != []:
        c.fail("runs of nothing")
    c.expect(2, ["runs", "elsewhere"], "elsewhere is no folder")
    launch = {"time": "2026-01-02T10:00:00+00:00", "event": "launch", "world_size": 2, "pid": 2 ** 22 + 1}
    make_run(c, "runs/done", [launch, {"time": "2026-01-02T11:00:00+00:00", "event": "end", "status": "finished"}], 40)
    os.makedirs(c.dir + "/runs/done/checkpoints/step-00000040")  # the name alone makes no checkpoint
    # No machine has a process of that number.
    make_run(c, "runs/lost", [{**launch, "time": "2026-01-03T10:00:00+00:00"}], 3)
    c.write("runs/torn/journal.jsonl", "{}\n")
    text = c.expect(0, ["runs"], "started (UTC)")
    lines = [line.split() for line in text.splitlines()]
    if ["done", "2026-01-02", "10:00", "finished", "40", "40", "0.0000", "5000", "40.0%", "-", "-"] not in lines:
        c.fail("done: %s" % text)
    if ["lost", "2026-01-03", "10:00", "interrupted", "3", "40", "3.7000", "5000", "40.0%", "-", "-"] not in lines:
        c.fail("lost: %s" % text)
    if "damaged" not in text or [line[0] for line in lines[1:4]] != ["lost", "done", "torn"]:
        c.fail("order: %s" % text)
    runs = json.loads(c.expect(0, ["runs", "--json"]))["runs"]
    if [run["name"] for run in runs] != ["lost", "done", "torn"] or runs[1]["checkpoint_step"] is not None or runs[2]["step"] is not None:
        c.fail("--json: %s" % runs)
    c.expect(0, ["runs", "runs/done"], "finished", "done: checkpoint of step 40 is damaged")
    c.expect(0, ["status", "runs/done"], "checkpoint  none", "checkpoint of step 40 is damaged")
    c.expect(0, ["checkpoint", "ls", "runs/done"], "damaged: ", "step-00000040: not a checkpoint")
    c.expect(6, ["checkpoint", "verify", "runs/done"], "damaged     runs/done/checkpoints/step-00000040")


def prepared(c):
    """What is in the output's folder, by name."""
    contents = {}
    for name in sorted(os.listdir(c.dir + "/out")):
        with open(c.dir + "/out/" + name, "rb") as file:
            contents[name] = file.read()
    return contents


def signal_in_the_middle(c, command, number):
    """Sends the signal when some of the output is on the disk; the exit code and what was said."""
    process = subprocess.Popen([TRAINCTL, *command], cwd=c.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    part = c.dir + "/out/set.bin.part"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if os.path.exists(part) and os.path.getsize(part) >= 2 << 20:
            process.send_signal(number)
            break
        time.sleep(0.002)
    said = process.communicate(timeout=60)[0]
    return process.returncode, said


@case
def a_preparation_that_is_stopped_goes_on(c):
    words = ["w%d" % (i * i % 7919) for i in range(5000)]
    with open(c.dir + "/many.jsonl", "w") as file:
        for i in range(60000):
            file.write('{"text": "%s"}\n' % " ".join(words[i * k % 5000] for k in range(1, 70)))
    c.expect(0, ["tokenizer", "train", "many.jsonl", "--vocab", "400", "--out", "t.json"], "400 tokens")
    command = ["data", "prepare", "many.jsonl", "--tokenizer", "t.json", "--out", "out/set"]
    c.expect(0, [*command, "--threads", "1"], "60000 documents")
    undisturbed = prepared(c)

    # On a terminal there is a bar.
    shutil.rmtree(c.dir + "/out")
    master, terminal = os.openpty()
    process = subprocess.Popen([TRAINCTL, *command], cwd=c.dir, stdout=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(master, 65536)
        except OSError:
            break
    os.close(master)
    if process.wait() != 0 or prepared(c) != undisturbed:
        c.fail("another result on a terminal")
    for word in (b"[#", b" of ", b"MB/s", b" left"):
        if word not in shown:
            c.fail("no %s in the bar: %s" % (word, shown[-300:]))

    shutil.rmtree(c.dir + "/out")
    code, said = signal_in_the_middle(c, command, signal.SIGINT)
    if code != 75 or "the same command goes on" not in said:
        c.fail("Ctrl-C: exit code %d, %s" % (code, said))
    if "set.idx" in prepared(c):
        c.fail("Ctrl-C left an index")
    text = c.expect(0, [*command, "--threads", "3"], "goes on behind", "60000 documents")
    if "anew" in text or prepared(c) != undisturbed:
        c.fail("after Ctrl-C: %s" % text)

    # Killed before its first commit it begins anew; either way nothing half-written counts.
    shutil.rmtree(c.dir + "/out")
    code, said = signal_in_the_middle(c, command, signal.SIGKILL)
    if code != -signal.SIGKILL or "set.idx" in prepared(c):
        c.fail("SIGKILL: exit code %d, %s" % (code, said))
    c.expect(0, command, "60000 documents")
    if prepared(c) != undisturbed:
        c.fail("another result after SIGKILL")


# NVIDIA's library, as a made-up one that the loader finds first. The caller takes LD_LIBRARY_PATH back.
def use_fake_nvml(c):
    made_up = os.path.join(os.path.dirname(os.path.dirname(TRAINCTL)), "tests", "libfake_nvml.so")
    if not os.path.exists(made_up):
        made_up = os.path.join(os.path.dirname(TRAINCTL), "libfake_nvml.so")
    os.symlink(made_up, c.dir + "/libnvidia-ml.so.1")
    os.environ["LD_LIBRARY_PATH"] = c.dir


@case
def auto_is_the_device_of_this_machine(c):
    c.write("gpu.toml", """recipe_version = 1
[model]
preset = "llama3.1-8b"
[data]
seq_len = 4096
[train]
batch_sequences = 64
precision = "bf16"
[cluster]
device = "auto"
""")
    use_fake_nvml(c)
    try:
        c.expect(0, ["plan", "gpu.toml", "--write", "fixed.toml"],
                 "cluster.device = auto: NVIDIA H100 80GB HBM3 -> h100-sxm-80gb, 2 per node (libnvidia-ml.so.1)")
        with open(c.dir + "/fixed.toml") as file:
            fixed = file.read()
        if '\ndevice = "h100-sxm-80gb"' not in fixed or '\ndevice = "auto"' in fixed:
            c.fail("written: %s" % fixed)
        os.environ["FAKE_NVML_NAME"] = "NVIDIA H1000 Mega"
        c.expect(2, ["plan", "gpu.toml"], "gpu.toml:10:1", "2 x NVIDIA H1000 Mega", "nearest: h", "cluster.memory")
        os.environ["FAKE_NVML"] = "0"
        c.write("data/a.txt", "some text of mine\n" * 2000)
        c.write("cpu.toml", """recipe_version = 1
[model]
preset = "toy-1m"
[data]
seq_len = 128
[[data.train]]
files = ["data/a.txt"]
[train]
steps = 2
batch_sequences = 4
[cluster]
device = "auto"
""")
        c.expect(0, ["plan", "cpu.toml"], "cluster.device = auto: no accelerator that a driver shows -> cpu", "Chosen")
        c.expect(0, ["launch", "cpu.toml", "--dry-run"], "cluster.device = auto: no accelerator")
    finally:
        for name in ("LD_LIBRARY_PATH", "FAKE_NVML_NAME", "FAKE_NVML"):
            os.environ.pop(name, None)


@case
def the_gpus_that_the_environment_shows_are_those_of_a_run(c):
    c.write("data/a.txt", "some text of mine\n" * 2000)
    c.write("gpu.toml", """recipe_version = 1
[model]
preset = "toy-1m"
[data]
seq_len = 128
[[data.train]]
files = ["data/a.txt"]
[train]
steps = 2
batch_sequences = 8
[cluster]
device = "auto"
""")
    use_fake_nvml(c)
    # What this machine sets is put back at the end.
    names = ("LD_LIBRARY_PATH", "FAKE_NVML", "FAKE_NVML_NAME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
             "TRAINCTL_DEVICE_PLUGIN")
    before = {name: os.environ.get(name) for name in names[3:]}
    for name in names[1:]:
        os.environ.pop(name, None)

    cuda = ["--set", "cluster.device=cuda"]
    two = ["--set", "cluster.devices_per_node=2"]
    try:
        for value, shown in ((None, 2), ("0,1", 2), ("1", 1), ("0,7", 1), ("0,-1,1", 1), ("GPU-1b", 1)):
            if value is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = value
            said = c.expect(0, ["plan", "gpu.toml"], "h100-sxm-80gb, %d per node" % shown, ", %d worker" % shown)
            is_hidden = 'CUDA_VISIBLE_DEVICES="%s" shows 1 of this machine\'s 2 GPUs' % value in said
            if is_hidden != (shown == 1):
                c.fail("%s: %s" % (value, said))
            doctor = json.loads(c.run("doctor", "--json").stdout)
            if len(doctor["accelerators"]) != shown or sum(d["visible"] for d in doctor["driver"]["devices"]) != shown:
                c.fail("%s: %s" % (value, doctor))
            notes = json.loads(c.run("plan", "gpu.toml", "--json", *cuda).stdout)["notes"]
            if any("CUDA_VISIBLE_DEVICES" in note for note in notes) != (shown == 1):
                c.fail("%s: %s" % (value, notes))
            if shown == 1:
                words = ["cluster.devices_per_node = 2", 'CUDA_VISIBLE_DEVICES="%s" shows 1' % value, "lower it"]
                c.expect(2, ["plan", "gpu.toml", *two], "--set: ", *words)
                c.expect(5, ["plan", "gpu.toml", *two, *cuda], *words)
                for device in (cuda, ["--set", "cluster.device=h100"]):
                    c.expect(5, ["launch", "gpu.toml", "--dry-run", *two, *device], *words)
            else:
                c.expect(0, ["plan", "gpu.toml", *two, *cuda], ", 2 workers")
        for value in ("", "-1"):
            os.environ["CUDA_VISIBLE_DEVICES"] = value
            words = 'CUDA_VISIBLE_DEVICES="%s" shows none of this machine\'s 2 GPUs' % value
            c.expect(0, ["plan", "gpu.toml"], "cluster.device = auto: %s -> cpu" % words)
            c.expect(5, ["plan", "gpu.toml", *cuda], words)
            for device in (cuda, ["--set", "cluster.device=h100"]):
                c.expect(5, ["launch", "gpu.toml", "--dry-run", *device], words)
            c.expect(5, ["calibrate", "--device", "cuda", "--out", "rates.json"], "--device cuda: " + words)
            said = c.run("doctor").stdout
            if words not in said or "visible GPUs" not in said:
                c.fail("%s: %s" % (value, said))
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,0"
        words = ('CUDA_VISIBLE_DEVICES="0,0" names GPU 0 twice', "name each once")
        c.expect(2, ["plan", "gpu.toml"], "gpu.toml:12:1", *words)
        c.expect(5, ["plan", "gpu.toml", *cuda], *words)
        c.expect(5, ["launch", "gpu.toml", "--dry-run", *cuda], *words)
        c.expect(5, ["launch", "gpu.toml", "--dry-run", "--set", "cluster.device=h100"], *words)
        c.expect(5, ["calibrate", "--device", "cuda", "--out", "rates.json"], *words)
        # What is planned by the catalogue alone, or on CPUs, is not about this machine's GPUs.
        c.expect(0, ["plan", "gpu.toml", "--set", "cluster.device=h100"])
        c.expect(0, ["plan", "gpu.toml", "--set", "cluster.device=cpu"])
        os.environ["FAKE_NVML"] = "mig"
        os.environ["CUDA_VISIBLE_DEVICES"] = "MIG-1b111111-2222-3333-4444-555555555555"
        c.expect(0, ["plan", "gpu.toml"], "MIG 1g.10gb -> h100-sxm-80gb, 1 per node with 9.96 GiB", ", 1 worker,")
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})


@case
def the_machine_is_looked_at(c):
    # Beside this program alone: without a worker a run cannot be, and that is told.
    os.makedirs(c.dir + "/bin")
    shutil.copy2(TRAINCTL, c.dir + "/bin/trainctl")
    result = subprocess.run([c.dir + "/bin/trainctl", "doctor", "--json"], cwd=c.dir, stdout=subprocess.PIPE, text=True,
                            timeout=120)
    report = json.loads(result.stdout)
    findings = {finding["name"]: finding for finding in report["findings"]}
    if result.returncode != 5 or findings["worker"]["health"] != "bad" or "trainctl-worker" not in findings["worker"]["advice"]:
        c.fail("without a worker: %s" % result.stdout)
    for name, finding in findings.items():
        if finding["health"] not in ("ok", "note", "warning", "bad") or not finding["value"]:
            c.fail("%s: %s" % (name, finding))
        if finding["health"] in ("warning", "bad") and not finding["advice"]:
            c.fail("no advice: %s" % finding)
    if report["allowed_cores"] > len(os.sched_getaffinity(0)):
        c.fail("more cores than are allowed: %s" % report["allowed_cores"])
    # A worker that starts makes the machine fit for a run.
    c.write("bin/trainctl-worker", "#!/bin/sh\necho starts, with LibTorch 9.8.7\n")
    os.chmod(c.dir + "/bin/trainctl-worker", 0o755)
    result = subprocess.run([c.dir + "/bin/trainctl", "doctor"], cwd=c.dir, stdout=subprocess.PIPE, text=True, timeout=120)
    if "LibTorch 9.8.7" not in result.stdout or "[cluster]" not in result.stdout:
        c.fail("with a worker: %s" % result.stdout)


@case
def numbers_and_names_that_are_none(c):
    launch = ["launch", ROOT + "/recipes/quickstart.toml", "--run-dir", "run"]
    for text in ("99999999999999999999", "0", "-1", "x", "1.5", ""):
        said = c.expect(2, [*launch, "--stop-after", text], "--stop-after", "'%s' is not a whole number of at least 1" % text)
        if len(said) > 200:
            c.fail("%d letters about --stop-after %s" % (len(said), text))
    if os.path.exists(c.dir + "/run"):
        c.fail("a refused command made a run folder")
    c.expect(2, ["calibrate", "--workers", "1024", "--out", "rates.json"], "--workers 1024", "core(s)")
    c.expect(2, ["logs", "--rank", "-1"], "--rank", "'-1' is not a whole number from 0 to 2147483647")
    c.expect(2, ["launch", "recipe.toml", "--run-dir", ""], "--run-dir", "the value is empty")
    c.expect(2, ["trace", "run", "--out", ""], "--out", "the value is empty")
    c.expect(2, ["export", "tensorboard", "run", "--out", ""], "--out", "the value is empty")
    c.expect(2, ["export", "tensorboard", "run", "--out="], "--out", "missing")
    make_run(c, "one", [{"time": "2026-01-02T10:00:00+00:00", "event": "launch", "world_size": 2, "pid": 1}])
    for rank in (0, 1):
        c.write("one/logs/rank-%05d.log" % rank, "line\n")
    c.expect(2, ["logs", "one", "--rank", "2"], "--rank 2", "2 rank(s), from 0 to 1")
    for own in ("one/recipe.json", "./one/../one/traces/x.json", c.dir + "/one/plan.json"):
        c.expect(2, ["trace", "one", "--out", own], "is the run's own")
    # What is not understood is said of the verb, also as JSON.
    c.expect(2, ["launch"], "launch: RECIPE is required; see `trainctl launch --help`")
    report = json.loads(subprocess.run([TRAINCTL, "launch", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True).stdout)
    if report["schema"] != "trainctl.error.v1" or report["exit_code"] != 2 or "trainctl launch" not in report["message"]:
        c.fail("--json: %s" % report)


OUTPUT_COLUMNS = ("id,source,model,n_params_b,layers,hidden,ffn,heads,kv_heads,vocab,seq_len,gpu_type,n_gpus,tp,pp,vpp,cp,ep,"
                  "dp_replicate,dp_shard,micro_batch,global_batch_seqs,precision,activation_recompute,optimizer,peak_mem_gib,"
                  "tokens_per_sec_per_gpu,notes,framework")
OUTPUT_ROW = "a,me/runs@1,Llama 3 8B,8.03,32,4096,14336,32,8,128256,8192,H100,8,1,1,,,,1,fsdp2(8),1,8,bf16,full,,30,5000,,torchtitan"


def full_device(c):
    """A device that is always full: not the machine's own where a mistake of ours could replace it."""
    if os.geteuid() != 0:
        return "/dev/full"
    os.mknod(c.dir + "/full", 0o600 | stat.S_IFCHR, os.makedev(1, 7))
    return "full"


@case
def outputs_replace_nothing_unasked(c):
    """Every option that names a file to write keeps one rule: an existing file needs --force, what is read is never
    written, links stay, and devices and pipes are written to."""
    c.write("base.toml", 'recipe_version = 1\n[model]\npreset = "toy-1m"\n[train]\nsteps = 3\n')
    c.write("recipe.toml", 'extends = "base.toml"\n[data]\nseq_len = 128\n[[data.train]]\nfiles = ["text.txt"]\n'
                           '[train]\nbatch_sequences = 4\n')
    c.write("text.txt", "the theme of the thesis, the others\n" * 20)
    c.write("runs.csv", OUTPUT_COLUMNS + "\n" + OUTPUT_ROW + "\n")
    os.link(c.dir + "/recipe.toml", c.dir + "/twin.toml")
    os.symlink("text.txt", c.dir + "/text link")
    plan = ["plan", "recipe.toml"]
    train = ["tokenizer", "train", "text.txt", "--vocab", "260"]
    verbs = {"--write": (plan, "recipe.toml", "base.toml", "twin.toml", "text link"),
             "--html": (plan, "recipe.toml", "base.toml", "twin.toml", "text link"),
             "--trace": (plan, "recipe.toml", "base.toml", "twin.toml", "text link"),
             "--out": (train, "text.txt", "text link"),
             "score --out": (["score", "runs.csv"], "runs.csv"),
             "calibrate --out": (["calibrate", "runs.csv"], "runs.csv"),
             "new --out": (["new"],)}
    full = full_device(c)
    before = {name: c.read(name) for name in ("recipe.toml", "base.toml", "text.txt", "runs.csv")}
    for number, (option, (verb, *inputs)) in enumerate(verbs.items()):
        option, file, link = option.split()[-1], "file%d" % number, "link%d" % number
        c.write(file, "old")
        os.symlink(file, c.dir + "/" + link)
        for name in (file, link):
            c.expect(2, [*verb, option, name], name + " exists", "--force")
        if c.read(file) != "old":
            c.fail("%s %s: the file was replaced unasked" % (verb, option))
        c.expect(0, [*verb, option, link, "--force"])
        if not os.path.islink(c.dir + "/" + link) or c.read(file) == "old":
            c.fail("%s %s: the link is gone, or its target as it was" % (verb, option))
        for name in inputs:
            c.expect(2, [*verb, option, name, "--force"], "an input of this command")
        c.expect(5, [*verb, option, full], "full: No space left on device")
        os.mkfifo(c.dir + "/pipe%d" % number)
        c.expect(5, [*verb, option, "pipe%d" % number], "nobody reads")
        c.expect(2, [*verb, option, "."], "is a folder")
    for name, text in before.items():
        if c.read(name) != text:
            c.fail("%s was changed" % name)
    c.expect(2, [*plan, "--write", "same", "--html", "./same"], "--write and --html", "name another file")
    c.expect(0, [*plan, "--trace", "/dev/stdout", "--html", "/dev/stdout"], "traceEvents", "<html")
    if full == "full" and not stat.S_ISCHR(os.stat(c.dir + "/full").st_mode):
        c.fail("a device was replaced")
    # A machine is measured for minutes: what is wrong with the name is said before.
    c.write("machine.json", "{}")
    c.expect(2, ["calibrate", "--out", "machine.json"], "machine.json exists", "--force")
    prepare = ["data", "prepare", "text.txt", "--out", "set"]
    os.mkfifo(c.dir + "/set.idx")
    c.expect(2, [*prepare, "--force"], "set.idx is not a regular file")
    os.remove(c.dir + "/set.idx")
    os.symlink("elsewhere", c.dir + "/set.bin")
    c.expect(2, [*prepare, "--force"], "set.bin is a link to elsewhere")
    os.remove(c.dir + "/set.bin")
    c.expect(0, prepare, "Wrote set.bin")
    c.expect(2, prepare, "set.bin exists", "--force")
    c.expect(0, [*prepare, "--force"], "Wrote set.bin")
    c.write("model/config.json", "{}")
    c.expect(2, ["checkpoint", "export", "run", "--out", "model"], "already holds config.json")
    c.expect(2, ["checkpoint", "export", "run", "--out", "text.txt"], "text.txt is not a folder")


@case
def what_is_empty_is_not_the_default(c):
    """An unset variable in quotes must not act on the latest run: every verb's every argument and path."""
    make_run(c, "runs/one", [{"time": "2026-01-02T10:00:00+00:00", "event": "launch", "world_size": 2, "pid": 1}])
    os.symlink("one", c.dir + "/runs/latest")
    c.expect(0, ["status"], "runs/one")
    for verb in (["resume"], ["save"], ["stop"], ["status"], ["logs"], ["generate", "--prompt", "x"], ["eval"], ["checkpoint", "ls"],
                 ["checkpoint", "verify"], ["checkpoint", "export", "--out", "m"], ["trace", "--out", "t"],
                 ["export", "tensorboard"], ["runs"], ["plan"], ["launch"], ["recipe", "check"], ["recipe", "show"],
                 ["recipe", "explain"], ["new"], ["score"], ["calibrate"], ["tokenizer", "info"],
                 ["tokenizer", "train", "--vocab", "300", "--out", "t"], ["data", "prepare", "--out", "d"],
                 ["data", "batch", "--step", "1"]):
        c.expect(2, [*verb, ""], " ".join(word for word in verb[:2] if word.isalpha()) + ": ", "the value is empty")
    for verb in (["plan", "r", "--write"], ["plan", "r", "--html"], ["plan", "r", "--trace"], ["plan", "r", "--profile"],
                 ["plan", "r", "--set"], ["plan", "r", "--as"], ["launch", "r", "--run-dir"], ["trace", "--out"],
                 ["export", "tensorboard", "--out"], ["checkpoint", "export", "--out"], ["new", "--out"],
                 ["score", "f", "--out"], ["score", "f", "--complete"], ["calibrate", "--out"],
                 ["data", "prepare", "f", "--out"], ["data", "prepare", "f", "--out", "d", "--tokenizer"],
                 ["data", "batch", "r", "--step", "1", "--eval"], ["tokenizer", "train", "f", "--vocab", "300", "--out"]):
        c.expect(2, [*verb, ""], verb[-1], "the value is empty")


@case
def a_pipe_in_the_place_of_a_file_is_not_waited_for(c):
    os.makedirs(c.dir + "/runs/odd")
    os.mkfifo(c.dir + "/runs/odd/journal.jsonl")
    c.expect(0, ["runs"], "odd", "is not a regular file")
    c.expect(6, ["status", "runs/odd"], "is not a regular file")
    result = subprocess.run("cat %s/recipes/quickstart.toml | '%s' recipe show /dev/stdin" % (ROOT, TRAINCTL), shell=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, cwd=ROOT + "/recipes")
    if "is not a regular file" in result.stdout:
        c.fail("a recipe from a pipe: %s" % result.stdout)


@case
def names_of_runs_are_printed_without_control_characters(c):
    make_run(c, "runs/a\x1b[31mb", [{"time": "2026-01-02T10:00:00+00:00", "event": "launch", "world_size": 2, "pid": 1}])
    if "\x1b" in c.expect(0, ["runs"], "[31mb"):
        c.fail("an escape sequence is printed as it is")


@case
def commands_that_are_suggested_can_be_pasted(c):
    """Whatever the run folder is called: the suggested word is the folder again, and steers no terminal."""
    for name in ("my run", "it's", "$HOME", "a;b", "a\x1b[31mb"):
        make_run(c, "runs/" + name, [{"time": "2026-01-02T10:00:00+00:00", "event": "launch", "world_size": 2, "pid": 1 << 22}])
        for verb, word in (("status", "trainctl resume "), ("stop", "trainctl status ")):
            said = c.run(verb, "runs/" + name).stdout
            if "\x1b" in said or word not in said:
                c.fail("%s of %r: %r" % (verb, name, said))
            suggested = said.split(word)[1].rstrip("\n").split(" (")[0]
            read = subprocess.run(["bash", "-c", "printf %s " + suggested], stdout=subprocess.PIPE, text=True).stdout
            if read != os.path.realpath(c.dir) + "/runs/" + name:
                c.fail("%s of %r suggests %s, which is %r" % (verb, name, suggested, read))
    if "\x1b" in c.expect(2, ["status", "runs/\x1b[31mnowhere"], "there is no run folder"):
        c.fail("an escape sequence is printed as it is")
    # A journal that does not name its launcher.
    make_run(c, "runs/nameless", [{"time": "2026-01-02T10:00:00+00:00", "event": "launch", "world_size": 2}])
    for verb in ("status", "stop"):
        if "process 0" in c.run(verb, "runs/nameless").stdout:
            c.fail("%s names process 0" % verb)


@case
def the_program_says_what_it_is_and_what_there_is(c):
    version = c.expect(0, ["version"], "trainctl ")
    if c.expect(0, ["--version"]) != version:
        c.fail("--version and version differ")
    for group in ((), ("checkpoint",), ("recipe",), ("data",)):
        result = subprocess.run([TRAINCTL, *group], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        page = subprocess.run([TRAINCTL, *group, "--help"], stdout=subprocess.PIPE, text=True).stdout
        if result.returncode != 2 or result.stdout or result.stderr != page:
            c.fail("without a verb below %s: %s" % (group, result))


@case
def steps_are_counted_from_one(c):
    c.write("recipe.toml", 'recipe_version = 1\n[model]\npreset = "toy-1m"\n[data]\nseq_len = 8\nshuffle = false\n'
                           '[[data.train]]\nfiles = ["text.txt"]\n[train]\nsteps = 3\nbatch_sequences = 1\n')
    c.write("text.txt", "abcdefghijklmnopqrstuvwxyz" * 4)
    batch = json.loads(c.run("data", "batch", "recipe.toml", "--step", "1", "--json").stdout)
    if batch["step"] != 1 or bytes(batch["sequences"][0]["tokens"]) != b"abcdefgh":
        c.fail("the first step's batch: %s" % batch)
    c.expect(2, ["data", "batch", "recipe.toml", "--step", "0"], "'0' is not a whole number of at least 1")


@case
def what_a_plan_suggests_has_a_plan(c):
    """The values that a person would type next, each of them."""
    quickstart = ["plan", ROOT + "/recipes/quickstart.toml"]
    said = c.expect(2, [*quickstart, "--set", "train.batch_sequences=100003"], "2 errors", "the nearest are ")
    fewer = re.search(r"set (optimizer.warmup_steps) = (\d+) or fewer", said)
    for batch in re.search(r"the nearest are (\d+) and (\d+)", said).groups():
        c.expect(0, [*quickstart, "--set", "train.batch_sequences=" + batch, "--set", "=".join(fewer.groups())], "Chosen: ")
    for typo in (["lanch"], ["checkpoint", "verfy"], ["recipe", "explain", "train.stepz"], ["new", "txt"]):
        meant = re.search(r"did you mean ([^?]+)\?", c.expect(2, typo)).group(1)
        c.expect(0, [*typo[:-1], meant] if typo[0] in ("recipe", "new") else [*typo[:-1], meant, "--help"])
    tight = [*quickstart, "--set", "cluster.memory_limit=10MiB"]
    said = c.expect(3, tight, "this fits (")
    settings = said.strip().partition("this fits (")[2].partition(": ")[2].split(", ")
    c.expect(0, [*tight, *(word for setting in settings for word in ("--set", setting.replace(" = ", "=")))], "Chosen: ")


@case
def text_in_another_encoding_is_named_as_that(c):
    with open(c.dir + "/latin.jsonl", "wb") as file:
        file.write(b'{"text": "one"}\n{"text": "caf\xe9"}\n')
    c.expect(6, ["data", "prepare", "latin.jsonl", "--out", "set"], "latin.jsonl:2:14: not valid UTF-8 (byte 0xE9)")


@case
def a_config_that_a_recipe_names_is_the_recipes_mistake(c):
    for text, word in (("{", "not valid JSON"), ('{"model_type": "mamba"}', "mamba"), ("[]", "config.json"),
                       ('{"model_type": "llama"}', "num_hidden_layers")):
        c.write("m/config.json", text)
        c.write("recipe.toml", 'recipe_version = 1\n[model]\nfrom = "m"\n[data]\nseq_len = 8\n[[data.train]]\n'
                               'files = ["m/config.json"]\n[train]\nsteps = 3\nbatch_sequences = 1\n')
        for verb in (["recipe", "check"], ["plan"], ["launch"], ["launch", "--dry-run"], ["data", "batch", "--step", "1"]):
            c.expect(2, [*verb, "recipe.toml"], "recipe.toml:3:1: model.from: ", "m/config.json", word)


@case
def keys_are_explained(c):
    c.expect(0, ["recipe", "explain", "train.steps"], "Length of the run", "train.tokens")
    c.expect(2, ["recipe", "explain", "train.stepz"], "did you mean train.steps?")
    c.expect(2, ["recipe", "explain", "train.stepz", "--json"], "trainctl.error.v1")
    c.expect(2, ["recipe", "explain"], "KEY")


@case
def tokenizers_are_trained_used_and_refused(c):
    c.write("text.txt", "the theme of the thesis, the others\n" * 20)
    c.write("web.jsonl", '{"text": "the end"}\n' * 3)
    c.expect(0, ["tokenizer", "train", "text.txt", "web.jsonl", "--vocab", "300", "--out", "t.json"], "Wrote t.json")
    c.expect(2, ["tokenizer", "train", "text.txt", "--vocab", "300", "--out", "t.json"], "t.json exists", "--force")
    with open(c.dir + "/text.txt", "rb") as plain, gzip.open(c.dir + "/text.txt.gz", "wb") as packed:
        packed.write(plain.read())
    c.expect(0, ["tokenizer", "train", "text.txt.gz", "web.jsonl", "--vocab", "300", "--out", "packed.json"], "Wrote")
    with open(c.dir + "/t.json") as plain, open(c.dir + "/packed.json") as packed:
        if plain.read() != packed.read():
            c.fail("packed text trains another tokenizer")
    c.expect(2, ["tokenizer", "train", "text.txt", "--vocab", "10", "--out", "u.json"], "10 is not within 257")
    c.expect(6, ["tokenizer", "train", "absent.txt", "--vocab", "300", "--out", "u.json"], "absent.txt")
    c.expect(0, ["tokenizer", "info", "t.json"], "byte-level BPE", "<|endoftext|> (0)")
    c.write("tokenizer_config.json", '{"add_bos_token": true}')
    c.expect(0, ["tokenizer", "info", "t.json"], "tokenizer_config.json has add_bos_token; here nothing is put before a text")
    c.expect(0, ["tokenizer", "info", "t.json", "--json"], '"notes":["tokenizer_config.json has add_bos_token')
    ids = json.loads(c.run("tokenizer", "encode", "t.json", "text.txt", "--json").stdout)["ids"]
    c.write("ids", " ".join(map(str, ids)))
    c.expect(0, ["tokenizer", "decode", "t.json", "ids"], "the theme of the thesis, the others\n")
    c.write("ids", "1 9999")
    c.expect(2, ["tokenizer", "decode", "t.json", "ids"], "id 9999 is not one of the tokenizer's")
    c.write("ids", "1 x")
    c.expect(2, ["tokenizer", "decode", "t.json", "ids"], "'x' is not a token id")
    c.expect(2, ["tokenizer", "info", "absent.json"], "absent.json: no such tokenizer file")
    c.write("bad.json", '{"model": {"type": "WordPiece", "vocab": {}}}')
    c.expect(6, ["tokenizer", "info", "bad.json"], "bad.json: model.type = 'WordPiece' is not supported here")
    c.write("tik.model", "IQ== 0\nIg== 1\n")
    c.expect(6, ["tokenizer", "info", "tik.model"], "tik.model: is in tiktoken's format", "use the tokenizer.json beside it")
    c.expect(6, ["data", "prepare", "text.txt", "--tokenizer", "tik.model", "--out", "tik"], "tik.model: is in tiktoken's format")
    c.write("bad.model", "\x00\x01")
    c.expect(6, ["tokenizer", "info", "bad.model"], "neither a tokenizer.json nor")
    c.expect(0, ["data", "prepare", "text.txt", "--tokenizer", "t.json", "--end-of-document", "--out", "set"], "uint16")
    with open(c.dir + "/set.json") as file:
        report = json.load(file)
    if report["tokenizer_file"]["path"] != "t.json" or report["tokens"] != len(ids) + 1:
        c.fail("set.json: %s" % report)


@case
def tokenizer_train_looks_before_it_reads(c):
    train = ["tokenizer", "train", "--vocab", "300"]
    c.write("text.txt", "the theme\n")
    c.write("empty.txt", "")
    c.expect(6, [*train, "empty.txt", "--out", "t.json"], "hold no text")
    # The output comes first: the input is not there.
    c.expect(5, [*train, "absent.txt", "--out", "no/such/t.json"], "no/such")
    c.expect(2, [*train, "absent.txt", "--out", "."], "must be a file")
    c.expect(2, [*train, "text.txt", "--out", "text.txt", "--force"], "text.txt is an input of this command")
    c.expect(2, [*train, "absent.txt", "--out", "t.json", "--min-frequency", "-5"], "-5")
    c.expect(2, [*train, "absent.txt", "--out", "t.json", "--special", "\u00e9"], "spells the byte 0xE9")
    with gzip.open(c.dir + "/text.txt.gz", "wb") as file:
        file.write(b"the theme\n")
    c.expect(0, [*train, "text.txt", "--out", "plain.json"], "Wrote")
    c.expect(0, [*train, "text.txt.gz", "--out", "packed.json"], "Wrote")
    with open(c.dir + "/plain.json", encoding="utf-8") as plain, open(c.dir + "/packed.json", encoding="utf-8") as packed:
        if plain.read() != packed.read():
            c.fail("a packed text gives another tokenizer")
    c.write("lines", '"the"\n"a"\n')
    lines = c.run("tokenizer", "encode", "plain.json", "lines", "--lines", "--json").stdout.splitlines()
    if [len(json.loads(line)["tokens"]) > 0 for line in lines] != [True, True]:
        c.fail("encode --lines --json: %s" % lines)


@case
def lost_output_is_an_error(c):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([TRAINCTL, "version"], stdout=full, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode != 5 or "output could not be written" not in done.stderr:
        c.fail("exit code %d: %s" % (done.returncode, done.stderr))


def main():
    for function in CASES:
        c = Case(function.__name__)
        try:
            function(c)
        finally:
            shutil.rmtree(c.dir, ignore_errors=True)
    print("%d cases, %d failures" % (len(CASES), len(FAILURES)))
    return 1 if FAILURES or not CASES else 0


sys.exit(main())
