"""What the benchmark makes of measurements: which peer counts, what is said of one that failed. Measures nothing.

    python3 bench_test.py
"""

import contextlib
import io
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bench  # noqa: E402
from bench import Bench, BenchError, Model  # noqa: E402

EAGER, COMPILED, BF16 = "Hugging Face, autocast", "Hugging Face, autocast, torch.compile", "Hugging Face, bf16"


def rounds(*values):
    return [{"value": value, "losses": [7.0]} for value in values]


class Measured(Bench):
    """A bench whose sides give the numbers that it is made with; an exception among them is raised."""

    def __init__(self, ours, eager, compiled, bf16=(), repeat=3):
        self.a = types.SimpleNamespace(against=None, repeat=repeat, warmup=1, steps=5, smoke=False, threads=2,
                                       peers="eager,compile" + (",bf16" if bf16 else ""))
        self.numbers = {"trainctl": list(ours), "autocast": list(eager), "autocast, torch.compile": list(compiled),
                        "bf16": list(bf16)}
        self.calls = []

    def next(self, side):
        self.calls.append(side)
        value = self.numbers[side].pop(0)
        if isinstance(value, Exception):
            raise value
        return {"value": value, "losses": [7.0]}

    def recipe(self, *_, **__):
        return "recipe"

    def batches(self, *_):
        return "tokens"

    def check_same_work(self, *_):
        pass

    def train_ours(self, *_):
        return self.next("trainctl")

    def train_torch(self, layout, peer, model, tokens):
        return self.next(peer.label)

    def rows(self, model="llama-25m", layout="one"):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            rows = {row["peer"]: row for row in self.train_rows(Model.of(model), layout)}
        self.said = said.getvalue()
        return rows


class BetterPeer(unittest.TestCase):
    def test_the_target_is_held_to_the_faster_of_the_two(self):
        rows = Measured([100, 100, 100], [80, 80, 80], [105, 105, 105]).rows()
        self.assertEqual((rows[COMPILED]["target"], rows[COMPILED]["met"]), ("≥ 1×", False))
        self.assertEqual((rows[EAGER]["target"], rows[EAGER]["met"]), ("(the slower peer)", None))
        self.assertAlmostEqual(rows[EAGER]["ratio"], 1.25)

        rows = Measured([100, 100, 100], [99, 99, 99], [90, 90, 90]).rows()
        self.assertEqual((rows[EAGER]["target"], rows[EAGER]["met"]), ("≥ 1×", True))
        self.assertEqual(rows[COMPILED]["target"], "(the slower peer)")

    def test_the_median_of_rounds_decides_not_the_best_one(self):
        rows = Measured([100, 50, 100], [95, 40, 90], [10, 200, 80]).rows()
        self.assertEqual(rows[EAGER]["target"], "≥ 1×")  # medians 1.11 and 1.25; the compiled one's best round is 0.25
        self.assertAlmostEqual(rows[EAGER]["ratio"], 100 / 90)

    def test_a_peer_without_fp32_weights_never_counts(self):
        rows = Measured([100], [90], [80], bf16=[500], repeat=1).rows()
        self.assertEqual((rows[BF16]["target"], rows[BF16]["met"]), ("(no fp32 weights)", None))
        self.assertEqual(rows[EAGER]["target"], "≥ 1×")

    def test_small_models_have_to_be_further_ahead(self):
        for model, layout, bound in (("toy-1m:vocab=256", "one", 1.1), ("toy-5m:vocab=6144", "one", 1.1),
                                     ("llama-25m", "one", 1.0), ("llama-120m", "one", 1.0), ("llama-25m", "ddp", 1.1)):
            self.assertEqual(bench.training_target(Model.of(model), layout), bound, model)


