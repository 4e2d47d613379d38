#!/usr/bin/env python3
"""trainctl verify: right layouts pass, and each planted error is found and named.

    verify_test.py TRAINCTL RECIPES

Errors are planted through a variable of the worker's: a collective of the layout's steps is left out or done twice.
"""

import concurrent.futures
import glob
import json
import os
import subprocess
import sys
import tempfile

TRAINCTL, RECIPES = sys.argv[1:3]
BASE = RECIPES + "/toy_1m_cpu.toml"
# Sets, and planted errors: (call, is_double, axis to be named or None, a parameter that is wrong or None).
LAYOUTS = {
    "dp_replicate=2 dp_shard=2": (4, ["dp_replicate=2", "dp_shard=2", "zero_stage=3"], [
        ("gradient/1/dp_shard", False, "dp_shard", "model.layers.0."),
        ("gradient/1/dp_replicate", False, "dp_replicate", "model.layers.0."),
        ("gradient/0/dp_shard", True, "dp_shard", "model.embed_tokens."),
        ("gradient/2/dp_replicate", True, "dp_replicate", "model.layers.1."),
        ("parameters/1/dp_shard", False, None, None),
        ("loss/dp_shard", False, None, None),
        ("grad_norm/dp_shard", False, None, None),
        ("loss_tokens/dp_replicate", True, None, None)]),
    "tp=2": (2, ["tp=2", "dp_replicate=1"], [
        ("gradient/1/tp", False, "tp", "layernorm"),
        ("gradient/2/tp", True, "tp", "layernorm"),
        ("forward block 1 micro-batch 0/attention_output_summed/tp", False, None, None),
        ("backward block 1 micro-batch 0/gradient of mlp_input_gathered/tp", False, None, "model.layers.0."),
        ("backward block 1 micro-batch 0/gradient of attention_input_gathered/tp", True, None, "layernorm"),
        ("grad_norm/tp", False, None, None)]),
    # Rows are gathered a second time by the backward; passes in an order of no name.
    "tp=2, forms again": (2, ["tp=2", "dp_replicate=1", "recompute=selective"], [
        ("backward block 1 micro-batch 0/mlp_input_gathered/tp", False, None, "model.layers.0.mlp.")]),
    "own passes": (2, ["pp=2", "dp_replicate=1", 'passes=["0F0,0F1,0B0,0F2,0I1,0B2,0W1", "1F0,1F1,1B0,1I1,1F2,1W1,1B2"]'], [
        ("loss/pp", False, None, None)]),
    "pp=2 tp=2": (4, ["pp=2", "tp=2", "dp_replicate=1", 'schedule="1f1b"'], [
        ("loss/pp", False, None, None),
        ("grad_norm/pp", True, None, None),
        ("gradient/3/tp", False, "tp", "model.norm.")]),
    "dp_shard=2 tp=2, whole sequences": (4, ["tp=2", "dp_shard=2", "zero_stage=2", "sequence_parallel=false"], [
        ("gradient/1/dp_shard", True, "dp_shard", "model.layers.0."),
        ("backward block 2 micro-batch 0/gradient of mlp_input_of_all/tp", False, None, None),
        ("backward block 1 micro-batch 0/gradient of attention_input_of_all/tp", True, None, "layernorm")]),
}


# Recipes that this version does not run, and why.
WHAT_IF = "runs of other trainers can only be estimated"
NOT_RUN = {
    "llama3.1_8b_dp_shard8_cpu.toml": "no layout fits",
    "llama3.1-405b_16384xh100.toml": WHAT_IF,
    "llama3.1-70b_64xh100.toml": WHAT_IF,
    "llama3.1-70b_64xh100_ethernet.toml": WHAT_IF,
    "llama3.1-8b_512k_64xh100.toml": WHAT_IF,
    "qwen3-30b-a3b_16xh100.toml": WHAT_IF,
    "qwen3-30b-a3b_32xh100.toml": WHAT_IF,
    "wide-127b_64xa100.toml": WHAT_IF,
}


