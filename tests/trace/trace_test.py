"""`trainctl trace` on run folders made here: what ranks recorded beside what was predicted.

    python3 tests/trace/trace_test.py TRAINCTL
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RECIPE = os.path.join(ROOT, "recipes", "toy_1m_cpu.toml")
SETS = ["--set", "cluster.devices_per_node=1", "--set", "train.batch_sequences=4", "--set", "train.micro_batch=2"]
TRAINCTL = None


def run(*args, code=0):
    done = subprocess.run([TRAINCTL, *args], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
    return done


def spans(trace, pid):
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == pid]


class Trace(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.out = os.path.join(self.folder, "merged.json")
        recipe = json.loads(run("recipe", "show", RECIPE, "--json", *SETS).stdout)["recipe"]
        self.write("recipe.json", json.dumps(recipe))
        self.write("plan.json", run("launch", RECIPE, "--dry-run", "--json", *SETS).stdout)
        self.write("journal.jsonl", json.dumps({"v": 1, "time": "2026-01-02T03:04:05Z", "event": "launch", "world_size": 2,
                                                "pid": 1}) + "\n")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def record(self, step, rank, monotonic_ns, events, world_size=2):
        self.write(f"traces/step-{step}-rank-{rank}.json", json.dumps({
            "schema": "trainctl.trace.v1", "step": step, "rank": rank, "world_size": world_size, "host": "here",
            "boot_id": "a", "monotonic_ns": monotonic_ns, "unix_ns": 0, "streams": ["compute", "gather", "reduce"],
            "traceEvents": [{"ph": "X", "pid": rank, "tid": 1, "ts": ts, "dur": dur, "name": name}
                            for ts, dur, name in events]}))

    def test_ranks_and_prediction_lie_side_by_side(self):
        for step in (3, 4):
            for rank in (0, 1):
                self.record(step, rank, step * 10**9 + rank * 5000,
                            [(0, 100.5, "forward block 0 micro-batch 0"), (100.5, 50, "optimizer step bucket 0")])
        report = json.loads(run("trace", self.folder, "--out", self.out, "--json").stdout)
        self.assertEqual([step["step"] for step in report["steps"]], [3, 4])
        self.assertAlmostEqual(report["steps"][0]["seconds"], 155.5e-6)
        self.assertEqual([clock["basis"] for clock in report["steps"][0]["clocks"]], ["same clock"] * 2)
        with open(self.out, encoding="utf-8") as file:
            trace = json.load(file)
        self.assertEqual([span["ts"] for span in spans(trace, 1)], [5, 105.5, 1000005, 1000105.5])
        names = {event["args"]["name"]: event["pid"] for event in trace["traceEvents"] if event["name"] == "process_name"}
        self.assertEqual(set(names), {"rank 0 on here", "rank 1 on here", "predicted, each rank"})
        predicted = spans(trace, names["predicted, each rank"])
        # Two micro-batches through an embedding, the layers and a head; everything that was recorded has its like.
        forwards = [span["name"] for span in predicted if span["name"].startswith("forward")]
        self.assertEqual(forwards.count("forward block 0 micro-batch 1"), 2, "once a step")
        self.assertLessEqual({span["name"] for span in spans(trace, 0)}, {span["name"] for span in predicted})
        ends = [span["ts"] + span["dur"] for span in predicted if span["ts"] < 1000000]
        self.assertAlmostEqual(max(ends) / 1e6, report["predicted_seconds"], places=6)
        self.assertGreater(report["predicted_seconds"], 0)

    def test_each_stage_has_its_prediction(self):
        sets = ["--set", "cluster.devices_per_node=2", "--set", "train.batch_sequences=4", "--set", "train.micro_batch=2",
                "--set", "parallel.pp=2"]
        recipe = json.loads(run("recipe", "show", RECIPE, "--json", *sets).stdout)["recipe"]
        self.write("recipe.json", json.dumps(recipe))
        self.write("plan.json", run("launch", RECIPE, "--dry-run", "--json", *sets).stdout)
        for rank in (0, 1):
            self.record(3, rank, 0, [(0, 100, "forward block 0 micro-batch 0")])
        report = json.loads(run("trace", self.folder, "--out", self.out, "--json").stdout)
        with open(self.out, encoding="utf-8") as file:
            trace = json.load(file)
        names = {event["args"]["name"]: event["pid"] for event in trace["traceEvents"] if event["name"] == "process_name"}
        self.assertEqual(set(names), {"rank 0 on here", "rank 1 on here", "predicted, pp 0", "predicted, pp 1"})
        of_stage = [{span["name"] for span in spans(trace, names[f"predicted, pp {stage}"])} for stage in (0, 1)]
        self.assertIn("forward block 0 micro-batch 1", of_stage[0] - of_stage[1])
        self.assertTrue(any(name.startswith("send ") for name in of_stage[0]), of_stage[0])
        self.assertTrue(any(name.startswith("loss and gradient ") for name in of_stage[1]), of_stage[1])
        threads = {(event["pid"], event["args"]["name"]) for event in trace["traceEvents"] if event["name"] == "thread_name"}
        self.assertIn((names["predicted, pp 1"], "receive from 0"), threads)
        ends = [span["ts"] + span["dur"] for stage in (0, 1) for span in spans(trace, names[f"predicted, pp {stage}"])]
        self.assertAlmostEqual(max(ends) / 1e6, report["predicted_seconds"], places=6)

    def test_one_step_and_what_is_missing(self):
        self.record(3, 0, 0, [(0, 1, "x")])
        self.record(4, 0, 0, [(0, 1, "x")])
        done = run("trace", self.folder, "--out", self.out, "--step", "4")
        self.assertIn("step 4: 0.001 ms on 1 rank(s), predicted", done.stdout)
        self.assertNotIn("step 3", done.stdout)
        self.assertIn("note: step 4: the trace of rank 1 is not there", done.stderr)

    def test_without_traces_the_recipes_key_is_named(self):
        done = run("trace", self.folder, "--out", self.out, code=6)
        self.assertIn("metrics.trace_steps", done.stderr)
        self.assertFalse(os.path.exists(self.out))
        self.record(3, 0, 0, [])
        self.assertIn("no trace of step 9", run("trace", self.folder, "--out", self.out, "--step", "9", code=6).stderr)
        run("trace", self.folder, code=2)  # no --out
        run("trace", os.path.join(self.folder, "none"), "--out", self.out, code=2)

    def test_a_damaged_trace_is_named(self):
        self.record(3, 0, 0, [])
        self.write("traces/step-3-rank-1.json", "{\"schema\":")
        self.assertIn("step-3-rank-1.json:1:", run("trace", self.folder, "--out", self.out, code=6).stderr)
        self.assertFalse(os.path.exists(self.out))


if __name__ == "__main__":
    TRAINCTL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
