#!/usr/bin/env python3
"""What the program prints, word for word: --help of every verb, tables, errors, plans of clusters. A change of it is made on purpose:

    golden_test.py TRAINCTL             compares with tests/cli/goldens
    golden_test.py TRAINCTL --renew     writes them anew; the diff then is part of the change

Numbers that depend on the machine are kept out by what the cases ask for. The layout of --help is CLI11's: where its
version is another one than the goldens', help is left out, with a line that says so.
"""
import difflib
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

TRAINCTL = os.path.abspath(sys.argv[1])
RENEW = "--renew" in sys.argv[2:]
HERE = os.path.dirname(os.path.abspath(__file__))
GOLDENS = HERE + "/goldens"
CLI11_OF_GOLDENS = "2.1"

RECIPE = """recipe_version = 1
[run]
name = "golden"
[model]
preset = "toy-1m"
[data]
seq_len = 128
[[data.train]]
files = ["text/*.txt"]
[train]
steps = 100
batch_sequences = 12
precision = "fp32"
[cluster]
devices_per_node = 2
memory_limit = "4GiB"
threads_per_worker = 1
"""

# name: (exit code, arguments). They run in a folder with recipe.toml, text and two runs.
CASES = {
    "table_new": (0, ["new", "--list"]),
    "table_runs": (0, ["runs"]),
    "table_report": (0, ["report", "runs/done"]),
    "table_checkpoints": (0, ["checkpoint", "ls", "runs/done"]),
    "text_new": (0, ["new", "--out", "-"]),
    "text_explain_field": (0, ["recipe", "explain", "parallel.cp"]),
    "text_explain_table": (0, ["recipe", "explain", "metrics"]),
    "text_check": (0, ["recipe", "check", "recipe.toml"]),
    "text_show": (0, ["recipe", "show", "recipe.toml", "--set", "optimizer.lr=1e-3"]),
    "json_check": (0, ["recipe", "check", "recipe.toml", "--json"]),
    "json_explain": (0, ["recipe", "explain", "train.steps", "--json"]),
    "error_verb": (2, ["lanch"]),
    "error_no_verb": (2, []),
    "error_verb_below": (2, ["checkpoint", "verfy", "--json"]),
    "error_option": (2, ["plan", "recipe.toml", "--parteo"]),
    "error_foreign_verb": (2, ["train", "recipe.toml"]),
    "error_verb_of_group": (2, ["checkpoint", "list"]),
    "error_setting_without_option": (2, ["launch", "recipe.toml", "train.steps=10"]),
    "error_foreign_option": (2, ["launch", "recipe.toml", "--nproc_per_node", "8"]),
    "error_foreign_keys": (2, ["recipe", "check", "recipe.toml", "--set", "train.max_steps=10", "--set", "learning_rate=1e-4",
                               "--set", "train.per_device_train_batch_size=2"]),
    "error_nothing_near": (2, ["plan", "recipe.toml", "--frobnicate"]),
    "error_value": (2, ["plan", "recipe.toml", "--top"]),
    "error_shell": (2, ["completions", "tcsh"]),
    "error_no_recipe": (2, ["plan", "absent.toml"]),
    "error_recipe": (2, ["recipe", "check", "recipe.toml", "--set", "train.stepz=1", "--set", "parallel.cp=2", "--set",
                         "train.precision=fp7", "--set", "optimizer.lr=fast"]),
    "error_infeasible": (3, ["plan", "recipe.toml", "--set", "cluster.memory_limit=1MiB"]),
    "error_json": (2, ["plan", "absent.toml", "--json"]),
    "error_key": (2, ["recipe", "explain", "train.stepz"]),
    "error_preset": (2, ["new", "txt"]),
    "error_exists": (2, ["new", "--out", "recipe.toml"]),
    "error_no_runs": (2, ["runs", "elsewhere"]),
    "error_no_run": (2, ["status", "runs/absent"]),
    "error_damaged_run": (6, ["status", "runs/damaged"]),
    "error_no_checkpoint": (6, ["checkpoint", "verify", "runs/lost"]),
}
# Clusters that are planned from the catalogue alone, so that every machine prints the same.
CLUSTER_RECIPE = """recipe_version = 1
[run]
name = "cluster"
[model]
preset = "llama3.1-8b"
[data]
seq_len = 8192
[train]
tokens = "100B"
batch_sequences = 64
[cluster]
device = "h100-sxm-80gb"
[plan]
price_per_gpu_hour = 2.5
"""
# Name: model, device, nodes, sequences of a step.
CLUSTERS = {
    "8b_on_8_h100": ("llama3.1-8b", "h100-sxm-80gb", 1, 64),
    "8b_on_64_a100_40gb": ("llama3.1-8b", "a100-sxm-40gb", 8, 256),
    "8b_on_16_a100_80gb": ("llama3.1-8b", "a100-sxm-80gb", 2, 64),
    "70b_on_32_h100": ("llama3.1-70b", "h100-sxm-80gb", 4, 128),
    "70b_on_64_h100": ("llama3.1-70b", "h100-sxm-80gb", 8, 256),
    "70b_on_256_h100": ("llama3.1-70b", "h100-sxm-80gb", 32, 512),
    "405b_on_2048_h100": ("llama3.1-405b", "h100-sxm-80gb", 256, 2048),
    "405b_on_16384_h100": ("llama3.1-405b", "h100-sxm-80gb", 2048, 2048),
    "1b_on_8_h100": ("llama3.2-1b", "h100-sxm-80gb", 1, 256),
}
for name, (model, device, nodes, sequences) in CLUSTERS.items():
    CASES["plan_" + name] = (0, ["plan", "cluster.toml", "--set", "model.preset=" + model, "--set",
                                 "cluster.device=" + device, "--set", f"cluster.nodes={nodes}", "--set",
                                 f"train.batch_sequences={sequences}"])
