#!/usr/bin/env python3
"""Step time of the trainer on this machine, predicted after `trainctl calibrate` against measured.

    predicted.py TRAINCTL [--profile FILE] [--precision fp32|bf16]   (FILE: a profile; otherwise it is measured first)

First layouts that no probe of `calibrate` has: other sizes, strategies, cuts and numbers of workers. Then whether the layout
that `plan` chooses is the fastest: for two models, what it chooses beside eight layouts that are stated. Each layout is run
--repeats times, in rounds over all layouts, and the median run counts: on a machine that is shared with others single runs are
slowed down. A choice is measured three times as often, as the fastest of eight medians is one that noise has favored. Prints a line for each, and exits with 7 if the mean error is above 10 %, or if a chosen layout is more than 3 %
slower than the fastest. Other work on the machine spoils it.
"""

import argparse
import collections
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

MEAN_LIMIT = 0.10
CHOICE_LIMIT = 1.03
STEPS = 9

MODELS = {
    # layers, hidden, ffn, heads, kv_heads, vocab, seq_len
    "2 x 320": (2, 320, 896, 10, 10, 1024, 256),
    "6 x 256": (6, 256, 704, 4, 2, 512, 384),
    "4 x 512": (4, 512, 1376, 8, 2, 4096, 256),
}

Layout = collections.namedtuple(
    "Layout", "workers threads zero_stage micro_batch accumulation recompute pp tp schedule", defaults=(1, 1, None))
