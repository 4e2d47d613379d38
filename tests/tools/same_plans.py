"""Does a change that should not alter plans alter any?

    same_plans.sh OLD [NEW] [--only REGEX] [--random N] [--but KEY] [--jobs N]
    same_plans.sh --self-test | --list

Plans every preset and N random recipes on four devices with the programs of two commits, and compares what
`plan --json` prints: every number as it is written, so seconds to the last bit, the hash of the step, notes and errors.
NEW is the working tree unless it is given. Prints a line per difference, at most six per plan.

Exit codes: 0 the same, 1 something differs, 2 the command line, 5 the environment.
"""
import argparse
import concurrent.futures
import copy
import json
import os
import random
import re
import signal
import subprocess
import sys

import same_bits

PLAN_SECONDS = 300
OF_THE_MOMENT = ["memory_available_bytes"]  # keys of the machine, not of the plan
LINES_PER_PLAN = 6
RECIPE = 'recipe_version = 1\n[data]\nseq_len = 2048\n[train]\nsteps = 100\n'

PRESETS = ["toy-1m", "toy-5m", "llama-25m", "llama-120m", "llama-1b", "llama3.2-1b", "llama3.2-3b", "llama2-7b",
           "llama3.1-8b", "llama2-13b", "llama2-70b", "llama3.1-70b", "llama3.1-405b"]
DEVICES = ["cpu", "h100-sxm-80gb", "a100-sxm-40gb", "b200"]
WHAT_IFS = {"torchtitan": PRESETS[5:], "megatron-core": PRESETS[5:] + ["mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"],
            "megatron-deepspeed": PRESETS[7:12]}


class Case:
    def __init__(self, name, settings):
        self.name = name
        self.settings = settings  # recipe settings, {key: TOML value}

    def command(self, program, recipe):
        line = [program, "plan", recipe, "--json"]
        for key, value in self.settings.items():
            line += ["--set", f"{key}={value}"]
        return line


def limit_of(device):
    """On a CPU the free memory of the moment would decide."""
    return {"cluster.memory_limit": '"8GiB"'} if device == "cpu" else {}


def of_presets():
    """Each on a machine of every kind, small ones on few devices."""
    for preset in PRESETS:
        for device in DEVICES:
            count = 4 if device == "cpu" else 8
            nodes = 8 if "70b" in preset or "405b" in preset else 1
            yield Case(f"preset/{preset} {device}",
                       {"model.preset": preset, "cluster.device": device, "cluster.devices_per_node": count,
                        "cluster.nodes": nodes if device != "cpu" else 1, "train.batch_sequences": 64,
                        "data.seq_len": 2048 if "llama2" not in preset else 1024, **limit_of(device)})
    for framework, presets in WHAT_IFS.items():
        for preset in presets:
            yield Case(f"as/{framework} {preset}",
                       {"model.preset": preset, "cluster.device": "h100-sxm-80gb", "cluster.nodes": 4,
                        "train.batch_sequences": 128, "plan.framework": framework})


def random_model(draw):
    """A preset, or sizes that no preset has."""
    if draw.random() < 0.4:
        return {"model.preset": draw.choice(PRESETS)}
    heads = draw.choice([2, 4, 8, 12, 16, 32])
    hidden = heads * draw.choice([32, 64, 128])
    return {"model.family": "llama", "model.max_position": 4096, "model.layers": draw.randint(1, 40),
            "model.hidden": hidden, "model.ffn": draw.choice([2, 3, 4]) * hidden, "model.heads": heads,
            "model.kv_heads": draw.choice([n for n in (1, 2, 4, 8, heads) if heads % n == 0]),
            "model.vocab": draw.choice([256, 1000, 32000, 128256]),
            "model.tie_embeddings": draw.choice(["true", "false"])}


