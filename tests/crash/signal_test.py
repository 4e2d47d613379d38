#!/usr/bin/env python3
"""A first signal, at whichever moment of a launch, loses nothing.

    signal_test.py TRAINCTL [--signals 12] [--seed 1]

SIGTERM, SIGINT, SIGUSR1 or SIGHUP from 50 ms after the start on, to the launcher or to every process of the run,
of a launch and of what continues it, with one and two workers, on a little data and, each fifth time, on 200 MB of JSONL. The exit code
is 75, or 0 where the run was done by then; the same command, or a resume once there is a run, goes on; in the
end metrics and weights are those of a run that nobody disturbed, bit for bit, and nothing is left behind.
A signal, and a kill of all processes, while two workers evaluate the last step: the step is saved.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import small_run
from small_run import state_of, survivors

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]


def start(command):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def family(pid):
    """The process and all that it has started, as far as they can be seen now."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = open("/proc/%s/stat" % name).read().rsplit(")", 1)[1].split()
                parents[int(name)] = int(fields[1])
            except (OSError, IndexError):
                pass
    found = [pid]
    for parent in found:
        found += [child for child, its in parents.items() if its == parent]
    return found


def disturbed(trainctl, recipe, run_dir, chooser, disturbances):
    """Signals the launch, then what continues it, so many times; then lets it end. None, or what went wrong."""
    while True:
        has_run = os.path.exists(run_dir + "/recipe.json")
        command = [trainctl, "resume", run_dir] if has_run else [trainctl, "launch", recipe, "--run-dir", run_dir]
        process = start(command)
        number, delay = chooser.choice(SIGNALS), chooser.uniform(0.05, 2)
        if disturbances > 0:
            time.sleep(delay)  # the moment is the test's subject
            # To all, as batch systems do, or to the one that a person sees.
            for pid in family(process.pid) if chooser.random() < 0.5 else [process.pid]:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        output, _ = process.communicate(timeout=300)
        what = "%s, %s after %.3f s: exit code %d\n%s" % (
            command[1], signal.Signals(number).name, delay, process.returncode, output)
        if process.returncode == 0:
            return None
        if process.returncode != 75 or disturbances == 0:
            return what
        if survivors(run_dir):
            return "%sprocesses are left: %s" % (what, survivors(run_dir))
        disturbances -= 1


def ended_while_evaluating(trainctl, work):
    """The problems of two runs that are ended in a long evaluation of the last step."""
    recipe, problems = work + "/evaluated.toml", []
    with open(work + "/eval.jsonl", "w") as file:
        file.writelines('{"text": "%s"}\n' % " ".join(str(i * j % 1013) for j in range(120)) for i in range(1, 1500))
    with open(recipe, "w") as file:
        file.write(small_run.recipe("small.jsonl", 3, 9, 2, train="eval_every = 3\neval_batches = 1800",
                                    more='[[data.eval]]\nname = "e"\nfiles = ["eval.jsonl"]\n'))
    undisturbed = start([trainctl, "launch", recipe, "--run-dir", work + "/evaluated"])
    output, _ = undisturbed.communicate(timeout=300)
    if undisturbed.returncode != 0:
        return ["the undisturbed run with an evaluation failed: " + output]
    for number in (signal.SIGTERM, signal.SIGKILL):
        run_dir = "%s/evaluated-%d" % (work, number)
        process = start([trainctl, "launch", recipe, "--run-dir", run_dir])
        # The save comes before the evaluation.
        while process.poll() is None and not os.path.exists(run_dir + "/checkpoints/step-00000003/manifest.json"):
            time.sleep(0.01)
        for pid in family(process.pid) if number == signal.SIGKILL else [process.pid]:
            os.kill(pid, number)
        output, _ = process.communicate(timeout=300)
        what = "%s during the last evaluation: exit code %d\n%s" % (signal.Signals(number).name, process.returncode, output)
        if process.returncode != (75 if number == signal.SIGTERM else -number):
            problems.append(what)
            continue
        with open(run_dir + "/metrics.jsonl") as file:
            steps = [json.loads(line) for line in file]
        if "eval" in steps[-1] and steps[-1]["step"] == 3:
            problems.append(what + "the evaluation ran to its end")
        if survivors(run_dir):
            problems.append("%sprocesses are left: %s" % (what, survivors(run_dir)))
        resumed = start([trainctl, "resume", run_dir])
        output, _ = resumed.communicate(timeout=300)
        if resumed.returncode != 0 or "step 3" not in output:
            problems.append(what + "then the resume: exit code %d\n%s" % (resumed.returncode, output))
        elif state_of(run_dir) != state_of(work + "/evaluated"):
            problems.append(what + "then the resume: the result differs from the undisturbed run")
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("--signals", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chooser = random.Random(args.seed)
    work = tempfile.mkdtemp(prefix="trainctl-signal-")
    failures, began = [], time.monotonic()
    try:
        line = '{"text": "%s"}\n'
        with open(work + "/small.jsonl", "w") as small:
            small.writelines(line % " ".join(str(i * j % 1013) for j in range(120)) for i in range(1, 40))
        with open(work + "/large.jsonl", "w") as large:
            for i in range(200):
                large.write(line % (" ".join(str(i * j % 1013) for j in range(1000)) * 260)[:1000000])
        wanted = {}

        def recipe_of(data, world):
            recipe = "%s/%s-%d" % (work, data, world)
            if (data, world) not in wanted:
                with open(recipe + ".toml", "w") as file:
                    file.write(small_run.recipe(data + ".jsonl", 8, 3, world))
                process = start([args.trainctl, "launch", recipe + ".toml", "--run-dir", recipe])
                output, _ = process.communicate(timeout=300)
                if process.returncode != 0:
                    sys.exit("the undisturbed run failed (%d):\n%s" % (process.returncode, output))
                wanted[data, world] = state_of(recipe)
            return recipe + ".toml"

        sent = 0
        while sent < args.signals:
            data, world = ("large" if sent % 10 == 4 else "small"), 1 + sent // 2 % 2
            recipe = recipe_of(data, world)
            run_dir = "%s/run-%d" % (work, sent)
            problem = disturbed(args.trainctl, recipe, run_dir, chooser, 2)
            if problem is None and state_of(run_dir) != wanted[data, world]:
                problem = "the result differs from the undisturbed run"
            if problem:
                failures.append("run %d, %s data, %d worker(s): %s" % (sent, data, world, problem))
            sent += 2
        failures += ended_while_evaluating(args.trainctl, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if failures:
        sys.exit("\n".join(failures))
    print("%d signals in %.0f s: nothing lost" % (sent, time.monotonic() - began))


if __name__ == "__main__":
    main()
