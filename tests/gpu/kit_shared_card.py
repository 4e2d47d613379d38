"""Parts of the kit in which several ranks share one card: real NCCL without a second GPU. Their speed means nothing, and
none is reported.

NCCL takes the ranks for different hosts and connects them by sockets. Without MPS their contexts take turns on the card,
so a launch of four ranks can be slow; with it they run side by side.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time

from kit_core import PARITY, Failed, NotRun, TimedOut, last_lines, lines_of
from parity import compare

SHARED = {"TRAINCTL_TEST_SHARED_DEVICES": "1"}
LIMIT = 25  # seconds of a launch, so that a layout that hangs costs no more
MPS = "nvidia-cuda-mps-control"


def degrees(**more):
    """[parallel] with every degree stated."""
    fields = {"dp_replicate": 1, "dp_shard": 1, "tp": 1, "pp": 1, "zero_stage": 0, **more}
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())


# The number of ranks and [parallel], the most telling first.
LAYOUTS = {"DDP": (2, degrees(dp_replicate=2)),
           "tp 2": (2, degrees(tp=2)),
           "1F1B": (2, degrees(pp=2, schedule="1f1b")),
           "ZeRO-3": (4, degrees(dp_shard=4, zero_stage=3)),
           "tp 2 × pp 2": (4, degrees(tp=2, pp=2, schedule="1f1b")),
           "zbv": (2, degrees(pp=2, schedule="zbv"))}
MORE_LAYOUTS = {"ZeRO-1": (2, degrees(dp_shard=2, zero_stage=1)),
                "ZeRO-2": (2, degrees(dp_shard=2, zero_stage=2)),
                "HSDP": (4, degrees(dp_replicate=2, dp_shard=2, zero_stage=3)),
                "ZeRO-3 × tp 2": (4, degrees(dp_shard=2, tp=2, zero_stage=3)),
                "interleaved 1F1B": (2, degrees(pp=2, virtual_stages=2, schedule="interleaved-1f1b"))}


# ---- MPS ---------------------------------------------------------------------------------------------


def processes_of(pipes):
    """Processes of the MPS daemon whose pipes are in this folder."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={pipes}".encode()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if MPS[:-len("-control")].encode() in (folder / "cmdline").read_bytes() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


