#!/usr/bin/env python3
"""Verbs that need no worker, as a person uses them: new, runs, doctor, tokenizer.

    verbs_test.py TRAINCTL [FILTER]
"""
import gzip
import json
import math
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
LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 700\n" % ("0" * 64)
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
             "the environment variable TRAINCTL_NOT_SET is not set", "${TRAINCTL_NOT_SET}/x.txt")
    plan = json.loads(c.expect(0, ["plan", "recipe.toml", "--json"]))
    # What is written can be launched where the data is.
    c.expect(0, ["plan", "recipe.toml", "--write", "fixed.toml"], "no file matches", "wrote fixed.toml")
    c.expect(2, ["plan", "recipe.toml", "--write", "other.toml", "--set",
                 'data.train[0].files=["${TRAINCTL_NOT_SET}/x.txt"]'], "TRAINCTL_NOT_SET")
    # A dry run says as much as the plan, then what is missing, and ends as the launch would.
    c.expect(2, ["launch", "recipe.toml", "--dry-run"], "step " + plan["step_hash"], "missing here: ", "no file matches")
    c.expect(2, ["launch", "recipe.toml"], "no file matches")
    c.write("data/a.txt", "some text of mine\n" * 2000)
    c.expect(0, ["launch", "fixed.toml", "--dry-run"], "step " + plan["step_hash"], "this machine has everything that the launch needs")
    # Only the launch asks the other machines.
    c.expect(0, ["recipe", "check", "fixed.toml", "--all"], "this machine has everything it needs: ")
    said = c.run("recipe", "check", "fixed.toml", "--all", "--set", "launch.backend=ssh", "--set", 'launch.ssh.hosts=["node9"]')
    if "contact" not in said.stdout or "trainctl launch --dry-run" not in said.stdout:
        c.fail("does not say that node9 was not asked: " + said.stdout)


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
    expect(5, from_folder, "contains neither model.safetensors nor")
    write_weights(weights, tensors)
    expect(0, from_folder)
    # Mistakes of all kinds at once: a list with the code of the first.
    other = {**tensors, "model.norm.weight": ([4], [0.0] * 4), "odd": ([1], [0.0])}
    del other["lm_head.weight"]
    write_weights(weights, other)
    expect(6, from_folder, "3 tensors", "model.norm.weight is [4], but the model's is [8]", "no parameter odd",
           "lm_head.weight is missing")
    wide = ["--set", "train.steps=1000000000", "--set", "checkpoint.every_steps=1", "--set", "checkpoint.keep=1000000",
            "--set", "model.ffn=65536"]
    expect(6, [*from_folder, *wide], "mlp.up_proj.weight is [12, 8], but the model's is [65536, 8]", " free, but 1000001 checkpoints of ")
    expect(5, wide, "lower checkpoint.keep, or put run.root on another disk")
    # Of each parameter a checkpoint has the two moments, in fp32, and the weight.
    alone = ["--set", "train.precision=\"bf16\"", "--set", "train.master_dtype=\"bf16\""]
    of_each = [float(re.search(r"1000001 checkpoints of ([0-9.]+) MiB", c.expect(5, [*checks[0], *wide, *sets]))[1])
               for sets in ([], alone)]
    if abs(of_each[1] / of_each[0] - (2 + 8) / (4 + 8)) > 0.001:
        c.fail("checkpoints with masters in fp32 and in bf16 take %s MiB" % of_each)
    for command in checks:
        c.expect(2, [*command, *from_folder, "--set", 'data.train[0].files=["no/*.txt"]', "--set", 'data.tokenizer="t.json"'],
                 "no file matches", "no such tokenizer file or folder", "t.json", "lm_head.weight is missing")
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
        "model_type": "mpt", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 300}))
    c.write("a.txt", "some text of mine\n" * 200)
    c.write("r.toml", 'recipe_version = 1\n[model]\nfrom = "m"\n[data]\nseq_len = 8\n[[data.train]]\n'
                      'files = ["a.txt"]\n[train]\nsteps = 3\nbatch_sequences = 8\n')
    for verb in (["recipe", "check"], ["plan"], ["launch"]):
        said = c.expect(2, [*verb, "r.toml"], "cannot train the model", "trains model_type llama, mistral")
    way = re.search(r"trainctl (plan RECIPE --as \S+ --set \S+)", said)
    c.expect(0, way.group(1).replace("RECIPE", "r.toml").split(), "Estimate of the run in", "Chosen: ")


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


