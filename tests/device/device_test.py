"""A run on a device: the whole way from a recipe to a checkpoint with cluster.device = "cuda".

    python3 device_test.py TRAINCTL TEST_DEVICE CUDA_PLUGIN

The device is tests/device/test_device.cc, whose memory the host cannot touch: it stands where a GPU would. The same
recipe runs on the CPU beside it; losses and gradient norms must agree to the order of sums. CUDA_PLUGIN is the real
plugin ("" where it was not built): on a machine without a GPU it must say so, in words.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TRAINCTL = pathlib.Path(sys.argv[1])
TEST_DEVICE = sys.argv[2]
CUDA_PLUGIN = sys.argv[3]

RECIPE = """recipe_version = 1
[run]
name = "device"
attention = "cudnn"
[model]
preset = "toy-1m"
[data]
seq_len = 64
[[data.train]]
files = ["text.txt"]
kind = "text"
[train]
steps = 6
batch_sequences = 8
micro_batch = 2
precision = "{precision}"
[optimizer]
warmup_steps = 2
[parallel]
{parallel}
[cluster]
device = "{device}"
devices_per_node = {workers}
memory_limit = "500 MiB"
[checkpoint]
every_steps = 3
async = {is_async}
[launch]
max_restarts = 0
"""


class DeviceTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 400)

    def tearDown(self):
        self.temporary.cleanup()

    def launch(self, device, *more, workers=1, precision="fp32", parallel="zero_stage = 0", is_async="false",
               plugin=TEST_DEVICE, name=None, more_env=None):
        recipe = self.folder / "recipe.toml"
        recipe.write_text(RECIPE.format(device=device, workers=workers, precision=precision, parallel=parallel,
                                        is_async=is_async))
        run = self.folder / (name or device)
        done = subprocess.run([TRAINCTL, "launch", recipe, "--run-dir", run, *more], capture_output=True, text=True,
                              env={**os.environ, "TRAINCTL_DEVICE_PLUGIN": plugin, "NO_COLOR": "1",
                                   "TRAINCTL_TEST_DEVICE_TELLS": "1", **(more_env or {})})
        return run, done

    def metrics(self, run):
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

    def assert_same_training(self, run, reference, tolerance):
        ours, theirs = self.metrics(run), self.metrics(reference)
        self.assertEqual([m["step"] for m in ours], [m["step"] for m in theirs])
        self.assertEqual(len([m for m in ours if m["step"] > 0]), 6)
        for a, b in zip(ours, theirs):
            self.assertEqual(a.get("batch_hash"), b.get("batch_hash"))
            for key in ("loss", "grad_norm"):
                if key in b and b[key]:
                    self.assertLess(abs(a[key] - b[key]) / abs(b[key]), tolerance, (key, a, b))

    def test_a_device_trains_as_the_cpu_does(self):
        for precision, masters, tolerance in (("fp32", "fp32", 2e-5), ("bf16", "fp32", 2e-2), ("bf16", "bf16", 2e-2)):
            with self.subTest(precision=precision, masters=masters):
                more = ("--set", f"train.master_dtype={masters}")
                device, done = self.launch("cuda", *more, precision=precision, name=f"cuda-{precision}-{masters}")
                self.assertEqual(done.returncode, 0, done.stderr)
                cpu, done = self.launch("cpu", *more, precision=precision, name=f"cpu-{precision}-{masters}")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assert_same_training(device, cpu, tolerance)

    def test_two_sharded_workers_save_beside_training_stop_and_resume(self):
        options = dict(workers=2, parallel="zero_stage = 3\ndp_shard = 2", is_async="true")
        run, done = self.launch("cuda", "--stop-after", "4", **options)
        self.assertEqual(done.returncode, 75, done.stderr)
        said = done.stdout + done.stderr + "".join(log.read_text() for log in run.rglob("*.log"))
        self.assertIn("2 workers connected", said)
        self.assertNotIn("was cut off", said)  # NCCL would warn of it at the end of every run
        done = subprocess.run([TRAINCTL, "resume", run], capture_output=True, text=True,
                              env={**os.environ, "TRAINCTL_DEVICE_PLUGIN": TEST_DEVICE})
        self.assertEqual(done.returncode, 0, done.stderr)
        cpu, done = self.launch("cpu", **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_same_training(run, cpu, 5e-5)

    def test_a_model_that_is_cut_trains_as_on_the_cpu(self):
        for workers, parallel in ((2, "tp = 2"), (2, "pp = 2\nschedule = \"zb-h1\""),
                                  (4, "tp = 2\ndp_shard = 2\nzero_stage = 3"),
                                  (4, "pp = 2\ntp = 2\nrecompute = \"selective\"")):
            with self.subTest(parallel=parallel):
                name = "-".join(parallel.split())
                options = dict(workers=workers, parallel=parallel)
                device, done = self.launch("cuda", name="cuda-" + name.replace('"', ""), **options)
                self.assertEqual(done.returncode, 0, done.stderr)
                cpu, done = self.launch("cpu", name="cpu-" + name.replace('"', ""), **options)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assert_same_training(device, cpu, 5e-5)
                report = json.loads((device / "report.json").read_text())
                self.assertLess(abs(report["predicted_peak_bytes"] / report["measured_peak_bytes"] - 1), 0.03, report)

    def test_a_kernel_that_fails_ends_the_run_in_words(self):
        # In the first step; which thread asks the device for something next, and hears of it, is chance.
        for operator in map(str, range(52, 76, 3)):
            with self.subTest(operator=operator):
                run, done = self.launch("cuda", workers=2, parallel="zero_stage = 3\ndp_shard = 2", name=f"cuda-{operator}",
                                        more_env={"TRAINCTL_TEST_DEVICE_FAILS_AT": operator})
                self.assertIn(done.returncode, (1, 4), done.stderr)
                self.assertIn("a kernel failed", done.stderr)
                self.assertNotIn("SIG", done.stderr)

    def test_a_kernel_that_fails_is_named_where_it_is_asked_for(self):
        # Four layers, each a block behind the embedding, and four micro-batches: where the n-th of a kernel is
        # called can be counted by hand.
        for kernel, name in (("embedding:3", "forward block 0 micro-batch 2: embedding"),
                             ("CudnnForward:5", "forward block 1 micro-batch 1: attention"),
                             ("gated_activation:2", "forward block 2 micro-batch 0: swiglu"),
                             ("cross_entropy:2", "loss and gradient block 5 micro-batch 1: linear cross entropy"),
                             ("CudnnBackward:1", "backward block 4 micro-batch 0: attention, gradient"),
                             ("gated_activation_backward:6", "backward block 3 micro-batch 1: swiglu, gradient")):
            with self.subTest(kernel=kernel):
                run, done = self.launch("cuda", "--set", "run.check_kernels=true", precision="bf16", name=kernel[:-2],
                                        more_env={"TRAINCTL_TEST_DEVICE_FAILS_AT": kernel})
                self.assertIn(done.returncode, (1, 4), done.stderr)
                self.assertIn(f"failed in step 1: {name}: test device: a kernel failed", done.stderr)

    # By time at the first start, and then by what that has come to.
    def test_attention_is_chosen_once_and_kept(self):
        for slow, kept, other in (("CudnnForward", "flash", "FlashBackward"), ("FlashBackward", "cudnn", "CudnnForward")):
            with self.subTest(slow=slow):
                run, done = self.launch("cuda", "--set", "run.attention=auto", "--set", "data.packing=continuous",
                                        "--stop-after", "2", workers=2, parallel="dp_replicate = 2", precision="bf16", name=kept,
                                        more_env={"TRAINCTL_TEST_DEVICE_SLOW": slow})
                self.assertEqual(done.returncode, 75, done.stderr)
                chosen, = json.loads((run / "attention.json").read_text())["choices"]
                self.assertEqual(chosen["kernel"], kept)
                self.assertGreater(chosen["cudnn_seconds" if kept == "flash" else "flash_seconds"], 0.02)
                # Not timed again: the first kernel of the one that was left would end the run, as would a choice by these times.
                done = subprocess.run([TRAINCTL, "resume", run], capture_output=True, text=True,
                                      env={**os.environ, "TRAINCTL_DEVICE_PLUGIN": TEST_DEVICE,
                                           "TRAINCTL_TEST_DEVICE_SLOW": other,
                                           "TRAINCTL_TEST_DEVICE_FAILS_AT": ("Cudnn" if kept == "flash" else "Flash") + "Forward:1"})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(json.loads((run / "attention.json").read_text())["choices"], [chosen])

    def test_memory_of_the_device_is_predicted_and_reported(self):
        run, done = self.launch("cuda", workers=2, parallel="zero_stage = 2\ndp_shard = 2")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads((run / "report.json").read_text())
        predicted, measured = report["predicted_at_peak"], report["measured_at_peak"]
        for category in ("parameters", "gradients", "optimizer"):
            self.assertEqual(predicted[category], measured[category])
        self.assertLess(abs(report["predicted_peak_bytes"] / report["measured_peak_bytes"] - 1), 0.03, report)

    # A device is opened once in a process, so one device serves two workers like two.
    def test_workers_share_a_device_where_a_test_asks_for_it(self):
        one_device = {"TRAINCTL_TEST_DEVICE_COUNT": "1"}
        _, done = self.launch("cuda", workers=2, more_env=one_device, name="refused")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("Lower cluster.devices_per_node", done.stderr)
        run, done = self.launch("cuda", workers=2, parallel="dp_shard = 2\nzero_stage = 3",
                                more_env={**one_device, "TRAINCTL_TEST_SHARED_DEVICES": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        reference, _ = self.launch("cpu", workers=2, parallel="dp_shard = 2\nzero_stage = 3")
        self.assert_same_training(run, reference, 1e-5)
        self.assertIs(json.loads((run / "report.json").read_text())["shared_devices"], True)
        self.assertNotIn("shared_devices", json.loads((reference / "report.json").read_text()))
        first_line = (run / "logs" / "rank-00000.log").read_text().splitlines()[0]
        for text in (first_line, done.stderr):
            self.assertIn("workers share devices", text)
        status = subprocess.run([TRAINCTL, "status", run, "--json"], capture_output=True, text=True)
        self.assertIs(json.loads(status.stdout)["shared_devices"], True)

    # As NCCL's watchdog does it: on a thread of its own, with an exception that nobody catches.
    def test_a_collective_that_takes_too_long_is_told_before_the_process_ends(self):
        _, done = self.launch("cuda", workers=2, parallel="dp_shard = 2", more_env={"TRAINCTL_TEST_DEVICE_TIMES_OUT": "1"})
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("Watchdog caught collective operation timeout", done.stderr)

    def test_variables_that_let_a_pipeline_hang_are_refused(self):
        for variable in ("NCCL_LAUNCH_ORDER_IMPLICIT=1", "CUDA_DEVICE_MAX_CONNECTIONS=1"):
            name, value = variable.split("=")
            _, done = self.launch("cuda", workers=2, parallel="pp = 2", more_env={name: value}, name=name)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"{variable} is set in the environment", done.stderr)

    def check_collectives(self, *more, plugin=None):
        device = ["--device", "cuda", "--plugin", plugin] if plugin else []
        done = subprocess.run([TRAINCTL.with_name("trainctl-worker"), "check-collectives", "--max-bytes", "20000", *device, *more],
                              capture_output=True, text=True)
        return done, [json.loads(line) for line in done.stdout.splitlines()]

    def test_collectives_are_what_the_host_computes(self):
        for ranks, plugin in ((2, None), (4, None), (2, TEST_DEVICE), (4, TEST_DEVICE)):
            done, checks = self.check_collectives("--ranks", str(ranks), plugin=plugin)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            self.assertTrue(all(check["ok"] for check in checks), checks)
            text = done.stdout
            for name in ("all-gather", "all-reduce", "all-reduce of maxima", "reduce-scatter", "reduce-scatter added", "broadcast",
                         "all-to-all", "ring of messages", "scalar sums", "computing stream", "F32", "BF16"):
                self.assertIn(name, text)
            # One group of two, or that of four and the two ways to pair four.
            groups = {re.search(r"\((.*) on rank 0\)", check["check"]).group(1) for check in checks if " on rank 0" in check["check"]}
            self.assertEqual(groups, {2: {"0 1"}, 4: {"0 1 2 3", "0 1", "0 2"}}[ranks])
        # Of what a rank has received one bit is turned.
        done, checks = self.check_collectives("--plant-error", "1")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual({check["check"] for check in checks if check["ok"]}, {"scalar sums and maxima over hosts"})
        done, _ = self.check_collectives("--ranks", "1")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--ranks 1: expected a whole number from 2 to 16", done.stderr)

    def test_without_its_plugin_a_run_says_what_is_missing(self):
        run, done = self.launch("cuda", plugin=str(self.folder / "no-such-plugin.so"))
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("no-such-plugin.so", done.stderr)

    def test_the_cuda_plugin_says_why_it_cannot_work_here(self):
        if not CUDA_PLUGIN:
            self.skipTest("the CUDA plugin was not built: no nvcc for LibTorch's CUDA")
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("there is a GPU: tests/gpu/run.sh is what tests the plugin")
        run, done = self.launch("cuda", plugin=CUDA_PLUGIN)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr, "the device plugin cannot be opened: lib.*|no cuda device can be used: .*")

    def test_every_operator_is_compared(self):
        worker = TRAINCTL.parent / "trainctl-worker"
        done = subprocess.run([worker, "check-device", "--plugin", TEST_DEVICE], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertGreater(len(lines), 60)
        self.assertTrue(all(line["ok"] for line in lines))

    def trainctl(self, *arguments, **more_env):
        return subprocess.run([TRAINCTL, *arguments], capture_output=True, text=True,
                              env={**os.environ, "TRAINCTL_DEVICE_PLUGIN": TEST_DEVICE, "NO_COLOR": "1",
                                   "XDG_CONFIG_HOME": str(self.folder / "config"), **more_env})

    def test_a_device_is_measured_and_plans_price_with_it(self):
        done = self.trainctl("calibrate", "--device", "cuda")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for named in ("memory, reading and writing in a copy", "launches", "bf16 product", "added in fp32",
                      "flash attention backward", "cuDNN's attention"):
            self.assertIn(named, done.stdout)
        path = self.folder / "config" / "trainctl" / "machine.json"
        profile = json.loads(path.read_text())
        [device] = profile["devices"]
        self.assertEqual({p["dtype"] for p in device["products"]}, {"F32", "BF16"})
        self.assertEqual({(a["kernel"], a["backward"], a["head_dim"]) for a in device["attention"]},
                         {(k, b, d) for k in ("flash", "vendor") for b in (False, True) for d in (64, 128)})
        # It computes on this CPU: no product is faster than a few hundred GFLOP/s for each core.
        for product in device["products"]:
            flops = 2 * product["rows"] * product["inner"] * product["columns"]
            self.assertLess(flops / product["seconds"], 1e12 * os.cpu_count(), product)

        host = self.folder / "host.json"
        host.write_text(json.dumps({"cpu": profile["cpu"], "allowed_cores": profile["cores"],
                                    "memory_available_bytes": 8 << 30, "native_bf16": False,
                                    "accelerator": device["name"], "accelerator_memory_bytes": 8 << 30}))
        recipe = self.folder / "recipe.toml"
        recipe.write_text(RECIPE.format(device="cuda", workers=1, precision="bf16", parallel="zero_stage = 0",
                                        is_async="false"))
        planned = self.trainctl("plan", recipe, "--json", TRAINCTL_TEST_HOST=str(host))
        self.assertEqual(planned.returncode, 0, planned.stderr)
        rates = json.loads(planned.stdout)["rates"]
        self.assertTrue(rates["measured"])
        self.assertEqual(rates["operators_seconds"], device["launch_seconds"])
        self.assertLess(abs(rates["moved_bytes_seconds"] * device["bytes_per_second"] - 1), 1e-12)

        # Other devices stay, and what was measured of the CPU, also of one with more cores.
        load = {"dtype": "F32", "workers": 1, "threads": 1,
                "seconds_per_unit": {name.removesuffix("_seconds"): 1e-9 for name in rates if name.endswith("_seconds")}}
        path.write_text(json.dumps({**profile, "cores": profile["cores"] + 1, "measured": [load],
                                    "devices": [{**device, "name": "another"}]}))
        again = self.trainctl("calibrate", "--device", "cuda", "--json")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual({d["name"] for d in json.loads(path.read_text())["devices"]}, {"another", device["name"]})
        self.assertEqual(json.loads(again.stdout), json.loads(path.read_text()))
        self.assertEqual(json.loads(path.read_text())["measured"], [load])
        self.assertEqual(json.loads(path.read_text())["cores"], profile["cores"] + 1)
        self.assertIn("will not use this profile", again.stderr)  # no driver shows the stand-in

    def test_a_device_that_is_not_there_is_not_measured(self):
        done = self.trainctl("calibrate", "--device", "cuda",
                             TRAINCTL_DEVICE_PLUGIN=str(self.folder / "no-such-plugin.so"))
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        self.assertIn("no-such-plugin.so", done.stderr)
        self.assertFalse((self.folder / "config" / "trainctl" / "machine.json").exists())
        # A device that fails is not one that is missing.
        done = self.trainctl("calibrate", "--device", "cuda", TRAINCTL_TEST_DEVICE_FAILS_AT="add:2")
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertIn("a kernel failed", done.stderr)
        self.assertIn("--device cpu", done.stderr)
        done = self.trainctl("calibrate", "--device", "cuda", "--workers", "2")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--workers", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
