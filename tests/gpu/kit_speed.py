"""Parts of the kit that measure how fast the device and training are. Nothing else may use the device meanwhile."""

import concurrent.futures
import csv
import io
import json
import os
import pathlib
import re
import statistics

from kit_checks import MEMORY, memory_result
from kit_core import Failed, NotRun, last_lines, nvidia_tool, status_of, threads_of
from peer_models import PEER_MODELS

HERE = pathlib.Path(__file__).resolve().parent

KERNEL_SPEED = 0.85  # smallest share of a copy's rate for a kernel that passes over memory
# It looks for the tokens of each word first: latency, which no rate of bytes describes.
NOT_BOUND_BY_BANDWIDTH = {"embedding_backward"}
PEERS = {"Hugging Face": "huggingface", "TorchTitan's manner": "torchtitan"}
AUTOTUNED = "Hugging Face, max-autotune"
AUTOTUNE_SECONDS = 200
# Kernels of cuBLAS, cuDNN and flash attention, by their names.
PRODUCTS = re.compile(r"gemm|nvjet|cutlass|xmma|cudnn|fmha|flash", re.IGNORECASE)


def ceilings(kit):
    if kit.a.devices[1] != "cuda":
        raise NotRun("for GPUs")
    code, out, err = kit.execute([kit.a.python, HERE / "ceilings.py"], 90)
    if code == 5:
        raise NotRun(last_lines(err, 3))
    if code != 0:
        raise Failed(f"ceilings.py: exit {code}: {last_lines(err)}")
    found = json.loads(out.splitlines()[-1])
    kit.record("ceilings", "ceilings", "measured", **found,
               value=f"copy {found['copies']['copy']:.2f} TB/s; 8192³ product {found['products']['8192^3']['forward']:.0f} TFLOP/s")


def calibrate(kit):
    if kit.a.devices[1] != "cuda":
        raise NotRun("for GPUs")
    code, out, err = kit.execute([kit.trainctl, "calibrate", "--device", "cuda", "--json"], 90)
    if code == 5:
        raise NotRun(last_lines(err, 3))
    if code != 0:
        raise Failed(f"trainctl calibrate: exit {code}: {last_lines(err)}")
    device = json.loads(out)["devices"][0]
    best = max(2 * p["rows"] * p["inner"] * p["columns"] / p["seconds"] for p in device["products"] if p["dtype"] == "BF16")
    kit.record("calibrate", "calibrate", "measured", device=device,
               value=f"copy {device['bytes_per_second'] / 1e12:.2f} TB/s; best bf16 product {best / 1e12:.0f} TFLOP/s; "
                      f"a launch {device['launch_seconds'] * 1e6:.1f} us")


def time_kernels(kit, options, limit, more_env=None):
    """Bytes per second of a copy (None with --only, which times no copy), and the timed kernels with their share of it."""
    code, out, err = kit.execute([kit.worker, "time-kernels", *(["--rows", 64] if kit.a.small else []), *options], limit, more_env)
    if code != 0:
        raise (NotRun if code == 5 else Failed)(f"time-kernels: exit {code}: {last_lines(err, 3)}")
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    copy = lines.pop(0)["bytes_per_second"] if lines and lines[0]["operator"] == "copy" else None
    for line in lines:
        line["share_of_copy"] = line["bytes_per_second"] / copy if copy else None
    return copy, lines


def old_and_new(kit, limit=20):
    """The updates and the norms of an earlier plugin and of this one, by turns."""
    kit.need_gpu()
    old_plugin = kit.a.old_plugin
    # Copied from elsewhere, it does not find LibTorch and CUDA's libraries relative to its own place.
    torch = HERE.parent.parent / "libtorch"
    places = [torch / "lib", *sorted(torch.resolve().parent.glob("nvidia/*/lib"))]
    environment = {"TRAINCTL_DEVICE_PLUGIN": str(old_plugin),
                   "LD_LIBRARY_PATH": ":".join([*map(str, places), *filter(None, [kit.environment.get("LD_LIBRARY_PATH")])])}
    problem = None if old_plugin.exists() else f"{old_plugin} does not exist; name an earlier plugin with --old-plugin"
    if problem:
        kit.record("old_and_new", "old plugin", "not run", reason=problem)
    for group in ("adamw", "norm"):
        try:
            old = {}
            if problem is None:
                try:
                    old = {line["operator"]: line for line in
                           time_kernels(kit, ["--only", group], limit, environment)[1]}
                except (NotRun, Failed) as error:
                    kit.record("old_and_new", f"old plugin, {group}", status_of(error), reason=str(error))
            copy, lines = time_kernels(kit, ["--only", group], limit)
            for new in (line for line in lines if line["bytes"] > 1 << 16):
                before = old.get(new["operator"])
                rates = {"old_bytes_per_second": before["bytes_per_second"] if before else None,
                         "new_bytes_per_second": new["bytes_per_second"], "share_of_copy": new["share_of_copy"]}
                words = f"{before['bytes_per_second'] / 1e9:,.0f} → " if before else ""
                kit.record("old_and_new", new["operator"], "measured", **rates, copy_bytes_per_second=copy,
                           value=f"{words}{new['bytes_per_second'] / 1e9:,.0f} GB/s")
        except (NotRun, Failed) as error:
            kit.record("old_and_new", f"kernels, {group}", status_of(error), reason=str(error))


