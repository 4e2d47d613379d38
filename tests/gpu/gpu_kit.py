"""Checks and measurements of trainctl on a machine with a GPU, the most valuable first.

    tests/gpu/run.sh --seconds 540 --out results

Writes results.json anew after every measurement and results.md from it, so that what was measured stays
whatever comes after. A step that cannot run says why; none begins without the time that it needs.

    doctor          what trainctl sees of the machine
    kernels         each kernel of the CUDA plugin against the CPU's, and NCCL with one rank (trainctl-worker check-device)
    smoke           three steps, each kernel waited for; where this or `kernels` fails, the same under
                    compute-sanitizer, and nothing else (of `kernels`, where one of them ends the check)
    ceilings        copies, products and attention in our shapes, as fast as PyTorch has them on this device
    calibrate       what trainctl calibrate measures of the device; plans after it price with it
    kernel_speed    each kernel that passes over memory, as a share of a copy's rate
    profile         a step's kernels by name, and how long the device had nothing to do
    trainer_parity  the same recipe on both devices, fp32 and bf16: loss and gradient norm step by step
    graphs          steps by graphs against steps launched kernel by kernel: the same bits, and how fast each is
    layouts         the same recipe on several devices of a kind against one of them: NCCL, streams that overlap
    memory          bytes of tensors, predicted against measured
    throughput      tokens/s beside Hugging Face's Llama and a plain Llama in TorchTitan's manner, both compiled
    sanitizers      each kernel under compute-sanitizer's memcheck, racecheck and initcheck, and steps under memcheck
    counters        what Nsight Compute counts of the three slowest kernels of kernel_speed
    autotune        the peer from Hugging Face compiled with max-autotune, where minutes are left

Exit 0: everything that ran passed; 1: something failed; 2: the command line; 5: there are no programs.
"""

import argparse
import csv
import datetime
import io
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import typing

import token_file
from parity import Bounds, compare
from peer_models import PEER_MODELS

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA = "trainctl.gpu_kit.v1"

# Relative, of loss and gradient norm; at the first step, and later, when the weights differ already. What may differ is
# the order of sums and the last bit of exp. Tried on a CPU with a model of this size: fp32 is within 1e-7 and 1e-5 of fp64;
# with TF32's products in the place of fp32's the norm is 1e-4 off at the first step, which does not pass; bf16
# is within 5e-5 and 8e-3 of fp32, and two devices in bf16 ought to be no further apart than several times that.
PARITY = {"fp32": Bounds(first_loss=5e-6, loss=2e-5, first_norm=3e-5, norm=1e-3),
          "bf16": Bounds(first_loss=1e-4, loss=5e-4, first_norm=1e-2, norm=5e-2)}
# Of bytes that tensors take.
MEMORY = 0.03
# Of the rate of a copy, what a kernel that passes over memory reaches.
KERNEL_SPEED = 0.85

MOST_TOKENS = 32000  # that a token file of 16 bits is made of
PEERS = {"Hugging Face": "huggingface", "TorchTitan's manner": "torchtitan"}
AUTOTUNED = "Hugging Face, max-autotune"

RECIPE = """recipe_version = 1
[run]
name = "kit"
seed = {seed}
deterministic = {deterministic}
graphs = {graphs}
check_kernels = {check_kernels}
[model]
preset = "{preset}"
{layers}
[data]
seq_len = {seq_len}
packing = "continuous"
[[data.train]]
files = ["{data}"]
kind = "indexed"
[train]
steps = {steps}
batch_sequences = {batch}
micro_batch = {micro_batch}
precision = "{precision}"
master_dtype = "{masters}"
[optimizer]
lr = 1e-3
lr_schedule = "constant"
[parallel]
{parallel}
recompute = "{recompute}"
[cluster]
device = "{device}"
devices_per_node = {workers}
threads_per_worker = {threads}
[checkpoint]
every_steps = 1000000
at_end = false
[metrics]
profile_steps = {profile_steps}
[launch]
max_restarts = 0
"""


def say(text):
    print(f"gpu kit: {text}", file=sys.stderr, flush=True)


class NotRun(Exception):
    """A step that cannot run, and why."""


class Failed(Exception):
    """A step that ran and went wrong, and how."""


class Cell(typing.NamedTuple):
    """A model and a batch whose speed is measured."""
    preset: str
    layers: int | None  # of the preset's; None: all
    size: dict          # batch, micro_batch, seq_len
    warmup: int         # steps
    steps: int

    @property
    def name(self):
        return self.preset + (f" of {self.layers} layers" if self.layers else "")


def last_lines(text, count=12):
    return "\n".join(text.splitlines()[-count:])


def threads_of(device, side):
    """Threads of a worker: all cores where the CPU is the reference, one where it stands for the other device, so that
    its sums have another order; the worker's own choice beside a GPU."""
    if device != "cpu":
        return '"auto"'
    return len(os.sched_getaffinity(0)) if side == 0 else 1