def random_case(number):
    draw = random.Random(number)
    device = DEVICES[number % len(DEVICES)]
    settings = {**random_model(draw), **limit_of(device)}
    settings.update({"cluster.device": device, "cluster.nodes": draw.choice([1, 1, 2, 4, 8]) if device != "cpu" else 1,
                     "cluster.devices_per_node": draw.choice([1, 2, 4, 8]), "data.seq_len": draw.choice([256, 512, 1024, 4096]),
                     "train.batch_sequences": draw.choice([8, 24, 64, 96, 256]),
                     "train.precision": draw.choice(["bf16", "fp32"]),
                     "optimizer.name": draw.choice(["adamw", "adamw", "lion", "sgd"])})
    stated = {"parallel.zero_stage": [0, 1, 2, 3], "parallel.tp": [1, 2, 4], "parallel.pp": [1, 2, 4],
              "parallel.recompute": ["none", "selective", "full"], "train.micro_batch": [1, 2, 4],
              "parallel.schedule": ["1f1b", "zbv", "interleaved-1f1b"], "train.z_loss": [1e-4],
              "parallel.sequence_parallel": ["true", "false"]}
    for key, values in stated.items():
        if draw.random() < 0.2:
            settings[key] = draw.choice(values)
    if device != "cpu" and draw.random() < 0.15:
        settings["plan.framework"] = draw.choice(list(WHAT_IFS))
    return Case(f"random/{number} {device}", settings)


def all_cases(num_random):
    return [*of_presets(), *(random_case(number) for number in range(num_random))]


# ---- comparison --------------------------------------------------------------------------------


def answer_of(status, out, errors):
    """Returns the output of a plan, with numbers as they are written."""
    answer = {"exit_code": status, "errors": errors.splitlines()}
    try:
        answer["plan"] = json.loads(out, parse_float=str) if out.strip() else None
    except ValueError:
        answer["text"] = out
    return answer


