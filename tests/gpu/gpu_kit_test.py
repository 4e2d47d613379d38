"""The script that runs on GPU machines, here with the CPU on both sides, and what it says of runs that differ.

    python3 gpu_kit_test.py BIN_DIR
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kit_core import PARITY  # noqa: E402
from kit_speed import kernels_of  # noqa: E402
from merge_results import BEGIN, END, merge  # noqa: E402
from parity import compare  # noqa: E402


def metrics(losses):
    return [{"step": i + 1, "loss": loss, "grad_norm": 2.0, "lr": 1e-3, "tokens": 64 * (i + 1), "batch_hash": f"{i:x}"}
            for i, loss in enumerate(losses)]


class Parity(unittest.TestCase):
    bounds = PARITY["fp32"]

    def differences(self, ours, theirs):
        return compare(ours, theirs, self.bounds)["differences"]

    def test_equal_runs_do_not_differ(self):
        self.assertEqual(self.differences(metrics([7, 6, 5]), metrics([7, 6, 5])), [])

    def test_the_first_step_is_held_tighter_than_later_ones(self):
        apart = 1 + 1e-5  # between the two bounds
        self.assertEqual(self.differences(metrics([7, 6]), metrics([7, 6 * apart])), [])
        (only,) = self.differences(metrics([7, 6]), metrics([7 * apart, 6]))
        self.assertIn("step 1: loss", only)

    def test_a_later_loss_beyond_its_bound_is_named_with_its_step(self):
        (only,) = self.differences(metrics([7, 6, 5]), metrics([7, 6, 5 * (1 + 3e-4)]))
        self.assertIn("step 3: loss 5 against 5.0015", only)

    def test_a_gradient_norm_counts_too(self):
        theirs = metrics([7, 6])
        theirs[1]["grad_norm"] = 2.1
        (only,) = self.differences(metrics([7, 6]), theirs)
        self.assertIn("step 2: grad_norm", only)

    def test_what_is_no_number_differs(self):
        for value in (math.nan, math.inf):
            self.assertEqual(len(self.differences(metrics([7, 6]), metrics([7, value]))), 1)
            self.assertEqual(len(self.differences(metrics([7, value]), metrics([7, value]))), 1)

    def test_missing_steps_differ(self):
        self.assertIn("2 steps against 1", self.differences(metrics([7, 6]), metrics([7]))[0])
        self.assertIn("0 steps against 0", self.differences([], [])[0])

    def test_other_data_differs_whatever_its_loss(self):
        theirs = metrics([7, 6])
        theirs[1]["batch_hash"] = "beef"
        (only,) = self.differences(metrics([7, 6]), theirs)
        self.assertIn("batch_hash 1 against beef", only)


class Script(unittest.TestCase):
    bin_dir = None

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="trainctl-gpu-kit-test-"))
        self.addCleanup(shutil.rmtree, self.work)

    def kit(self, *arguments, bin_dir=None, tools=None, **more_env):
        """(exit code, results.json, all that was printed)."""
        done = subprocess.run([HERE / "run.sh", "--bin", bin_dir or self.bin_dir, "--out", self.work / "out",
                               "--work", self.work, *map(str, arguments)], capture_output=True, text=True, timeout=400,
                              env={**os.environ, "TRAINCTL_PYTHON": sys.executable, **more_env,
                                   "PATH": f"{tools}:{os.environ['PATH']}" if tools else os.environ["PATH"]})
        report = self.work / "out" / "results.json"
        self.assertTrue(report.exists(), done.stderr)
        left = [path.name for path in self.work.iterdir() if path.name.startswith("trainctl-gpu-kit-")]
        self.assertEqual(left, [], "runs are left behind")
        return done.returncode, json.loads(report.read_text()), done.stdout + done.stderr

    def fake(self, script):
        """Programs that are this shell script, after a `version` that works."""
        folder = self.work / "bin"
        folder.mkdir()
        for name in ("trainctl", "trainctl-worker"):
            (folder / name).write_text(f'#!/bin/sh\n[ "$1" = version ] && exit 0\n{script}\n')
            (folder / name).chmod(0o755)
        return folder

    def tool(self, name, script):
        """A program of NVIDIA's that is this shell script; its folder."""
        folder = self.work / "tools"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
        return folder

    def test_host(self):
        """What the launcher sees of the machine: no driver shows the test device, and plans need its memory."""
        host = self.work / "host.json"
        host.write_text(json.dumps({"cpu": "a cpu", "allowed_cores": 2, "memory_available_bytes": 8 << 30, "native_bf16": False,
                                    "accelerator": "test device", "accelerator_memory_bytes": 8 << 30}))
        return host

    @property
    def plugin(self):
        plugin = pathlib.Path(self.bin_dir) / "test_device.so"
        if not plugin.exists():
            self.skipTest("there is no test device among these programs")
        return {"TRAINCTL_DEVICE_PLUGIN": str(plugin)}

    def test_the_cpu_agrees_with_itself_at_another_number_of_threads(self):
        code, report, words = self.kit("--small", "--seconds", 300, "--only", "doctor,trainer_parity,graphs,memory",
                                       "--devices", "cpu")
        self.assertEqual(code, 0, words)
        found = {result["name"]: result for result in report["results"]}
        for name in ("doctor", "trainer parity, fp32", "trainer parity, bf16", "same bits twice, fp32",
                     "same bits twice, bf16", "by graph and launched, fp32", "by graph and launched, bf16"):
            self.assertEqual(found[name]["status"], "passed", found[name])
        for name in ("trainer parity, fp32", "trainer parity, bf16"):
            self.assertEqual(found[name]["steps"], 8)
            ours, theirs = found[name]["losses"]
            self.assertEqual(len(theirs), 8)
            self.assertLess(ours[-1], ours[0])  # it learns
        self.assertEqual(found["by graph and launched, fp32"]["steps_by_graph"], 0)  # a CPU has none
        self.assertEqual(found["speed of graphs, toy-1m, cpu"]["status"], "measured")
        memory = found["memory, toy-1m, bf16, recompute full, cpu"]
        self.assertLess(memory["measured_bytes"], found["memory, toy-1m, bf16, recompute none, cpu"]["measured_bytes"])
        self.assertIn("| trainer parity, fp32 | passed | loss within ", words)
        self.assertEqual((self.work / "out" / "results.md").read_text().count("| trainer parity"), 2)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "it takes two cores to shard over")
    def test_every_layout_agrees_with_one_worker(self):
        code, report, words = self.kit("--small", "--seconds", 300, "--only", "layouts", "--devices", "cpu")
        self.assertEqual(code, 0, words)
        self.assertGreaterEqual(len(report["results"]), 4)
        for result in report["results"]:
            self.assertEqual((result["status"], result["steps"]), ("passed", 4), result)
            self.assertTrue(result["same_bits_twice"], result)

    def test_runs_of_different_seeds_fail(self):
        code, report, words = self.kit("--small", "--seconds", 300, "--only", "trainer_parity", "--devices", "cpu",
                                       "--seeds", "1,2")
        self.assertEqual(code, 1, words)
        parity = [result for result in report["results"] if result["step"] == "trainer_parity"]
        self.assertEqual({result["name"]: result["status"] for result in parity},
                         {"trainer parity, fp32": "failed", "same bits twice, fp32": "passed",
                          "trainer parity, bf16": "failed", "same bits twice, bf16": "passed"})
        self.assertIn("step 1: ", parity[0]["reason"])

    def test_a_device_that_cannot_be_used_is_told_with_the_reason(self):
        code, report, words = self.kit("--small", "--seconds", 120, "--only", "trainer_parity", "--devices", "cpu,cuda")
        for result in report["results"]:
            if result["status"] == "not run":
                self.assertEqual(code, 0, words)
                self.assertIn("cuda", result["reason"])

    def test_a_device_is_looked_at_timed_and_run_under_nvidias_tools(self):
        self.tool("compute-sanitizer", """echo "$PYTORCH_NO_CUDA_MEMORY_CACHING $@" >> "$0.calls"
tool=$2
while [ "$1" != "${1#--}" ]; do shift 2; done
"$@" > "$0.output" 2>&1 || exit 99
case $tool in
racecheck) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)";;
*) echo "========= ERROR SUMMARY: 0 errors";;
esac""")
        self.tool("nvidia-smi", "while echo '1980, 650.5, 61'; do sleep 0.1; done")
        tools = self.tool("ncu", """echo '==PROF== noise'
echo '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","Signatures","GPU Speed Of Light Throughput","Duration","ns","990"'
echo '"0","Pass","GPU Speed Of Light Throughput","DRAM Throughput","%","81.5"'
echo '"0","Pass","GPU Speed Of Light Throughput","Duration","us","103.2"' """)
        host = self.test_host()
        steps = "kernels,smoke,calibrate,kernel_speed,sanitizers,counters"
        code, report, words = self.kit("--small", "--seconds", 300, "--only", steps, "--devices", "cpu,cuda", tools=tools,
                                       TRAINCTL_TEST_HOST=str(host), **self.plugin)
        self.assertEqual(code, 0, words)
        found = {}
        for result in report["results"]:
            found.setdefault(result["step"], []).append(result)
        self.assertEqual({step: [r["status"] for r in results] for step, results in found.items()},
                         {"kernels": ["passed"], "smoke": ["passed"], "calibrate": ["measured"], "kernel_speed": ["measured"],
                          "sanitizers": 4 * ["passed"], "counters": 3 * ["measured"]}, words)
        self.assertIn("all-reduce of one rank", [check["operator"] for check in found["kernels"][0]["checks"]])
        self.assertGreater(len(found["calibrate"][0]["device"]["products"]), 4)
        kernels = found["kernel_speed"][0]["kernels"]
        self.assertGreater(len(kernels), 25)
        self.assertEqual([k["share_of_copy"] for k in kernels], sorted(k["share_of_copy"] for k in kernels))
        # By hand: 64 rows of 4,096 bf16 elements; an addition reads two tensors and writes one.
        (add,) = [k for k in kernels if k["operator"].startswith("add BF16")]
        self.assertEqual(add["bytes"], 3 * 64 * 4096 * 2)
        # AdamW of as many elements: master, gradient and two moments are read, all but the gradient written, in fp32.
        (adamw,) = [k for k in kernels if k["operator"].startswith("adamw F32")]
        self.assertLess(abs(adamw["bytes"] - 7 * 64 * 4096 * 4), 1024)
        self.assertIn("DRAM Throughput 81.5 %, Duration 103.2 us", words)
        calls = (tools / "compute-sanitizer.calls").read_text()
        for tool in ("memcheck", "racecheck", "initcheck"):
            self.assertIn(f"1 --tool {tool} ", calls)
        self.assertEqual(report["step_gpu"]["sanitizers"]["power_w"], [650.5, 650.5, 650.5])
        self.assertIn("during smoke: clock mhz 1980 to 1980", words)

    def test_where_the_first_steps_fail_the_sanitizer_has_the_last_word(self):
        tools = self.tool("compute-sanitizer", 'echo "========= COMPUTE-SANITIZER"\n'
                                               'echo "========= Invalid __global__ write of size 4 bytes"\n'
                                               'echo "========= ERROR SUMMARY: 7 errors"\n'
                                               'echo "========= ERROR SUMMARY: 924 errors were not printed. Use --print-limit"; exit 99')
        code, report, words = self.kit("--small", "--seconds", 120, "--only", "kernels,smoke,memory", "--devices", "cpu,cuda", tools=tools,
                                       TRAINCTL_TEST_DEVICE_FAILS_AT="gated_activation:2", **self.plugin)
        self.assertEqual(code, 1, words)
        self.assertEqual([(r["step"], r["status"]) for r in report["results"]], [("kernels", "failed"), ("sanitizers", "failed")], words)
        self.assertEqual(report["results"][1]["errors"], 7)
        self.assertTrue(report["results"][1]["reason"].startswith("Invalid __global__ write"), report["results"][1])

    def test_races_are_counted_and_a_kernel_that_fails_while_it_is_timed_is_a_failure(self):
        tools = self.tool("compute-sanitizer", """[ "$2" = racecheck ] || exit 3
echo "========= Error: Race reported between Write access at 0x70 and Read access at 0x80"
echo "========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)"
exit 99""")
        code, report, words = self.kit("--small", "--seconds", 120, "--only", "kernel_speed,sanitizers", "--devices", "cpu,cuda", tools=tools,
                                       TRAINCTL_TEST_DEVICE_FAILS_AT="gated_activation:2", **self.plugin)
        self.assertEqual(code, 1, words)
        found = {result["name"]: result for result in report["results"]}
        self.assertEqual(found["kernel speed"]["status"], "failed", found)
        race = found["racecheck, our kernels"]
        self.assertEqual((race["status"], race["errors"]), ("failed", 2), race)
        self.assertIn("Race reported", race["reason"])
        self.assertEqual(found["memcheck, every kernel"]["status"], "not run")

    @property
    def any_device(self):
        """Options and environment of the test device, or of the CPU if there is none among these programs."""
        plugin = pathlib.Path(self.bin_dir) / "test_device.so"
        if not plugin.exists():
            return ["--devices", "cpu"], {}
        return ["--devices", "cpu,cuda", "--old-plugin", plugin], {"TRAINCTL_DEVICE_PLUGIN": str(plugin), "TRAINCTL_TEST_HOST": str(self.test_host())}

    def test_the_first_call_checks_one_card_and_ranks_that_share_it(self):
        options, environment = self.any_device
        mps = self.tool("nvidia-cuda-mps-control", 'echo "$@" >> "$0.calls"; [ "$1" = -d ] || cat >> "$0.calls"')
        self.tool("nvidia-smi", """case "$*" in *compute_mode*) echo "A card, Default, Disabled, 1 MiB, 0 MiB, 700.00 W, 1980 MHz";;
*) exec sleep 1000;; esac""")
        parts = "start,old_and_new,collectives,shared_layouts,whole_steps,profile,other_layout,killed_rank"
        code, report, words = self.kit("--small", "--call", 1, "--only", parts, *options, tools=mps, **environment)
        self.assertEqual(code, 0, words)
        found = {result["name"]: result for result in report["results"]}
        self.assertEqual(found["machine"]["facts"]["compute_mode"], "Default")
        layouts = ("DDP over 2", "tp 2 over 2", "1F1B over 2", "ZeRO-3 over 4", "tp 2 × pp 2 over 4", "zbv over 2")
        names = [f"{layout} that share, fp32" for layout in layouts]
        names += ["smoke", "by graph and launched, bf16", "by graph and launched, bf16, bf16 masters", "packed documents, bf16",
                  "stop and resume by graph", "resumed under another layout: tp 2, then 1F1B", "rank killed and recovered"]
        for name in names:
            self.assertEqual(found[name]["status"], "passed", found[name])
        self.assertEqual(found["stop and resume by graph"]["evaluations"], 4)
        self.assertFalse([name for name, result in found.items() if "share" in name and "tokens/s" in result.get("value", "")])
        self.assertEqual(report["call"], 1)
        self.assertEqual(set(report["step_seconds"]), set(parts.split(",")))
        if environment:
            self.assertEqual((mps / "nvidia-cuda-mps-control.calls").read_text().count("-d"),
                             (mps / "nvidia-cuda-mps-control.calls").read_text().count("quit"))
            self.assertIn(" → ", next(r["value"] for r in report["results"] if r["name"].startswith("adamw F32")))

    def test_the_second_call_measures_the_chosen_models_and_compares_prediction_and_measurement(self):
        options, environment = self.any_device
        code, report, words = self.kit("--small", "--call", 2, "--cells", "llama-1b,llama-120m", "--peers", "torchtitan", "--only",
                                       "llama-1b,prediction,bf16_masters", *options, **environment)
        self.assertEqual(code, 0, words)
        found = {result["step"]: result for result in report["results"]}
        self.assertLessEqual({"trainctl", "trainctl, launched"}, set(found["throughput"]["medians"]))
        self.assertNotIn("Hugging Face", found["throughput"]["medians"])
        self.assertGreater(found["prediction"]["predicted_over_measured"], 0)
        self.assertEqual(found["trainer_parity"]["name"], "same bits twice, bf16, bf16 masters")

    def test_a_dry_run_lists_the_parts_and_needs_no_programs(self):
        def dry_run(*arguments):
            done = subprocess.run([sys.executable, HERE / "gpu_kit.py", "--dry-run", "--bin", self.work, *map(str, arguments)],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        listed = [line.split()[1] for line in dry_run("--call", 1).splitlines()[:6]]
        self.assertEqual(listed, ["start", "old_and_new", "collectives", "shared_layouts", "whole_steps", "profile"])
        self.assertIn("total: 330 s", dry_run("--call", 1))
        self.assertIn("total: 165 s", dry_run("--call", 1, "--seconds", 165))
        self.assertNotIn("llama3.1-8b ", dry_run("--call", 2, "--cells", "llama-120m").partition("prediction")[0])
        self.assertIn("autotune", dry_run())

    def test_a_part_that_hangs_costs_no_more_than_its_limit_and_can_be_repeated(self):
        pid_file = self.work / "pid"
        programs = self.fake(f"""case "$1 $2" in
"check-collectives --help") echo check-collectives; exit 0;;
esac
case "$1" in
recipe) exit 0;;
check-collectives) [ -e '{self.work}/works' ] || {{ echo $$ > '{pid_file}'; exec sleep 1000; }}
  echo '{{"check": "all_gather fp32 1024 bytes, world", "ok": true}}';;
*) echo boom >&2; exit 4;;
esac""")
        mps = self.tool("nvidia-cuda-mps-control", 'echo "$@" >> "$0.calls"; [ "$1" = -d ] || cat >> "$0.calls"')
        # A sixth of the limits: 60 and 45 s.
        call = ["--small", "--call", 1, "--seconds", 20, "--only", "collectives,profile", "--devices", "cuda"]
        code, report, words = self.kit(*call, bin_dir=programs, tools=mps)
        self.assertEqual(code, 1, words)
        found = {result["name"]: result for result in report["results"]}
        self.assertEqual(found["collectives, 2 ranks"]["status"], "failed")
        self.assertIn("was ended after 4 s, when the 3.6 s of its part were used up", found["collectives, 2 ranks"]["reason"])
        self.assertFalse(pathlib.Path("/proc", pid_file.read_text().strip()).exists())
        self.assertIn("boom", found["kernels of a step, toy-1m, cuda"]["reason"])  # the next part ran
        (self.work / "works").touch()
        code, report, words = self.kit(*call, "--again", bin_dir=programs, tools=mps)
        found = {result["name"]: result["status"] for result in report["results"]}
        self.assertEqual(found, {"collectives, 2 ranks": "passed", "collectives, 4 ranks, MPS": "passed",
                                 "kernels of a step, toy-1m, cuda": "failed"})
        self.assertEqual((mps / "nvidia-cuda-mps-control.calls").read_text().split(), 2 * ["-d", "quit"])

    def test_a_second_call_can_take_what_failed_alone(self):
        out = self.work / "out"
        out.mkdir()
        results = [{"step": "memory", "name": "a", "status": "failed"}, {"step": "smoke", "name": "b", "status": "passed"}]
        (out / "results.json").write_text(json.dumps({"results": results}))
        code, report, words = self.kit("--small", "--seconds", 120, "--again", "--devices", "cpu")
        self.assertEqual(code, 0, words)
        self.assertEqual({r["measured_by"] for r in report["results"] if r["step"] == "memory"}, {"memory"})
        self.assertIn(results[1], report["results"])  # what did not fail stays
        self.kit("--again", "--devices", "cpu")
        self.assertEqual(json.loads((out / "results.json").read_text()), report)  # nothing failed, so nothing was run

    def test_results_go_into_the_page(self):
        code, report, words = self.kit("--small", "--seconds", 60, "--only", "doctor", "--devices", "cpu")
        page = self.work / "page.md"
        page.write_text(f"# Page\n\n{BEGIN}\nold\n{END}\nmore\n")
        merged = merge(report, page.read_text())
        self.assertTrue(merged.startswith(f"# Page\n\n{BEGIN}\n") and merged.endswith(f"{END}\nmore\n"), merged)
        self.assertIn("| doctor | passed |", merged)
        self.assertNotIn("old", merged)
        self.assertEqual(merge(report, merged), merged)
        with self.assertRaisesRegex(ValueError, "no place for results"):
            merge(report, "# Page\n")
        program = [sys.executable, HERE / "merge_results.py", self.work / "out" / "results.json", page]
        done = subprocess.run(program, capture_output=True, text=True)
        self.assertEqual((done.returncode, "micro-sizes" in done.stderr), (2, True), done.stderr)
        whole = self.work / "whole.json"
        whole.write_text(json.dumps({**report, "small": False}))
        self.assertEqual(subprocess.run([*program[:2], whole, page], capture_output=True, text=True).returncode, 0)
        self.assertIn("| doctor | passed |", page.read_text())

    def test_what_takes_too_long_is_ended_and_told(self):
        pid_file = self.work / "pid"
        programs = self.fake(f"echo $$ > '{pid_file}'; exec sleep 1000")
        code, report, words = self.kit("--small", "--seconds", 15, "--only", "doctor,trainer_parity", bin_dir=programs)
        self.assertEqual(code, 0, words)
        doctor, parity = report["results"]
        self.assertEqual((doctor["status"], parity["status"]), ("not run", "not run"))
        self.assertIn("when no time was left", doctor["reason"])
        self.assertIn("it needs 20", parity["reason"])
        self.assertFalse(pathlib.Path("/proc", pid_file.read_text().strip()).exists())

    def test_a_failing_step_costs_neither_those_before_nor_those_after(self):
        programs = self.fake(
            'case $1 in doctor) echo \'{"findings": [{"name": "worker", "value": "starts", "health": "ok", "advice": ""}]}\';;'
            " recipe) exit 0;; *) echo boom >&2; exit 4;; esac")
        code, report, words = self.kit("--small", "--seconds", 120, "--only", "doctor,trainer_parity,memory",
                                       "--devices", "cpu", bin_dir=programs)
        self.assertEqual(code, 1, words)
        self.assertEqual([result["status"] for result in report["results"]], ["passed"] + 5 * ["failed"])
        self.assertIn("exit 4: boom", report["results"][1]["reason"])
        # A second call keeps what the first one wrote.
        self.kit("--small", "--seconds", 120, "--only", "doctor", bin_dir=programs)
        kept = json.loads((self.work / "out" / "results-1.json").read_text())
        self.assertEqual(kept["results"], report["results"])
        self.assertTrue((self.work / "out" / "results-1.md").exists())

    def test_kernels_of_a_profile_are_summed_by_name_and_gaps_are_found(self):
        events = [{"cat": "kernel", "name": "a", "ts": 100.0, "dur": 50.0}, {"cat": "kernel", "name": "nvjet_hsh_b", "ts": 120.0, "dur": 50.0},
                  {"cat": "gpu_memcpy", "name": "c", "ts": 270.0, "dur": 30.0}, {"cat": "kernel", "name": "a", "ts": 305.0, "dur": 95.0},
                  {"cat": "cpu_op", "name": "aten::mm", "ts": 0.0, "dur": 1000.0}, {"ph": "M"}]
        found = kernels_of({"traceEvents": events})
        self.assertEqual([(k["name"], k["launches"]) for k in found["kernels"]], [("a", 2), ("nvjet_hsh_b", 1), ("c", 1)])
        self.assertAlmostEqual(found["product_ms"], 0.05)
        self.assertAlmostEqual(found["busy_ms"], 0.195)  # 100 to 170, 270 to 300, 305 to 400
        self.assertAlmostEqual(found["span_ms"], 0.3)
        self.assertEqual([round(gap["ms"], 6) for gap in found["longest_gaps"]], [0.1, 0.005])
        self.assertAlmostEqual(found["gap_ms_below_10us"], 0.005)
        self.assertEqual(kernels_of({"traceEvents": []})["launches"], 0)

    def test_without_the_peer_our_side_is_measured_all_the_same(self):
        bare = self.work / "python"
        bare.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S \"$@\"\n")
        bare.chmod(0o755)
        code, report, words = self.kit("--small", "--seconds", 200, "--only", "throughput", "--devices", "cpu",
                                       "--python", bare)
        self.assertEqual(code, 0, words)
        (speed,) = [result for result in report["results"] if result["step"] == "throughput"]
        self.assertEqual(speed["status"], "measured")
        self.assertGreater(speed["medians"]["trainctl"], 0)
        self.assertEqual(list(speed["medians"]), ["trainctl"])
        self.assertIn("No module named 'torch'", speed["reason"])


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    Script.bin_dir = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)


if __name__ == "__main__":
    main()
