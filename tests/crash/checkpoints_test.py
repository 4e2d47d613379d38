#!/usr/bin/env python3
"""What one layout saves another loads, bit for bit: parameters and the optimizer's state, read from the files themselves.

    checkpoints_test.py TRAINCTL [--all] [--seed 1]

A save follows a step, and a step changes what was loaded. So the runs here are blown up first: a learning rate and a weight
decay of 1000 make the loss NaN within a few updates, and with on_nonfinite = "skip" every later step leaves the state alone.
A resume under another layout then does one step, skips its update, and saves what it has loaded. Each resume of a chain loads
what the one before saved. tests/tools/read_checkpoint.py assembles the tensors, and shares no code with the trainer.

Each layout loads what three others saved: once in fp32, once with weights in bf16 alone, once with tied embeddings. With
--all: what all others saved, each way. That a layout also computes with what it loaded is tested by layouts_test.py.
"""

import argparse
import concurrent.futures
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import read_checkpoint  # noqa: E402

os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine
FIRST_STEPS = 8  # the last of them are skipped

# Sizes that few degrees divide: 24 x 257 elements in shards of two and three, 4 heads, 2 of keys.
RECIPE = """
recipe_version = 1
[model]
family = "llama"
layers = 3
hidden = 24
heads = 4
kv_heads = 2
ffn = 40
vocab = 257
qkv_bias = true
tie_embeddings = %(tied)s
[data]
seq_len = 32
[[data.train]]
files = ["text.txt"]
[train]
steps = %(steps)d
batch_sequences = 12
precision = "%(dtype)s"
master_dtype = "%(dtype)s"
on_nonfinite = "skip"
[optimizer]
lr = 1000
weight_decay = 1000
lr_schedule = "constant"
[cluster]
threads_per_worker = 1
[checkpoint]
keep = 2
"""

DEFAULTS = {"cluster.devices_per_node": 1, "train.micro_batch": 1, "checkpoint.async": "false", "parallel.pp": 1,
            "parallel.tp": 1, "parallel.dp_replicate": 1, "parallel.dp_shard": 1, "parallel.zero_stage": 0,
            "parallel.recompute": "none", "parallel.schedule": "default", "parallel.virtual_stages": "default",
            "parallel.stage_layers": "default", "parallel.sequence_parallel": "default"}


def layout(workers, **parallel):
    sets = {**DEFAULTS, "cluster.devices_per_node": workers}
    for name, value in parallel.items():
        key = "checkpoint.async" if name == "in_background" else "parallel." + name
        assert key in DEFAULTS, key
        sets[key] = value
    return [word for key, value in sets.items() for word in ("--set", "%s=%s" % (key, value))]


LAYOUTS = {
    "one worker": layout(1),
    "ZeRO-3 tp=2 pp=2": layout(8, tp=2, pp=2, dp_shard=2, zero_stage=3, schedule="zb-h1", stage_layers="[2,1]"),
    "ZeRO-1": layout(2, dp_shard=2, zero_stage=1),
    "zbv": layout(2, pp=2, schedule="zbv", virtual_stages=2),
    "HSDP, in the background": layout(4, dp_replicate=2, dp_shard=2, zero_stage=3, in_background="true"),
    "tp=2": layout(2, tp=2),
    "three stages, the last the head": layout(3, pp=3, schedule="gpipe", stage_layers="[1,2,0]"),
    "ZeRO-2 over three": layout(3, dp_shard=3, zero_stage=2, recompute="full"),
    "tp=4, whole sequences": layout(4, tp=4, sequence_parallel="false"),
    "dualpipev": layout(2, pp=2, schedule="dualpipev", virtual_stages=2, recompute="selective"),
    "ZeRO-2 interleaved": layout(4, pp=2, dp_shard=2, zero_stage=2, schedule="interleaved-1f1b", virtual_stages=2,
                                 stage_layers="[0,1,1,1]"),
    "tp=2 pp=2 looped": layout(4, tp=2, pp=2, schedule="looped-bfs", virtual_stages=2, in_background="true"),
}
NAMES = list(LAYOUTS)


