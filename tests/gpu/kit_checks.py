"""Parts of the kit that say whether the device computes what it should, with one worker."""

import json
import os
import re
import shutil

from kit_core import NO_DIFFERENCE, PARITY, Broken, Failed, NotRun, last_lines, nvidia_tool, say, status_of, threads_of
from parity import compare

SANITIZER_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (?=\d+ errors?\s*$)|RACECHECK SUMMARY: \d+ hazards? displayed \()(\d+) errors?", re.MULTILINE)
MEMORY = 0.03  # largest relative difference of predicted and measured bytes of tensors


def machine(kit):
    """What decides how ranks can share the card."""
    shm = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    facts = {"mps": shutil.which("nvidia-cuda-mps-control"), "user": os.getuid(), "cores": len(os.sched_getaffinity(0)),
             "dev_shm_bytes": shm.f_blocks * shm.f_frsize if shm else 0, "dev_shm_free_bytes": shm.f_bavail * shm.f_frsize if shm else 0}
    fields = ("name", "compute_mode", "mig.mode.current", "memory.total", "memory.used", "power.limit", "clocks.max.sm")
    if program := shutil.which("nvidia-smi"):
        code, out, _ = kit.execute([program, "-i", "0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"], 20)
        if code == 0 and out.count(",") == len(fields) - 1:
            facts.update(zip(fields, (word.strip() for word in out.split(","))))
    with kit.lock:
        kit.report["machine"]["facts"] = facts
    kit.record("machine", "machine", "measured", facts=facts,
               value=f"compute mode {facts.get('compute_mode', 'unknown')}; MPS {facts['mps'] or 'not found'}; "
                     f"/dev/shm {facts['dev_shm_free_bytes'] / 2**30:.1f} of {facts['dev_shm_bytes'] / 2**30:.1f} GiB free; {facts['cores']} cores")


def doctor(kit):
    code, out, err = kit.execute([kit.trainctl, "doctor", "--json"], 60)
    try:
        found = json.loads(out)
    except ValueError:
        raise Failed(f"trainctl doctor --json: exit {code}: {last_lines(out + err)}") from None
    kit.report["machine"].update(host_cpu=found.get("cpu"), cores=found.get("allowed_cores"),
                                 memory_bytes=found.get("memory_total_bytes"), driver=found.get("driver"),
                                 accelerators=found.get("accelerators"))
    bad = [f"{f['name']}: {f['value']}{f['advice'] and '; ' + f['advice']}" for f in found["findings"]
           if f["health"] == "bad"]
    worker = next((f for f in found["findings"] if f["name"] == "worker"), {"health": "bad", "value": "not looked at"})
    kit.record("doctor", "doctor", "failed" if worker["health"] == "bad" else "passed", exit_code=code, doctor=found,
               value=worker["value"], reason="; ".join(bad))


def kernels(kit, limit=120):
    kit.need_gpu()
    if kit.execute([kit.worker, "check-device", "--help"], 30)[0] != 0:
        raise NotRun("not in this build: trainctl-worker has no check-device")
    code, out, err = kit.execute([kit.worker, "check-device"], limit)
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
    kit.record("kernels", "kernels", status, exit_code=code, checks=lines,
               value=f"{len(lines) - len(wrong)} of {len(lines)} checks passed",
               reason="" if status == "passed" else last_lines(err) or json.dumps(wrong[:3]))


def smoke(kit, limit=60):
    device = kit.a.devices[1]
    kit.need_device(device)
    run = kit.train(smoke_recipe(kit, device), limit)
    losses = [line["loss"] for line in run["metrics"]]
    kit.record("smoke", "smoke", "passed" if len(losses) == 3 else "failed", losses=losses, value=f"{len(losses)} steps, each kernel waited for")


def kernels_or_broken(kit):
    kit.attempt("kernels", "kernels", kernels)
    raise_if_broken(kit, "kernels")


def smoke_or_broken(kit):
    kit.attempt("smoke", "smoke", smoke)
    raise_if_broken(kit, "smoke")


def raise_if_broken(kit, step):
    def broken(result):
        # A kernel that ended the check is no difference of numbers; a check that only took too long leaves the word to smoke.
        return step == "smoke" or result.get("exit_code", 0) not in (0, 1)

    if not any(r["step"] == step and r["status"] == "failed" and broken(r) for r in kit.report["results"]):
        return
    say(f"{step} failed: nothing that follows would mean anything")
    kit.begin_part(kit.current)  # without the limit of the part
    name = f"memcheck, after {step} failed"
    with kit.run_folder() as folder:
        command = ([kit.worker, "check-device"] if step == "kernels" else
                   [kit.trainctl, "launch", smoke_recipe(kit, kit.a.devices[1]), "--run-dir", folder])
        kit.attempt("sanitizers", name, lambda kit: sanitize(kit, "sanitizers", "memcheck", name, command, 240))
    raise Broken


