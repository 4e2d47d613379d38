"""What every part of the kit uses: its results, its programs with their time limits, and its recipes. Thread safe.

A part is a function that takes a Kit. It records its results as it gets them, and raises NotRun or Failed with a reason.
"""

import concurrent.futures
import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing

import token_file
from kit_report import SCHEMA, table
from parity import Bounds
from peer_models import PEER_MODELS

# Largest relative differences of loss and gradient norm, at the first step and later, when the weights differ already.
# Only the order of sums and the last bit of exp may differ. On a CPU, a model of this size in fp32 is within 1e-7 and 1e-5
# of fp64; TF32 products move the first norm by 1e-4, which does not pass; bf16 is within 5e-5 and 8e-3 of fp32, and two
# devices in bf16 should be at most several times that apart.
PARITY = {"fp32": Bounds(first_loss=5e-6, loss=2e-5, first_norm=3e-5, norm=1e-3),
          "bf16": Bounds(first_loss=1e-4, loss=5e-4, first_norm=1e-2, norm=5e-2)}
NO_DIFFERENCE = Bounds(0, 0, 0, 0)

MOST_TOKENS = 32000  # largest vocabulary of a token file with 16 bits per token

RECIPE = """recipe_version = 1
[run]
name = "kit"
root = "{root}"
seed = {seed}
deterministic = {deterministic}
graphs = {graphs}
check_kernels = {check_kernels}
[model]
preset = "{preset}"
{layers}
[data]
seq_len = {seq_len}
packing = "{packing}"
[[data.train]]
files = ["{data}"]
kind = "indexed"
{evaluation}
[train]
steps = {steps}
batch_sequences = {batch}
micro_batch = {micro_batch}
precision = "{precision}"
master_dtype = "{masters}"
eval_every = {eval_every}
eval_batches = 2
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
{checkpoint}
[metrics]
profile_steps = {profile_steps}
[launch]
max_restarts = {max_restarts}
"""
NO_CHECKPOINT = "every_steps = 1000000\nat_end = false"


class NotRun(Exception):
    """A part that cannot run, and why."""


class Failed(Exception):
    """A part that ran and went wrong, and how."""


class TimedOut(Failed):
    """A program that was ended because its time was up."""


class Broken(Exception):
    """The device does not compute: nothing that follows would mean anything."""


class Cell(typing.NamedTuple):
    """A model and a batch whose speed is measured."""
    preset: str
    layers: int | None  # number of layers; None for all of the preset
    size: dict          # batch, micro_batch, seq_len
    warmup: int         # steps
    steps: int

    @property
    def name(self):
        return self.preset + (f" of {self.layers} layers" if self.layers else "")


CELLS = {"llama-1b": Cell("llama-1b", None, dict(batch=8, micro_batch=4, seq_len=2048), 4, 10),
         # The most layers of its width that fit next to a peer's logits.
         "llama3.1-8b": Cell("llama3.1-8b", 6, dict(batch=8, micro_batch=1, seq_len=8192), 2, 4),
         "llama-120m": Cell("llama-120m", None, dict(batch=16, micro_batch=16, seq_len=1024), 10, 30)}
SMALL_CELL = Cell("toy-1m", None, dict(batch=4, micro_batch=2, seq_len=64), 1, 2)


def say(text):
    print(f"gpu kit: {text}", file=sys.stderr, flush=True)


def last_lines(text, count=12):
    return "\n".join(text.splitlines()[-count:])


def status_of(error):
    return "not run" if isinstance(error, NotRun) else "failed"


def nvidia_tool(name):
    """The path of a program of CUDA's toolkit, which is often not in PATH."""
    program = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if program is None:
        raise NotRun(f"{name} is neither in PATH nor in /usr/local/cuda/bin")
    return program


def threads_of(device, side):
    """Threads of a worker. The CPU that stands in for the other device has one, so that its sums have another order."""
    if device != "cpu":
        return '"auto"'
    return len(os.sched_getaffinity(0)) if side == 0 else 1


def lines_of(folder, name):
    """The whole lines of a log of a run; none if it does not exist."""
    path = folder / f"{name}.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