def kernel_speed(kit):
    kit.need_gpu()
    copy, lines = time_kernels(kit, [], 120)
    # Scalars pass over nothing.
    lines = sorted((line for line in lines if line["bytes"] > 1 << 16), key=lambda line: line["share_of_copy"])
    slow = [line for line in lines if line["share_of_copy"] < KERNEL_SPEED and line["operator"] not in NOT_BOUND_BY_BANDWIDTH]
    status = "measured" if kit.a.small else "failed" if slow else "passed"
    kit.record("kernel_speed", "kernels beside a copy", status, copy_bytes_per_second=copy, kernels=lines,
               value=f"copy {copy / 1e12:.2f} TB/s; {len(slow)} of {len(lines)} kernels below {KERNEL_SPEED:.0%} of it",
               target=f"{KERNEL_SPEED:.0%} of a copy",
               reason="; ".join(f"{line['operator']} {line['share_of_copy']:.0%}" for line in slow[:6]))


def profile(kit, cells=None):
    device = kit.a.devices[1]
    kit.need_device(device)
    for cell in cells or kit.cells():
        name = f"kernels of a step, {cell.name}, {device}"
        steps = 4
        recipe = kit.recipe(cell.preset, device, steps=steps, precision="bf16", threads=threads_of(device, 1),
                            profile_steps=(steps,), layers=cell.layers, **cell.size)
        try:
            run = kit.train(recipe, 120)
            found = kernels_of(run["profiles"][0])
            # The profiled step is the last one; those before it say what it costs to profile.
            plain = statistics.median(line["seconds"] for line in run["timings"][1:-1])
            value = f"a step of {plain * 1e3:.1f} ms"
            if found["kernels"]:
                value += (f"; profiled: {found['busy_ms']:.1f} ms of work in {found['span_ms']:.1f} ms, "
                          f"{found['launches']} launches; {found['kernels'][0]['name'][:40]} {found['kernels'][0]['ms']:.1f} ms")
            if found["product_ms"]:
                value += f"; a step takes {plain * 1e3 / found['product_ms']:.2f}× its products and attention"
            kit.record("profile", name, "measured", step_seconds=plain, value=value, **found)
        except (NotRun, Failed) as error:
            kit.record("profile", name, status_of(error), reason=str(error))


def counters(kit):
    program = nvidia_tool("ncu")
    speeds = next((r for r in kit.report["results"] if r["step"] == "kernel_speed" and "kernels" in r), None)
    if speeds is None:
        raise NotRun("kernel_speed was not measured")
    for line in speeds["kernels"][:3]:
        name = f"counters, {line['operator']}"
        try:
            # Clocks stay as they are.
            code, out, err = kit.execute([program, "--clock-control", "none", "--csv", "--section", "SpeedOfLight", "--section", "Occupancy",
                                          "--launch-count", 2, kit.worker, "time-kernels", "--only", line["operator"],
                                          *(["--rows", 64] if kit.a.small else [])], 90)
            kernels = counters_of(out)
            if not kernels:
                raise NotRun(f"ncu counted nothing: exit {code}: {last_lines(out + err, 4)}")
            longest = max(kernels.values(), key=lambda metrics: microseconds(metrics.get("Duration", "0 us")))
            kit.record("counters", name, "measured", kernels=kernels,
                       value=", ".join(f"{metric} {longest[metric]}" for metric in ("DRAM Throughput", "Achieved Occupancy", "Duration")
                                       if metric in longest))
        except (NotRun, Failed) as error:
            kit.record("counters", name, status_of(error), reason=str(error))