LAYOUTS = [
    Layout(1, 2, 0, 4, 1, "none"),
    Layout(1, 2, 0, 2, 2, "full"),
    Layout(1, 1, 0, 2, 2, "none"),
    Layout(2, 1, 0, 2, 2, "none"),
    Layout(2, 1, 1, 4, 1, "none"),
    Layout(2, 1, 2, 2, 2, "full"),
    Layout(2, 1, 3, 2, 2, "none"),
    Layout(2, 1, 0, 4, 2, "none", tp=2),
    Layout(2, 1, 0, 2, 4, "none", pp=2, schedule="1f1b"),
    Layout(2, 1, 0, 2, 4, "none", pp=2, schedule="zbv"),
]
# Of eight sequences on two workers.
CHOICES = [
    Layout(2, 1, 0, 4, 1, "none"),
    Layout(2, 1, 1, 4, 1, "none"),
    Layout(2, 1, 2, 2, 2, "none"),
    Layout(2, 1, 3, 4, 1, "none"),
    Layout(2, 1, 0, 1, 4, "none"),
    Layout(2, 1, 0, 8, 1, "none", tp=2),
    Layout(2, 1, 0, 2, 4, "none", pp=2, schedule="1f1b"),
    Layout(2, 1, 0, 1, 8, "none", pp=2, schedule="zbv"),
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
precision = "{precision}"
[cluster]
devices_per_node = {workers}
threads_per_worker = {threads}
[checkpoint]
every_steps = 1000000
"""

PRECISION = {"BF16": "bf16", "F32": "fp32"}


def settings_of(layout):
    """What states a layout, as --set."""
    data = layout.workers // layout.pp // layout.tp
    settings = {"parallel.pp": layout.pp, "parallel.tp": layout.tp, "parallel.zero_stage": layout.zero_stage,
                "parallel.dp_shard": data if layout.zero_stage else 1, "parallel.recompute": layout.recompute,
                "train.micro_batch": layout.micro_batch}
    if layout.schedule:
        settings["parallel.schedule"] = layout.schedule
    return [word for name, value in settings.items() for word in ("--set", "%s=%s" % (name, value))]


def text_of(layout):
    cut = (" tp %d" % layout.tp if layout.tp > 1 else "") + (" pp %d %s" % (layout.pp, layout.schedule) if layout.pp > 1 else "")
    return "%d worker(s) x %d  ZeRO-%d%s  micro %d x %d  recompute %s" % (
        layout.workers, layout.threads, layout.zero_stage, cut, layout.micro_batch, layout.accumulation, layout.recompute)


class Bench:
    def __init__(self, trainctl, work, repeats):
        self.trainctl, self.work, self.repeats = os.path.abspath(trainctl), work, repeats
        self.environment = {**os.environ, "XDG_CONFIG_HOME": work + "/config", "NO_COLOR": "1"}

    def write_recipe(self, dtype, name, workers, threads, batch):
        sizes = dict(zip(("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq_len"), MODELS[name]))
        with open(self.work + "/recipe.toml", "w", encoding="ascii") as file:
            file.write(RECIPE.format(steps=STEPS, batch=batch, precision=PRECISION[dtype], workers=workers, threads=threads, **sizes))

    def run(self, job):
        """The report of one run. A layout of None is what `plan` chooses for the batch of CHOICES."""
        dtype, name, layout = job
        like = layout or CHOICES[0]
        data = like.workers // like.pp // like.tp
        self.write_recipe(dtype, name, like.workers, like.threads, data * like.micro_batch * like.accumulation)
        shutil.rmtree(self.work + "/run", ignore_errors=True)
        command = [self.trainctl, "launch", "recipe.toml", "--run-dir", "run"] + (settings_of(layout) if layout else [])
        ran = subprocess.run(command, cwd=self.work, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, check=False)
        if ran.returncode != 0:
            sys.exit("%s\nended with %d" % (ran.stdout, ran.returncode))
        with open(self.work + "/run/report.json", encoding="ascii") as file:
            return json.load(file)

    def measure(self, jobs, repeats):
        """Predicted and sorted measured seconds of each job."""
        reports = {job: [] for job in jobs}
        for _ in range(repeats):
            for job in jobs:
                reports[job].append(self.run(job))
        return {job: (runs[0]["predicted_step_seconds"], sorted(run["measured_step_seconds"] for run in runs))
                for job, runs in reports.items()}


def line(job, text, predicted, measured):
    median = statistics.median(measured)
    print("%s  %-8s %-62s predicted %6.1f ms  measured %6.1f ms (%.1f to %.1f)  %+5.1f %%" % (
        PRECISION[job[0]], job[1], text, 1e3 * predicted, 1e3 * median, 1e3 * measured[0], 1e3 * measured[-1],
        100 * (predicted / median - 1)), flush=True)


def compare_times(bench, types):
    jobs = [(dtype, name, layout) for dtype in types for name in MODELS for layout in LAYOUTS]
    errors = {}
    for job, (predicted, measured) in bench.measure(jobs, bench.repeats).items():
        errors[job] = predicted / statistics.median(measured) - 1
        line(job, text_of(job[2]), predicted, measured)
    worst = max(errors, key=lambda job: abs(errors[job]))
    mean = sum(abs(error) for error in errors.values()) / len(errors)
    print("%d layouts: mean |error| %.1f %%, worst %+.1f %%: %s, %s" % (
        len(errors), 100 * mean, 100 * errors[worst], worst[1], text_of(worst[2])))
    return mean <= MEAN_LIMIT


def compare_choices(bench, dtype):
    is_met = True
    for name in "6 x 256", "4 x 512":
        jobs = [(dtype, name, layout) for layout in CHOICES + [None]]
        medians = {}
        for job, (predicted, measured) in bench.measure(jobs, 3 * bench.repeats).items():
            medians[job] = statistics.median(measured)
            line(job, text_of(job[2]) if job[2] else "chosen by plan", predicted, measured)
        chosen = medians.pop((dtype, name, None))
        ratio = chosen / min(medians.values())
        print("%s: what plan chooses takes %.3f of the fastest of %d stated layouts" % (name, ratio, len(medians)))
        is_met = is_met and ratio <= CHOICE_LIMIT
    return is_met


def calibrate(bench, precision):
    loads = [[]] if precision is None else [
        ["--precision", precision, "--workers", str(workers), "--threads", str(threads)]
        for workers, threads in sorted({(layout.workers, layout.threads) for layout in LAYOUTS})]
    for load in loads:
        subprocess.run([bench.trainctl, "calibrate", *load], env=bench.environment, check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("--profile")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("times", "choices"))
    parser.add_argument("--precision", choices=sorted(PRECISION.values()), help="in half the time: layouts of one precision")
    args = parser.parse_args()
    work = tempfile.mkdtemp(prefix="trainctl-predicted-")
    bench = Bench(args.trainctl, work, args.repeats)
    try:
        os.makedirs(work + "/config/trainctl")
        profile = work + "/config/trainctl/machine.json"
        if args.profile:
            shutil.copy(args.profile, profile)
        else:
            calibrate(bench, args.precision)
        random.seed(1)
        with open(work + "/text.txt", "w", encoding="ascii") as text:
            text.write("".join(random.choice("etaoin shrdlu") for _ in range(1 << 20)))
        with open(profile, encoding="ascii") as file:
            types = sorted({rates["dtype"] for rates in json.load(file)["measured"]
                            if args.precision in (None, PRECISION[rates["dtype"]])})
        met = []
        if args.only != "times":
            met.append(compare_choices(bench, types[-1]))
        if args.only != "choices":
            met.append(compare_times(bench, types))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(0 if all(met) else 7)


main()