@contextlib.contextmanager
def mps(kit):
    """The environment for clients of an MPS daemon that runs meanwhile; raises NotRun if there is none."""
    program = shutil.which(MPS)
    if program is None or kit.a.devices[1] != "cuda":
        raise NotRun(f"{MPS} is not in PATH")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))  # paths of sockets have at most 107 bytes
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipes"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "logs")}
    for path in environment.values():
        os.mkdir(path)
    try:
        # The daemon keeps what it inherits open, so it gets no pipes of ours.
        with open(folder / "said", "w+") as said:
            try:
                code = subprocess.run([program, "-d"], env={**kit.environment, **environment}, stdin=subprocess.DEVNULL, stdout=said,
                                      stderr=said, timeout=10).returncode
            except subprocess.TimeoutExpired:
                raise NotRun(f"{MPS} -d does not end") from None
            if code != 0:
                said.seek(0)
                raise NotRun(f"{MPS} -d: exit {code}: {last_lines(said.read(), 3)}")
        yield environment
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([program], input="quit\n", text=True, env={**kit.environment, **environment}, timeout=10,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for pid in processes_of(environment["CUDA_MPS_PIPE_DIRECTORY"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        logs = {path.name: last_lines(path.read_text(errors="replace"), 30) for path in sorted((folder / "logs").glob("*"))}
        kit.report.setdefault("mps_logs", {})[kit.current] = logs
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def sharing(kit):
    """(environment of ranks that share the card, launches at a time). With MPS if it is known to work, or shown to here."""
    kit.need_device(kit.a.devices[1])
    at_once = 2 if kit.a.small else 3
    if kit.a.devices[1] == "cpu" or kit.mps_works is False or shutil.which(MPS) is None:
        # Without MPS each further context makes all others wait longer for their turn.
        yield SHARED, 2
        return
    with contextlib.ExitStack() as stack:
        environment = {}
        try:
            environment = stack.enter_context(mps(kit))
            if kit.mps_works is None:
                check_collectives(kit, 2, "2 ranks, MPS", environment, 15, small=True)
                kit.mps_works = True
        except (NotRun, Failed) as error:
            kit.mps_works = False
            kit.record("collectives", "MPS", "not run", reason=str(error))
            stack.close()
        yield ({**SHARED, **environment}, at_once) if kit.mps_works else (SHARED, 2)


# ---- collectives -------------------------------------------------------------------------------------


def check_collectives(kit, ranks, what, environment, limit, small=False):
    code, out, _ = kit.execute([kit.worker, "check-collectives", "--help"], 30)
    if code != 0 or "check-collectives" not in out:
        raise NotRun("not in this build: trainctl-worker has no check-collectives")
    options = ["--max-bytes", 4096] if small or kit.a.small else []
    code, out, err = kit.execute([kit.worker, "check-collectives", "--ranks", ranks, "--device", kit.a.devices[1],
                                  "--timeout", max(5, limit - 5), *options], limit, {**SHARED, **environment})
    if code == 5:
        raise NotRun(f"the environment lacks something: {last_lines(err or out, 6)}")
    checks = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    wrong = [check for check in checks if not check.get("ok")]
    passed = code == 0 and checks and not wrong
    kit.record("collectives", f"collectives, {what}", "passed" if passed else "failed", exit_code=code, checks=checks,
               value=f"{len(checks) - len(wrong)} of {len(checks)} checks passed",
               reason="" if passed else "; ".join(filter(None, [json.dumps(wrong[:3]) if wrong else "", last_lines(err, 6)])) or f"exit {code}")
    if not passed:
        raise Failed("check-collectives failed")


def collectives(kit):
    """Two ranks without MPS, then four: with it if there is one, and without it where that fails."""
    def attempt(ranks, what, environment, limit):
        try:
            check_collectives(kit, ranks, what, environment, limit)
            return True
        except NotRun as error:
            kit.record("collectives", f"collectives, {what}", "not run", reason=str(error))
        except TimedOut as error:
            kit.record("collectives", f"collectives, {what}", "failed", reason=str(error))
        except Failed:
            pass  # recorded
        return False

    if kit.a.devices[1] == "cuda":
        kit.need_device("cuda")
    attempt(2, "2 ranks", {}, 22)
    try:
        with mps(kit) as environment:
            kit.mps_works = attempt(4, "4 ranks, MPS", environment, 22)
    except NotRun as error:
        kit.mps_works = False
        kit.record("collectives", "MPS", "not run", reason=str(error))
    if not kit.mps_works:
        attempt(4, "4 ranks", {}, 22)


# ---- layouts -----------------------------------------------------------------------------------------


def size_of(kit):
    return dict(steps=4 if kit.a.small else 20, batch=16, micro_batch=4, seq_len=32 if kit.a.small else 128, threads=1, deterministic=True)


class Reference:
    """The metrics of one rank that has the card alone, computed once, by whoever needs them first."""

    def __init__(self, kit, precision):
        self.kit, self.precision = kit, precision
        self.lock, self.metrics = threading.Lock(), None

    def get(self):
        with self.lock:
            if self.metrics is None:
                recipe = self.kit.recipe("toy-1m", self.kit.a.devices[1], precision=self.precision, graphs=False, **size_of(self.kit))
                try:
                    self.metrics = self.kit.train(recipe, LIMIT)["metrics"]
                except (NotRun, Failed) as error:
                    self.metrics = error
            if isinstance(self.metrics, Exception):
                raise NotRun(f"one rank alone has nothing to compare with: {self.metrics}")
            return self.metrics


def reference_of(kit, precision):
    with kit.lock:
        return kit.references.setdefault(precision, Reference(kit, precision))


def is_slow(timings):
    """Whether a run that was ended was still doing steps, rather than standing still."""
    if len(timings) < 3:
        return False
    return time.time() - timings[-1]["time"] < 6 + 3 * statistics.median(line["seconds"] for line in timings)


def layout(kit, name, step, workers, parallel, precision, environment):
    device, bounds = kit.a.devices[1], PARITY[precision]
    size = size_of(kit)
    recipe = kit.recipe("toy-1m", device, precision=precision, workers=workers, parallel=parallel, **size)
    with kit.run_folder() as folder:
        try:
            kit.launch(["launch", recipe, "--run-dir", folder], LIMIT, environment)
            note = ""
        except TimedOut as error:
            timings = lines_of(folder, "timings")
            if not is_slow(timings):
                raise Failed(f"stands still after {len(timings)} of {size['steps']} steps: {error}") from None
            note = f"; slow: {len(timings)} of {size['steps']} steps in its time"
        ours = lines_of(folder, "metrics")
        told = {} if note else {"shared_devices": json.loads((folder / "report.json").read_text()).get("shared_devices")}
    expected = reference_of(kit, precision).get()
    found = compare(expected[:len(ours)] if note else expected, ours, bounds)
    kit.record(step, name, "failed" if found["differences"] else "passed", **found, **told,
               value=f"loss within {found['worst_loss']:.1e} of one rank, gradient norm within {found['worst_norm']:.1e}{note}",
               target=f"{bounds.loss:g} and {bounds.norm:g}", reason="; ".join(found["differences"][:4]))


def train_layouts(kit, step, layouts, precisions):
    with sharing(kit) as (environment, at_once):
        calls = []
        for precision in precisions:
            calls.append((step, f"one rank alone, {precision}", lambda kit, precision: reference_of(kit, precision).get(), precision))
            for what, (workers, parallel) in layouts.items():
                name = f"{what} over {workers} that share, {precision}"
                calls.append((step, name, layout, name, step, workers, parallel, precision, environment))
        kit.together(calls, at_once)
    told = {r["name"]: r["shared_devices"] for r in kit.report["results"] if r["step"] == step and "shared_devices" in r}
    if kit.a.devices[1] == "cuda" and told:
        # The test device may have as many devices as there are ranks.
        silent = [name for name, shared in told.items() if shared is not True and not (kit.a.small and shared is None)]
        kit.record(step, f"report.json says that cards are shared, {step.replace('_', ' ')}", "failed" if silent else "passed",
                   reason=", ".join(silent))


def shared_layouts(kit):
    train_layouts(kit, "shared_layouts", LAYOUTS, ["fp32"])


def more_layouts(kit, precisions):
    train_layouts(kit, "more_layouts", MORE_LAYOUTS, precisions)


def bf16_layouts(kit):
    train_layouts(kit, "bf16_layouts", {**LAYOUTS, **MORE_LAYOUTS}, ["bf16"])


# ---- checkpoints and failures ------------------------------------------------------------------------


def other_layout(kit):
    """Saves under one layout and resumes under another."""
    cases = {"ZeRO-3 over 2, then tp 2": (degrees(dp_shard=2, zero_stage=3), dict(dp_shard=1, zero_stage=0, tp=2)),
             "tp 2, then 1F1B": (degrees(tp=2), dict(tp=1, pp=2, schedule="1f1b")),
             "1F1B, then ZeRO-1 over 2": (degrees(pp=2, schedule="1f1b"), dict(pp=1, dp_shard=2, zero_stage=1, schedule="auto"))}
    with sharing(kit) as (environment, at_once):
        kit.together([("other_layout", f"resumed under another layout: {name}", resume_under, name, before, after, environment)
                      for name, (before, after) in cases.items()], at_once)


def resume_under(kit, name, before, after, environment):
    size = size_of(kit)
    half = size["steps"] // 2
    recipe = kit.recipe("toy-1m", kit.a.devices[1], precision="fp32", workers=2, parallel=before, **size)
    changes = [word for field, value in after.items() for word in ("--set", f"parallel.{field}={value}")]
    with kit.run_folder() as folder:
        kit.launch(["launch", recipe, "--run-dir", folder, "--stop-after", half], LIMIT, environment, expected=75)
        kit.launch(["resume", folder, *changes], LIMIT, environment)
        ours = lines_of(folder, "metrics")
    compare_with_one(kit, "other_layout", f"resumed under another layout: {name}", ours, f"after step {half}")


def compare_with_one(kit, step, name, ours, what):
    bounds = PARITY["fp32"]
    found = compare(reference_of(kit, "fp32").get(), ours, bounds)
    kit.record(step, name, "failed" if found["differences"] else "passed", **found,
               value=f"{what}; loss within {found['worst_loss']:.1e} of one rank, gradient norm within {found['worst_norm']:.1e}",
               target=f"{bounds.loss:g} and {bounds.norm:g}", reason="; ".join(found["differences"][:4]))


def killed_rank(kit):
    """A rank that ends in the middle of a collective: all start again from the checkpoint, and nothing is lost."""
    with sharing(kit) as (environment, _):
        size = size_of(kit)
        every = size["steps"] // 4
        recipe = kit.recipe("toy-1m", kit.a.devices[1], precision="fp32", workers=2, parallel=degrees(dp_shard=2, zero_stage=3),
                            checkpoint=f"every_steps = {every}", max_restarts=1, **size)
        with kit.run_folder() as folder:
            # The second rank kills itself with SIGKILL when it is about to save for the second time.
            said = kit.launch(["launch", recipe, "--run-dir", folder], 2 * LIMIT, {**environment, "TRAINCTL_FAULT": "save:2:worker:1"})
            if not (folder / "fault-injected").exists() or "restarting all workers" not in said:
                raise Failed(f"no rank was killed and started again: {last_lines(said, 6)}")
            ours = lines_of(folder, "metrics")
        compare_with_one(kit, "killed_rank", "rank killed and recovered", ours, f"killed at step {2 * every}, resumed after step {every}")
