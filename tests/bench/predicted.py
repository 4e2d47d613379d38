#!/usr/bin/env python3
"""Step time of the trainer on this machine, predicted after `trainctl calibrate` against measured.

    predicted.py TRAINCTL [--profile FILE]   (FILE: a profile that is there already; otherwise it is measured first)

Layouts that no probe of `calibrate` has: other sizes, strategies and numbers of workers. Each is run --repeats times, in
rounds over all layouts, and the median run counts: on a machine that is shared with others single runs are slowed down.
Prints one line for each and exits with 7 when one is off by more than 15 %. Other work on the machine spoils it.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

LIMIT = 0.15
STEPS = 9

MODELS = {
    # layers, hidden, ffn, heads, kv_heads, vocab, seq_len
    "2 x 320": (2, 320, 896, 5, 5, 1024, 256),
    "6 x 256": (6, 256, 704, 4, 2, 512, 384),
    "4 x 512": (4, 512, 1376, 8, 2, 4096, 256),
}
LAYOUTS = [  # workers, threads, zero stage, micro-batch, accumulation, recompute
    (1, 2, 0, 4, 1, "none"),
    (1, 2, 0, 2, 2, "full"),
    (1, 1, 0, 2, 2, "none"),
    (2, 1, 0, 2, 2, "none"),
    (2, 1, 1, 4, 1, "none"),
    (2, 1, 2, 2, 2, "full"),
    (2, 1, 3, 2, 2, "none"),
]

RECIPE = """recipe_version = 1
[run]
name = "predicted"
[model]
family = "llama"
layers = {layers}
hidden = {hidden}
ffn = {ffn}
heads = {heads}
kv_heads = {kv_heads}
vocab = {vocab}
[data]
seq_len = {seq_len}
packing = "continuous"
[[data.train]]
kind = "text"
files = ["text.txt"]
[train]
steps = {steps}
batch_sequences = {batch}
micro_batch = {micro_batch}
precision = "{precision}"
[parallel]
zero_stage = {zero_stage}
dp_shard = {dp_shard}
recompute = "{recompute}"
[cluster]
devices_per_node = {workers}
threads_per_worker = {threads}
[checkpoint]
every_steps = 1000000
"""


PRECISION = {"BF16": "bf16", "F32": "fp32"}


def run(trainctl, work, environment, job):
    """The report of one run."""
    dtype, name, (workers, threads, stage, micro_batch, accumulation, recompute) = job
    layers, hidden, ffn, heads, kv_heads, vocab, seq_len = MODELS[name]
    recipe = RECIPE.format(layers=layers, hidden=hidden, ffn=ffn, heads=heads, kv_heads=kv_heads, vocab=vocab, seq_len=seq_len,
                           steps=STEPS, batch=workers * micro_batch * accumulation, micro_batch=micro_batch,
                           precision=PRECISION[dtype], zero_stage=stage, dp_shard=workers if stage else 1, recompute=recompute,
                           workers=workers, threads=threads)
    with open(work + "/recipe.toml", "w", encoding="ascii") as file:
        file.write(recipe)
    shutil.rmtree(work + "/run", ignore_errors=True)
    subprocess.run([trainctl, "launch", "recipe.toml", "--run-dir", "run"], cwd=work, env=environment, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(work + "/run/report.json", encoding="ascii") as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("--profile")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    trainctl = os.path.abspath(args.trainctl)
    work = tempfile.mkdtemp(prefix="trainctl-predicted-")
    environment = {**os.environ, "XDG_CONFIG_HOME": work + "/config", "NO_COLOR": "1"}
    try:
        os.makedirs(work + "/config/trainctl")
        profile = work + "/config/trainctl/machine.json"
        if args.profile:
            shutil.copy(args.profile, profile)
        else:
            subprocess.run([trainctl, "calibrate"], env=environment, check=True)
        random.seed(1)
        with open(work + "/text.txt", "w", encoding="ascii") as text:
            text.write("".join(random.choice("etaoin shrdlu") for _ in range(1 << 20)))
        types = sorted({rates["dtype"] for rates in json.load(open(profile))["measured"]})
        jobs = [(dtype, name, layout) for dtype in types for name in MODELS for layout in LAYOUTS]
        reports = {job: [] for job in jobs}
        for _ in range(args.repeats):
            for job in jobs:
                reports[job].append(run(trainctl, work, environment, job))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    errors = []
    for job in jobs:
        dtype, name, (workers, threads, stage, micro_batch, accumulation, recompute) = job
        predicted = reports[job][0]["predicted_step_seconds"]
        measured = sorted(report["measured_step_seconds"] for report in reports[job])
        median = statistics.median(measured)
        errors.append(predicted / median - 1)
        print("%s  %-8s %d worker(s) x %d  ZeRO-%d  micro %d x %d  recompute %-4s  predicted %6.1f ms  measured %6.1f ms "
              "(%.1f to %.1f)  %+5.1f %%" % (PRECISION[dtype], name, workers, threads, stage, micro_batch, accumulation, recompute,
                                          1e3 * predicted, 1e3 * median, 1e3 * measured[0], 1e3 * measured[-1], 100 * errors[-1]))
    worst = max(errors, key=abs)
    mean = sum(abs(error) for error in errors) / len(errors)
    print("%d layouts: mean |error| %.1f %%, worst %+.1f %%" % (len(errors), 100 * mean, 100 * worst))
    sys.exit(0 if abs(worst) <= LIMIT else 7)


main()