class Kit:
    def __init__(self, arguments, work):
        self.a = arguments
        self.work = work
        self.deadline = time.monotonic() + arguments.seconds
        self.num_files = 0
        self.current = None  # the step that is being done; it may have results of others
        self.raced = []  # what throughput measured: its cell, its name, its results, and the tokens
        self.trainctl = arguments.bin / "trainctl"
        self.worker = arguments.bin / "trainctl-worker"
        # What somebody measured or configured on this machine must not decide anything here.
        self.environment = {**os.environ, "NO_COLOR": "1", "XDG_CONFIG_HOME": str(work / "config"),
                            "HF_HUB_OFFLINE": "1", "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor")}
        self.report = {"schema": SCHEMA, "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
                       "devices": arguments.devices, "small": arguments.small, "seconds": arguments.seconds,
                       "machine": {}, "results": []}

    # ---- results ---------------------------------------------------------------------------------

    def save(self):
        for name, text in (("results.json", json.dumps(self.report, indent=1) + "\n"), ("results.md", table(self.report))):
            draft = self.a.out / f".{name}"
            draft.write_text(text)
            os.replace(draft, self.a.out / name)

    def record(self, step, name, status, **fields):
        """Adds a result, or replaces the one of the same name, and writes all of them."""
        entry = {"step": step, "name": name, "status": status, "measured_by": self.current or step, **fields}
        others = [r for r in self.report["results"] if (r["step"], r["name"]) != (step, name)]
        self.report["results"] = sorted([*others, entry], key=lambda r: list(STEPS).index(r["step"]))
        self.save()
        say(f"{name}: {status}" + (f" ({fields['reason']})" if fields.get("reason") else ""))

    # ---- programs --------------------------------------------------------------------------------

    def left(self):
        return self.deadline - time.monotonic()

    def fresh(self, name):
        self.num_files += 1
        return self.work / f"{self.num_files:03d}-{name}"

    def execute(self, command, limit, more_env=None):
        """(exit code, stdout, stderr) of a command that is given `limit` seconds, and never more than are left."""
        seconds = min(limit, self.left())
        if seconds <= 0:
            raise NotRun("no time is left")
        command = [str(c) for c in command]
        # A session of its own, so that ending it ends what it started.
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              text=True, errors="replace", env={**self.environment, **(more_env or {})}, start_new_session=True) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                words = f"{' '.join(command[:3])} ... was ended after {seconds:.0f} s"
                if seconds < limit:
                    raise NotRun(f"{words}, when no time was left") from None
                raise Failed(f"{words}, its limit") from None
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode, out, err

    def data(self, vocab):
        prefix = self.work / f"tokens-{vocab}"
        if not prefix.with_suffix(".idx").exists():
            token_file.write(prefix, vocab, documents=4 if self.a.small else 96)
        return prefix.with_suffix(".bin")

    def recipe(self, preset, device, *, steps, batch, micro_batch, seq_len, precision, masters="fp32", recompute="none", threads=1, seed=1,
               deterministic=False, graphs=True, check_kernels=False, workers=1, parallel="zero_stage = 0", profile_steps=(), layers=None):
        path = self.fresh(f"{preset}.toml")
        text = RECIPE.format(preset=preset, device=device, steps=steps, batch=batch, micro_batch=micro_batch,
                             seq_len=seq_len, precision=precision, masters=masters, recompute=recompute, threads=threads, seed=seed,
                             deterministic=str(deterministic).lower(), graphs=str(graphs).lower(),
                             check_kernels=str(check_kernels).lower(), workers=workers, parallel=parallel,
                             profile_steps=list(profile_steps), layers=f"layers = {layers}" if layers else "",
                             data=self.data(min(MOST_TOKENS, PEER_MODELS[preset]["vocab_size"])))
        path.write_text(text)
        return path

    def need_device(self, device):
        """Raises NotRun where this build or this machine has no such device."""
        recipe = self.recipe("toy-1m", device, steps=1, batch=1, micro_batch=1, seq_len=32, precision="fp32")
        code, out, err = self.execute([self.trainctl, "recipe", "check", recipe], 60)
        if code != 0:
            raise NotRun(f'cluster.device = "{device}" is refused: {last_lines(out + err, 3)}')

    def train(self, recipe, limit):
        """A run: its metrics, timings and report, the seconds to the end of its first step, and its profile."""
        folder = self.fresh("run")
        begin = time.time()
        try:
            code, out, err = self.execute([self.trainctl, "launch", recipe, "--run-dir", folder], limit)
            if code == 5:
                raise NotRun(f"the environment lacks something: {last_lines(out + err, 6)}")
            if code != 0:
                raise Failed(f"trainctl launch: exit {code}: {last_lines(out + err)}")
            lines = {name: [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
                     for name in ("metrics", "timings")}
            first_step = lines["timings"][0]["time"] - begin if lines["timings"] else None
            profiles = [json.loads(path.read_text(errors="replace")) for path in sorted(folder.glob("profiles/*.json"))]
            return {**lines, "report": json.loads((folder / "report.json").read_text()), "first_step_seconds": first_step,
                    "profiles": profiles}
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # a checkpoint of a billion parameters is in it

    # ---- the steps -------------------------------------------------------------------------------

    def doctor(self):
        code, out, err = self.execute([self.trainctl, "doctor", "--json"], 60)
        try:
            found = json.loads(out)
        except ValueError:
            raise Failed(f"trainctl doctor --json: exit {code}: {last_lines(out + err)}") from None
        self.report["machine"].update(host_cpu=found.get("cpu"), cores=found.get("allowed_cores"),
                                      memory_bytes=found.get("memory_total_bytes"), driver=found.get("driver"),
                                      accelerators=found.get("accelerators"))
        bad = [f"{f['name']}: {f['value']}{f['advice'] and '; ' + f['advice']}" for f in found["findings"]
               if f["health"] == "bad"]
        worker = next((f for f in found["findings"] if f["name"] == "worker"), {"health": "bad", "value": "not looked at"})
        self.record("doctor", "doctor", "failed" if worker["health"] == "bad" else "passed", exit_code=code, doctor=found,
                    value=worker["value"], reason="; ".join(bad))

    def kernels(self):
        if self.a.devices[1] == "cpu":
            raise NotRun("both devices are the CPU")
        if self.execute([self.worker, "check-device", "--help"], 30)[0] != 0:
            raise NotRun("not in this build: trainctl-worker has no check-device")
        code, out, err = self.execute([self.worker, "check-device"], 120)
        lines = []
        for line in out.splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                lines.append(value)
        wrong = [line for line in lines if line.get("ok") is False or line.get("passed") is False]
        if code == 5:
            raise NotRun(f"the environment lacks something: {last_lines(out + err, 6)}")
        status = "passed" if code == 0 and lines and not wrong else "failed"
        self.record("kernels", "kernels", status, exit_code=code, checks=lines,
                    value=f"{len(lines) - len(wrong)} of {len(lines)} checks passed",
                    reason="" if status == "passed" else last_lines(err) or json.dumps(wrong[:3]))

    def smoke(self):
        device = self.a.devices[1]
        self.need_device(device)
        run = self.train(self.smoke_recipe(device), 60)
        losses = [line["loss"] for line in run["metrics"]]
        self.record("smoke", "smoke", "passed" if len(losses) == 3 else "failed", losses=losses, value=f"{len(losses)} steps, each kernel waited for")

    def smoke_recipe(self, device):
        return self.recipe("toy-1m", device, steps=3, batch=4, micro_batch=2, seq_len=64, precision="bf16", check_kernels=True)

    def kernel_speed(self):
        if self.a.devices[1] == "cpu":
            raise NotRun("both devices are the CPU")
        code, out, err = self.execute([self.worker, "time-kernels", *(["--rows", 64] if self.a.small else [])], 120)
        if code != 0:
            raise (NotRun if code == 5 else Failed)(f"time-kernels: exit {code}: {last_lines(err, 3)}")
        copy, *lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        for line in lines:
            line["share_of_copy"] = line["bytes_per_second"] / copy["bytes_per_second"]
        # Scalars pass over nothing.
        lines = sorted((line for line in lines if line["bytes"] > 1 << 16), key=lambda line: line["share_of_copy"])
        slow = [line for line in lines if line["share_of_copy"] < KERNEL_SPEED]
        status = "measured" if self.a.small else "failed" if slow else "passed"
        self.record("kernel_speed", "kernels beside a copy", status, copy_bytes_per_second=copy["bytes_per_second"], kernels=lines,
                    value=f"copy {copy['bytes_per_second'] / 1e12:.2f} TB/s; {len(lines) - len(slow)} of {len(lines)} kernels at {KERNEL_SPEED:.0%} of it",
                    target=f"{KERNEL_SPEED:.0%} of a copy",
                    reason="; ".join(f"{line['operator']} {line['share_of_copy']:.0%}" for line in slow[:6]))

    def sanitize(self, step, tool, name, command, limit):
        """A command under compute-sanitizer."""
        # LibTorch asks the driver for what it may not have; that is no error. Each tensor gets memory of its own, or
        # overruns would stay within what LibTorch caches.
        options = ["--padding", 64] if tool == "memcheck" else []
        code, out, err = self.execute([nvidia_tool("compute-sanitizer"), "--tool", tool, *options, "--report-api-errors", "no",
                                       "--target-processes", "all", "--error-exitcode", 99, *command], limit,
                                      {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
        counts = [int(count) for count in SANITIZER_SUMMARY.findall(out + err)]
        if not counts and code != 99:
            raise NotRun(f"compute-sanitizer said nothing of errors: exit {code}: {last_lines(out + err, 4)}")
        found = [line.strip("= ") for line in (out + err).splitlines() if line.startswith("=========") and line.strip("= ")]
        worst = [line for line in found if re.match("Invalid|Uninitialized|Error: |Potential|Race|Misaligned", line)]
        self.record(step, name, "failed" if sum(counts) or code else "passed", errors=sum(counts), exit_code=code, output=found[:200],
                    value=f"{sum(counts)} errors", target="none",
                    reason="" if code == 0 and not sum(counts) else "; ".join((worst or found)[:3]) or last_lines(err, 3))

    def sanitizers(self):
        device = self.a.devices[1]
        if device == "cpu":
            raise NotRun("both devices are the CPU")
        # Without those of libraries, which are known for findings that are none.
        our_kernels = [self.worker, "time-kernels", "--rows", 64, "--only", " n="]
        commands = [("memcheck", "every kernel", [self.worker, "check-device"]),
                    ("memcheck", "three steps", [self.trainctl, "launch", self.smoke_recipe(device), "--run-dir", self.fresh("run")]),
                    ("racecheck", "our kernels", our_kernels), ("initcheck", "our kernels", our_kernels)]
        for tool, what, command in commands:
            name = f"{tool}, {what}"
            try:
                self.sanitize("sanitizers", tool, name, command, 150)
            except (NotRun, Failed) as error:
                self.record("sanitizers", name, status_of(error), reason=str(error))

    def is_broken(self, step):
        """Whether nothing that follows would mean anything: steps do not run, or the check of kernels was ended by one."""
        return any(r["step"] == step and r["status"] == "failed" and (step == "smoke" or r.get("exit_code") not in (0, 1))
                   for r in self.report["results"] if step in ("kernels", "smoke"))

    def after_failure(self, step):
        """The same as a step that failed, under the sanitizer: what it says is all that counts then."""
        command = ([self.worker, "check-device"] if step == "kernels" else
                   [self.trainctl, "launch", self.smoke_recipe(self.a.devices[1]), "--run-dir", self.fresh("run")])
        try:
            self.sanitize("sanitizers", "memcheck", f"memcheck, after {step} failed", command, 240)
        except (NotRun, Failed) as error:
            self.record("sanitizers", f"memcheck, after {step} failed", status_of(error), reason=str(error))

    def counters(self):
        program = nvidia_tool("ncu")
        speeds = next((r for r in self.report["results"] if r["step"] == "kernel_speed" and "kernels" in r), None)
        if speeds is None:
            raise NotRun("kernel_speed was not measured")
        for line in speeds["kernels"][:3]:
            name = f"counters, {line['operator']}"
            try:
                # Clocks stay as they are.
                code, out, err = self.execute([program, "--clock-control", "none", "--csv", "--section", "SpeedOfLight", "--section", "Occupancy",
                                               "--launch-count", 2, self.worker, "time-kernels", "--only", line["operator"],
                                               *(["--rows", 64] if self.a.small else [])], 90)
                kernels = counters_of(out)
                if not kernels:
                    raise NotRun(f"ncu counted nothing: exit {code}: {last_lines(out + err, 4)}")
                longest = max(kernels.values(), key=lambda metrics: microseconds(metrics.get("Duration", "0 us")))
                self.record("counters", name, "measured", kernels=kernels,
                            value=", ".join(f"{metric} {longest[metric]}" for metric in ("DRAM Throughput", "Achieved Occupancy", "Duration")
                                            if metric in longest))
            except (NotRun, Failed) as error:
                self.record("counters", name, status_of(error), reason=str(error))

    def trainer_parity(self):
        for device in self.a.devices:
            self.need_device(device)
        for precision, bounds in PARITY.items():
            name = f"trainer parity, {precision}"
            try:
                sides = []
                for side, device in enumerate(self.a.devices):
                    recipe = self.recipe("toy-1m", device, steps=8 if self.a.small else 20, batch=8, micro_batch=4, seq_len=32 if self.a.small else 128,
                                         precision=precision, threads=threads_of(device, side),
                                         seed=self.a.seeds[side], deterministic=True)
                    sides.append(self.train(recipe, 90))
                    if device != "cpu" or side == 1:
                        self.memory_result(f"toy-1m, {precision}, {device}", sides[side]["report"], bound=None)
                found = compare(sides[0]["metrics"], sides[1]["metrics"], bounds)
                self.record("trainer_parity", name, "passed" if not found["differences"] else "failed", **found,
                            sides=self.a.devices, bounds=bounds._asdict(),
                            value=f"loss within {found['worst_loss']:.1e}, gradient norm within {found['worst_norm']:.1e} "
                                  f"over {found['steps']} steps",
                            target=f"{bounds.first_loss:g} at step 1, then {bounds.loss:g}; norm {bounds.first_norm:g}, "
                                   f"then {bounds.norm:g}",
                            reason="; ".join(found["differences"][:4]),
                            losses=[[line["loss"] for line in side["metrics"]] for side in sides])
                again = compare(sides[1]["metrics"], self.train(recipe, 90)["metrics"], Bounds(0, 0, 0, 0))
                self.record("trainer_parity", f"same bits twice, {precision}",
                            "passed" if not again["differences"] else "failed", **again,
                            value=f"{again['steps']} steps", target="no difference",
                            reason="; ".join(again["differences"][:4]))
            except (NotRun, Failed) as error:
                self.record("trainer_parity", name, status_of(error), reason=str(error))

    def graphs(self):
        device = self.a.devices[1]
        self.need_device(device)
        for precision in PARITY:
            name = f"by graph and launched, {precision}"
            try:
                by_graph, launched = (
                    self.train(self.recipe("toy-1m", device, steps=8 if self.a.small else 20, batch=8, micro_batch=4,
                                           seq_len=32 if self.a.small else 128, precision=precision, deterministic=True,
                                           graphs=graphs), 90) for graphs in (True, False))
                found = compare(by_graph["metrics"], launched["metrics"], Bounds(0, 0, 0, 0))
                steps = sum("graph" in line["phases"] for line in by_graph["timings"])
                missing = steps == 0 and device != "cpu" and precision == "bf16"
                self.record("graphs", name, "failed" if found["differences"] or missing else "passed", **found,
                            steps_by_graph=steps, value=f"{steps} of {found['steps']} steps by graph",
                            target="no difference", reason="; ".join(found["differences"][:4]) or
                            ("no step was done by a graph" if missing else ""))
            except (NotRun, Failed) as error:
                self.record("graphs", name, status_of(error), reason=str(error))
        for cell in [cell for cell in self.cells() if cell.layers is None]:
            name = f"speed of graphs, {cell.name}, {device}"
            try:
                speed = {graphs: self.our_speed(self.recipe(cell.preset, device, steps=cell.warmup + cell.steps,
                                                            precision="bf16", threads=threads_of(device, 1), graphs=graphs,
                                                            **cell.size), cell)["tokens_per_second"]
                         for graphs in (True, False)}
                self.record("graphs", name, "measured", by_graph=speed[True], launched=speed[False],
                            value=f"{speed[True]:,.0f} tokens/s, {speed[False]:,.0f} launched "
                                  f"({speed[True] / speed[False]:.2f}×)")
            except (NotRun, Failed) as error:
                self.record("graphs", name, status_of(error), reason=str(error))

    def layouts(self):
        device = self.a.devices[1]
        self.need_device(device)
        count = self.count(device)
        if count < 2:
            raise NotRun(f"it takes two or more, and there is {count}")
        workers = max(n for n in (2, 4, 8) if n <= count)
        size = dict(steps=4 if self.a.small else 20, batch=16, micro_batch=1, seq_len=32 if self.a.small else 128, threads=1, deterministic=True)
        layouts = {"dp_replicate": f"zero_stage = 0\ndp_replicate = {workers}"}
        for stage in (1, 2, 3):
            layouts[f"ZeRO-{stage}"] = f"zero_stage = {stage}\ndp_shard = {workers}\ndp_replicate = 1"
        if workers >= 4:
            layouts["ZeRO-3 of each half"] = f"zero_stage = 3\ndp_shard = {workers // 2}\ndp_replicate = 2"
        for precision in ("fp32",) if self.a.small else ("fp32", "bf16"):
            one = self.train(self.recipe("toy-1m", device, precision=precision, **size), 90)
            for layout, parallel in layouts.items():
                name = f"{layout} over {workers}, {precision}"
                recipe = self.recipe("toy-1m", device, precision=precision, workers=workers, parallel=parallel, **size)
                try:
                    run = self.train(recipe, 90)
                    found = compare(one["metrics"], run["metrics"], PARITY[precision])
                    # NCCL does not promise the same order of sums in each run; whether it kept it is worth knowing.
                    again = compare(run["metrics"], self.train(recipe, 90)["metrics"], Bounds(0, 0, 0, 0))
                    self.record("layouts", name, "passed" if not found["differences"] else "failed", **found,
                                same_bits_twice=not again["differences"],
                                value=f"loss within {found['worst_loss']:.1e} of one, gradient norm within "
                                      f"{found['worst_norm']:.1e}; a second run gave "
                                      f"{'other' if again['differences'] else 'the same'} bits",
                                target=f"{PARITY[precision].loss:g} and {PARITY[precision].norm:g}",
                                reason="; ".join(found["differences"][:4]))
                except (NotRun, Failed) as error:
                    self.record("layouts", name, status_of(error), reason=str(error))

    def count(self, device):
        """How many workers a machine has room for."""
        if device == "cpu":
            return len(os.sched_getaffinity(0))
        code, out, err = self.execute([self.trainctl, "doctor", "--json"], 60)
        try:
            return len(json.loads(out)["accelerators"])
        except (ValueError, KeyError):
            raise Failed(f"trainctl doctor --json: exit {code}: {last_lines(out + err)}") from None

    def memory_result(self, label, report, bound):
        predicted, measured = report["predicted_peak_bytes"], report["measured_peak_bytes"]
        error = measured / predicted - 1 if predicted else float("nan")
        status = "measured" if bound is None else "passed" if abs(error) <= bound else "failed"
        self.record("memory", f"memory, {label}", status, predicted_bytes=predicted, measured_bytes=measured,
                    predicted_at_peak=report["predicted_at_peak"], measured_at_peak=report["measured_at_peak"],
                    value=f"predicted {predicted / 2**20:,.1f} MiB, measured {measured / 2**20:,.1f} MiB ({error:+.1%})",
                    target="" if bound is None else f"within {bound:.0%}",
                    reason="" if status != "failed" else f"{error:+.1%} is more than {bound:.0%}")

    def memory(self):
        device = self.a.devices[1]
        self.need_device(device)
        size = dict(steps=2, batch=8, micro_batch=4, seq_len=64 if self.a.small else 1024)
        preset = "toy-1m" if self.a.small else "llama-120m"
        for recompute, masters in (("none", "fp32"), ("full", "fp32"), ("none", "bf16")):
            label = f"{preset}, bf16{' alone' if masters == 'bf16' else ''}, recompute {recompute}, {device}"
            try:
                recipe = self.recipe(preset, device, precision="bf16", masters=masters, recompute=recompute, threads=threads_of(device, 1), **size)
                self.memory_result(label, self.train(recipe, 120)["report"], None if self.a.small else MEMORY)
            except (NotRun, Failed) as error:
                self.record("memory", f"memory, {label}", status_of(error), reason=str(error))

    def ceilings(self):
        if self.a.devices[1] != "cuda":
            raise NotRun("for GPUs")
        code, out, err = self.execute([self.a.python, HERE / "ceilings.py"], 90)
        if code == 5:
            raise NotRun(last_lines(err, 3))
        if code != 0:
            raise Failed(f"ceilings.py: exit {code}: {last_lines(err)}")
        found = json.loads(out.splitlines()[-1])
        self.record("ceilings", "ceilings", "measured", **found,
                    value=f"copy {found['copies']['copy']:.2f} TB/s; 8192³ product {found['products']['8192^3']['forward']:.0f} TFLOP/s")

    def calibrate(self):
        if self.a.devices[1] != "cuda":
            raise NotRun("for GPUs")
        code, out, err = self.execute([self.trainctl, "calibrate", "--device", "cuda", "--json"], 90)
        if code == 5:
            raise NotRun(last_lines(err, 3))
        if code != 0:
            raise Failed(f"trainctl calibrate: exit {code}: {last_lines(err)}")
        device = json.loads(out)["devices"][0]
        best = max(2 * p["rows"] * p["inner"] * p["columns"] / p["seconds"] for p in device["products"] if p["dtype"] == "BF16")
        self.record("calibrate", "calibrate", "measured", device=device,
                    value=f"copy {device['bytes_per_second'] / 1e12:.2f} TB/s; best bf16 product {best / 1e12:.0f} TFLOP/s; "
                          f"a launch {device['launch_seconds'] * 1e6:.1f} us")

    def profile(self):
        device = self.a.devices[1]
        self.need_device(device)
        for cell in self.cells():
            name = f"kernels of a step, {cell.name}, {device}"
            steps = 4
            recipe = self.recipe(cell.preset, device, steps=steps, precision="bf16", threads=threads_of(device, 1),
                                 profile_steps=(steps,), layers=cell.layers, **cell.size)
            try:
                run = self.train(recipe, 120)
                found = kernels_of(run["profiles"][0])
                # The profiled step is the last one; those before it say what it costs to profile.
                plain = statistics.median(line["seconds"] for line in run["timings"][1:-1])
                value = f"a step of {plain * 1e3:.1f} ms"
                if found["kernels"]:
                    value += (f"; profiled: {found['busy_ms']:.1f} ms of work in {found['span_ms']:.1f} ms, "
                              f"{found['launches']} launches; {found['kernels'][0]['name'][:40]} {found['kernels'][0]['ms']:.1f} ms")
                if found["product_ms"]:
                    value += f"; a step takes {plain * 1e3 / found['product_ms']:.2f}× its products and attention"
                self.record("profile", name, "measured", step_seconds=plain, value=value, **found)
            except (NotRun, Failed) as error:
                self.record("profile", name, status_of(error), reason=str(error))

    def cells(self):
        """What is measured for speed."""
        if self.a.small:
            return [Cell("toy-1m", None, dict(batch=4, micro_batch=2, seq_len=64), 1, 2)]
        return [Cell("llama-1b", None, dict(batch=8, micro_batch=4, seq_len=2048), 4, 10),
                # As many layers of its width as fit beside the peer's logits.
                Cell("llama3.1-8b", 6, dict(batch=8, micro_batch=1, seq_len=8192), 2, 4),
                Cell("llama-120m", None, dict(batch=16, micro_batch=16, seq_len=1024), 10, 30)]

    def throughput(self):
        self.need_device(self.a.devices[1])
        for cell in self.cells():
            self.throughput_of(cell, self.a.devices[1])

    def autotune(self):
        if not self.raced:
            raise NotRun("throughput was not measured")
        for cell, name, found, tokens in self.raced:
            if self.left() < STEPS["autotune"]:
                raise NotRun(f"no time was left for {cell.name}")
            try:
                found[AUTOTUNED] = [self.peer_speed("Hugging Face", cell, self.a.devices[1], tokens, ["--max-autotune"])]
                self.throughput_result(name, found, cell)
            except NotRun as error:
                self.record("autotune", f"max-autotune of {cell.name}", "not run", reason=str(error))

    def throughput_of(self, cell, device):
        """Ours, a peer, ours, the other peer, ours: each peer is compiled once, and our median counts."""
        name = f"training {cell.name}, {device}"
        recipe = self.recipe(cell.preset, device, steps=cell.warmup + cell.steps, precision="bf16",
                             threads=threads_of(device, 1), layers=cell.layers, **cell.size)
        found, problem = {"trainctl": []}, None
        try:
            found["trainctl"].append(self.our_speed(recipe, cell))
            self.memory_result(f"{cell.name}, bf16, {device}", found["trainctl"][0].pop("report"),
                               None if self.a.small else MEMORY)
            self.throughput_result(name, found, cell)
            tokens, parameters = self.batches(recipe, cell.warmup + cell.steps)
        except (NotRun, Failed) as error:
            return self.throughput_result(name, found, cell, error)
        for peer in PEERS:
            try:
                result = self.peer_speed(peer, cell, device, tokens)
                check_same_work(parameters, result, found["trainctl"])
                found[peer] = [result]
                self.throughput_result(name, found, cell)
                again = self.our_speed(recipe, cell)
                del again["report"]
                found["trainctl"].append(again)
            except (NotRun, Failed) as error:
                problem = problem if isinstance(problem, Failed) else error
        self.throughput_result(name, found, cell, problem)
        self.raced.append((cell, name, found, tokens))

    def throughput_result(self, name, found, cell, problem=None):
        medians = {side: statistics.median(r["tokens_per_second"] for r in results) for side, results in found.items() if results}
        ratios = {side: medians["trainctl"] / median for side, median in medians.items() if side != "trainctl"}
        if not medians:
            status = status_of(problem)
        else:
            status = "failed" if isinstance(problem, Failed) else "measured"
        value = ", ".join(f"{side} {median:,.0f}" + (f" ({ratios[side]:.2f}×)" if side in ratios else "")
                          for side, median in medians.items())
        value += " tokens/s" if medians else ""
        if found["trainctl"] and (predicted := found["trainctl"][-1]["predicted_over_measured"]):
            value += f"; a step was predicted at {predicted:.2f} of what it took"
        self.record("throughput", name, status, unit="tokens/s", rounds=found, medians=medians, ratios=ratios, **cell.size,
                    value=value, reason=str(problem) if problem else "")

    def batches(self, recipe, steps):
        """(file with the very tokens of the recipe's steps, number of parameters)."""
        rows = []
        for step in range(1, steps + 1):
            code, out, err = self.execute([self.trainctl, "data", "batch", recipe, "--step", step, "--json"], 30)
            if code != 0:
                raise Failed(f"trainctl data batch: exit {code}: {last_lines(err)}")
            rows.append([sequence["tokens"] for sequence in json.loads(out)["sequences"]])
        path = self.fresh("tokens.json")
        path.write_text(json.dumps(rows))
        code, out, err = self.execute([self.trainctl, "plan", recipe, "--json"], 60)
        if code != 0:
            raise Failed(f"trainctl plan: exit {code}: {last_lines(err)}")
        return path, json.loads(out)["num_parameters"]

    def our_speed(self, recipe, cell):
        run = self.train(recipe, 150)
        warmup, steps, size = cell.warmup, cell.steps, cell.size
        ended = {line["step"]: line["time"] for line in run["timings"]}
        if len(ended) != warmup + steps:
            raise Failed(f"{len(ended)} timed steps, not {warmup + steps}")
        # By the clock on the wall, as the peers are timed: what comes between steps counts.
        seconds = ended[warmup + steps] - ended[warmup]
        return {"tokens_per_second": steps * size["batch"] * size["seq_len"] / seconds, "report": run["report"],
                # None of a run whose steps were all taken for warming up.
                "predicted_over_measured": run["report"]["predicted_step_seconds"] / run["report"]["measured_step_seconds"]
                                           if "measured_step_seconds" in run["report"] else None,
                "first_loss": run["metrics"][0]["loss"], "peak_bytes": run["report"]["measured_peak_bytes"],
                "first_step_seconds": run["first_step_seconds"]}

    def peer_speed(self, peer, cell, device, tokens, more=()):
        model = {**PEER_MODELS[cell.preset], "rms_norm_eps": 1e-5, "max_position_embeddings": cell.size["seq_len"]}
        if cell.layers:
            model["num_hidden_layers"] = cell.layers
        command = [self.a.python, HERE / "train_peer.py", "--peer", PEERS[peer], "--device", device, "--tokens", tokens,
                   "--model", json.dumps(model), "--micro-batch", cell.size["micro_batch"], "--warmup", cell.warmup,
                   "--precision", self.a.peer_precision, *more]
        if self.a.small:
            command.append("--no-compile")
        try:
            code, out, err = self.execute(command, 240)
        except Failed as error:
            raise NotRun(f"the peer takes too long: {error}") from None
        if code != 0:  # nothing is wrong with us then
            raise NotRun(f"the peer cannot run: exit {code}: {last_lines(err, 3 if code == 5 else 12)}")
        return json.loads(out.splitlines()[-1])


SANITIZER_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (?=\d+ errors?\s*$)|RACECHECK SUMMARY: \d+ hazards? displayed \()(\d+) errors?", re.MULTILINE)


def nvidia_tool(name):
    """A program of CUDA's toolkit, which is often not in PATH."""
    program = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if program is None:
        raise NotRun(f"{name} is neither in PATH nor in /usr/local/cuda/bin")
    return program


def microseconds(duration):
    """Of "103.2 us"."""
    value, unit = duration.split()
    return float(value.replace(",", "")) * {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}.get(unit.removesuffix("econd"), 1)


def counters_of(text):
    """Of ncu's CSV: the metrics of each kernel, with their units, by the kernel's name."""
    begin = text.find('"ID"')
    kernels = {}
    for row in csv.DictReader(io.StringIO(text[begin:] if begin >= 0 else "")):
        if row.get("Metric Name"):
            kernels.setdefault(row["Kernel Name"], {})[row["Metric Name"]] = f"{row['Metric Value']} {row['Metric Unit']}".strip()
    return kernels


# Kernels of cuBLAS, cuDNN and flash attention, by their names.
PRODUCTS = re.compile(r"gemm|nvjet|cutlass|xmma|cudnn|fmha|flash", re.IGNORECASE)


def kernels_of(profile):
    """What a device did in a profiled step: its kernels by name, the time in which one ran, and from first to last."""
    work = sorted((e["ts"], e["ts"] + e["dur"], e["name"], e["cat"]) for e in profile["traceEvents"]
                  if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))
    if not work:
        return {"kernels": [], "launches": 0, "busy_ms": 0, "span_ms": 0, "product_ms": 0}
    by_name, gaps, busy, end, before = {}, [], 0.0, work[0][0], ""
    for begin, done, name, _ in work:
        if begin > end:
            gaps.append({"ms": (begin - end) / 1e3, "after": before[:60], "before": name[:60], "at_ms": (end - work[0][0]) / 1e3})
        before = name
        entry = by_name.setdefault(name, {"name": name, "ms": 0.0, "launches": 0})
        entry["ms"] += (done - begin) / 1e3
        entry["launches"] += 1
        busy += max(0.0, done - max(begin, end))
        end = max(end, done)
    product_ms = sum(entry["ms"] for entry in by_name.values() if PRODUCTS.search(entry["name"]))
    return {"kernels": sorted(by_name.values(), key=lambda entry: -entry["ms"]), "launches": len(work), "product_ms": product_ms,
            "longest_gaps": sorted(gaps, key=lambda gap: -gap["ms"])[:12],
            "gap_ms_below_10us": sum(gap["ms"] for gap in gaps if gap["ms"] < 0.01), "busy_ms": busy / 1e3, "span_ms": (end - work[0][0]) / 1e3}


def check_same_work(parameters, peer, ours):
    if peer["parameters"] != parameters:
        raise Failed(f"the peer has {peer['parameters']} parameters, ours has {parameters}")
    # Other random weights, the same tokens: the first losses agree to a few hundredths.
    if ours and abs(peer["first_loss"] - ours[0]["first_loss"]) > 0.1:
        raise Failed(f"the peer starts with a loss of {peer['first_loss']}, ours with {ours[0]['first_loss']}")


def status_of(error):
    return "failed" if isinstance(error, Failed) else "not run"


# The steps in order, with the seconds that one must have to begin.
STEPS = {"doctor": 5, "kernels": 10, "smoke": 10, "ceilings": 30, "calibrate": 20, "kernel_speed": 30, "profile": 30, "trainer_parity": 20,
         "graphs": 30, "layouts": 30, "memory": 20, "throughput": 45, "sanitizers": 30, "counters": 30, "autotune": 200}


class Monitor:
    """Clock, power and temperature of the first GPU, every second, while the kit runs."""

    FIELDS = ("clock_mhz", "power_w", "temperature_c")

    def __init__(self):
        self.samples, self.process = [], None
        if program := shutil.which("nvidia-smi"):
            self.process = subprocess.Popen([program, "-i", "0", "--query-gpu=clocks.sm,power.draw,temperature.gpu",
                                             "--format=csv,noheader,nounits", "-l", "1"], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.thread = threading.Thread(target=self.read, daemon=True)
            self.thread.start()

    def read(self):
        for line in self.process.stdout:
            try:
                values = [float(value) for value in line.split(",")]
            except ValueError:
                continue  # "[N/A]"
            if len(values) == len(self.FIELDS):
                self.samples.append((time.monotonic(), values))

    def summary(self, begin):
        """Least, median and most since `begin`; nothing where nothing was sampled."""
        samples = [values for at, values in self.samples if at >= begin]
        return {field: [min(column), statistics.median(column), max(column)]
                for field, column in zip(self.FIELDS, zip(*samples))}

    def stop(self):
        if self.process is not None:
            self.process.kill()
            # Where the driver hangs, so does nvidia-smi, and not even killing ends it.
            self.thread.join(timeout=5)
            if not self.thread.is_alive():
                self.process.wait()
                self.process.stdout.close()


# ---- report ------------------------------------------------------------------------------------------


def table(report):
    machine = report["machine"]
    accelerators = ", ".join(str(a.get("name", a)) if isinstance(a, dict) else str(a) for a in machine.get("accelerators") or [])
    lines = [f"- machine: {accelerators or 'no accelerator'}; {machine.get('host_cpu') or platform.processor()}, "
             f"{machine.get('cores') or '?'} cores; driver {machine.get('driver') or 'none'}",
             f"- date: {report['date']}; devices: {' and '.join(report['devices'])}"
             + ("; micro-sizes, the numbers mean nothing" if report["small"] else ""),
             f"- versions: {machine.get('versions', 'unknown')}",
             *(f"- during {step}: " + ", ".join(f"{field.replace('_', ' ')} {low:g} to {high:g}, median {median:g}"
                                                for field, (low, median, high) in gpu.items())
               for step, gpu in report.get("step_gpu", {}).items()), "",
             "| what | result | found | bound |", "|---|---|---|---|"]
    for result in report["results"]:
        found = "; ".join(text for text in (result.get("value", ""), result.get("reason", "")) if text)
        found = " ".join(found.split()).replace("|", "\\|")
        lines.append(f"| {result['name']} | {result['status']} | {found[:400]} | {result.get('target', '')} |")
    return "\n".join(lines) + "\n"


def versions(kit):
    code, out, _ = kit.execute([kit.trainctl, "version"], 30)
    ours = out.splitlines()[0] if code == 0 and out else "trainctl of unknown version"
    manifest = HERE.parent.parent / "MANIFEST.json"
    if manifest.exists():
        found = json.loads(manifest.read_text())
        ours += f" ({found['commit']}, CUDA plugin: {found['cuda_plugin'] or 'none'})"
    # From their metadata: importing them takes seconds, and touches the driver.
    code, out, _ = kit.execute([kit.a.python, "-c", "from importlib import metadata as m\nfor p in ('torch', 'transformers'):\n"
                                "    try: print(p, m.version(p))\n    except m.PackageNotFoundError: print('no', p)"], 30)
    return ", ".join([ours, *out.splitlines()])


def parse():
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=540, help="the time for everything (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT") or "gpu-results"),
                        help="folder for results.json and results.md (default: $OUT, else gpu-results)")
    parser.add_argument("--only", default=",".join(STEPS), help=f"a list of {', '.join(STEPS)} (default: all)")
    parser.add_argument("--again", action="store_true", help="only the steps of which something failed in the results that are in --out")
    parser.add_argument("--devices", default="cpu,cuda", help="what is compared, and what is measured (default: cpu,cuda)")
    parser.add_argument("--small", action="store_true", help="micro-sizes, to see that the script works")
    parser.add_argument("--peer-precision", choices=("autocast", "bf16"), default="autocast",
                        help="autocast keeps fp32 weights, as we do; bf16 has everything in bf16 (default: autocast)")
    parser.add_argument("--seeds", default="1,1", help="of the two sides of trainer_parity; different ones must fail")
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent.parent / "bin", help="the programs (default: of the bundle)")
    parser.add_argument("--python", default=sys.executable, help="with torch and transformers (default: this one)")
    parser.add_argument("--work", type=pathlib.Path, help="where runs are written while they last (default: $TMPDIR)")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if unknown := [name for name in arguments.only if name not in STEPS]:
        parser.error(f"--only: {unknown[0]} is none of {', '.join(STEPS)}")
    arguments.devices = arguments.devices.split(",")
    if len(arguments.devices) == 1:
        arguments.devices *= 2
    if len(arguments.devices) != 2 or any(d not in ("cpu", "cuda") for d in arguments.devices):
        parser.error("--devices: two of cpu and cuda, such as cpu,cuda")
    try:
        arguments.seeds = [int(seed) for seed in arguments.seeds.split(",")]
    except ValueError:
        arguments.seeds = []
    if len(arguments.seeds) != 2:
        parser.error("--seeds: two numbers, such as 1,1")
    if arguments.seconds <= 0:
        parser.error("--seconds is above 0")
    arguments.bin = arguments.bin.resolve()
    for program in ("trainctl", "trainctl-worker"):
        if not (arguments.bin / program).exists():
            say(f"{arguments.bin / program} does not exist; name the folder with --bin")
            sys.exit(5)
    return arguments


