#!/usr/bin/env python3
"""Predicted against measured peak of tensor memory, of models large enough that small things do not count. The prediction is
made before the run; nothing in it is fitted.

    memory_test.py TRAINCTL [FILTER]

Data parallelism, under every strategy (peak >= 256 MiB): all ranks do the same, and `report.json` has the one that needs most.
Layouts that cut the model (peak >= 64 MiB on each rank): `status --json` has the peak of every rank of a run under way. It is
held against the prediction for the rank's place in the pipeline, the highest sum in the trace of `plan --trace`.
"""

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

TRAINCTL = os.path.abspath(sys.argv[1])
FILTER = sys.argv[2] if len(sys.argv) > 2 else ""
LARGE_BYTES = 256 << 20
TOLERANCE = 0.001  # a run promises 3 %; small, for the activations of the bf16 cells are 2 % of their peak
CUT_LARGE_BYTES = 64 << 20
CUT_TOLERANCE = 0.03  # the promise: a message under way may be there or not
PATIENCE_SECONDS = 300

RECIPE = """
recipe_version = 1
[model]
family = "llama"
layers = 6
hidden = 512
heads = 8
kv_heads = 4
ffn = 1376
vocab = 16000
[data]
seq_len = 1  # WAYS
[[data.train]]
files = ["text.txt"]
[train]
steps = 1
batch_sequences = 1  # WAYS
[cluster]
devices_per_node = 2
"""

# precision, seq_len, batch_sequences, micro_batch, prefetch, checkpoint.async.
WAYS = (("fp32", 128, 8, 4, "true", "true"),
        ("bf16", 64, 4, 1, "false", "false"))
RECOMPUTE = (("none", "selective"), ("attention", "full"), ("selective", "full"), ("none", "full"))  # by stage

# Far more steps than there will be: it is stopped.
CUT_RECIPE = """
recipe_version = 1
[model]
family = "llama"
layers = 16
hidden = 256
heads = 8
kv_heads = 4
ffn = 1088
vocab = 4096
[data]
seq_len = 64
[[data.train]]
files = ["text.txt"]
[train]
steps = 100
batch_sequences = 4  # cut
micro_batch = 1  # cut
precision = "fp32"
[parallel]
dp_replicate = 1
[cluster]
threads_per_worker = 1
"""


def cut(workers, recompute, pp=1, tp=1, dp_shard=1, zero_stage=0, micro_batch=1, **parallel):
    sets = {"pp": pp, "tp": tp, "dp_shard": dp_shard, "zero_stage": zero_stage, "recompute": recompute, **parallel}
    return ["cluster.devices_per_node=%d" % workers, "train.batch_sequences=%d" % (4 * dp_shard),
            "train.micro_batch=%d" % micro_batch, *("parallel.%s=%s" % item for item in sets.items())]


CUTS = {
    "tp=2": cut(2, "none", tp=2, micro_batch=4),
    "tp=2 whole sequences": cut(2, "full", tp=2, micro_batch=4, sequence_parallel="false"),
    "tp=4": cut(4, "none", tp=4, micro_batch=4),
    "tp=4 whole sequences": cut(4, "selective", tp=4, micro_batch=4, sequence_parallel="false"),
    "tp=4 recomputed": cut(4, "full", tp=4, micro_batch=4),
    "pp=2 1f1b": cut(2, "none", pp=2, schedule="1f1b"),
    "pp=2 gpipe": cut(2, "full", pp=2, schedule="gpipe"),
    "pp=2 some recomputed": cut(2, "full", pp=2, schedule="1f1b", recomputed_layers=3),
    "tp=2 some recomputed": cut(2, "full", tp=2, micro_batch=4, recomputed_layers=9),
    "pp=2 zb-h2": cut(2, "attention", pp=2, schedule="zb-h2"),
    "pp=2 zbv": cut(2, "none", pp=2, schedule="zbv", virtual_stages=2),
    "pp=2 interleaved": cut(2, "selective", pp=2, schedule="interleaved-1f1b", virtual_stages=2),
    "pp=4 1f1b": cut(4, "none", pp=4, schedule="1f1b"),
    "pp=4 zb-h1": cut(4, "selective", pp=4, schedule="zb-h1"),
    "pp=4 looped": cut(4, "full", pp=4, schedule="looped-bfs", virtual_stages=2),
    "pp=2 ZeRO-1": cut(4, "none", pp=2, dp_shard=2, zero_stage=1),
    "pp=2 ZeRO-2": cut(4, "attention", pp=2, dp_shard=2, zero_stage=2),
    "pp=2 ZeRO-3": cut(4, "full", pp=2, dp_shard=2, zero_stage=3),
    "tp=2 ZeRO-3": cut(4, "none", tp=2, dp_shard=2, zero_stage=3, micro_batch=4),
    "tp=2 pp=2": cut(4, "none", pp=2, tp=2, schedule="1f1b"),
    "tp=2 pp=2 whole sequences": cut(4, "full", pp=2, tp=2, schedule="zbv", virtual_stages=2,
                                     sequence_parallel="false"),
}