def verify(recipe, sets, code, fault=None):
    words = [TRAINCTL, "verify", recipe, "--json"] + [word for one in sets for word in ("--set", one)]
    env = dict(os.environ)
    if fault:
        env["TRAINCTL_VERIFY_FAULT"] = fault
    ended = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    assert ended.returncode == code, "exit code %d, not %d: %s\n%s%s" % (ended.returncode, code, words, ended.stdout,
                                                                         ended.stderr)
    return json.loads(ended.stdout)


def check_launch():
    """It proves what it is about to run, and runs nothing where that is wrong."""
    with tempfile.TemporaryDirectory() as work:
        for fault, code in (("gradient/1/tp=skip", 7), (None, 0)):
            words = [TRAINCTL, "launch", BASE, "--verify", "--run-dir", work + "/run", "--set", "train.steps=2", "--set",
                     "optimizer.warmup_steps=1", "--set", "cluster.devices_per_node=2", "--set", "parallel.tp=2"]
            env = dict(os.environ, **({"TRAINCTL_VERIFY_FAULT": fault} if fault else {}))
            ended = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
            assert ended.returncode == code, (ended.returncode, ended.stderr)
            assert os.path.exists(work + "/run") == (code == 0), ended.stderr
            assert ("WRONG: " if fault else "Correct: this layout computes") in ended.stderr, ended.stderr


def check_right(sets, workers):
    report = verify(BASE, sets, 0)
    assert report["right"] and not report["findings"], report
    assert report["processes"] == workers and report["gradient_error"] < 1e-11, report
    assert report["rounding"]["precision"] == "fp32" and 1e-8 < report["rounding"]["gradient_error"] < 1e-5, report


def check_fault(sets, call, doubles, axis, parameter):
    """Whether what was done wrong is all that is named."""
    report = verify(BASE, sets, 7, "%s=%s" % (call, "double" if doubles else "skip"))
    assert not report["right"] and report["wrong"], call
    if parameter:
        wrong = [one["parameter"] for one in report["findings"]]
        assert wrong and any(parameter in one for one in wrong), (call, wrong)
    missing = [one for one in report["missing"] if one["call"] == call]
    assert missing, (call, report["missing"])
    return len(report["missing"]) == 1 and (axis or missing[0]["axis"]) == missing[0]["axis"]


def check_recipe(recipe):
    reason = NOT_RUN.get(os.path.basename(recipe))
    words = [TRAINCTL, "verify", recipe, "--json"]
    ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    # Where there is memory enough a recipe for the CPU is one that runs.
    assert ended.returncode == 0 or (reason and reason in ended.stderr), (recipe, ended.returncode, ended.stderr)
    assert not reason or ended.returncode != 0 or reason == "no layout fits", recipe


def main():
    planted = named = 0
    # Two at a time, for processes of one wait for each other.
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, (workers, parallel, faults) in LAYOUTS.items():
            sets = ["cluster.devices_per_node=%d" % workers] + ["parallel." + one for one in parallel]
            right = pool.submit(check_right, sets, workers)
            named += sum(pool.map(lambda fault, sets=sets: check_fault(sets, *fault), faults))
            planted += len(faults)
            right.result()
            print("%s: ok" % name, flush=True)
        list(pool.map(check_recipe, sorted(glob.glob(RECIPES + "/*.toml") + glob.glob(RECIPES + "/plan/*.toml"))))
    text = subprocess.run([TRAINCTL, "verify", BASE], stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout
    assert "Correct: this layout computes the same gradient as one process." in text, text
    check_launch()
    assert planted >= 20 and named >= 18, (planted, named)
    # A plan for many GPUs: each axis is kept, in as few ranks as can be.
    report = verify(RECIPES + "/plan/llama3.1-8b_8xh100.toml", [
        "cluster.nodes=64", "train.batch_sequences=512", "train.micro_batch=1", "parallel.tp=8", "parallel.pp=4",
        "parallel.dp_replicate=2", "parallel.zero_stage=1"], 0)
    assert report["processes"] == 16 and report["rounding"]["precision"] == "bf16" and report["rounding"]["gradient_error"] > 1e-3, report
    assert "pp=2 dp_replicate=2 dp_shard=2 tp=2" in report["layout"], report
    print("%d errors planted, all found; %d of them are all that was named" % (planted, named))


main()