def differences(old, new, but, path=""):
    """Yields a line for each difference between two answers, ignoring the keys in `but`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            where = f"{path}.{key}" if path else key
            if key in but:
                continue
            if key not in old or key not in new:
                yield f"{where}: only in {'old' if key in old else 'new'}"
            else:
                yield from differences(old[key], new[key], but, where)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new)):
            yield from differences(a, b, but, f"{path}[{i}]")
    elif old != new:
        yield f"{path}: {json.dumps(old)[:100]} -> {json.dumps(new)[:100]}"


class Planner:
    def __init__(self, processes, work):
        self.processes = processes
        self.work = work
        os.mkdir(os.path.join(work, "no-config"))
        self.recipe = os.path.join(work, "recipe.toml")
        with open(self.recipe, "w", encoding="ascii") as file:
            file.write(RECIPE)
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("TRAINCTL_", "SLURM_"))}
        # No calibration of this machine.
        self.environment.update(XDG_CONFIG_HOME=os.path.join(work, "no-config"), NO_COLOR="1")

    def answer(self, case, programs, file):
        paths = [os.path.join(self.work, file + end) for end in (".out", ".err")]
        with open(paths[0], "wb") as out, open(paths[1], "wb") as errors:
            try:
                status = self.processes.run(case.command(os.path.join(programs, "trainctl"), self.recipe), PLAN_SECONDS,
                                            stdout=out, stderr=errors, env=self.environment, cwd=self.work)
            except subprocess.TimeoutExpired:
                return {"exit_code": f"none within {PLAN_SECONDS} s"}
        texts = []
        for path in paths:
            with open(path, encoding="utf-8", errors="replace") as read:
                texts.append(read.read())
            os.unlink(path)
        return answer_of(status, *texts)

    def compare(self, number, case, programs, but):
        old, new = (self.answer(case, where, f"{number}-{side}") for side, where in enumerate(programs))
        return old["exit_code"] == 0, list(differences(old, new, but))


def compare_all(planner, cases, programs, but, jobs):
    """Prints the differing plans and the totals, and returns the number of plans that differ."""
    num_planned = num_different = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(planner.compare, number, case, programs, but): case for number, case in enumerate(cases)}
        try:
            for done in concurrent.futures.as_completed(waiting):
                is_plan, found = done.result()
                num_planned += is_plan
                num_different += bool(found)
                for line in found[:LINES_PER_PLAN]:
                    print(f"DIFFERS {waiting[done].name}: {line}", flush=True)
                if len(found) > LINES_PER_PLAN:
                    print(f"DIFFERS {waiting[done].name}: and {len(found) - LINES_PER_PLAN} more", flush=True)
        except BaseException:
            planner.processes.close()
            pool.shutdown(cancel_futures=True)
            raise
    print(f"{len(cases)} plans compared, {num_planned} of them possible: {num_different} differ")
    return num_different


def self_test(planner, programs):
    """One program twice is the same; a changed last digit, a lost note and another hash are found."""
    cases = [case for case in all_cases(6) if re.search("^random/|^preset/toy-1m (cpu|h100)", case.name)]
    same_bits.expect(compare_all(planner, cases, (programs, programs), OF_THE_MOMENT, 2) == 0, "a program differs from itself")
    old = planner.answer(cases[0], programs, "planted")
    same_bits.expect(old["exit_code"] == 0, f"no plan: {old}")
    digit, note, step = (copy.deepcopy(old) for _ in range(3))
    seconds = digit["plan"]["chosen"]["estimated_step_seconds"]
    digit["plan"]["chosen"]["estimated_step_seconds"] = seconds[:-1] + ("1" if seconds[-1] != "1" else "2")
    note["plan"]["notes"] = [*note["plan"]["notes"], "planted"]
    step["plan"]["step_hash"] = step["plan"]["step_hash"][::-1]
    for planted, place in ((digit, "plan.chosen.estimated_step_seconds"), (note, "plan.notes"), (step, "plan.step_hash")):
        found = list(differences(old, planted, ()))
        same_bits.expect(len(found) == 1 and found[0].startswith(place + ":"), f"planted at {place}: {found}")
    same_bits.expect(list(differences(old, step, ("step_hash",))) == [], "--but step_hash is not left out")
    print("self-test passed")
    return 0


# ---- main --------------------------------------------------------------------------------------


def arguments():
    parser = argparse.ArgumentParser(prog="same_plans.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="OLD, then NEW; without those given as --old-bin and --new-bin")
    parser.add_argument("--old-bin", metavar="DIR", help="programs that exist already, instead of OLD")
    parser.add_argument("--new-bin", metavar="DIR", help="the same for NEW")
    parser.add_argument("--only", metavar="REGEX", default="", help="the plans whose name matches")
    parser.add_argument("--random", type=int, default=300, metavar="N", help="random recipes (default: 300)")
    parser.add_argument("--but", action="append", default=[], metavar="KEY", help="leave out this key of the JSON (repeatable)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="plans at the same time (default: one per core)")
    parser.add_argument("--list", action="store_true", help="print the selected plans")
    parser.add_argument("--self-test", action="store_true", help="check that planted differences are found")
    args = parser.parse_args()
    if not args.list and not args.self_test and not args.commits and args.old_bin is None:
        parser.error("OLD is missing: a commit, or --old-bin DIR")
    if len(args.commits) > (args.old_bin is None) + (args.new_bin is None):
        parser.error("more commits than programs to compare")
    return args


def main():
    args = arguments()
    cases = [case for case in all_cases(args.random) if re.search(args.only, case.name)]
    if args.list:
        for case in cases:
            print(case.name, " ".join(f"{key}={value}" for key, value in case.settings.items()))
        return 0
    signal.signal(signal.SIGINT, same_bits.stop)
    signal.signal(signal.SIGTERM, same_bits.stop)
    processes = same_bits.Processes()
    try:
        if args.self_test:
            programs = same_bits.programs_in(args.new_bin) if args.new_bin else same_bits.build_tree(processes)
        else:
            programs = same_bits.programs_of(processes, args)
        with same_bits.work_folder(None) as work:
            planner = Planner(processes, work)
            if args.self_test:
                return self_test(planner, programs)
            return 1 if compare_all(planner, cases, programs, OF_THE_MOMENT + args.but, args.jobs) else 0
    except same_bits.Trouble as error:
        same_bits.say(error)
        return error.exit_code
    except same_bits.Stopped as error:
        same_bits.say(f"stopped by {error}")
        return 128 + error.number
    finally:
        processes.close()
        processes.kill_orphans()


if __name__ == "__main__":
    sys.exit(main())