class Kit:
    def __init__(self, arguments, work, order):
        self.a = arguments
        self.work = work
        self.order = order  # names by which results are sorted
        self.deadline = time.monotonic() + arguments.seconds
        self.part_seconds = self.part_end = None
        self.num_files = 0
        self.current = None  # the part that runs; it may record results under other names
        self.raced = []  # what throughput measured: its cell, its name, its results, and the tokens
        self.mps_works = None  # whether ranks that share the card may use MPS; None if that was not tried
        self.references = {}  # by precision, of kit_shared_card.py
        self.lock = threading.RLock()
        self.running = set()  # processes
        self.devices_seen = {}
        self.trainctl = arguments.bin / "trainctl"
        self.worker = arguments.bin / "trainctl-worker"
        # Earlier measurements and settings on this machine must not decide anything here.
        self.environment = {**os.environ, "NO_COLOR": "1", "XDG_CONFIG_HOME": str(work / "config"),
                            "HF_HUB_OFFLINE": "1", "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor")}
        self.report = {"schema": SCHEMA, "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
                       "devices": arguments.devices, "small": arguments.small, "seconds": arguments.seconds,
                       "call": arguments.call, "machine": {}, "results": []}

    # ---- results ---------------------------------------------------------------------------------

    def save(self):
        with self.lock:
            for name, text in (("results.json", json.dumps(self.report, indent=1) + "\n"), ("results.md", table(self.report))):
                draft = self.a.out / f".{name}"
                draft.write_text(text)
                os.replace(draft, self.a.out / name)

    def record(self, step, name, status, **fields):
        """Adds a result, or replaces the one of the same name, and writes all of them."""
        entry = {"step": step, "name": name, "status": status, "measured_by": self.current or step, **fields}
        with self.lock:
            others = [r for r in self.report["results"] if (r["step"], r["name"]) != (step, name)]
            place = {step: i for i, step in enumerate(self.order)}
            self.report["results"] = sorted([*others, entry], key=lambda r: place.get(r["step"], len(place)))
            self.save()
        say(f"{name}: {status}" + (f" ({fields['reason']})" if fields.get("reason") else ""))

    def attempt(self, step, name, function, *arguments):
        """Calls function(kit, ...); if it raises, records why under `name`."""
        try:
            function(self, *arguments)
        except Broken:
            raise
        except (NotRun, Failed) as error:
            self.record(step, name, status_of(error), reason=str(error), timed_out=isinstance(error, TimedOut))
        except Exception as error:  # a mistake of this script must not cost the parts that follow
            self.record(step, name, "failed", reason=f"{type(error).__name__}: {error}")

    def together(self, calls, at_once):
        """Attempts (step, name, function, arguments ...), so many at a time. Not for anything that is timed."""
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            waiting = [pool.submit(self.attempt, *call) for call in calls]
            try:
                for future in waiting:
                    future.result()
            except BaseException:
                for future in waiting:
                    future.cancel()
                self.end_all()
                raise

    # ---- programs --------------------------------------------------------------------------------

    def left(self):
        return self.deadline - time.monotonic()

    def begin_part(self, name, seconds=None):
        """`seconds` is the time for all programs of the part, if it has a limit."""
        self.current, self.part_seconds = name, seconds
        self.part_end = time.monotonic() + seconds if seconds else None

    def fresh(self, name):
        with self.lock:
            self.num_files += 1
            return self.work / f"{self.num_files:03d}-{name}"

    @contextlib.contextmanager
    def run_folder(self):
        folder = self.fresh("run")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # it may hold a checkpoint of a billion parameters

    def end(self, process):
        # Each program has a session of its own, so this ends whatever it started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def end_all(self):
        with self.lock:
            for process in self.running:
                self.end(process)

    def execute(self, command, limit, more_env=None):
        """(exit code, stdout, stderr) of a command that has `limit` seconds, and never more than are left."""
        of_part = self.part_end - time.monotonic() if self.part_end else limit
        seconds = min(limit, of_part, self.left())
        if seconds <= 0:
            raise NotRun("no time is left" if self.left() <= 0 else f"the {self.part_seconds:g} s of its part are used up")
        command = [str(c) for c in command]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                   errors="replace", env={**self.environment, **(more_env or {})}, start_new_session=True)
        with self.lock:
            self.running.add(process)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.end(process)
            # If the driver hangs, not even SIGKILL ends a process at once.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=5)
            words = f"{' '.join(command[:3])} ... was ended after {seconds:.0f} s"
            if seconds == limit:
                raise TimedOut(f"{words}, its limit") from None
            if seconds == of_part:
                raise TimedOut(f"{words}, when the {self.part_seconds:g} s of its part were used up") from None
            raise NotRun(f"{words}, when no time was left") from None
        except BaseException:
            self.end(process)
            raise
        finally:
            with self.lock:
                self.running.discard(process)
        return process.returncode, out, err

    # ---- recipes and runs ------------------------------------------------------------------------

    def data(self, vocab, short=False):
        """A token file; with `short`, many documents share a sequence."""
        prefix = self.work / f"tokens-{vocab}{'-short' if short else ''}"
        with self.lock:
            if not prefix.with_suffix(".idx").exists():
                if short:
                    token_file.write(prefix, vocab, [8 + 37 * i % 83 for i in range(800)])
                else:
                    token_file.write(prefix, vocab, (4 if self.a.small else 96) * [4096])
        return prefix.with_suffix(".bin")

    def recipe(self, preset, device, *, steps, batch, micro_batch, seq_len, precision, masters="fp32", recompute="none", threads=1, seed=1,
               deterministic=False, graphs=True, check_kernels=False, workers=1, parallel="zero_stage = 0", profile_steps=(), layers=None,
               packing="continuous", short_documents=False, eval_every=0, checkpoint=NO_CHECKPOINT, max_restarts=0):
        path = self.fresh(f"{preset}.toml")
        text = RECIPE.format(root=self.work / "runs", preset=preset, device=device, steps=steps, batch=batch, micro_batch=micro_batch,
                             seq_len=seq_len, precision=precision, masters=masters, recompute=recompute, threads=threads, seed=seed,
                             deterministic=str(deterministic).lower(), graphs=str(graphs).lower(),
                             check_kernels=str(check_kernels).lower(), workers=workers, parallel=parallel,
                             profile_steps=list(profile_steps), layers=f"layers = {layers}" if layers else "", packing=packing,
                             evaluation='[[data.eval]]\nname = "held-out"\nholdout = 0.2' if eval_every else "", eval_every=eval_every,
                             checkpoint=checkpoint, max_restarts=max_restarts,
                             data=self.data(min(MOST_TOKENS, PEER_MODELS[preset]["vocab_size"]), short_documents))
        path.write_text(text)
        return path

    def need_device(self, device):
        """Raises NotRun if this build or this machine has no such device."""
        with self.lock:
            if device not in self.devices_seen:
                recipe = self.recipe("toy-1m", device, steps=1, batch=1, micro_batch=1, seq_len=32, precision="fp32")
                code, out, err = self.execute([self.trainctl, "recipe", "check", recipe], 30)
                self.devices_seen[device] = "" if code == 0 else last_lines(out + err, 3)
        if self.devices_seen[device]:
            raise NotRun(f'cluster.device = "{device}" is refused: {self.devices_seen[device]}')

    def need_gpu(self):
        if self.a.devices[1] == "cpu":
            raise NotRun("both devices are the CPU")

    def launch(self, command, limit, more_env=None, expected=0):
        """`trainctl launch` or `resume`, with its arguments."""
        code, out, err = self.execute([self.trainctl, *command], limit, more_env)
        if code == 5:
            raise NotRun(f"the environment lacks something: {last_lines(out + err, 6)}")
        if code != expected:
            raise Failed(f"trainctl {command[0]}: exit {code}: {last_lines(out + err)}")
        return out + err

    def train(self, recipe, limit, more_env=None):
        """A run: its metrics, timings and report, the seconds to the end of its first step, and its profiles."""
        with self.run_folder() as folder:
            begin = time.time()
            self.launch(["launch", recipe, "--run-dir", folder], limit, more_env)
            timings = lines_of(folder, "timings")
            return {"metrics": lines_of(folder, "metrics"), "timings": timings, "report": json.loads((folder / "report.json").read_text()),
                    "first_step_seconds": timings[0]["time"] - begin if timings else None,
                    "profiles": [json.loads(path.read_text(errors="replace")) for path in sorted(folder.glob("profiles/*.json"))]}

    def cells(self):
        """The models whose speed is measured, without those that --cells leaves out."""
        return [SMALL_CELL] if self.a.small else [cell for name, cell in CELLS.items() if name in self.a.cells]

    def cell(self, name):
        return SMALL_CELL if self.a.small else CELLS[name]
