"""A small run that the tests in this folder disturb, and what it must come to all the same."""

import glob
import os
import signal
import sys

# As an interrupt does, so that a test that is ended ends what it has started.
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

RECIPE = """
recipe_version = 1
[run]
name = "small"
[model]
family = "llama"
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
vocab = 257
[data]
tokenizer = "byte"
seq_len = 32
[[data.train]]
files = ["%(files)s"]
[train]
steps = %(steps)d
batch_sequences = 8
micro_batch = 2
precision = "fp32"
%(train)s
[parallel]
dp_shard = %(shards)d
dp_replicate = 1
zero_stage = %(zero_stage)d
pp = %(pp)d
recompute = "none"
[cluster]
devices_per_node = %(workers)d
threads_per_worker = 1
[checkpoint]
every_steps = %(every)d
"""


def recipe(files, steps, every, workers, train="", more="", pp=1):
    """`every`: steps between checkpoints. `train`: lines of [train]. `more`: lines of [checkpoint], then tables."""
    shards = workers // pp
    return RECIPE % {"files": files, "steps": steps, "every": every, "workers": workers, "train": train, "pp": pp,
                     "shards": shards, "zero_stage": 3 if shards > 1 else 0} + more


def state_of(run_dir):
    """What must be equal: the metrics, and the tensors of the newest checkpoint."""
    newest = sorted(glob.glob(run_dir + "/checkpoints/step-*"))[-1]
    contents = {}
    for name in [run_dir + "/metrics.jsonl", *sorted(glob.glob(newest + "/*.safetensors"))]:
        with open(name, "rb") as file:
            contents[os.path.basename(name)] = file.read()
    return os.path.basename(newest), contents


def survivors(run_dir):
    """Processes that still work on the run."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                arguments = file.read()
            if run_dir.encode() in arguments:
                found.append(path)
        except OSError:
            pass
    return found