CASES["plan_1b_on_one_h100"] = (0, ["plan", "cluster.toml", "--set", "model.preset=llama3.2-1b", "--set",
                                    "cluster.devices_per_node=1"])
CASES["plan_8b_with_stated_settings"] = (0, ["plan", "cluster.toml", "--set", "parallel.tp=2", "--set",
                                             "parallel.zero_stage=1", "--set", "parallel.recompute=full"])
for workers in 2, 4:
    CASES[f"plan_25m_on_{workers}_cpus"] = (0, ["plan", "recipe.toml", "--set", "model.preset=llama-25m", "--set",
                                                f"cluster.devices_per_node={workers}"])

# What CLI11 itself says.
OF_CLI11 = ("error_no_verb", "error_value", "error_shell")


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def make_folder():
    folder = os.path.realpath(tempfile.mkdtemp(prefix="trainctl-golden-"))
    write(folder + "/recipe.toml", RECIPE)
    write(folder + "/cluster.toml", CLUSTER_RECIPE)
    for i in range(5):
        write(folder + "/text/%d.txt" % i, "the quick brown fox %d jumps over the lazy dog. " % i * 200)
    launch = '{"v":1,"time":"2026-01-0%dT10:00:00+00:00","event":"launch","world_size":2,"pid":4194305}\n'
    write(folder + "/runs/done/journal.jsonl",
          launch % 1 + '{"v":1,"time":"2026-01-01T11:00:00+00:00","event":"end","status":"finished"}\n')
    write(folder + "/runs/done/recipe.json", '{"train":{"steps":40}}')
    write(folder + "/runs/done/metrics.jsonl", '{"step":40,"loss":1.25}\n')
    write(folder + "/runs/done/timings.jsonl", '{"step":40,"tokens_per_second":5000}\n')
    os.makedirs(folder + "/runs/done/checkpoints")
    write(folder + "/runs/lost/journal.jsonl", launch % 2)
    os.makedirs(folder + "/runs/lost/checkpoints")
    write(folder + "/runs/damaged/journal.jsonl", "no json\n")
    return folder


def run(folder, args):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINCTL")}
    environment.update(XDG_CONFIG_HOME="/nonexistent", NO_COLOR="1", COLUMNS="80")
    result = subprocess.run([TRAINCTL, *args], cwd=folder, env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=120)
    return result.returncode, result.stdout.replace(folder, "DIR")


def help_pages(folder, path=()):
    """(name, text) of every verb that help shows."""
    code, text = run(folder, [*path, "--help"])
    yield code, "help_" + "_".join(path or ("trainctl",)), text
    below = text.partition("\nUsage:")[2]
    for verb in re.findall(r"^  ([a-z]+) ", below, re.M):
        yield from help_pages(folder, (*path, verb))


def cli11_version():
    for path in ("/usr/include/CLI/Version.hpp", "/usr/local/include/CLI/Version.hpp"):
        if os.path.exists(path):
            with open(path) as file:
                text = file.read()
            return ".".join(re.search(r"CLI11_VERSION_%s (\d+)" % part, text)[1] for part in ("MAJOR", "MINOR"))
    return "unknown"


def main():
    folder = make_folder()
    seen, failures = {}, []
    try:
        for name, (expected, args) in CASES.items():
            code, text = run(folder, args)
            seen[name] = "$ trainctl %s\n%s[%d]\n" % (" ".join(args), text, code)
            if code != expected:
                failures.append("%s: exit code %d, not %d\n%s" % (name, code, expected, text))
        for code, name, text in help_pages(folder):
            seen[name] = text
            if code != 0:
                failures.append("%s: exit code %d" % (name, code))
    finally:
        shutil.rmtree(folder, ignore_errors=True)

    version = cli11_version()
    if version != CLI11_OF_GOLDENS:
        print("skipped: --help; the goldens are those of CLI11 %s, and this is %s" % (CLI11_OF_GOLDENS, version))
        seen = {name: text for name, text in seen.items() if not name.startswith("help_") and name not in OF_CLI11}
    if RENEW:
        shutil.rmtree(GOLDENS, ignore_errors=True)
        for name, text in seen.items():
            write("%s/%s.txt" % (GOLDENS, name), text)
        print("%d goldens written; look at git diff" % len(seen))
        return 1 if failures else 0

    stored = {}
    for path in glob.glob(GOLDENS + "/*.txt"):
        with open(path) as file:
            stored[os.path.basename(path)[:-4]] = file.read()
    if version != CLI11_OF_GOLDENS:
        stored = {name: text for name, text in stored.items() if name in seen}
    for name in sorted(set(seen) | set(stored)):
        if seen.get(name) == stored.get(name):
            continue
        failures.append("%s has changed:\n%s" % (name, "".join(difflib.unified_diff(
            stored.get(name, "").splitlines(True), seen.get(name, "").splitlines(True), "golden", "now"))))
    for failure in failures:
        print("FAILED", failure)
    if failures:
        print("If this is meant: python3 tests/cli/golden_test.py %s --renew" % sys.argv[1])
    print("%d texts" % len(seen))
    return 1 if failures or not seen else 0


sys.exit(main())
