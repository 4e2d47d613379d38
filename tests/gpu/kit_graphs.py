"""Parts of the kit that train whole steps with one worker: by graph, packed, with evaluation, stopped and resumed."""

from kit_core import NO_DIFFERENCE, PARITY, Failed, lines_of, threads_of
from parity import compare

LIMIT = 30  # seconds of a launch


def steps_by_graph(timings):
    return sum("graph" in line["phases"] for line in timings)


def toy(kit, device, precision, **more):
    size = dict(steps=8 if kit.a.small else 20, batch=8, micro_batch=4, seq_len=32 if kit.a.small else 128, deterministic=True)
    return kit.recipe("toy-1m", device, **{**size, "precision": precision, **more})


def graphs(kit):
    device = kit.a.devices[1]
    kit.need_device(device)
    for precision in PARITY:
        kit.attempt("graphs", f"by graph and launched, {precision}", by_graph_and_launched, precision, "fp32", 90)


def by_graph_and_launched(kit, precision, masters, limit=LIMIT):
    """Steps by graph have the bits of steps that are launched kernel by kernel."""
    device = kit.a.devices[1]
    what = f"{precision}{', bf16 masters' if masters == 'bf16' else ''}"
    by_graph, launched = (kit.train(toy(kit, device, precision, masters=masters, graphs=graphs), limit) for graphs in (True, False))
    found = compare(by_graph["metrics"], launched["metrics"], NO_DIFFERENCE)
    steps = steps_by_graph(by_graph["timings"])
    missing = steps == 0 and device != "cpu" and precision == "bf16"
    kit.record("graphs", f"by graph and launched, {what}", "failed" if found["differences"] or missing else "passed", **found,
               steps_by_graph=steps, value=f"{steps} of {found['steps']} steps by graph", target="no difference",
               reason="; ".join(found["differences"][:4]) or ("no step was done by a graph" if missing else ""))


def whole_steps(kit):
    kit.need_device(kit.a.devices[1])
    kit.together([("graphs", "stop and resume by graph", stop_and_resume),
                  ("graphs", "by graph and launched, bf16", by_graph_and_launched, "bf16", "fp32"),
                  ("graphs", "by graph and launched, bf16, bf16 masters", by_graph_and_launched, "bf16", "bf16"),
                  ("graphs", "packed documents, bf16", packed)], at_once=2 if kit.a.small else 3)


def packed(kit):
    """Several documents per sequence, each kernel waited for, on both devices."""
    metrics = [kit.train(toy(kit, device, "bf16", steps=6, packing="documents", short_documents=True, check_kernels=True,
                             threads=threads_of(device, side)), LIMIT)["metrics"] for side, device in enumerate(kit.a.devices)]
    found = compare(*metrics, PARITY["bf16"])
    kit.record("graphs", "packed documents, bf16", "failed" if found["differences"] else "passed", **found,
               value=f"loss within {found['worst_loss']:.1e}, gradient norm within {found['worst_norm']:.1e} over {found['steps']} steps",
               target=f"{PARITY['bf16'].loss:g} and {PARITY['bf16'].norm:g}", reason="; ".join(found["differences"][:4]))


def state_of(folder):
    """What must be equal: the metrics with their evaluations, and the tensors of the newest checkpoint."""
    checkpoints = sorted(folder.glob("checkpoints/step-*"))
    if not checkpoints:
        raise Failed("the run left no checkpoint")
    files = sorted(checkpoints[-1].glob("*.safetensors"))
    return {"metrics.jsonl": (folder / "metrics.jsonl").read_bytes(),
            **{f"{checkpoints[-1].name}/{path.name}": path.read_bytes() for path in files}}


def stop_and_resume(kit):
    """A run that evaluates, saves while it trains, is stopped and resumed has the bits of one that is not stopped."""
    device, name = kit.a.devices[1], "stop and resume by graph"
    recipe = toy(kit, device, "bf16", steps=12, eval_every=4, short_documents=True, checkpoint="every_steps = 5\nasync = true")
    with kit.run_folder() as whole, kit.run_folder() as stopped:
        kit.launch(["launch", recipe, "--run-dir", stopped, "--stop-after", 7], LIMIT, expected=75)
        kit.launch(["resume", stopped], LIMIT)
        kit.launch(["launch", recipe, "--run-dir", whole], LIMIT)
        ours, theirs = state_of(stopped), state_of(whole)
        different = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        steps = steps_by_graph(lines_of(stopped, "timings"))
        evaluations = sum("eval" in key for line in lines_of(whole, "metrics") for key in line)
    missing = ("no step was done by a graph" if steps == 0 and device != "cpu" else "nothing was evaluated" if not evaluations else "")
    kit.record("graphs", name, "failed" if different or missing else "passed", different=different, steps_by_graph=steps,
               evaluations=evaluations, value=f"{steps} of 12 steps by graph, {evaluations} evaluations, stopped after step 7",
               target="no difference", reason=f"other bits in {', '.join(different)}" if different else missing)