def graph_speed(kit):
    device = kit.a.devices[1]
    for cell in [cell for cell in kit.cells() if cell.layers is None]:
        name = f"speed of graphs, {cell.name}, {device}"
        try:
            speed = {graphs: our_speed(kit, our_recipe(kit, cell, device, graphs), cell)["tokens_per_second"] for graphs in (True, False)}
            kit.record("graphs", name, "measured", by_graph=speed[True], launched=speed[False],
                       value=f"{speed[True]:,.0f} tokens/s, {speed[False]:,.0f} launched ({speed[True] / speed[False]:.2f}×)")
        except (NotRun, Failed) as error:
            kit.record("graphs", name, status_of(error), reason=str(error))


def throughput(kit):
    kit.need_device(kit.a.devices[1])
    peers = [peer for peer, name in PEERS.items() if kit.a.peers is None or name in kit.a.peers]
    for cell in kit.cells():
        throughput_of(kit, cell, kit.a.devices[1], peers, kit.a.rounds)


def autotune(kit):
    if kit.a.peers is not None and "huggingface" not in kit.a.peers:
        raise NotRun("--peers leaves Hugging Face out")
    if not kit.raced:
        raise NotRun("throughput was not measured")
    for cell, name, found, tokens in kit.raced:
        if kit.left() < AUTOTUNE_SECONDS:
            raise NotRun(f"no time was left for {cell.name}")
        try:
            found[AUTOTUNED] = [peer_speed(kit, "Hugging Face", cell, kit.a.devices[1], tokens, ["--max-autotune"])]
            throughput_result(kit, name, found, cell)
        except NotRun as error:
            kit.record("autotune", f"max-autotune of {cell.name}", "not run", reason=str(error))


def our_recipe(kit, cell, device, graphs=True):
    return kit.recipe(cell.preset, device, steps=cell.warmup + cell.steps, precision="bf16", threads=threads_of(device, 1),
                      graphs=graphs, layers=cell.layers, **cell.size)


def throughput_of(kit, cell, device, peers, rounds, launched=False):
    """Ours and the peers by turns, beginning with ours. Each peer is compiled once; ours runs `rounds` times, or again after each
    peer that worked if that is None, and its median counts. With `launched`, ours also runs once without graphs."""
    name = f"training {cell.name}, {device}"
    recipe = our_recipe(kit, cell, device)
    found, problem = {"trainctl": []}, None

    def measure_ours():
        run = our_speed(kit, recipe, cell)
        report = run.pop("report")
        if not found["trainctl"]:
            memory_result(kit, f"{cell.name}, bf16, {device}", report, None if kit.a.small else MEMORY)
        found["trainctl"].append(run)

    def measure_launched():
        run = our_speed(kit, our_recipe(kit, cell, device, graphs=False), cell)
        del run["report"]
        found["trainctl, launched"] = [run]

    def measure_peer(peer):
        result = peer_speed(kit, peer, cell, device, tokens)
        check_same_work(parameters, result, found["trainctl"])
        found[peer] = [result]

    try:
        measure_ours()
        throughput_result(kit, name, found, cell)
        tokens, parameters = batches(kit, recipe, cell.warmup + cell.steps) if peers else (None, None)
    except (NotRun, Failed) as error:
        return throughput_result(kit, name, found, cell, error)
    turns = [[measure_launched]] if launched else []
    for i in range(max(len(peers), (rounds or 1) - 1)):
        peer = [lambda peer=peers[i]: measure_peer(peer)] if i < len(peers) else []
        if rounds is None:
            turns.append([*peer, measure_ours])
        else:
            turns += [peer, [measure_ours] if i < rounds - 1 else []]
    for turn in turns:
        try:
            for measure in turn:  # those after one that fails are left out
                measure()
                throughput_result(kit, name, found, cell, problem)
        except (NotRun, Failed) as error:
            problem = problem if isinstance(problem, Failed) else error
    throughput_result(kit, name, found, cell, problem)
    kit.raced.append((cell, name, found, tokens))