class FailedPeer(unittest.TestCase):
    def test_a_failed_compilation_is_told_in_its_row_and_the_eager_peer_counts(self):
        error = BenchError("python train_torch.py: exit 1\nthe end", "some\ntorch.compile: InvalidCxxCompiler: no g++\nthe end")
        ours = Measured([100, 100, 100], [98, 98, 98], [error])
        rows = ours.rows()
        self.assertEqual(rows[COMPILED]["target"], "(failed: InvalidCxxCompiler: no g++)")
        self.assertEqual((rows[COMPILED]["theirs"], rows[COMPILED]["ratio"], rows[COMPILED]["met"]), (None, None, None))
        self.assertEqual((rows[EAGER]["target"], rows[EAGER]["met"]), ("≥ 1×", True))
        self.assertEqual(ours.calls.count("autocast, torch.compile"), 1)  # not tried again
        self.assertIn("the end", ours.said)

    def test_what_it_measured_before_it_failed_does_not_count(self):
        rows = Measured([100, 100, 100], [98, 98, 98], [300, BenchError("python train_torch.py: exit -9\n")]).rows()
        self.assertEqual(rows[COMPILED]["target"], "(failed: exit -9)")
        self.assertEqual(rows[EAGER]["target"], "≥ 1×")

    def test_a_failed_eager_peer_ends_the_benchmark(self):
        with self.assertRaises(BenchError):
            Measured([100], [BenchError("exit 1")], [90], repeat=1).rows()

    def test_a_reason_does_not_break_the_table(self):
        row = Measured([100], [98], [BenchError("x", "torch.compile: a | b")], repeat=1).rows()[COMPILED]
        self.assertEqual(bench.table_line(row).count(" | "), bench.table_line({**row, "target": "x"}).count(" | "))