@case
def models_are_listed(c):
    c.expect(0, ["models"], "differs from Llama in", "qwen3", "norms of queries and keys", "only planned", "mixtral", "8.03B")
    listed = json.loads(c.expect(0, ["models", "--json"]))
    trained = {family["model_type"] for family in listed["families"] if family["trained"]}  # some have several families
    # The error for a model that is not trained lists the same families.
    c.write("m/config.json", json.dumps({"model_type": "mpt", "hidden_size": 8, "intermediate_size": 12,
                                         "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 256}))
    said = c.expect(2, ["new", "--from", "m"], "--from: ")
    if sorted(re.search(r"trains model_type ([^;]*)", said).group(1).split(", ")) != sorted(trained):
        c.fail("models lists %s, but the error is %s" % (trained, said))
    presets = {preset["name"]: preset for preset in listed["presets"]}
    if presets["llama3.1-8b"]["parameters"] != 8030261248 or presets["gpt-oss-20b"]["trained"]:
        c.fail("presets: %s" % presets)
    with open(ROOT + "/docs/reference/models.md") as file:
        if c.expect(0, ["models", "--markdown"]) != file.read():
            c.fail("run: trainctl models --markdown > docs/reference/models.md")
    c.expect(2, ["models", "--markdown", "--json"], "use only one of them")
    said = c.expect(0, ["models", "Qwen 2.5"], "qwen2 ")
    if "mixtral" in said or "qwen3" in said or "llama" in said:
        c.fail("models Qwen 2.5 lists others: %s" % said)
    c.expect(0, ["models", "llama3.1-8b"], "8.03B")
    for name, family in (("Phi 4", "phi3 "), ("phi-2", "phi "), ("InternLM 2.5", "internlm2 "), ("Llama 2", "llama "),
                         ("Falcon 11B", "falcon "), ("DeepSeek R1", "deepseek_v3 ")):
        c.expect(0, ["models", name], family)
    if json.loads(c.expect(0, ["models", "mixtral", "--json"]))["families"][0]["model_type"] != "mixtral":
        c.fail("models mixtral --json lists others")
    c.expect(2, ["models", "t5000"], 'no family or preset has "t5000" in its name; `trainctl models` lists them all')
    c.expect(2, ["models", "qwen2", "--markdown"], "leave out the name")


def examples(names, count=400):
    """JSON lines with these string fields."""
    return "".join(json.dumps({name: "%s of example %d" % (name, i) for name in names}) + "\n" for i in range(count))


@case
def new_from_a_folder_is_ready_to_use(c):
    write_weights(c.dir + "/m/model.safetensors", tiny_llama(c.dir + "/m"))
    c.write("data/a.jsonl", examples(["question", "answer"]))
    new = ["new", "--from", "m", "--data", "data/a.jsonl"]
    c.expect(0, new, "recipe.toml: fine-tuning a Hugging Face model", "question (prompt), answer", "Fits this machine: ",
             "trainctl plan recipe.toml")
    c.expect(0, ["recipe", "check", "recipe.toml", "--all"], "this machine has everything it needs")
    c.expect(0, ["plan", "recipe.toml"], "Chosen: ")
    shown = json.loads(c.expect(0, ["recipe", "show", "recipe.toml", "--json"]))["recipe"]
    if shown["train"]["steps"] <= shown["optimizer"]["warmup_steps"] or shown["data"]["train"][0]["prompt_field"] != "question":
        c.fail("the recipe is %s" % shown)
    c.expect(2, new, "recipe.toml exists", "--force")
    c.expect(0, [*new, "--force"])
    c.expect(0, [*new, "--out", "-"], "recipe_version = 1", 'from = "m"')
    # Paths are relative to the recipe.
    os.makedirs(c.dir + "/recipes")
    report = json.loads(c.expect(0, [*new, "--out", "recipes/r.toml", "--json"]))
    if not report["fits"] or report["predicted_bytes"] > report["limit_bytes"] or report["parameters"] < 4000:
        c.fail("--json: %s" % report)
    if 'from = "../m"' not in c.read("recipes/r.toml") or '["../data/a.jsonl"]' not in c.read("recipes/r.toml"):
        c.fail("paths: %s" % c.read("recipes/r.toml"))
    c.expect(0, ["recipe", "check", "recipes/r.toml"], "is valid")
    # Other data.
    fields = {"completion": (["prompt", "completion"], 'prompt_field = "prompt"', 'text_field = "completion"'),
              "output": (["instruction", "input", "output"], 'prompt_field = "instruction"', 'text_field = "output"'),
              "text": (["text"], '#prompt_field = "prompt"', 'text_field = "text"')}
    for name, (names, *lines) in fields.items():
        c.write(name + ".jsonl", examples(names))
        said = c.expect(0, ["new", "--from", "m", "--data", name + ".jsonl", "--force"])
        if ("input" in names) != ('the field "input"' in said):
            c.fail("%s: %s" % (name, said))
        for line in lines:
            if "\n%s\n" % line not in c.read("recipe.toml"):
                c.fail("%s: no %s in %s" % (name, line, c.read("recipe.toml")))
        c.expect(0, ["recipe", "check", "recipe.toml"], "is valid")
    c.write("plain.txt", "some text\n" * 2000)
    c.expect(0, ["new", "--from", "m", "--data", "plain.txt", "--force"])
    c.expect(0, ["recipe", "check", "recipe.toml"], "is valid")
    c.write("chats.jsonl", '{"messages": []}\n' * 100)
    c.expect(0, ["new", "--from", "m", "--data", "chats.jsonl", "--force"], "chat template", "Render the conversations into a file")
    c.expect(0, ["new", "--from", "m", "--force"], "Create data/train.jsonl")
    c.expect(0, ["plan", "recipe.toml"], "Chosen: ", "missing for a launch: ")
    # Too large for the machine: the recipe is written nevertheless.
    c.write("host.json", json.dumps({"cpu": "x", "allowed_cores": 2, "memory_available_bytes": 1 << 20, "native_bf16": False,
                                     "accelerator": "", "accelerator_memory_bytes": 0}))
    os.environ["TRAINCTL_TEST_HOST"] = c.dir + "/host.json"
    said = c.expect(0, [*new, "--force"], "this machine cannot run this recipe: ", "--set cluster.device=h100")
    if "Fits" in said:
        c.fail("fits: " + said)
    report = json.loads(c.expect(0, [*new, "--force", "--json"]))
    if report["fits"] or not report["why_not"]:
        c.fail("fits: %s" % report)
    del os.environ["TRAINCTL_TEST_HOST"]


@case
def new_from_what_cannot_be_trained(c):
    """Ends as `recipe check` does, and writes nothing."""
    c.write("r.toml", 'recipe_version = 1\n[model]\nfrom = "m"\nweights = "from"\n[[data.train]]\nfiles = ["a.txt"]\n'
                      '[train]\nsteps = 3\n')
    c.write("a.txt", "text\n" * 2000)
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 256}
    for config in (None, "{", LFS_POINTER, json.dumps({"model_type": "mpt", **sizes}), json.dumps({"model_type": "x", **sizes}),
                   json.dumps({"model_type": "llama", "logit_softcap": 3, **sizes})):
        if config is not None:
            c.write("m/config.json", config)
        checked, new = c.run("recipe", "check", "r.toml"), c.run("new", "--from", "m")
        message = new.stdout.partition("--from: ")[2].strip()
        if new.returncode != checked.returncode or not message or message not in checked.stdout:
            c.fail("%s: recipe check exits with %d and says %s, but new exits with %d and says %s" % (
                config, checked.returncode, checked.stdout, new.returncode, new.stdout))
    tiny_llama(c.dir + "/m")
    c.expect(2, ["new", "text", "--from", "m"], "leave out text")
    c.expect(2, ["new", "--data", "a.txt"], "--data requires --from")
    c.expect(2, ["new", "--from", "m", "--data", "missing.jsonl"], "--data", "missing.jsonl")
    c.write("b.jsonl", examples(["prompt", "text"]))
    c.write("c.jsonl", examples(["question", "answer"]))
    c.expect(2, ["new", "--from", "m", "--data", "b.jsonl", "c.jsonl"], "have different fields")
    c.write("d.jsonl", '{"prompt": "x", "text": "y"}\nno json\n')
    c.expect(6, ["new", "--from", "m", "--data", "d.jsonl"], "d.jsonl:2")
    if os.path.exists(c.dir + "/recipe.toml"):
        c.fail("a recipe was written")


def make_run(c, folder, events, steps=0, total=40):
    c.write(folder + "/journal.jsonl", "".join(json.dumps({"v": 1, **event}) + "\n" for event in events))
    c.write(folder + "/recipe.json", json.dumps({"train": {"steps": total}}))
    c.write(folder + "/metrics.jsonl", "".join('{"step":%d,"loss":%.2f}\n' % (i, 4 - i / 10) for i in range(1, steps + 1)))
    c.write(folder + "/timings.jsonl", "".join('{"step":%d,"tokens_per_second":5000,"mfu":0.4}\n' % i for i in range(1, steps + 1)))


@case
def runs_are_listed(c):
    c.expect(0, ["runs"], "no runs in the folder runs")
    if json.loads(c.expect(0, ["runs", "--json"]))["runs"] != []:
        c.fail("runs of nothing")
    c.expect(2, ["runs", "elsewhere"], "elsewhere is not a directory")
    launch = {"time": "2026-01-02T10:00:00+00:00", "event": "launch", "world_size": 2, "pid": 2 ** 22 + 1}
    make_run(c, "runs/done", [launch, {"time": "2026-01-02T11:00:00+00:00", "event": "end", "status": "finished"}], 40)
    os.makedirs(c.dir + "/runs/done/checkpoints/step-00000040")  # the name alone makes no checkpoint
    # No machine has a process of that number.
    make_run(c, "runs/lost", [{**launch, "time": "2026-01-03T10:00:00+00:00"}], 3)
    c.write("runs/torn/journal.jsonl", "{}\n")
    # The last evaluation is not the best one, and not on the last line.
    evaluations = {0: {"a": 9}, 1: {"a": 2.5, "b": "nan"}, 2: {"a": 3.25, "b": None}}
    c.write("runs/lost/metrics.jsonl", "".join(
        json.dumps({"step": step, "loss": 4 - step / 10, **({"eval": evaluations[step]} if step in evaluations else {})},
                   separators=(",", ":")) + "\n" for step in range(4)))
    text = c.expect(0, ["runs"], "started (UTC)")
    lines = [line.split() for line in text.splitlines()]
    if ["done", "2026-01-02", "10:00", "finished", "40", "40", "0.0000", "-", "-", "5000", "40.0%", "-", "-"] not in lines:
        c.fail("done: %s" % text)
    if ["lost", "2026-01-03", "10:00", "interrupted", "3", "40", "3.7000", "3.2500", "2.5000", "(step", "1)", "5000", "40.0%", "-", "-"] not in lines:
        c.fail("lost: %s" % text)
    if "damaged" not in text or [line[0] for line in lines[1:4]] != ["lost", "done", "torn"]:
        c.fail("order: %s" % text)
    runs = json.loads(c.expect(0, ["runs", "--json"]))["runs"]
    if [run["name"] for run in runs] != ["lost", "done", "torn"] or runs[1]["checkpoint_step"] is not None or runs[2]["step"] is not None:
        c.fail("--json: %s" % runs)
    evaluation = {"a": {"last": {"loss": 3.25, "step": 2}, "best": {"loss": 2.5, "step": 1}},
                  "b": {"last": {"loss": "nan", "step": 1}, "best": None}}
    if runs[0]["evaluation"] != evaluation or runs[1]["evaluation"] != {}:
        c.fail("--json: evaluations: %s" % runs)
    # A run that cannot be read hides no other one.
    c.write("runs/torn/metrics.jsonl", '{"step":1,"loss":2}\n')
    text = c.expect(6, ["report", "runs/done", "runs/torn", "runs/lost"], "runs/torn is omitted: ", "journal.jsonl:1")
    if [line.split()[0] for line in text.splitlines() if line.startswith(("done ", "lost "))] != ["done", "lost"]:
        c.fail("report with a damaged run: %s" % text)
    shown = subprocess.run([TRAINCTL, "report", "--json", "runs/lost", "runs/torn"], cwd=c.dir, capture_output=True, text=True)
    report = json.loads(shown.stdout)
    if shown.returncode != 6 or [run["name"] for run in report["runs"]] != ["lost"] or \
            report["runs"][0]["best_evaluation"] != {"loss": 2.5, "step": 1, "set": "a"} or \
            [os.path.basename(run["path"]) for run in report["damaged"]] != ["torn"]:
        c.fail("report --json: %s %s" % (shown.returncode, shown.stdout))
    c.expect(6, ["report", "runs/torn"], "journal.jsonl:1")
    c.expect(0, ["runs", "runs/done"], "finished", "done: checkpoint at step 40 is damaged")
    c.expect(0, ["status", "runs/done"], "checkpoint  none", "checkpoint at step 40 is damaged")
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
    if code != 75 or "run the same command to continue" not in said:
        c.fail("Ctrl-C: exit code %d, %s" % (code, said))
    if "set.idx" in prepared(c):
        c.fail("Ctrl-C left an index")
    text = c.expect(0, [*command, "--threads", "3"], "resuming after", "60000 documents")
    if "starting over" in text or prepared(c) != undisturbed:
        c.fail("after Ctrl-C: %s" % text)

    # Killed before its first commit it starts over; either way nothing half-written counts.
    shutil.rmtree(c.dir + "/out")
    code, said = signal_in_the_middle(c, command, signal.SIGKILL)
    if code != -signal.SIGKILL or "set.idx" in prepared(c):
        c.fail("SIGKILL: exit code %d, %s" % (code, said))
    c.expect(0, command, "60000 documents")
    if prepared(c) != undisturbed:
        c.fail("another result after SIGKILL")


def piped(c, chunks, *args):
    """The preparation whose standard input these are: exit code, output, and the most memory it had in bytes."""
    process = subprocess.Popen([TRAINCTL, "data", "prepare", "-", *args], cwd=c.dir, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        for chunk in chunks:
            process.stdin.write(chunk)
            process.stdin.flush()
        process.stdin.close()
    except BrokenPipeError:
        pass
    said = process.stdout.read().decode()
    status, usage = os.wait4(process.pid, 0)[1:]
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, said, usage.ru_maxrss << 10


@case
def standard_input_is_prepared_as_a_file_is(c):
    lines = [b'{"text": "document %d %s"}\n' % (i, b"word " * (i % 50)) for i in range(3000)]
    with open(c.dir + "/a.jsonl", "wb") as file:
        file.writelines(lines)
    as_jsonl = ["--kind", "jsonl", "--end-of-document", "--out", "out/set"]
    c.expect(0, ["data", "prepare", "a.jsonl", *as_jsonl], "3000 documents")
    expected = prepared(c)
    packed = gzip.compress(b"".join(lines))
    # Packed, too, however small the pieces are in which it comes.
    for chunks in (lines, [packed[i:i + 1] for i in range(20)] + [packed[20:]]):
        shutil.rmtree(c.dir + "/out")
        code, said, _ = piped(c, chunks, *as_jsonl)
        if code != 0 or "3000 documents" not in said or "from standard input" not in said:
            c.fail("exit code %d: %s" % (code, said))
        found = prepared(c)
        if sorted(found) != sorted(expected) or any(found[name] != expected[name] for name in ("set.bin", "set.idx")):
            c.fail("another dataset than of the file: %s" % sorted(found))
        if json.loads(found["set.json"])["sources"][0]["path"] != "-":
            c.fail("set.json: %s" % found["set.json"])
    code, said, _ = piped(c, [b"one ", b"text"], "--kind", "text", "--out", "text")
    if code != 0 or open(c.dir + "/text.bin", "rb").read() != b"one text":
        c.fail("text: %s" % said)

    line = b'{"text": "%s"}\n' % (b"x" * 1000)
    small = piped(c, [line], "--kind", "jsonl", "--out", "small")[2]
    code, said, large = piped(c, [line * 1000] * 40, "--kind", "jsonl", "--out", "large")
    if code != 0 or large - small > 16 << 20:
        c.fail("40 MB through a pipe: exit code %d, %d MiB more than a line: %s" % (code, large - small >> 20, said))

    for chunks, args, wanted, words in (
            ([b"x"], ["--out", "bad"], 2, "add --kind jsonl (one document per line) or --kind text"),
            ([b"x"], ["--kind", "parquet", "--out", "bad"], 2, "Parquet cannot be read from standard input"),
            ([b"x"], ["a.jsonl", "--kind", "jsonl", "--out", "bad"], 2, "must be the only input"),
            ([b'{"text": "a"}\nnonsense\n'], ["--kind", "jsonl", "--out", "bad"], 6, "standard input:2:"),
            ([], ["--kind", "text", "--out", "bad"], 6, "standard input contains no text")):
        code, said, _ = piped(c, chunks, *args)
        if code != wanted or words not in said:
            c.fail("%s: exit code %d: %s" % (args, code, said))
    if [name for name in os.listdir(c.dir) if name.startswith("bad")]:
        c.fail("what failed leaves %s" % os.listdir(c.dir))
    master, terminal = os.openpty()
    asked = subprocess.run([TRAINCTL, "data", "prepare", "-", "--kind", "text", "--out", "bad"], cwd=c.dir, stdin=terminal,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    os.close(terminal)
    os.close(master)
    if asked.returncode != 2 or "standard input is a terminal; pipe the text in" not in asked.stdout:
        c.fail("on a terminal: exit code %d: %s" % (asked.returncode, asked.stdout))

    # A pipe without further input does not prevent a stop.
    process = subprocess.Popen([TRAINCTL, "data", "prepare", "-", "--kind", "jsonl", "--out", "out/stopped"], cwd=c.dir,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdin.write(line * 1000)
    process.stdin.flush()
    while not os.path.exists(c.dir + "/out/stopped.bin.part"):
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    said = process.stdout.read().decode()
    process.stdin.close()
    if process.wait() != 130 or "the next run starts over" not in said or [n for n in os.listdir(c.dir + "/out") if "stopped" in n]:
        c.fail("stopped: exit code %d: %s" % (process.returncode, said))

    for url, words in (("https://host/a.jsonl", "curl -L https://host/a.jsonl | trainctl data prepare - --kind jsonl --out bad"),
                       ("s3://bucket/a.txt", "aws s3 cp s3://bucket/a.txt - | trainctl data prepare - --kind text --out bad")):
        c.expect(2, ["data", "prepare", url, "--out", "bad"], "is a URL", "or pipe it in: " + words)


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
        c.expect(0, ["plan", "cpu.toml"], "cluster.device = auto: no accelerator is visible -> cpu", "Chosen")
        c.expect(0, ["launch", "cpu.toml", "--dry-run"], "cluster.device = auto: no accelerator")
    finally:
        for name in ("LD_LIBRARY_PATH", "FAKE_NVML_NAME", "FAKE_NVML"):
            os.environ.pop(name, None)


@case
def epochs_need_the_data_that_they_count(c):
    recipe = """recipe_version = 1
[model]
preset = "toy-1m"
[data]
seq_len = 128
[[data.train]]
files = ["data/a.txt"]
[train]
epochs = 2
batch_sequences = 4
"""
    c.write("r.toml", recipe)
    # A plan needs the length for the duration only.
    text = c.expect(0, ["plan", "r.toml"], "Chosen: ", "missing for a launch: ",
                    "no such data file: %s/data/a.txt; set train.steps to plan without data" % c.dir)
    if "tokens take" in text:
        c.fail("a plan without data has a duration: %s" % text)
    c.expect(0, ["plan", "r.toml", "--sweep", "train.batch_sequences=4,8"], "4", "8")
    c.expect(0, ["plan", "r.toml", "--write", "fixed.toml"])
    if "\nepochs = 2.0" not in c.read("fixed.toml") or "\nsteps" in c.read("fixed.toml"):
        c.fail("written: %s" % c.read("fixed.toml"))
    c.expect(2, ["launch", "r.toml", "--dry-run"], "missing here: ", "data/a.txt", "train.epochs: cannot count the tokens")
    c.expect(2, ["launch", "r.toml"], "r.toml:7:1", "data/a.txt")
    c.expect(2, ["recipe", "check", "r.toml", "--all"], "2 epochs in steps of 4 sequences of 128", "data/a.txt")
    c.write("data/a.txt", "x" * 5121)
    # 2 x 5121 tokens (or 5122 with the token that ends the text) are 20.004 (20.008) steps of 512.
    for sets in ([], ["--set", "model.vocab=257"]):
        for verb in (["recipe", "check"], ["recipe", "check", "--all"]):
            c.expect(0, [*verb, "r.toml", *sets], "10.8K tokens in 21 steps of 4 sequences of 128")
        c.expect(0, ["plan", "r.toml", *sets], "10.8K tokens take")
        c.expect(0, ["launch", "r.toml", "--dry-run", *sets], "the run covers 2.10 epochs")
        c.expect(0, ["recipe", "show", "r.toml", *sets], "steps = 21 ", "# r.toml:9:1 (train.epochs)")
    if json.loads(c.expect(0, ["recipe", "check", "r.toml", "--json"]))["steps"] != 21:
        c.fail("recipe check --json has other steps")
    c.expect(0, ["plan", "r.toml", "--write", "fixed.toml", "--force"])
    if "\nsteps = 21" not in c.read("fixed.toml") or "epochs" in c.read("fixed.toml"):
        c.fail("written: %s" % c.read("fixed.toml"))
    # A mistake is listed once, with its location if that is known.
    ssh = ["--set", "launch.backend=ssh", "--set", "cluster.nodes=2"]
    c.write("hosts", "node9\n")
    for hosts in ('launch.ssh.hosts=["node9"]', "launch.ssh.hosts_file=hosts"):
        if c.expect(2, ["launch", "r.toml", "--dry-run", *ssh, "--set", hosts], "missing here: ").count("has 1 machine, but") != 1:
            c.fail("%s: not one line for one mistake" % hosts)
    said = c.expect(2, ["launch", "r.toml", "--dry-run", "--set", "train.steps=5", "--set", 'data.train[0].files=["data"]'],
                    "did you mean its files (%s/data/*)?" % c.dir)
    if said.count("missing here: ") != 1:
        c.fail("not one line for one mistake: %s" % said)
    c.write("data/a.jsonl", '{"text": "a"}\nnonsense\n')
    damaged = ["--set", 'data.train[0].files=["data/a.jsonl"]']
    c.expect(6, ["launch", "r.toml", *damaged], "r.toml:9:1: train.epochs: cannot count the tokens of an epoch: ", "a.jsonl:2")
    c.expect(6, ["launch", "r.toml", "--dry-run", *damaged], "missing here: ", "a.jsonl:2")
    c.expect(0, ["plan", "r.toml", *damaged], "a.jsonl:2")
    c.expect(0, ["plan", "r.toml", "--as", "torchtitan", "--set", "cluster.device=h100", "--set", "cluster.devices_per_node=1"],
             "train.epochs: estimates of other trainers read no data")


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
                words = ["cluster.devices_per_node = 2", 'CUDA_VISIBLE_DEVICES="%s" shows 1' % value, "lower the number"]
                c.expect(2, ["plan", "gpu.toml", *two], "--set: ", *words)
                c.expect(5, ["plan", "gpu.toml", *two, *cuda], *words)
                for device in (cuda, ["--set", "cluster.device=h100"]):
                    c.expect(5, ["launch", "gpu.toml", "--dry-run", *two, *device], *words)
            else:
                c.expect(0, ["plan", "gpu.toml", *two, *cuda], ", 2 workers")
                c.expect(5, ["launch", "gpu.toml", "--dry-run", "--set", "cluster.devices_per_node=4", *cuda],
                         "cluster.devices_per_node = 4: this machine has 2 GPUs", "lower the number")
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
        words = ('CUDA_VISIBLE_DEVICES="0,0" names GPU 0 twice', "list each only once")
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
    c.expect(2, ["logs", "one", "--rank", "2"], "--rank 2", "2 rank(s), numbered 0 to 1")
    for own in ("one/recipe.json", "./one/../one/traces/x.json", c.dir + "/one/plan.json"):
        c.expect(2, ["trace", "one", "--out", own], "is one of the run's own files")
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
    tiny_llama(c.dir + "/model")
    c.write("examples.txt", "the theme of the thesis, the others\n" * 400)
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
             "new --out": (["new"],),
             "new --from --out": (["new", "--from", "model", "--data", "examples.txt"], "examples.txt")}
    full = full_device(c)
    before = {name: c.read(name) for name in ("recipe.toml", "base.toml", "text.txt", "runs.csv", "examples.txt")}
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
    c.expect(2, [*plan, "--write", "same", "--html", "./same"], "--write and --html", "choose another file")
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
    c.expect(2, ["checkpoint", "export", "run", "--out", "model"], "already contains config.json")
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
                 ["export", "tensorboard", "--out"], ["checkpoint", "export", "--out"], ["new", "--out"], ["new", "--from"],
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
    if "\x1b" in c.expect(2, ["status", "runs/\x1b[31mnowhere"], "no such run folder"):
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
def a_batch_shows_its_text(c):
    """With the end of each document, without padding, and only if the tokenizer has all tokens."""
    recipe = ('recipe_version = 1\n[model]\npreset = "toy-1m"\n[data]\nseq_len = 24\nshuffle = false\n'
              'packing = "whole"\n[[data.train]]\nfiles = ["%s"]\n[train]\nsteps = 3\nbatch_sequences = 1\n')
    rows = ["say \"hi\"\t", "caf\u00e9"]
    c.write("rows.jsonl", "".join(json.dumps({"text": row}) + "\n" for row in rows))
    c.write("bytes.toml", recipe % "rows.jsonl")
    c.expect(0, ["data", "batch", "bytes.toml", "--step", "1"], '\n  text      "say \\"hi\\"\\tcaf\u00e9"\n')
    c.write("words.txt", "say hi to the cat and say hi to the dog " * 9)
    c.expect(0, ["tokenizer", "train", "words.txt", "--vocab", "300", "--out", "own.json"])
    own = ["--set", "data.tokenizer=own.json", "--set", "model.vocab=300"]
    batch = json.loads(c.run("data", "batch", "bytes.toml", "--step", "1", "--json", *own).stdout)
    end = json.load(open(os.path.join(c.dir, "own.json")))["added_tokens"][0]["content"]
    if batch["sequences"][0]["text"] != "".join(row + end for row in rows):
        c.fail("text: %s" % batch)
    # Tokens of another tokenizer than the recipe's.
    c.expect(0, ["data", "prepare", "words.txt", "--tokenizer", "own.json", "--out", "prepared"])
    c.write("prepared.toml", recipe.replace("whole", "documents") % "prepared.bin")
    prepared = ["data", "batch", "prepared.toml", "--step", "1", "--set", "model.vocab=300"]
    printed = c.expect(0, prepared)
    batch = json.loads(c.expect(0, prepared + ["--json"]))
    if "  text " in printed or batch["sequences"][0]["text"] is not None:
        c.fail("the text of other tokens: %s" % printed)


@case
def steps_are_counted_from_one(c):
    c.write("recipe.toml", 'recipe_version = 1\n[model]\npreset = "toy-1m"\n[data]\nseq_len = 8\nshuffle = false\n'
                           '[[data.train]]\nfiles = ["text.txt"]\n[train]\nsteps = 3\nbatch_sequences = 1\n')
    c.write("text.txt", "abcdefghijklmnopqrstuvwxyz" * 4)
    batch = json.loads(c.run("data", "batch", "recipe.toml", "--step", "1", "--json").stdout)
    if batch["step"] != 1 or bytes(batch["sequences"][0]["tokens"]) != b"abcdefgh":
        c.fail("the first step's batch: %s" % batch)
    if batch["sequences"][0]["text"] != "abcdefgh":
        c.fail("the text of the batch: %s" % batch)
    c.expect(2, ["data", "batch", "recipe.toml", "--step", "0"], "'0' is not a whole number of at least 1")


@case
def what_a_plan_suggests_has_a_plan(c):
    """The values that a person would type next, each of them."""
    quickstart = ["plan", ROOT + "/recipes/quickstart.toml"]
    said = c.expect(2, [*quickstart, "--set", "train.batch_sequences=100003"], "2 errors", "the nearest are ")
    fewer = re.search(r"pass --set (optimizer.warmup_steps=\d+)", said).group(1)
    for batch in re.search(r"the nearest are (\d+) and (\d+)", said).groups():
        c.expect(0, [*quickstart, "--set", "train.batch_sequences=" + batch, "--set", fewer], "Chosen: ")
    for typo in (["lanch"], ["checkpoint", "verfy"], ["recipe", "explain", "train.stepz"], ["new", "txt"]):
        meant = re.search(r"did you mean ([^?]+)\?", c.expect(2, typo)).group(1)
        c.expect(0, [*typo[:-1], meant] if typo[0] in ("recipe", "new") else [*typo[:-1], meant, "--help"])
    tight = [*quickstart, "--set", "cluster.memory_limit=10MiB"]
    said = c.expect(3, tight, "this fits (")
    settings = said.strip().partition("this fits (")[2].partition(": ")[2].split(", ")
    c.expect(0, [*tight, *(word for setting in settings for word in ("--set", setting.replace(" = ", "=")))], "Chosen: ")


@case
def words_of_other_tools_lead_to_ours(c):
    with open(ROOT + "/lib/recipe/foreign_words.cc") as file:
        verbs = file.read().partition("kVerbs[] = {")[2].partition("};")[0]
    for ours in sorted(set(re.findall(r'"[a-z_]+", "([a-z ]+)"', verbs))):
        c.expect(0, [*ours.split(), "--help"])
    for typed, meant in (("fine-tune", "launch"), ("top", "status"), ("show", "status"), ("convert", "checkpoint export"),
                         ("preprocess", "data prepare"), ("config", "recipe show")):
        c.expect(2, [typed], "did you mean %s?" % meant)
    for typed, advice in (("serve", "trainctl serves no models"), ("clean", "remove its folder"), ("rm", "remove its folder")):
        if "did you mean" in c.expect(2, [typed], advice):
            c.fail("%s leads to another verb" % typed)
    # Two letters from `stop`, `save` and `plan`.
    for typed in ("slip", "saga", "pray"):
        if "did you mean" in c.expect(2, [typed]):
            c.fail("%s leads to a verb" % typed)
    c.expect(2, ["launch", "r.toml", "--lr", "1e-4"], "did you mean --set optimizer.lr=VALUE?")
    c.expect(2, ["launch", "r.toml", "--standalone"], "the launcher assigns ranks and connects the workers")
    c.expect(2, ["launch", "r.toml", "--config=x.yaml"], "trainctl launch RECIPE")
    c.expect(2, ["runs", "--lr", "1"], "`trainctl runs --help` lists them all")
    c.expect(2, ["generate", "--prompt", "a", "--temp", "0"], "did you mean --temperature?")
    c.expect(2, ["resume", "run", "--step", "50"], "continues from its newest checkpoint", "model.weights")
    c.expect(2, ["recipe", "check", "r.toml", "--set", "train.steps", "=", "5"],
             "--set takes KEY=VALUE without spaces: --set train.steps=5; see `trainctl recipe check --help`")
    c.expect(2, ["recipe", "check", "r.toml", "--set", "train.steps", "=5"], "--set train.steps=5;")
    c.expect(2, ["recipe", "check", "r.toml", "--set", "train.steps", "5"], "--set train.steps=5;")
    c.expect(2, ["recipe", "check", ROOT + "/recipes/quickstart.toml", "--set", "launch.ssh.hosts=a, b"],
             'expected a list of strings, got "a, b"; write ["a", "b"]')
    c.expect(2, ["checkpoint", "list", "run"], "did you mean ls?")
    c.expect(2, ["launch", "r.toml", "--output", "out"], "did you mean --run-dir FOLDER")
    c.expect(2, ["recipe", "explain", "lora"], "trainctl has no LoRA")
    c.expect(2, ["recipe", "check", ROOT + "/recipes/quickstart.toml", "--set", "cluster.device=gpu"], 'use "cuda"')
    c.write("near.toml", "")
    c.expect(2, ["plan", "near"], "there is no file near; did you mean near.toml?")
    c.expect(2, ["version", "all"], "trainctl version takes no arguments, but got 'all'; see `trainctl version --help`")
    c.expect(2, ["doctor", "r.toml"], "trainctl doctor takes no arguments, but got 'r.toml'; to check a recipe: "
             "trainctl recipe check r.toml --all; see `trainctl doctor --help`")
    c.expect(2, ["recipe", "explain", "lora_r"], "recipes have no key \"lora_r\"; trainctl has no LoRA")
    c.expect(2, ["recipe", "check", ROOT + "/recipes/quickstart.toml", "--set", "train.lora_r=8"],
             "unknown key train.lora_r; trainctl has no LoRA: it trains all weights")


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
def a_folder_without_a_run_is_evaluated_and_continued(c):
    """Checks the messages of generate and eval for a Hugging Face folder; tests/references compares their results."""
    tensors = tiny_llama(c.dir + "/m")
    c.write("text.txt", "the quick brown fox " * 20)
    c.write("a.jsonl", '{"text": "one", "body": "two", "ask": "who"}\n')
    both = (["generate", "--prompt", "x", "m"], ["eval", "--data", "text.txt", "m"])
    for verb in both:  # the folder has only config.json
        c.expect(5, verb, "m: contains neither model.safetensors nor model.safetensors.index.json")
    write_weights(c.dir + "/m/model.safetensors", {name: tensors[name] for name in tensors if name != "model.norm.weight"})
    for verb in both:
        c.expect(6, verb, "m does not contain the weights of the model described by config.json", "model.norm.weight is missing")
    write_weights(c.dir + "/m/model.safetensors", {**tensors, "model.norm.weight": ([8], [float("nan")] * 8)})
    for verb in both:
        c.expect(6, verb, "model.norm.weight: row 0 contains a NaN or infinite value")
    write_weights(c.dir + "/m/model.safetensors", {**tensors, "model.norm.weight": ([8], [2e4] * 8)})
    c.write("odd.toml", 'recipe_version = 1\n[run]\nname = "odd"\n[model]\nfrom = "m"\nweights = "from"\n[data]\ntokenizer = "byte"\n'
            'seq_len = 16\n[[data.train]]\nfiles = ["text.txt"]\n[train]\nsteps = 1\nbatch_sequences = 1\nprecision = "fp32"\n')
    c.expect(0, ["launch", "odd.toml", "--run-dir", "odd"], "m: model.norm.weight: row 0 contains 2e+04 and 7 more such values; a trained model",
             "(and 8 others) contains only zeros; a trained model has no such weights")
    write_weights(c.dir + "/m/model.safetensors", tensors)
    # Zeros find all 256 bytes alike, and the first is the most likely.
    said = c.run("eval", "m", "--data", "text.txt", "--seq-len", "16")
    told = json.loads(said.stdout.splitlines()[-1])
    one = told["sets"][0]
    if (told["model"], told["weights_dtype"], told["compute_dtype"], told["seq_len"], one["loss_tokens"]) != (
            os.path.realpath(c.dir) + "/m", "fp16", "fp32", 16, 399) or abs(one["loss"] - math.log(256)) > 1e-6 or \
            "each byte of a text is treated as a token" not in said.stdout or "checkpoint" in told:
        c.fail("eval of a folder: %s" % said.stdout)
    told = json.loads(c.expect(0, ["generate", "m", "--prompt", "ab", "--max-tokens", "3", "--temperature", "0", "--json"]).splitlines()[-1])
    if (told["model"], told["text"], told["ids"], told["weights_dtype"]) != (os.path.realpath(c.dir) + "/m", "\0\0\0", [0] * 3, "fp16"):
        c.fail("generate of a folder: %s" % told)
    c.expect(0, ["generate", "m", "--prompt", "ab", "--max-tokens", "3"], "note: the weights are fp16; the model computes in fp32")
    data = ["eval", "m", "--data", "text.txt"]
    for words in (["a.jsonl"], ["a.jsonl", "--text-field", "body"], ["a.jsonl", "--text-field", "body", "--prompt-field", "ask"]):
        c.expect(0, ["eval", "m", "--data", *words], '"loss_tokens":%d' % (3 if "--prompt-field" in words else 2))
    c.write("p.jsonl", '{"text": "one", "prompt": "who"}\n')
    c.write("q.jsonl", '{"question": "who", "answer": "one"}\n')
    said = c.expect(0, ["eval", "m", "--data", "q.jsonl"], "q.jsonl has no field 'text'; the text is its field 'answer', "
                    "and the prompt is 'question'", '"loss_tokens":3')
    if "is not read" in said:
        c.fail("eval says that the prompt is not read: %s" % said)
    c.expect(0, ["eval", "m", "--data", "p.jsonl"], "note: the field 'prompt' of", "p.jsonl is not read, so the loss is that of 'text' without it",
             "pass --prompt-field prompt")
    if "is not read" in c.run("eval", "m", "--data", "p.jsonl", "--prompt-field", "prompt").stdout:
        c.fail("eval says that a prompt is not read that is")
    c.expect(2, ["eval", "m"], "requires --data FILE", "m has no evaluation sets")
    c.expect(2, [*data, "--step", "3"], "--step applies to a run, but m is a Hugging Face folder")
    c.expect(2, [*data, "--seq-len", "4096"], "--seq-len 4096 is above the 2048 tokens that the model supports")
    c.expect(2, [*data, "--text-field", "text"], "apply only to JSONL and Parquet, which", "text.txt is not")
    c.expect(2, ["eval", "m", "--prompt-field", "ask"], "--prompt-field", "--data")
    c.expect(2, ["checkpoint", "export", "m", "--out", "n"], "m is already a Hugging Face folder")
    c.write("m/vocab.json", "{}")
    c.write("m/merges.txt", "")
    for verb in both:
        c.expect(2, verb, "neither tokenizer.json nor tokenizer.model; PyPI's transformers can create one from its vocab.json and merges.txt")
    os.rename(c.dir + "/m/config.json", c.dir + "/config.json")
    for verb in both:
        c.expect(5, verb, "m has weights but no config.json")
    for config, words in (('{"model_type": "mamba"}', ["mamba", "to be trained: llama, mistral"]), ("{", ["not valid JSON"]),
                          (LFS_POINTER, ["config.json is a Git LFS pointer"]),
                          (json.dumps({**json.load(open(c.dir + "/config.json")), "rope_scaling": {"type": "proportional", "factor": 4}}),
                           ["m/config.json", "proportional"])):
        c.write("m/config.json", config)
        for verb in both:
            c.expect(6, verb, *words)
    os.makedirs(c.dir + "/empty/snapshots")
    for verb in ("generate --prompt x", "eval"):
        c.expect(2, [*verb.split(), "empty"], "empty does not contain a model: a run folder contains journal.jsonl and recipe.json, a checkpoint "
                 "manifest.json, a Hugging Face folder config.json and *.safetensors", "specify one of the folders in its snapshots/")
        c.expect(2, [*verb.split(), "Qwen/Qwen2.5-0.5B"], "no such folder: Qwen/Qwen2.5-0.5B; specify a run, a checkpoint or a Hugging "
                 "Face folder", "hf download Qwen/Qwen2.5-0.5B")
        c.expect(2, [*verb.split(), "https://huggingface.co/Qwen/Qwen2.5-0.5B"], "is a URL, but only local files can be read; "
                 "download it: hf download Qwen/Qwen2.5-0.5B --local-dir Qwen2.5-0.5B")
        c.expect(2, [*verb.split(), "text.txt"], "text.txt is a file")


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
    c.expect(2, ["tokenizer", "train", "text.txt", "--vocab", "10", "--out", "u.json"], "--vocab 10: must be from 257 (1 special token")
    for absent in ("absent.txt", "absent/*.txt", "."):
        c.expect(2, ["tokenizer", "train", absent, "--vocab", "300", "--out", "u.json"], absent)
        c.expect(2, ["data", "prepare", absent, "--out", "u"], absent)
    c.write("torn.jsonl", '{"text": "the end"}\n{"text": 3}\n{"text": "the end"}\nno json\n{"text": "the end"}\n')
    torn = ["tokenizer", "train", "text.txt", "torn.jsonl", "--vocab", "300", "--out", "torn.json"]
    c.expect(6, torn, "torn.jsonl:2", "to skip such lines, use --on-bad-line skip")
    c.expect(0, [*torn, "--on-bad-line", "skip"], "2 lines skipped: torn.jsonl:2", "torn.jsonl:4", "Wrote")
    if c.read("t.json") != c.read("torn.json"):
        c.fail("lines that are left out train another tokenizer")
    c.expect(0, ["tokenizer", "info", "t.json"], "byte-level BPE", "<|endoftext|> (0)")
    c.write("tokenizer_config.json", '{"add_bos_token": true}')
    c.expect(0, ["tokenizer", "info", "t.json"], "tokenizer_config.json sets add_bos_token, but trainctl adds nothing before a text")
    c.expect(0, ["tokenizer", "info", "t.json", "--json"], '"notes":["tokenizer_config.json sets add_bos_token')
    ids = json.loads(c.run("tokenizer", "encode", "t.json", "text.txt", "--json").stdout)["ids"]
    c.write("ids", " ".join(map(str, ids)))
    c.expect(0, ["tokenizer", "decode", "t.json", "ids"], "the theme of the thesis, the others\n")
    c.write("ids", "1 9999")
    c.expect(2, ["tokenizer", "decode", "t.json", "ids"], "ID 9999 is not in the tokenizer")
    c.write("ids", "1 x")
    c.expect(2, ["tokenizer", "decode", "t.json", "ids"], "'x' is not a token id")
    c.expect(2, ["tokenizer", "info", "absent.json"], "no such tokenizer file or folder: absent.json")
    c.write("bad.json", '{"model": {"type": "WordPiece", "vocab": {}}}')
    c.expect(6, ["tokenizer", "info", "bad.json"], "bad.json: model.type = 'WordPiece' is not supported")
    c.write("tik.model", "IQ== 0\nIg== 1\n")
    c.expect(6, ["tokenizer", "info", "tik.model"], "tik.model: is in tiktoken's format", "use the tokenizer.json next to it")
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
    c.expect(6, [*train, "empty.txt", "--out", "t.json"], "contain no text")
    # The output comes first: the input is not there.
    c.expect(5, [*train, "absent.txt", "--out", "no/such/t.json"], "no/such")
    c.expect(2, [*train, "absent.txt", "--out", "."], "must be a file")
    c.expect(2, [*train, "text.txt", "--out", "text.txt", "--force"], "text.txt is an input of this command")
    c.expect(2, [*train, "absent.txt", "--out", "t.json", "--min-frequency", "-5"], "-5")
    c.expect(2, [*train, "absent.txt", "--out", "t.json", "--special", "\u00e9"], "is the spelling of the byte 0xE9")
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
    if done.returncode != 5 or "failed to write all output" not in done.stderr:
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
