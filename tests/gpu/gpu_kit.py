"""Checks and measurements of trainctl on a machine with a GPU, the most valuable first.

    tests/gpu/run.sh --seconds 540 --out results      everything that fits into the time
    tests/gpu/run.sh --call 1 --out results           is it right, and where is the time? 330 s
    tests/gpu/run.sh --call 2 --out results           how fast is it? 330 s
    tests/gpu/run.sh --call 1 --dry-run               lists the parts and their limits

Writes results.json, and results.md from it, after every measurement, so that nothing measured is lost. A part that cannot
run says why. With --call, each part has its own limit: one that hangs is ended, and the next one runs.

Exit code 0: everything that ran passed; 1: something failed; 2: the command line; 5: there are no programs.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from kit_calls import CALL_SECONDS, CALLS, ORDER, parts_of
from kit_core import CELLS, Broken, Failed, Kit, NotRun, say
from kit_report import Monitor, keep_earlier
from kit_speed import PEERS

HERE = pathlib.Path(__file__).resolve().parent
BUNDLE = HERE.parent.parent


def versions(kit):
    code, out, _ = kit.execute([kit.trainctl, "version"], 30)
    ours = out.splitlines()[0] if code == 0 and out else "trainctl of unknown version"
    manifest = BUNDLE / "MANIFEST.json"
    if manifest.exists():
        found = json.loads(manifest.read_text())
        ours += f" ({found['commit']}, CUDA plugin: {found['cuda_plugin'] or 'none'})"
    # From their metadata: importing them takes seconds, and touches the driver.
    code, out, _ = kit.execute([kit.a.python, "-c", "from importlib import metadata as m\nfor p in ('torch', 'transformers'):\n"
                                "    try: print(p, m.version(p))\n    except m.PackageNotFoundError: print('no', p)"], 30)
    return ", ".join([ours, *out.splitlines()])


def words_of(parser, option, text, allowed):
    """The words of a list, each of which is allowed."""
    words = text.split(",")
    if unknown := [word for word in words if word not in allowed]:
        parser.error(f"{option}: {unknown[0]} is none of {', '.join(allowed)}")
    return words


def parse():
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--call", type=int, choices=CALLS, help="run one of two sets of parts, each within its own limit (default: everything)")
    parser.add_argument("--seconds", type=float, help=f"total time (default: 540; with --call {CALL_SECONDS}, and another total scales the "
                                                      "limits of the parts)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT") or "gpu-results"),
                        help="folder for results.json and results.md (default: $OUT, else gpu-results)")
    parser.add_argument("--only", help="run only these parts, a list of names that --dry-run prints")
    parser.add_argument("--again", action="store_true", help="run only the parts that failed in the results that are in --out")
    parser.add_argument("--dry-run", action="store_true", help="print the parts in order with their limits; run nothing")
    parser.add_argument("--cells", default=",".join(CELLS), help="models whose speed is measured (default: %(default)s)")
    parser.add_argument("--peers", help=f"what throughput compares with, a list of {', '.join(PEERS.values())} (default: both; with --call, "
                                        "those of its table)")
    parser.add_argument("--rounds", type=int, help="how often throughput runs ours per model (default: once, and again after each peer; with "
                                                   "--call, as in its table)")
    parser.add_argument("--devices", default="cpu,cuda", help="what is compared; the second one is measured (default: cpu,cuda)")
    parser.add_argument("--small", action="store_true", help="micro-sizes, to see that the script works")
    parser.add_argument("--peer-precision", choices=("autocast", "bf16"), default="autocast",
                        help="autocast keeps fp32 weights, as we do; bf16 has everything in bf16 (default: autocast)")
    parser.add_argument("--seeds", default="1,1", help="seeds of the two sides of trainer_parity; different ones must fail")
    parser.add_argument("--bin", type=pathlib.Path, default=BUNDLE / "bin", help="folder of the programs (default: the bundle's)")
    parser.add_argument("--old-plugin", type=pathlib.Path, default=BUNDLE / "lib" / "old" / "libtrainctl_cuda.so",
                        help="an earlier CUDA plugin, for old_and_new (default: the bundle's lib/old/libtrainctl_cuda.so)")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and transformers (default: this one)")
    parser.add_argument("--work", type=pathlib.Path, help="folder for runs while they last (default: $TMPDIR)")
    arguments = parser.parse_args()
    arguments.seconds = arguments.seconds if arguments.seconds is not None else CALL_SECONDS if arguments.call else 540
    arguments.cells = words_of(parser, "--cells", arguments.cells, CELLS)
    if arguments.peers is not None:
        arguments.peers = words_of(parser, "--peers", arguments.peers, list(PEERS.values())) if arguments.peers else []
    parts = parts_of(arguments.call, arguments.cells, arguments.seconds)
    if arguments.only is not None:
        only = words_of(parser, "--only", arguments.only, [part.name for part in parts])
        parts = [part for part in parts if part.name in only]
    arguments.parts = parts
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
        parser.error("--seconds must be above 0")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    arguments.bin = arguments.bin.resolve()
    arguments.old_plugin = arguments.old_plugin.resolve()
    return arguments


def say_parts(arguments):
    """The parts in order, with their limits and the total."""
    need = "limit" if arguments.call else "needs"
    for extra in (False, True):
        parts = [part for part in arguments.parts if part.extra == extra]
        if extra and parts:
            print("with time to spare:")
        for number, part in enumerate(parts, 1):
            print(f"{number:3}  {part.name:15} {'needs' if extra else need} {part.seconds:3g} s  {part.what}")
        if not extra:
            print(f"total: {sum(part.seconds for part in parts):g} s; everything is ended after {arguments.seconds:g} s")


def failed_parts(out, parts):
    """Of these parts, those that have a failure in the results that are there, and the results of the others."""
    path = out / "results.json"
    if not path.exists():
        say(f"--again: {path} does not exist")
        sys.exit(2)
    results = json.loads(path.read_text())["results"]
    failed = {result.get("measured_by", result["step"]) for result in results if result["status"] == "failed"}
    again = [part for part in parts if part.name in failed]
    names = {part.name for part in again}
    return again, [result for result in results if result.get("measured_by", result["step"]) not in names]


def run_part(kit, part):
    try:
        if kit.left() < part.seconds and (kit.a.call is None or part.extra):
            raise NotRun(f"{max(0, kit.left()):.0f} s were left of {kit.a.seconds:.0f}, and it needs {part.seconds:g}")
        kit.begin_part(part.name, part.seconds if kit.a.call and not part.extra else None)
        part.run(kit)
    except Broken:
        raise
    except (NotRun, Failed) as error:
        kit.record(part.name, part.name.replace("_", " "), "not run" if isinstance(error, NotRun) else "failed", reason=str(error))
    except Exception as error:  # a mistake of this script must not cost the parts that follow
        kit.record(part.name, part.name.replace("_", " "), "failed", reason=f"{type(error).__name__}: {error}")


def run_parts(kit, monitor):
    for part in kit.a.parts:
        begin = time.monotonic()
        kit.current = part.name
        broken = False
        try:
            run_part(kit, part)
        except Broken:
            broken = True
        kit.report.setdefault("step_seconds", {})[part.name] = round(time.monotonic() - begin, 1)
        if gpu := monitor.summary(begin):
            kit.report.setdefault("step_gpu", {})[part.name] = gpu
        kit.save()
        if broken:
            break


def main():
    arguments = parse()
    if arguments.dry_run:
        say_parts(arguments)
        return 0
    for program in ("trainctl", "trainctl-worker"):
        if not (arguments.bin / program).exists():
            say(f"{arguments.bin / program} does not exist; name the folder with --bin")
            return 5
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.out = arguments.out.resolve()
    kept = []
    if arguments.again:
        arguments.parts, kept = failed_parts(arguments.out, arguments.parts)
        if not arguments.parts:
            say(f"nothing failed in {arguments.out / 'results.json'}")
            return 0
    keep_earlier(arguments.out)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    work = pathlib.Path(tempfile.mkdtemp(prefix="trainctl-gpu-kit-", dir=arguments.work))
    monitor = Monitor()
    kit = Kit(arguments, work, ORDER)
    try:
        kit.report["results"] = kept
        kit.report["machine"]["versions"] = versions(kit)
        kit.save()
        run_parts(kit, monitor)
    finally:
        kit.end_all()
        monitor.stop()
        shutil.rmtree(work, ignore_errors=True)
    print((arguments.out / "results.md").read_text(), end="")
    return 1 if any(result["status"] == "failed" for result in kit.report["results"]) else 0


if __name__ == "__main__":
    sys.exit(main())