def keep_earlier(out):
    """What an earlier call wrote stays beside what this one writes, under the next free number."""
    if (out / "results.json").exists():
        number = next(n for n in range(1, 1 << 20) if not (out / f"results-{n}.json").exists())
        for suffix in ("json", "md"):
            if (out / f"results.{suffix}").exists():
                os.replace(out / f"results.{suffix}", out / f"results-{number}.{suffix}")


def failed_steps(out, only):
    """Of `only`, the steps of which the results there have a failure, and the results of the others."""
    path = out / "results.json"
    if not path.exists():
        say(f"--again: {path} does not exist")
        sys.exit(2)
    results = json.loads(path.read_text())["results"]
    failed = {result.get("measured_by", result["step"]) for result in results if result["status"] == "failed"}
    again = [step for step in only if step in failed]
    return again, [result for result in results if result.get("measured_by", result["step"]) not in again]


def main():
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.out = arguments.out.resolve()
    if arguments.again:
        arguments.only, kept = failed_steps(arguments.out, arguments.only)
        if not arguments.only:
            say(f"nothing failed in {arguments.out / 'results.json'}")
            return 0
    else:
        kept = []
    keep_earlier(arguments.out)
    work = pathlib.Path(tempfile.mkdtemp(prefix="trainctl-gpu-kit-", dir=arguments.work))
    monitor = Monitor()
    try:
        kit = Kit(arguments, work)
        kit.report["results"] = kept
        kit.report["machine"]["versions"] = versions(kit)
        kit.save()
        for step, needed in STEPS.items():
            if step not in arguments.only:
                continue
            begin = time.monotonic()
            kit.current = step
            try:
                if kit.left() < needed:
                    raise NotRun(f"{max(0, kit.left()):.0f} s were left of {arguments.seconds:.0f}, and it needs {needed}")
                getattr(kit, step)()
            except (NotRun, Failed) as error:
                kit.record(step, step.replace("_", " "), status_of(error), reason=str(error))
            except Exception as error:  # a mistake of this script must not cost the steps that follow
                kit.record(step, step.replace("_", " "), "failed", reason=f"{type(error).__name__}: {error}")
            kit.report.setdefault("step_seconds", {})[step] = round(time.monotonic() - begin, 1)
            if gpu := monitor.summary(begin):
                kit.report.setdefault("step_gpu", {})[step] = gpu
            kit.save()
            if kit.is_broken(step):
                say(f"{step} failed: nothing that follows would mean anything")
                kit.after_failure(step)
                break
    finally:
        monitor.stop()
        shutil.rmtree(work, ignore_errors=True)
    print((arguments.out / "results.md").read_text(), end="")
    return 1 if any(result["status"] == "failed" for result in kit.report["results"]) else 0


if __name__ == "__main__":
    sys.exit(main())