class Failed(Exception):
    pass


def pairs_at(*distances):
    """(saves, loads): each layout with those at these distances after it in the list."""
    return [(i, (i + d) % len(NAMES)) for d in distances for i in range(len(NAMES))]


def make_circuit(first, pairs):
    """Orders the layouts, from `first` on, so that each pair is two neighbours once (an Eulerian circuit, by Hierholzer)."""
    following = {}
    for saves, loads in pairs:
        following.setdefault(saves, []).append(loads)
    path, circuit = [first], []
    while path:
        if following[path[-1]]:
            path.append(following[path[-1]].pop(0))
        else:
            circuit.append(path.pop())
    circuit.reverse()
    assert sorted(zip(circuit, circuit[1:])) == sorted(pairs)
    return circuit


def find_differences(first, second):
    """Names of the logical tensors that are not equal to the bit."""
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


class Chain:
    """One run, resumed again and again, each time under another layout."""

    def __init__(self, trainctl, work, number, tied, dtype):
        self.trainctl = trainctl
        self.folder = "%s/chain-%d" % (work, number)
        self.recipe = "%s.toml" % self.folder
        self.words = "%s, %s" % ("tied" if tied else "untied", dtype)
        self.step = FIRST_STEPS
        with open(self.recipe, "w") as file:
            file.write(RECIPE % {"tied": "true" if tied else "false", "dtype": dtype, "steps": self.step})

    def run(self, *arguments):
        ended = subprocess.run([self.trainctl, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", timeout=180)
        if ended.returncode != 0:
            raise Failed("exit code %d of %s:\n%s" % (ended.returncode, " ".join(arguments), ended.stdout))
        return ended.stdout

    def launch(self, name):
        self.run("launch", self.recipe, "--run-dir", self.folder, *LAYOUTS[name])
        self.expect_a_skipped_step()
        return self.read()

    def resume(self, name):
        self.step += 1
        output = self.run("resume", self.folder, "--set", "train.steps=%d" % self.step, *LAYOUTS[name])
        # Not an older one, which is the same here.
        if "resuming after step %d from" % (self.step - 1) not in output:
            raise Failed("the checkpoint of step %d was not loaded:\n%s" % (self.step - 1, output))
        self.expect_a_skipped_step()
        return self.read()

    def expect_a_skipped_step(self):
        with open(self.folder + "/metrics.jsonl") as file:
            last = json.loads(file.readlines()[-1])
        if last["step"] != self.step or last["loss"] != "nan":
            raise Failed("the last step is not %d, skipped for its loss: %s" % (self.step, last))

    def path(self):
        return "%s/checkpoints/step-%08d" % (self.folder, self.step)

    def read(self):
        manifest, tensors = read_checkpoint.read_checkpoint(self.path())
        if manifest["step"] != self.step:
            raise Failed("the checkpoint is of step %d, not %d" % (manifest["step"], self.step))
        return manifest["state"]["updates"], tensors


def expect_worth_comparing(tensors, tied, dtype):
    """Elements that are alike could change places unseen."""
    parameters = [name for name in tensors if not name.startswith("optimizer.")]
    # Embedding, norm and 12 tensors of each of 3 layers; the head, unless it is the embedding.
    if len(parameters) != 2 + 12 * 3 + (0 if tied else 1):
        raise Failed("parameters: %s" % parameters)
    expected = sorted(name for p in parameters for name in (p, "optimizer.exp_avg/" + p, "optimizer.exp_avg_sq/" + p))
    if sorted(tensors) != expected:
        raise Failed("tensors: %s" % sorted(tensors))
    for name, tensor in tensors.items():
        is_half = dtype == "bf16" and not name.startswith("optimizer.")
        elements = [element for (element,) in struct.iter_unpack("<H" if is_half else "<I", tensor.data)]
        # Steps of 1000 leave few bf16 to choose from.
        if tensor.dtype != ("BF16" if is_half else "F32") or len(set(elements)) < min(len(elements), 8 if is_half else 1e9) / 4:
            raise Failed("%s is %s and has %d values in %d elements" % (name, tensor.dtype, len(set(elements)), len(elements)))


def expect_a_flipped_bit_is_found(path, tensors, chooser):
    """A copy of a checkpoint with another bit in one of its files is another one."""
    with tempfile.TemporaryDirectory(prefix="trainctl-checkpoints-") as copy:
        shutil.copytree(path, copy, dirs_exist_ok=True)
        name = chooser.choice(sorted(name for name in os.listdir(copy) if name.endswith(".safetensors")))
        with open(copy + "/" + name, "r+b") as file:
            data = bytearray(file.read())
            (header_bytes,) = struct.unpack_from("<Q", data)
            data[chooser.randrange(8 + header_bytes, len(data))] ^= 1 << chooser.randrange(8)
            file.seek(0)
            file.write(data)
        if len(find_differences(tensors, read_checkpoint.read_checkpoint(copy)[1])) != 1:
            raise Failed("a flipped bit in %s is not one difference" % name)


def check_chain(trainctl, work, number, tied, dtype, pairs, seed):
    """(pairs that failed, lines about them)."""
    chain, chooser, told, num_failed = Chain(trainctl, work, number, tied, dtype), random.Random(seed + number), [], 0
    circuit = make_circuit(4 * number, pairs)  # each chain is trained by another layout
    try:
        updates, saved = chain.launch(NAMES[circuit[0]])
        expect_worth_comparing(saved, tied, dtype)
        for count, loads in enumerate(circuit[1:]):
            what = "%s: saved by %s, loaded by %s" % (chain.words, NAMES[circuit[count]], NAMES[loads])
            try:
                loaded_updates, loaded = chain.resume(NAMES[loads])
            except Failed as failure:
                raise Failed("%s, and %d pairs were not tried\n%s" % (what, len(pairs) - count - 1, failure))
            differences = find_differences(saved, loaded)
            if differences or loaded_updates != updates:
                num_failed += 1
                told.append("FAILED %s: %d and %d updates, %d tensors differ: %s" % (
                    what, updates, loaded_updates, len(differences), ", ".join(differences[:5])))
            if count < len(NAMES):
                expect_a_flipped_bit_is_found(chain.path(), loaded, chooser)
            updates, saved = loaded_updates, loaded
    except (Failed, OSError, ValueError, subprocess.TimeoutExpired, read_checkpoint.UnknownFormat,
            read_checkpoint.Damaged) as failure:
        num_failed += 1
        told.append("FAILED %s: %s" % (chain.words, failure))
    shutil.rmtree(chain.folder, ignore_errors=True)
    return num_failed, told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chains = [(False, "fp32", pairs_at(1)), (False, "bf16", pairs_at(5)), (True, "fp32", pairs_at(7))]
    if args.all:
        every = pairs_at(*range(1, len(NAMES)))
        chains = [(False, "fp32", every), (True, "bf16", every)]
    num_failed = 0
    trainctl = os.path.abspath(args.trainctl)
    work = tempfile.mkdtemp(prefix="trainctl-checkpoints-")
    os.chdir(work)  # for runs/latest
    try:
        chooser = random.Random(args.seed)
        with open(work + "/text.txt", "w", encoding="utf-8") as text:
            # Characters of two bytes, so that most rows of the embedding have a gradient.
            text.write("".join(chr(chooser.randrange(32, 0x800)) for _ in range(20000)))
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            checks = [pool.submit(check_chain, trainctl, work, number, tied, dtype, pairs, args.seed)
                      for number, (tied, dtype, pairs) in enumerate(chains)]
            for (tied, dtype, pairs), check in zip(chains, checks):
                failed, told = check.result()
                num_failed += failed
                print("\n".join(told + ["%s, %s: %d pairs of %d layouts, %d failed" % (
                    "tied" if tied else "untied", dtype, len(pairs), len(NAMES), failed)]), flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if num_failed else 0)


if __name__ == "__main__":
    main()