class Failed(Exception):
    pass


def with_sets(sets):
    return [word for setting in sets for word in ("--set", setting)]


def run(*arguments):
    done = subprocess.run([TRAINCTL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=PATIENCE_SECONDS)
    if done.returncode != 0:
        raise Failed("exit code %d of %s\n%s" % (done.returncode, " ".join(arguments), done.stdout))


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Table:
    """One row for each rank that is held against its prediction."""

    def __init__(self):
        self.num_rows = self.num_failed = 0
        self.worst = (0, "none")

    def add(self, name, predicted, measured, tolerance, large_bytes, is_met=True):
        self.num_rows += 1
        error = predicted / measured - 1
        good = is_met and abs(error) <= tolerance and measured >= large_bytes
        self.num_failed += not good
        text = "%s predicted %7.1f MiB measured %7.1f MiB error %+.2f %%" % (
            name, predicted / 2**20, measured / 2**20, 100 * error)
        print("%-6s %s" % ("ok" if good else "FAILED", text), flush=True)
        self.worst = max(self.worst, (abs(error), text))

    def fail(self, name, failure):
        self.num_rows += 1
        self.num_failed += 1
        print("FAILED %s: %s" % (name, failure), flush=True)


def check_strategy(table, folder, stage, recompute, way):
    precision, seq_len, batch, micro_batch, prefetch, beside = way
    masters = "bf16" if precision == "bf16" and stage % 2 == 1 else "fp32"
    name = "zero_stage=%d recompute=%-9s %s, masters in %s" % (stage, recompute, precision, masters)
    sets = ["parallel.zero_stage=%d" % stage, "parallel.recompute=" + recompute, "train.precision=" + precision,
            "train.master_dtype=" + masters,
            "train.micro_batch=%d" % micro_batch, "data.seq_len=%d" % seq_len, "train.batch_sequences=%d" % batch,
            "parallel.prefetch=" + prefetch, "checkpoint.async=" + beside]
    try:
        run("launch", folder + "/recipe.toml", "--run-dir", folder + "/run", *with_sets(sets))
        report = load(folder + "/run/report.json")
        table.add(name, load(folder + "/run/plan.json")["predicted"]["peak_bytes"], report["measured_peak_bytes"], TOLERANCE,
                  LARGE_BYTES, report["peak_is_met"])
    except (Failed, subprocess.TimeoutExpired) as failure:
        table.fail(name, failure)
    shutil.rmtree(folder + "/run", ignore_errors=True)


def predict_by_stage(folder, sets):
    """Peak bytes by coordinate on pp."""
    run("plan", folder + "/cut.toml", "--trace", folder + "/trace.json", "--force", *with_sets(sets))
    peaks = {}
    for event in load(folder + "/trace.json")["traceEvents"]:
        if event["ph"] == "C" and event["name"] == "memory, bytes":
            peaks[event["pid"]] = max(peaks.get(event["pid"], 0), sum(event["args"].values()))
    return [peaks[coordinate] for coordinate in sorted(peaks)]


def measure_by_rank(run_dir, launcher, num_workers):
    """Peak bytes by rank once all have done a step; as soon as they have."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if launcher.poll() is not None:
            raise Failed("the launch has ended with %d" % launcher.returncode)
        # It fails until there is a run folder.
        done = subprocess.run([TRAINCTL, "status", run_dir, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        workers = (json.loads(done.stdout)["workers"] or []) if done.returncode == 0 else []
        if len(workers) == num_workers and all((worker["step"] or 0) >= 2 and worker["peak_bytes"] for worker in workers):
            return [worker["peak_bytes"] for worker in sorted(workers, key=lambda worker: worker["rank"])]
        time.sleep(0.2)
    raise Failed("the workers do not come to their second step")


def stop_without_saving(launcher):
    """A second signal, while the first one waits for the end of the step."""
    for _ in range(2):
        launcher.terminate()
        time.sleep(0.1)
    if launcher.wait(PATIENCE_SECONDS) not in (75, 130):
        raise Failed("the launch was stopped, and ended with %d" % launcher.returncode)


def check_cut(folder, name, sets):
    """(predicted, measured) bytes of each rank."""
    num_workers = int(sets[0].split("=")[1])
    run_dir = folder + "/run"
    with open(folder + "/log", "w+") as log:
        launcher = subprocess.Popen([TRAINCTL, "launch", folder + "/cut.toml", "--run-dir", run_dir, *with_sets(sets)],
                                    stdout=log, stderr=log)
        try:
            predicted = predict_by_stage(folder, sets)
            measured = measure_by_rank(run_dir, launcher, num_workers)
            planned = load(run_dir + "/plan.json")["predicted"]["peak_bytes"]
            if planned != max(predicted):
                raise Failed("predicted %s, the plan of the run says %d" % (predicted, planned))
            stop_without_saving(launcher)
            return [(predicted[rank * len(predicted) // num_workers], peak) for rank, peak in enumerate(measured)]
        except (Failed, subprocess.TimeoutExpired) as failure:
            log.seek(0)
            raise Failed("%s\n%s" % (failure, log.read()))
        finally:
            if launcher.poll() is None:
                launcher.kill()
                launcher.wait()


def check_cuts(table, folder, names):
    """Two runs at a time, for each waits much of it."""
    def check(number):
        own = "%s/cut-%d" % (folder, number)
        os.mkdir(own)
        for file in ("cut.toml", "text.txt"):
            shutil.copy(folder + "/" + file, own)
        try:
            return check_cut(own, names[number], CUTS[names[number]])
        except Failed as failure:
            return failure
        finally:
            shutil.rmtree(own, ignore_errors=True)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, rows in zip(names, pool.map(check, range(len(names)))):
            if isinstance(rows, Failed):
                table.fail(name, rows)
                continue
            for rank, (predicted, measured) in enumerate(rows):
                table.add("%-25s rank %d" % (name, rank), predicted, measured, CUT_TOLERANCE, CUT_LARGE_BYTES)


def main():
    table = Table()
    folder = tempfile.mkdtemp(prefix="trainctl-memory-")
    os.chdir(folder)  # for runs/latest
    num_layouts = 0
    try:
        for name, text in (("recipe.toml", RECIPE), ("cut.toml", CUT_RECIPE),
                           ("text.txt", "all work and no play makes Jack a dull boy\n" * 2000)):
            with open(folder + "/" + name, "w") as file:
                file.write(text)
        for stage in range(4):
            for place, recompute in enumerate(RECOMPUTE[stage]):
                if FILTER not in "zero_stage=%d recompute=%s" % (stage, recompute):
                    continue
                num_layouts += 1
                # Each stage in both ways, and so each kind of recompute that several stages have.
                for way in WAYS if FILTER else [WAYS[(stage + place) % 2]]:
                    check_strategy(table, folder, stage, recompute, way)
        names = [name for name in CUTS if FILTER in name]
        num_layouts += len(names)
        check_cuts(table, folder, names)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("worst: %s" % table.worst[1])
    print("%d layouts, %d rows, %d failed" % (num_layouts, table.num_rows, table.num_failed))
    sys.exit(1 if table.num_failed or not num_layouts else 0)


main()
