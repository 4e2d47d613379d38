#!/usr/bin/env python3
"""Runs that cut the model: each computes what one worker computes, goes on under another layout, and loses nothing to a kill.

    layouts_test.py TRAINCTL [--kills 11] [--seed 1]

Losses are held against those of one worker, relative to 1e-5: sums come in another order. A killed run is held against the
undisturbed one of the same layout, byte for byte.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import small_run
from small_run import state_of, survivors

STEPS, EVERY = 8, 2
TOLERANCE = 1e-5
PHASES = {"send": 40, "receive": 40, "forward": 30, "backward": 30, "save": 3, "before_commit_rename": 3}
RANK0_ONLY = {"before_commit_rename"}


def layout(workers, pp=1, tp=1, **fields):
    sets = {"cluster.devices_per_node": workers, "parallel.pp": pp, "parallel.tp": tp, "parallel.dp_shard": 1,
            "parallel.dp_replicate": workers // (pp * tp), "parallel.zero_stage": 0}
    sets.update({name.replace("__", "."): value for name, value in fields.items()})
    return [word for name, value in sets.items() for word in ("--set", "%s=%s" % (name, value))]


ALONE = layout(1)
# None of the orders that have a name: backwards whole and in two passes.
PASSES = ["0F0,0F1,0F2,0B0,0F3,0I1,0B2,0W1,0B3", "1F0,1B0,1F1,1I1,1F2,1W1,1B2,1F3,1B3"]
LAYOUTS = {
    "own passes, the head alone": layout(2, 2, parallel__stage_layers="[2,0]", parallel__passes=json.dumps(PASSES)),
    "gpipe, recomputed": layout(2, 2, parallel__schedule="gpipe", parallel__recompute="full"),
    "zbv": layout(2, 2, parallel__schedule="zbv", parallel__virtual_stages=2),
    "dualpipev": layout(2, 2, parallel__schedule="dualpipev", parallel__virtual_stages=2),
    "four stages": layout(4, 4, parallel__schedule="zb-h1"),
    "ZeRO-3": layout(4, 2, parallel__dp_shard=2, parallel__dp_replicate=1, parallel__zero_stage=3, train__micro_batch=1,
                     parallel__schedule="interleaved-1f1b", parallel__virtual_stages=2),
    "replicated, ZeRO-0": layout(4, 2, train__micro_batch=1, checkpoint__async="true"),
    "tensor parallel": layout(2, tp=2),
    "tensor parallel, whole sequences, recomputed": layout(4, tp=4, parallel__sequence_parallel="false",
                                                           parallel__recompute="full"),
    "tensor parallel, ZeRO-3": layout(4, tp=2, parallel__dp_shard=2, parallel__dp_replicate=1, parallel__zero_stage=3,
                                      parallel__recompute="selective"),
    "tensor parallel, pipeline": layout(4, 2, 2, checkpoint__async="true"),
}


class Failed(Exception):
    pass


class Runs:
    def __init__(self, trainctl, work):
        self.trainctl = trainctl
        self.work = work
        self.recipe = work + "/recipe.toml"
        self.numbers = itertools.count(1)

    def new_dir(self):
        return "%s/run-%d" % (self.work, next(self.numbers))

    def run(self, *arguments, code=0, env=None):
        ended = subprocess.run([self.trainctl, *arguments], env={**os.environ, **(env or {})}, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", timeout=180)
        if ended.returncode != code:
            raise Failed("exit code %d, not %d, of %s:\n%s" % (ended.returncode, code, " ".join(arguments), ended.stdout))
        return ended.stdout

    def launch(self, sets, *more, **how):
        run_dir = self.new_dir()
        self.run("launch", self.recipe, "--run-dir", run_dir, *sets, *more, **how)
        return run_dir


def metrics(run_dir):
    with open(run_dir + "/metrics.jsonl") as file:
        return [json.loads(line) for line in file]


def expect_same_losses(run_dir, expected):
    seen = metrics(run_dir)
    if len(seen) != len(expected):
        raise Failed("%d lines of metrics, not %d" % (len(seen), len(expected)))
    for own, other in zip(seen, expected):
        if own["batch_hash"] != other["batch_hash"]:
            raise Failed("step %d is of other data" % own["step"])
        for name in ("loss", "grad_norm"):
            if own[name] is None and other[name] is None:
                continue  # the evaluation before the first step
            if not abs(own[name] - other[name]) <= TOLERANCE * max(abs(other[name]), 1e-30):
                raise Failed("step %d: %s is %r, not %r" % (own["step"], name, own[name], other[name]))


def check_layout(runs, sets, next_sets, expected, kills, chooser):
    """What its kills were, a line each."""
    straight = runs.launch(sets)
    expect_same_losses(straight, expected)
    # Half of it alone, the rest with this layout, and the other way round: half with this, the rest with the next.
    for first, second in ((ALONE, sets), (sets, next_sets)):
        changed = runs.launch(first, "--stop-after", str(STEPS // 2), code=75)
        # What only the first layout says is taken back.
        gone = [word.split("=")[0] for word in first[1::2]]
        said = [word.split("=")[0] for word in second[1::2]]
        back = [word for name in gone if name not in said for word in ("--set", name + "=default")]
        runs.run("resume", changed, *back, *second)
        expect_same_losses(changed, expected)
    wanted = state_of(straight)
    workers = int(sets[1].split("=")[1])
    lines = []
    for _ in range(kills):
        phase = chooser.choice(sorted(PHASES))
        rank = 0 if phase in RANK0_ONLY else chooser.randrange(workers)
        fault = "%s:%d:worker:%d" % (phase, chooser.randint(1, PHASES[phase]), rank)
        killed = runs.launch(sets, env={"TRAINCTL_FAULT": fault})
        # Not every rank comes by as often: the first sends no gradient, the last no activation.
        struck = os.path.exists(killed + "/fault-injected")
        if state_of(killed) != wanted:
            raise Failed("%s: the result differs from the undisturbed run" % fault)
        if survivors(killed):
            raise Failed("%s: processes are left: %s" % (fault, survivors(killed)))
        lines.append("  killed: %s%s" % (fault, "" if struck else " (not reached)"))
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("--kills", type=int, default=11)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chooser = random.Random(args.seed)
    work = tempfile.mkdtemp(prefix="trainctl-layouts-")
    runs = Runs(args.trainctl, work)
    num_failed = 0
    try:
        with open(work + "/text.txt", "w") as text:
            text.write(" ".join(str(chooser.randrange(1000)) for _ in range(4000)))
        with open(runs.recipe, "w") as file:
            file.write(small_run.recipe("text.txt", STEPS, EVERY, 1, train="eval_every = 4\neval_batches = 2",
                                        more='keep = 9\n[[data.eval]]\nname = "held-out"\nholdout = 0.2\n'))
        expected = metrics(runs.launch(ALONE))
        names = list(LAYOUTS)

        def check(i):
            kills = args.kills // len(names) + (1 if i < args.kills % len(names) else 0)
            return check_layout(runs, LAYOUTS[names[i]], LAYOUTS[names[(i + 1) % len(names)]], expected, kills,
                                random.Random("%d %s" % (args.seed, names[i])))

        # Two at a time, for processes of one wait for each other.
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            checks = [pool.submit(check, i) for i in range(len(names))]
            for name, one in zip(names, checks):
                try:
                    print("\n".join([*one.result(), "%s: ok" % name]), flush=True)
                except Failed as failure:
                    num_failed += 1
                    print("%s: FAILED\n%s" % (name, failure), flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if num_failed else 0)


if __name__ == "__main__":
    main()