class Commands(unittest.TestCase):
    """What train_torch.py is started with; it is not."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        arguments = types.SimpleNamespace(bin=self.folder, python=self.folder / "python", threads=2, micro_batch=4, warmup=1)
        self.bench = Bench(arguments, self.folder)

    def started(self, layout, peer):
        """(words, environment)"""
        report = '{"tokens_per_second": 5, "losses": [7.0], "parameters": 9}\n'
        with unittest.mock.patch.object(bench, "run", return_value=report) as run:
            result = self.bench.train_torch(layout, bench.PEERS[peer], Model.of("toy-1m"), "tokens.npy")
        self.assertEqual((result["value"], result["parameters"]), (5, 9))
        (command,), options = run.call_args
        return [str(word) for word in command], options["env"]

    def test_both_sides_have_as_many_threads(self):
        for layout, threads in (("one", "2"), ("ddp", "1"), ("zero3", "1")):
            words, environment = self.started(layout, "eager")
            self.assertEqual((words[words.index("--threads") + 1], environment["OMP_NUM_THREADS"]), (threads, threads))
            self.assertNotIn("--compile", words)

    def test_what_is_compiled_for_another_number_of_threads_is_not_used(self):
        folders = {}
        for layout in bench.LAYOUTS:
            words, environment = self.started(layout, "compile")
            self.assertIn("--compile", words)
            folders[layout] = environment["TORCHINDUCTOR_CACHE_DIR"]
            for name in ("TORCHINDUCTOR_CACHE_DIR", "TMPDIR"):  # removed with the bench's own
                self.assertTrue(pathlib.Path(environment[name]).is_relative_to(self.folder), name)
        self.assertNotEqual(folders["one"], folders["ddp"])

    def test_a_peer_that_failed_is_not_held_to_the_same_work(self):
        results = {"trainctl": rounds(100), EAGER: rounds(90), COMPILED: [{"failed": "no g++"}]}
        with unittest.mock.patch.object(bench, "run", return_value='{"num_parameters": 9}'):
            self.bench.check_same_work("recipe", results)
            results[EAGER][0]["losses"] = [9.0]
            with self.assertRaisesRegex(BenchError, "starts with a loss of 9.0"):
                self.bench.check_same_work("recipe", results)


def trace(spans, streams=("compute", "send to 1")):
    """Of (rank, stream, begin, end, name)."""
    names = [{"ph": "M", "pid": rank, "tid": tid, "name": "thread_name", "args": {"name": stream}}
             for rank in (0, 1) for tid, stream in enumerate(streams, 1)]
    return {"traceEvents": names + [{"ph": "X", "pid": rank, "tid": streams.index(stream) + 1, "ts": begin,
                                     "dur": end - begin, "name": name} for rank, stream, begin, end, name in spans]}


class Layouts(unittest.TestCase):
    def bench(self, **changes):
        """One whose sides are not run: ours takes 100 tokens a second, PyTorch 80, with sequence parallelism 95."""
        ours = Bench.__new__(Bench)
        ours.a = types.SimpleNamespace(**{**bench.FULL, **dict(against=None, smoke=True, repeat=1), **changes})
        ours.recipe = lambda *_, **options: self.recipes.append(options) or "recipe"
        ours.batches = ours.check_same_work = lambda *_: None
        ours.train_ours = lambda *_: {"value": 100, "losses": [7.0], "bubble": 0.1, "bubbles": [0.1]}
        ours.train_torch_layout = lambda cut, options, *_: {"value": 95 if options else 80, "losses": [7.0]}
        ours.bubble_row = lambda recipe, name, rounds, cut: ours.row(
            "bubble", "of a step", {"trainctl": [{"value": rounds[0]["bubble"]}], "simulated": [{"value": 0.112}]},
            "simulated", ("1 ±", 0.1))
        self.recipes = []
        return ours

    def rows(self, cores, **changes):
        with unittest.mock.patch.object(bench.os, "sched_getaffinity", return_value=range(cores)), \
                contextlib.redirect_stderr(io.StringIO()):
            return list(self.bench(**changes).bench_layouts())

    def test_a_layout_needs_a_core_for_each_rank(self):
        for cores, skipped in ((1, 3), (2, 1), (4, 0)):
            reasons = [row["target"] for row in self.rows(cores) if row["target"].startswith("(skipped")]
            self.assertEqual(len(reasons), skipped, cores)
        self.assertIn("(skipped: 4 ranks, 2 cores)", bench.table_line(self.rows(2)[-1]))

    def test_the_target_is_held_to_the_faster_way_of_pytorch(self):
        plain, sequence = self.rows(2)[:2]
        self.assertEqual((sequence["target"], sequence["met"]), ("≥ 1.1×", False))
        self.assertEqual((plain["target"], plain["met"]), ("(the slower peer)", None))

    def test_a_pipeline_has_eight_micro_batches_and_its_timed_steps_are_traced(self):
        self.rows(2, steps=3, warmup=1)
        tensor, pipeline = self.recipes
        self.assertEqual((tensor["micro_batch"], pipeline["micro_batch"]), (4, 1))
        self.assertIn("stage_layers = [6, 2]", pipeline["parallel"])
        self.assertIn("trace_steps = [2, 3, 4]", pipeline["parallel"])

    def test_a_bubble_may_be_larger_or_smaller_than_simulated_by_a_tenth(self):
        for simulated, met in ((0.112, False), (0.109, True), (0.092, True), (0.088, False)):
            row = self.bench().row("bubble", "", {"trainctl": [{"value": 0.1}], "simulated": [{"value": simulated}]},
                                   "simulated", ("1 ±", 0.1))
            self.assertEqual((row["target"], row["met"]), ("1 ± 0.1×", met), simulated)

    def test_who_waits_does_not_compute(self):
        spans = [(0, "compute", 0, 40, "forward block 0 micro-batch 0"), (0, "send to 1", 40, 80, "send block 1"),
                 (0, "compute", 80, 100, "optimizer step bucket 0"), (1, "compute", 50, 80, "forward block 1 micro-batch 0"),
                 (1, "compute", 80, 90, "reduce loss"), (1, "compute", 90, 100, "optimizer step bucket 1")]
        self.assertAlmostEqual(bench.bubble(trace(spans)), 0.5)

    def test_stages_multiply_by_as_many_weights(self):
        for name, stages in (("llama-25m", [6, 2]), ("toy-1m", [2, 2]), ("llama-25m:layers=2", [1, 1])):
            self.assertEqual(Model.of(name).two_stages, stages, name)


class Models(unittest.TestCase):
    def test_dimensions_of_a_preset_may_be_others(self):
        model = Model.of("toy-5m:vocab=6144:layers=4")
        self.assertEqual(model.recipe, 'preset = "toy-5m"\nvocab = 6144\nlayers = 4')
        self.assertEqual((model.config["vocab_size"], model.config["num_hidden_layers"]), (6144, 4))
        self.assertEqual(Model.of("toy-5m").config["vocab_size"], 1024)

    def test_parameters_are_counted(self):
        # 2 x 32,000 x 768 of embeddings, 12 layers of 768 x (2 x 768 + 2 x 256 + 3 x 2048) and two norms, one norm
        self.assertEqual(Model.of("llama-120m").parameters, 49_152_000 + 12 * (768 * 8192 + 1536) + 768)

    def test_what_is_no_model_is_an_error(self):
        for name in ("toy-2m", "toy-1m:vocab", "toy-1m:vocab=x", "toy-1m:depth=4", "toy-1m:vocab=-1"):
            with self.assertRaises(ValueError, msg=name):
                Model.of(name)


if __name__ == "__main__":
    unittest.main()