def prediction(kit, cell):
    """Calibrates, then compares the predicted time of a step with the measured one."""
    device = kit.a.devices[1]
    kit.need_device(device)
    kit.attempt("calibrate", "calibrate", calibrate)
    recipe = our_recipe(kit, cell, device)
    measured = next((statistics.median(run["step_seconds"] for run in found["trainctl"])
                     for raced, _, found, _ in kit.raced if raced == cell and found["trainctl"]), None)
    if measured is None:  # throughput has not measured it
        measured = our_speed(kit, recipe, cell)["step_seconds"]
    predicted = plan(kit, recipe)["candidates"][0]["estimated_step_seconds"]
    kit.record("prediction", f"predicted step, {cell.name}, {device}", "measured", predicted_step_seconds=predicted,
               measured_step_seconds=measured, predicted_over_measured=predicted / measured,
               value=f"predicted {predicted * 1e3:,.1f} ms, measured {measured * 1e3:,.1f} ms ({predicted / measured:.3f})")


def plan(kit, recipe):
    code, out, err = kit.execute([kit.trainctl, "plan", recipe, "--json"], 60)
    if code != 0:
        raise Failed(f"trainctl plan: exit {code}: {last_lines(err)}")
    return json.loads(out)


def throughput_result(kit, name, found, cell, problem=None):
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
    kit.record("throughput", name, status, unit="tokens/s", rounds=found, medians=medians, ratios=ratios, **cell.size,
               value=value, reason=str(problem) if problem else "")


def batches(kit, recipe, steps):
    """(file with the very tokens of the recipe's steps, number of parameters)."""
    def batch(step):
        code, out, err = kit.execute([kit.trainctl, "data", "batch", recipe, "--step", step, "--json"], 30)
        if code != 0:
            raise Failed(f"trainctl data batch: exit {code}: {last_lines(err)}")
        return [sequence["tokens"] for sequence in json.loads(out)["sequences"]]

    with concurrent.futures.ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as pool:
        rows = list(pool.map(batch, range(1, steps + 1)))
    path = kit.fresh("tokens.json")
    path.write_text(json.dumps(rows))
    return path, plan(kit, recipe)["num_parameters"]


def our_speed(kit, recipe, cell):
    run = kit.train(recipe, 150)
    warmup, steps, size = cell.warmup, cell.steps, cell.size
    ended = {line["step"]: line["time"] for line in run["timings"]}
    if len(ended) != warmup + steps:
        raise Failed(f"{len(ended)} timed steps, not {warmup + steps}")
    report = run["report"]
    # By the clock on the wall, as the peers are timed: what comes between steps counts.
    seconds = ended[warmup + steps] - ended[warmup]
    return {"tokens_per_second": steps * size["batch"] * size["seq_len"] / seconds, "step_seconds": seconds / steps, "report": report,
            # None if the report counts all steps as warm-up.
            "predicted_over_measured": report["predicted_step_seconds"] / report["measured_step_seconds"]
                                       if "measured_step_seconds" in report else None,
            "first_loss": run["metrics"][0]["loss"], "peak_bytes": report["measured_peak_bytes"],
            "first_step_seconds": run["first_step_seconds"]}


def peer_speed(kit, peer, cell, device, tokens, more=()):
    model = {**PEER_MODELS[cell.preset], "rms_norm_eps": 1e-5, "max_position_embeddings": cell.size["seq_len"]}
    if cell.layers:
        model["num_hidden_layers"] = cell.layers
    command = [kit.a.python, HERE / "train_peer.py", "--peer", PEERS[peer], "--device", device, "--tokens", tokens,
               "--model", json.dumps(model), "--micro-batch", cell.size["micro_batch"], "--warmup", cell.warmup,
               "--precision", kit.a.peer_precision, *more]
    if kit.a.small:
        command.append("--no-compile")
    try:
        code, out, err = kit.execute(command, 240)
    except Failed as error:
        raise NotRun(f"the peer takes too long: {error}") from None
    if code != 0:  # nothing is wrong with us then
        raise NotRun(f"the peer cannot run: exit {code}: {last_lines(err, 3 if code == 5 else 12)}")
    return json.loads(out.splitlines()[-1])


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


def check_same_work(parameters, peer, ours):
    if peer["parameters"] != parameters:
        raise Failed(f"the peer has {peer['parameters']} parameters, ours has {parameters}")
    # Other random weights, the same tokens: the first losses agree to a few hundredths.
    if ours and abs(peer["first_loss"] - ours[0]["first_loss"]) > 0.1:
        raise Failed(f"the peer starts with a loss of {peer['first_loss']}, ours with {ours[0]['first_loss']}")
