"""What the kit runs, in order: everything (no --call), or one of two calls for a machine that is lent for fifteen minutes."""

import typing

import kit_checks
import kit_graphs
import kit_shared_card
import kit_speed
from kit_core import CELLS, Kit

CALL_SECONDS = 330


class Part(typing.NamedTuple):
    name: str
    seconds: float      # with --call: the part's limit, or what an extra part needs; else what it needs to begin
    run: typing.Callable[[Kit], None]
    what: str
    extra: bool = False  # runs with time to spare


def graphs(kit):
    kit_graphs.graphs(kit)
    kit_speed.graph_speed(kit)


# In order. Each begins only if so many seconds are left.
STEPS = [
    Part("doctor", 5, kit_checks.doctor, "what trainctl sees of the machine"),
    Part("kernels", 10, kit_checks.kernels_or_broken, "each kernel of the CUDA plugin against the CPU's, and NCCL with one rank"),
    Part("smoke", 10, kit_checks.smoke_or_broken, "three steps, each kernel waited for"),
    Part("ceilings", 30, kit_speed.ceilings, "copies, products and attention in our shapes, by PyTorch"),
    Part("calibrate", 20, kit_speed.calibrate, "trainctl calibrate; later plans use its rates"),
    Part("kernel_speed", 30, kit_speed.kernel_speed, "each kernel that passes over memory, as a share of a copy's rate"),
    Part("profile", 30, kit_speed.profile, "a step's kernels by name, and the idle time of the device"),
    Part("trainer_parity", 20, kit_checks.trainer_parity, "the same recipe on both devices, fp32 and bf16"),
    Part("graphs", 30, graphs, "steps by graph against launched steps: the same bits, and the speed of each"),
    Part("layouts", 30, kit_checks.layouts, "the same recipe on several devices of a kind against one"),
    Part("memory", 20, kit_checks.memory, "bytes of tensors, predicted against measured"),
    Part("throughput", 45, kit_speed.throughput, "tokens/s next to two compiled peers"),
    Part("sanitizers", 30, kit_checks.sanitizers, "kernels and steps under compute-sanitizer"),
    Part("counters", 30, kit_speed.counters, "what Nsight Compute counts of the three slowest kernels"),
    Part("autotune", kit_speed.AUTOTUNE_SECONDS, kit_speed.autotune, "Hugging Face compiled with max-autotune"),
]


def start(kit):
    kit.together([("machine", "machine", kit_checks.machine), ("doctor", "doctor", kit_checks.doctor),
                  ("kernels", "kernels", kit_checks.kernels, 33), ("smoke", "smoke", kit_checks.smoke, 33)], at_once=4)
    kit_checks.raise_if_broken(kit, "kernels")
    if any(result["step"] == "smoke" and result.get("timed_out") for result in kit.report["results"]):
        # The first start on a machine reads gigabytes of libraries; the second one tells whether the device hangs.
        kit.begin_part(kit.current)
        kit.attempt("smoke", "smoke", kit_checks.smoke, 33)
    kit_checks.raise_if_broken(kit, "smoke")


def profile(kit):
    chosen = kit.cells()
    kit_speed.profile(kit, sorted(chosen, key=lambda cell: ["toy-1m", "llama-120m", "llama-1b", "llama3.1-8b"].index(cell.preset)))


def bf16_masters(kit):
    kit_checks.trainer_parity(kit, [("bf16", "bf16")])


MORE_LAYOUTS = Part("more_layouts", 45, lambda kit: kit_shared_card.more_layouts(kit, ["fp32"]),
                    "ZeRO-1, ZeRO-2, HSDP, ZeRO-3 × tp 2, interleaved 1F1B, fp32", extra=True)
BF16_LAYOUTS = Part("bf16_layouts", 60, kit_shared_card.bf16_layouts, "all these layouts in bf16", extra=True)
OTHER_LAYOUT = Part("other_layout", 45, kit_shared_card.other_layout, "save under one layout, resume under another", extra=True)
KILLED_RANK = Part("killed_rank", 40, kit_shared_card.killed_rank, "SIGKILL one rank; the run recovers from its checkpoint", extra=True)

CALL_1 = [
    Part("start", 35, start, "compute mode, MPS, /dev/shm; check-device; smoke (if either breaks: memcheck, and nothing else)"),
    Part("old_and_new", 40, kit_speed.old_and_new, "adamw and norms, of an earlier plugin and of this one"),
    Part("collectives", 60, kit_shared_card.collectives, "check-collectives: 2 ranks on the card, then 4, with MPS if there is one"),
    Part("shared_layouts", 80, kit_shared_card.shared_layouts, "DDP, tp 2, 1F1B, ZeRO-3, tp 2 × pp 2, zbv on 2 and 4 ranks against one"),
    Part("whole_steps", 70, kit_graphs.whole_steps, "by graph, bf16 masters, packed; evaluation, async save, stop and resume"),
    Part("profile", 45, profile, "a step's kernels: llama-120m, llama-1b, llama3.1-8b"),
    MORE_LAYOUTS, OTHER_LAYOUT, KILLED_RANK, BF16_LAYOUTS,
]


def throughput_part(kit, cell, peers, rounds, launched=False):
    device = kit.a.devices[1]
    kit.need_device(device)
    peers = [name for name in peers if kit.a.peers is None or kit_speed.PEERS[name] in kit.a.peers]
    kit_speed.throughput_of(kit, kit.cell(cell), device, peers, kit.a.rounds or rounds, launched)


HUGGING_FACE, TITAN = kit_speed.PEERS
CALL_2 = [
    Part("llama-120m", 110, lambda kit: throughput_part(kit, "llama-120m", [TITAN, HUGGING_FACE], 2),
         "tokens/s: ours twice, TorchTitan's manner, Hugging Face"),
    Part("llama3.1-8b", 90, lambda kit: throughput_part(kit, "llama3.1-8b", [TITAN], 1), "tokens/s: ours, TorchTitan's manner"),
    Part("llama-1b", 70, lambda kit: throughput_part(kit, "llama-1b", [TITAN], 1, launched=True),
         "tokens/s: ours by graph and launched, TorchTitan's manner"),
    Part("prediction", 40, lambda kit: kit_speed.prediction(kit, kit.cell("llama3.1-8b")),
         "calibrate, then predicted over measured step of llama3.1-8b"),
    Part("races", 30, lambda kit: kit_checks.sanitizers(kit, ("racecheck", "initcheck")), "our kernels under racecheck and initcheck", extra=True),
    Part("bf16_masters", 25, bf16_masters, "toy-1m with bf16 masters on both devices", extra=True),
    BF16_LAYOUTS, KILLED_RANK, OTHER_LAYOUT, MORE_LAYOUTS,
]

CALLS = {1: CALL_1, 2: CALL_2}
# Names of results, in the order of the report.
ORDER = ["machine", *(step.name for step in STEPS), "old_and_new", "collectives", "shared_layouts", "more_layouts", "bf16_layouts",
         "other_layout", "killed_rank", "prediction"]


def parts_of(call, cells, seconds):
    """The parts of a call, or of everything (None), without the models that are not among `cells`. In a call the limits are
    scaled to its seconds."""
    if call is None:
        return STEPS
    return [part if part.extra else part._replace(seconds=round(part.seconds * seconds / CALL_SECONDS, 1))
            for part in CALLS[call] if part.name not in CELLS or part.name in cells]
