#!/usr/bin/env python3
"""A worker whose main thread stands still, while its heartbeats go on, is noticed, named and replaced.

    hang_test.py TRAINCTL STAND_STILL_LIBRARY [--all]

Cells: where it stands still (reading data, in a collective, writing a checkpoint, in its teardown), among how
many workers, or in the middle of a pipeline of four, and how (the process is stopped, the main thread sleeps in a library call, it opens a FIFO that
nobody writes to). A dozen of them, or all. The limits are LIMIT_S. Each must be noticed within
twice the limit, the right rank named with its stack in its log, and the run must end as an undisturbed one does,
bit for bit, with nothing left behind. A collective of one worker does not exist.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import small_run
from small_run import state_of, survivors

LIMIT_S = 3
STEPS = 6
LIMITS = """[launch]
hang_timeout = "%ds"
collective_timeout = "60s"
stop_timeout = "%ds"
""" % (LIMIT_S, LIMIT_S)

# Where: in which call it happens. The first checkpoint is there by then, but for the checkpoint's own cell.
PLACES = {"data": 20, "collective": 60, "checkpoint": 2, "teardown": 1}
WAYS = ["sleep", "stop", "fifo"]
PIPELINE = "4 staged"
WORLDS = [1, 2, 4, PIPELINE]
# Each place, way and number of workers several times, and all pairs that differ most.
DOZEN = [("data", 1, "sleep"), ("data", 2, "stop"), ("data", 4, "fifo"), ("data", 2, "sleep"),
         ("collective", 2, "sleep"), ("collective", 4, "stop"), ("collective", 2, "fifo"),
         ("checkpoint", 1, "fifo"), ("checkpoint", 2, "sleep"), ("checkpoint", 4, "stop"),
         ("teardown", 1, "sleep"), ("teardown", 2, "fifo"),
         # A stage that waits for one that waits is not the one.
         ("collective", PIPELINE, "sleep"), ("data", PIPELINE, "fifo")]


def cells():
    for place in PLACES:
        for world in WORLDS:
            for way in WAYS:
                if place == "collective" and world == 1:
                    continue  # there is none
                yield place, world, way


def launch(trainctl, work, world, run_dir, env):
    """Runs to the end; returns the exit code, the output, and when each line of it came."""
    began = time.monotonic()
    process = subprocess.Popen([trainctl, "launch", "%s/world-%s.toml" % (work, world), "--run-dir", run_dir],
                               env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace")
    lines = []
    for line in process.stdout:
        lines.append((time.monotonic() - began, line))
    return process.wait(), lines


def check(trainctl, library, work, cell, wanted):
    place, world, way = cell
    name = "%s-%s-%s" % cell
    rank = 1 if world == PIPELINE else world - 1
    run_dir, mark, fifo = work + "/" + name, work + "/mark-" + name, work + "/fifo"
    env = {"LD_PRELOAD": library, "STAND_STILL_RANK": str(rank), "STAND_STILL_IN": place,
           "STAND_STILL_AT": str(PLACES[place]), "STAND_STILL_HOW": way, "STAND_STILL_MARK": mark,
           "STAND_STILL_FIFO": fifo}
    # gdb takes seconds to read LibTorch's symbols: once is enough.
    if cell != DOZEN[0]:
        env["PATH"] = work + "/nothing"
    code, lines = launch(trainctl, work, world, run_dir, env)
    log = "".join(line for _, line in lines)
    if not os.path.exists(mark):
        return "it did not stand still", log
    if code != 0:
        return "exit code %d" % code, log
    if state_of(run_dir) != wanted:
        return "the result differs from the undisturbed run", log
    if survivors(run_dir):
        return "processes are left: %s" % survivors(run_dir), log
    if place == "teardown":
        said = [line for line in log.splitlines() if "has done and saved its work, but does not end" in line]
        if not said or "rank %d" % rank not in said[0]:
            return "the rank that did not end is not named", log
        return None, log
    failed = [line for line in log.splitlines() if re.search(r"trainctl: rank \d+ failed", line)]
    if not failed or not re.search(r"rank %d failed" % rank, failed[0]):
        return "the wrong rank is named: %s" % failed, log
    noticed = next((at for at, line in lines if "stood still" in line or "no heartbeat" in line), None)
    still = re.search(r"(?:stood still|no heartbeat) for ([0-9.]+)s", log)
    if noticed is None or still is None or float(still.group(1)) > 2 * LIMIT_S:
        return "noticed too late", log
    text = "".join(open(path, errors="replace").read() for path in glob.glob(run_dir + "/logs/rank-%05d.log" % rank))
    if way == "sleep" and "stack of the main thread" not in text:
        return "its stack is not in its log", log
    return None, log


def main():
    trainctl, library = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    chosen = list(cells()) if "--all" in sys.argv else DOZEN
    work = tempfile.mkdtemp(prefix="trainctl-hang-")
    failures = []
    try:
        os.mkdir(work + "/text")
        os.mkdir(work + "/nothing")
        os.mkfifo(work + "/fifo")
        for i in range(24):
            with open(work + "/text/%02d.txt" % i, "w") as text:
                text.write(" ".join(str((i + 1) * j * j % 1009) for j in range(150)))
        wanted = {}
        for world in WORLDS:
            with open("%s/world-%s.toml" % (work, world), "w") as recipe:
                recipe.write(small_run.recipe("text/*.txt", STEPS, 2, 4, more=LIMITS, pp=4) if world == PIPELINE else
                             small_run.recipe("text/*.txt", STEPS, 2, world, more=LIMITS))
            code, lines = launch(trainctl, work, world, "%s/plain-%s" % (work, world), {})
            if code != 0:
                sys.exit("the undisturbed run failed (%d):\n%s" % (code, "".join(line for _, line in lines)))
            wanted[world] = state_of("%s/plain-%s" % (work, world))
        for cell in chosen:
            began = time.monotonic()
            problem, log = check(trainctl, library, work, cell, wanted[cell[1]])
            print("%-11s %s workers, %-5s %5.1f s  %s" % (*cell, time.monotonic() - began, problem or "ok"), flush=True)
            if problem:
                failures.append("%s: %s\n%s" % (cell, problem, log))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if failures:
        sys.exit("\n".join(failures))
    print("%d cells: noticed, named, and ended as an undisturbed run" % len(chosen))


if __name__ == "__main__":
    main()
