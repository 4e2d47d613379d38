#!/usr/bin/env python3
"""Kills a run at chosen moments and proves that nothing of it is lost or bent.

    crash_test.py TRAINCTL [--kills 56] [--seed 1] [--async]

One run is left undisturbed. In the others rank 0 or 1 sends SIGKILL to itself or to the launcher when
it reaches a phase for the n-th time (TRAINCTL_FAULT, see lib/trainer/fault_injector.h). A killed
worker is restarted by its launcher; after a killed launcher the run is resumed by hand. At the end
metrics.jsonl and the tensors of the last checkpoint must equal the undisturbed ones byte for byte.
--async: the same where checkpoints are written beside training; the undisturbed run is still one that
writes them between steps, so that the two kinds are held against each other as well.
"""

import argparse
import collections
import os
import random
import shutil
import subprocess
import sys
import tempfile

import small_run
from small_run import state_of, survivors

STEPS = 12
EVERY = 3
PHASES = {  # phase: how often a rank reaches it at most, for the seeded choice
    "startup": 1,
    "gather": 40,
    "reduce": 40,
    "save": 4,
    "saving": 4,
    "before_commit_rename": 4,
    "after_commit_rename": 4,
}
RANK0_ONLY = {"before_commit_rename", "after_commit_rename"}


def run(command, env=None, timeout=180):
    return subprocess.run(command, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("--kills", type=int, default=56)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--async", action="store_true", dest="beside")
    args = parser.parse_args()
    chooser = random.Random(args.seed)
    work = tempfile.mkdtemp(prefix="trainctl-crash-")
    failures, hits = [], collections.Counter()
    try:
        os.mkdir(work + "/text")
        for i in range(24):
            with open(work + "/text/%02d.txt" % i, "w") as text:
                text.write(" ".join(str(chooser.randrange(1000)) for _ in range(150)))
        recipe = work + "/recipe.toml"
        open(recipe, "w").write(small_run.recipe(
            "text/*.txt", STEPS, EVERY, 2, train="eval_every = 4\neval_batches = 2",
            more='keep = 2\n[[data.eval]]\nname = "held-out"\nholdout = 0.2\n'))
        plain = work + "/plain"
        done = run([args.trainctl, "launch", recipe, "--run-dir", plain])
        if done.returncode != 0:
            sys.exit("the undisturbed run failed (%d):\n%s" % (done.returncode, done.stdout))
        wanted = state_of(plain)

        how = ["--set", "checkpoint.async=true"] if args.beside else []
        for i in range(args.kills):
            phase = list(PHASES)[i % len(PHASES)]
            target = "launcher" if (i // len(PHASES)) % 3 == 2 else "worker"
            rank = 0 if phase in RANK0_ONLY else chooser.randrange(2)
            nth = chooser.randint(1, PHASES[phase])
            fault = "%s:%d:%s:%d" % (phase, nth, target, rank)
            run_dir = "%s/kill-%d" % (work, i)
            ended = run([args.trainctl, "launch", recipe, "--run-dir", run_dir] + how, {"TRAINCTL_FAULT": fault})
            log = ended.stdout
            if ended.returncode != 0:
                ended = run([args.trainctl, "resume", run_dir], {"TRAINCTL_FAULT": fault})
                log += ended.stdout
            problem = None
            if not os.path.exists(run_dir + "/fault-injected"):
                problem = "the fault did not strike"
            elif ended.returncode != 0:
                problem = "the run did not come back (exit code %d)" % ended.returncode
            elif state_of(run_dir) != wanted:
                problem = "the result differs from the undisturbed run"
            elif survivors(run_dir):
                problem = "processes are left: %s" % survivors(run_dir)
            if problem is None:
                hits[phase + "/" + target] += 1
                shutil.rmtree(run_dir)
            else:
                failures.append("%s: %s\n%s" % (fault, problem, log))
                print("FAILED", failures[-1], flush=True)
        for name, count in sorted(hits.items()):
            print("%-32s %d" % (name, count))
        per_phase = collections.Counter()
        for name, count in hits.items():
            per_phase[name.split("/")[0]] += count
        for phase in PHASES:
            if args.kills >= 3 * len(PHASES) and per_phase[phase] < 3:
                failures.append(phase + " was not hit three times")
                print("FAILED", failures[-1])
        print("%d passed, %d failed" % (sum(hits.values()), len(failures)))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
