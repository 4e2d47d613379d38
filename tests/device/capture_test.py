"""Steps that are done by a graph: bit for bit those that are launched kernel by kernel, through changing learning
rates, clipping, evaluation and a resume.

    python3 capture_test.py TRAINCTL TEST_DEVICE

The device is tests/device/test_device.cc. It ends the worker where a wait, a copy from the host or an event comes
between what a graph is made of, and its graphs replay host values as they were when the graph was made.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRAINCTL = pathlib.Path(sys.argv[1])
TEST_DEVICE = sys.argv[2]

RECIPE = """recipe_version = 1
[run]
name = "capture"
graphs = {graphs}
attention = "cudnn"
[model]
preset = "toy-1m"
[data]
seq_len = 64
packing = "{packing}"
[[data.train]]
files = ["text.jsonl"]
kind = "jsonl"
[[data.eval]]
name = "held-out"
files = ["text.jsonl"]
kind = "jsonl"
[train]
steps = 8
batch_sequences = 8
micro_batch = 2
precision = "bf16"
eval_every = 3
eval_batches = 1
z_loss = 1e-4
[optimizer]
warmup_steps = 5
clip_norm = 0.5
[cluster]
device = "cuda"
devices_per_node = 1
memory_limit = "500 MiB"
[checkpoint]
every_steps = 5
[metrics]
trace_steps = [{traced}]
profile_steps = [{profiled}]
[launch]
max_restarts = 0
"""


class CaptureTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        # Each shorter than a sequence, so that where documents count none is whole.
        lines = (json.dumps({"text": f"Number {i}: a quick brown fox and {i * i} dogs"[:20 + i % 30]}) for i in range(400))
        (self.folder / "text.jsonl").write_text("\n".join(lines))

    def tearDown(self):
        self.temporary.cleanup()

    def run_command(self, *arguments, fails=None):
        variables = {"TRAINCTL_DEVICE_PLUGIN": TEST_DEVICE, "NO_COLOR": "1"}
        if fails is not None:
            variables["TRAINCTL_TEST_DEVICE_FAILS_GRAPH"] = fails
        return subprocess.run([TRAINCTL, *arguments], capture_output=True, text=True, cwd=self.folder, env={**os.environ, **variables})

    # `fails`: where the test device fails to make a graph.
    def launch(self, graphs, *more, packing="continuous", traced="", profiled="", expected=0, fails=None):
        recipe = self.folder / f"{packing}-{graphs}.toml"
        recipe.write_text(RECIPE.format(graphs=graphs, packing=packing, traced=traced, profiled=profiled))
        run = recipe.with_suffix(f".{fails}" if fails else "")
        done = self.run_command("launch", recipe, "--run-dir", run, *more, fails=fails)
        self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
        log = "".join(log.read_text() for log in run.rglob("*.log"))
        self.assertEqual(log.count("cannot capture a step as a graph"), 1 if fails in ("begin", "end") else 0, log)
        self.error = done.stderr
        return run

    def steps(self, run):
        keys = ("step", "loss", "grad_norm", "lr", "batch_hash", "eval")
        return [{key: record.get(key) for key in keys}
                for record in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]

    def weights(self, run):
        newest = max((run / "checkpoints").glob("step-*"))
        return {file.name: file.read_bytes() for file in newest.rglob("*") if file.suffix == ".safetensors"}

    # By the phases of its steps, counted from 1.
    def steps_by_graph(self, run):
        timings = map(json.loads, (run / "timings.jsonl").read_text().splitlines())
        return {record["step"] for record in timings if "graph" in record["phases"]}

    def assert_same(self, run, reference):
        self.assertEqual(self.steps(run), self.steps(reference))
        self.assertTrue(self.weights(run))
        self.assertEqual(self.weights(run), self.weights(reference))

    def test_a_step_by_its_graph_is_the_step(self):
        by_graph, launched = (self.launch(graphs) for graphs in ("true", "false"))
        self.assert_same(by_graph, launched)
        # The first one is held against the plan, instruction by instruction.
        self.assertEqual(self.steps_by_graph(by_graph), set(range(2, 9)))
        self.assertEqual(self.steps_by_graph(launched), set())

    # With masters in bf16, whose roundings follow from the number of the update.
    def test_a_resumed_run_makes_its_graph_anew(self):
        masters = ("--set", "train.master_dtype=bf16")
        run = self.launch("true", *masters, "--stop-after", "4", expected=75)
        done = self.run_command("resume", run)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_same(run, self.launch("false", *masters))
        self.assertEqual(self.steps_by_graph(run), {2, 3, 4, 6, 7, 8})

    def test_a_traced_step_is_launched_and_the_graph_is_made_anew_for_a_profiled_one(self):
        run = self.launch("true", traced="4", profiled="6")
        self.assert_same(run, self.launch("false"))
        self.assertTrue(list((run / "profiles").glob("*.json")))
        self.assertEqual(self.steps_by_graph(run), {2, 3, 5, 6, 7, 8})

    def test_packed_documents_are_launched(self):
        run, reference = (self.launch(graphs, packing="documents") for graphs in ("true", "false"))
        self.assert_same(run, reference)
        self.assertEqual(self.steps_by_graph(run), set())

    def test_a_graph_that_cannot_be_made_leaves_the_run_as_it_is_without(self):
        reference = self.launch("false")
        for fails in ("begin", "end"):
            run = self.launch("true", fails=fails)
            self.assert_same(run, reference)
            self.assertEqual(self.steps_by_graph(run), set())

    def test_a_device_that_is_lost_while_a_graph_is_made_ends_the_run_with_the_field_to_set(self):
        self.launch("true", fails="device", expected=4)
        self.assertIn("run.graphs = false", self.error)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