def smoke_recipe(kit, device):
    return kit.recipe("toy-1m", device, steps=3, batch=4, micro_batch=2, seq_len=64, precision="bf16", check_kernels=True)


def sanitize(kit, step, tool, name, command, limit):
    """A command under compute-sanitizer."""
    # LibTorch asks the driver for what it may not have; that is no error. Each tensor gets memory of its own, or
    # overruns would stay within what LibTorch caches.
    options = ["--padding", 64] if tool == "memcheck" else []
    code, out, err = kit.execute([nvidia_tool("compute-sanitizer"), "--tool", tool, *options, "--report-api-errors", "no",
                                  "--target-processes", "all", "--error-exitcode", 99, *command], limit,
                                 {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    counts = [int(count) for count in SANITIZER_SUMMARY.findall(out + err)]
    if not counts and code != 99:
        raise NotRun(f"compute-sanitizer said nothing of errors: exit {code}: {last_lines(out + err, 4)}")
    found = [line.strip("= ") for line in (out + err).splitlines() if line.startswith("=========") and line.strip("= ")]
    worst = [line for line in found if re.match("Invalid|Uninitialized|Error: |Potential|Race|Misaligned", line)]
    kit.record(step, name, "failed" if sum(counts) or code else "passed", errors=sum(counts), exit_code=code, output=found[:200],
               value=f"{sum(counts)} errors", target="none",
               reason="" if code == 0 and not sum(counts) else "; ".join((worst or found)[:3]) or last_lines(err, 3))


def sanitizers(kit, tools=("memcheck", "racecheck", "initcheck")):
    kit.need_gpu()
    # Without the kernels of libraries, which are known for false findings.
    our_kernels = [kit.worker, "time-kernels", "--rows", 64, "--only", " n="]
    with kit.run_folder() as folder:
        commands = [("memcheck", "every kernel", [kit.worker, "check-device"]),
                    ("memcheck", "three steps", [kit.trainctl, "launch", smoke_recipe(kit, kit.a.devices[1]), "--run-dir", folder]),
                    ("racecheck", "our kernels", our_kernels), ("initcheck", "our kernels", our_kernels)]
        for tool, what, command in commands:
            name = f"{tool}, {what}"
            if tool in tools:
                kit.attempt("sanitizers", name, lambda kit: sanitize(kit, "sanitizers", tool, name, command, 150))


def trainer_parity(kit, cases=(("fp32", "fp32"), ("bf16", "fp32"))):
    """Cases are the precisions of products and of the weights that the optimizer updates."""
    for device in kit.a.devices:
        kit.need_device(device)
    for precision, masters in cases:
        bounds = PARITY[precision]
        what = f"{precision}{', bf16 masters' if masters == 'bf16' else ''}"
        name = f"trainer parity, {what}"
        try:
            sides = []
            for side, device in enumerate(kit.a.devices):
                recipe = kit.recipe("toy-1m", device, steps=8 if kit.a.small else 20, batch=8, micro_batch=4, seq_len=32 if kit.a.small else 128,
                                    precision=precision, masters=masters, threads=threads_of(device, side),
                                    seed=kit.a.seeds[side], deterministic=True)
                sides.append(kit.train(recipe, 90))
                if device != "cpu" or side == 1:
                    memory_result(kit, f"toy-1m, {what}, {device}", sides[side]["report"], bound=None)
            found = compare(sides[0]["metrics"], sides[1]["metrics"], bounds)
            kit.record("trainer_parity", name, "passed" if not found["differences"] else "failed", **found,
                       sides=kit.a.devices, bounds=bounds._asdict(),
                       value=f"loss within {found['worst_loss']:.1e}, gradient norm within {found['worst_norm']:.1e} "
                              f"over {found['steps']} steps",
                       target=f"{bounds.first_loss:g} at step 1, then {bounds.loss:g}; norm {bounds.first_norm:g}, "
                               f"then {bounds.norm:g}",
                       reason="; ".join(found["differences"][:4]),
                       losses=[[line["loss"] for line in side["metrics"]] for side in sides])
            again = compare(sides[1]["metrics"], kit.train(recipe, 90)["metrics"], NO_DIFFERENCE)
            kit.record("trainer_parity", f"same bits twice, {what}",
                       "passed" if not again["differences"] else "failed", **again,
                       value=f"{again['steps']} steps", target="no difference",
                       reason="; ".join(again["differences"][:4]))
        except (NotRun, Failed) as error:
            kit.record("trainer_parity", name, status_of(error), reason=str(error))


def count_devices(kit, device):
    """The number of workers that the machine has room for."""
    if device == "cpu":
        return len(os.sched_getaffinity(0))
    code, out, err = kit.execute([kit.trainctl, "doctor", "--json"], 60)
    try:
        return len(json.loads(out)["accelerators"])
    except (ValueError, KeyError):
        raise Failed(f"trainctl doctor --json: exit {code}: {last_lines(out + err)}") from None


def layouts(kit):
    device = kit.a.devices[1]
    kit.need_device(device)
    count = count_devices(kit, device)
    if count < 2:
        raise NotRun(f"it takes two or more, and there is {count}")
    workers = max(n for n in (2, 4, 8) if n <= count)
    size = dict(steps=4 if kit.a.small else 20, batch=16, micro_batch=1, seq_len=32 if kit.a.small else 128, threads=1, deterministic=True)
    layouts = {"dp_replicate": f"zero_stage = 0\ndp_replicate = {workers}"}
    for stage in (1, 2, 3):
        layouts[f"ZeRO-{stage}"] = f"zero_stage = {stage}\ndp_shard = {workers}\ndp_replicate = 1"
    if workers >= 4:
        layouts["ZeRO-3 of each half"] = f"zero_stage = 3\ndp_shard = {workers // 2}\ndp_replicate = 2"
    for precision in ("fp32",) if kit.a.small else ("fp32", "bf16"):
        one = kit.train(kit.recipe("toy-1m", device, precision=precision, **size), 90)
        for layout, parallel in layouts.items():
            name = f"{layout} over {workers}, {precision}"
            recipe = kit.recipe("toy-1m", device, precision=precision, workers=workers, parallel=parallel, **size)
            try:
                run = kit.train(recipe, 90)
                found = compare(one["metrics"], run["metrics"], PARITY[precision])
                # NCCL does not promise the same order of sums in each run; whether it kept it is worth knowing.
                again = compare(run["metrics"], kit.train(recipe, 90)["metrics"], NO_DIFFERENCE)
                kit.record("layouts", name, "passed" if not found["differences"] else "failed", **found,
                           same_bits_twice=not again["differences"],
                           value=f"loss within {found['worst_loss']:.1e} of one, gradient norm within "
                                  f"{found['worst_norm']:.1e}; a second run gave "
                                  f"{'other' if again['differences'] else 'the same'} bits",
                           target=f"{PARITY[precision].loss:g} and {PARITY[precision].norm:g}",
                           reason="; ".join(found["differences"][:4]))
            except (NotRun, Failed) as error:
                kit.record("layouts", name, status_of(error), reason=str(error))


def memory_result(kit, label, report, bound):
    predicted, measured = report["predicted_peak_bytes"], report["measured_peak_bytes"]
    error = measured / predicted - 1 if predicted else float("nan")
    status = "measured" if bound is None else "passed" if abs(error) <= bound else "failed"
    kit.record("memory", f"memory, {label}", status, predicted_bytes=predicted, measured_bytes=measured,
               predicted_at_peak=report["predicted_at_peak"], measured_at_peak=report["measured_at_peak"],
               value=f"predicted {predicted / 2**20:,.1f} MiB, measured {measured / 2**20:,.1f} MiB ({error:+.1%})",
               target="" if bound is None else f"within {bound:.0%}",
               reason="" if status != "failed" else f"{error:+.1%} is more than {bound:.0%}")


def memory(kit):
    device = kit.a.devices[1]
    kit.need_device(device)
    size = dict(steps=2, batch=8, micro_batch=4, seq_len=64 if kit.a.small else 1024)
    preset = "toy-1m" if kit.a.small else "llama-120m"
    for recompute, masters in (("none", "fp32"), ("full", "fp32"), ("none", "bf16")):
        label = f"{preset}, bf16{' alone' if masters == 'bf16' else ''}, recompute {recompute}, {device}"
        try:
            recipe = kit.recipe(preset, device, precision="bf16", masters=masters, recompute=recompute, threads=threads_of(device, 1), **size)
            memory_result(kit, label, kit.train(recipe, 120)["report"], None if kit.a.small else MEMORY)
        except (NotRun, Failed) as error:
            kit.record("memory", f"memory, {label}", status_of(error), reason=str(error))
