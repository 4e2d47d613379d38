"""Event files, read back by TensorBoard itself (PyPI).

    python3 tests/tensorboard/tensorboard_test.py TRAINCTL

A run folder is made here; `trainctl export tensorboard` writes events of it. Every number that its logs hold must
come out of TensorBoard's own readers, at its step and no other, as the float32 that is nearest to it. Skipped,
with the reason, where PyPI cannot be reached.
"""
import glob
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77  # ctest's word for a test that could not run
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRAINCTL = None

# What the tags of TensorBoard are called.
GROUPS = {"metrics.jsonl": "train/", "timings.jsonl": "speed/"}


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def number(value):
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value] if isinstance(value, str) else value


class Run:
    """A run folder with logs of some steps, as the trainer leaves them."""

    def __init__(self, folder, steps):
        self.path = folder
        self.expected = {}  # (tag, step) -> value
        self.recipe = json.dumps({"run": {"name": "x <b>*y*</b>"}, "train": {"steps": steps}}, indent=2)
        self.write("recipe.json", self.recipe)
        self.write("plan.json", "{}")
        self.write("journal.jsonl", json.dumps({"v": 1, "time": "2026-01-02T03:04:05.5Z", "event": "launch",
                                                "world_size": 1, "pid": 1}) + "\n" +
                   json.dumps({"v": 1, "time": "2026-01-02T04:04:05.5Z", "event": "end", "status": "finished"}) + "\n")
        rng = random.Random(3)
        metrics, timings = [{"step": 0, "loss": None, "eval": {"held-out": 5.55}}], []
        for step in range(1, steps + 1):
            metrics.append({"step": step, "loss": rng.uniform(1, 9), "grad_norm": rng.uniform(0, 1e-7), "lr": 3e-4 / step,
                            "tokens": step * 4096, "batch_hash": "00ff"})
            if step % 5 == 0:
                metrics[-1]["eval"] = {"held-out": rng.uniform(1, 9), "ümläut set": 2.5}
            timings.append({"step": step, "seconds": 0.5, "tokens_per_second": rng.uniform(1e3, 1e6),
                            "phases": {"forward": 0.2, "gather updated": 0.1}, "operators": {"linear backward": 0.05},
                            "memory_bytes": {"tensor_peak": 2**33 + step}, "time": 1767323045.5 + step})
        metrics[3]["loss"], metrics[4]["loss"] = "nan", "inf"
        for name, lines in (("metrics.jsonl", metrics), ("timings.jsonl", timings)):
            self.write(name, "".join(json.dumps(line) + "\n" for line in lines))
            for line in lines:
                self.expect(line, GROUPS[name])

    def write(self, name, text):
        with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
            file.write(text)

    def expect(self, line, group):
        for key, value in line.items():
            if isinstance(value, dict):
                for inner, inner_value in value.items():
                    self.expected[f"{key}/{inner}", line["step"]] = inner_value
            elif key not in ("step", "time", "batch_hash") and (line["step"] > 0 or group != "train/"):
                self.expected[group + key, line["step"]] = number(value)


def export(*args, code=0):
    done = subprocess.run([TRAINCTL, "export", "tensorboard", *args], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
    return done


class ReadBack(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.run_folder = Run(temporary.name, 12)

    def scalars(self, folder):
        from tensorboard.backend.event_processing import event_accumulator
        events = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0,
                                                                           event_accumulator.TENSORS: 0})
        events.Reload()
        found = {}
        for tag in events.Tags()["scalars"]:
            for event in events.Scalars(tag):
                self.assertNotIn((tag, event.step), found, "a step that is there twice")
                found[tag, event.step] = event
        return events, found

    def test_every_number_of_the_logs_is_there_once(self):
        report = json.loads(export(self.run_folder.path, "--json").stdout)
        folder = os.path.join(self.run_folder.path, "tensorboard")
        self.assertEqual(os.path.dirname(report["file"]), os.path.realpath(folder))
        self.assertEqual((report["steps"], report["last_step"]), (13, 12))
        _, found = self.scalars(folder)
        self.assertEqual(report["scalars"], len(found))
        self.assertEqual(set(found), set(self.run_folder.expected))
        for key, value in self.run_folder.expected.items():
            read = found[key].value
            self.assertTrue(read == float32(value) or math.isnan(read) and math.isnan(value), (key, value, read))
            if key[1] > 0:
                self.assertEqual(found[key].wall_time, 1767323045.5 + key[1])

    def test_the_plugins_of_the_page_take_it(self):
        # What the page's own loader makes of the file: scalars become tensors of the plugin "scalars".
        from tensorboard.backend.event_processing import plugin_event_accumulator
        export(self.run_folder.path)
        events = plugin_event_accumulator.EventAccumulator(os.path.join(self.run_folder.path, "tensorboard"))
        events.Reload()
        tags = {tag for tag, _ in self.run_folder.expected}
        self.assertEqual(set(events.PluginTagToContent("scalars")), tags)
        self.assertEqual(set(events.PluginTagToContent("text")), {"recipe"})
        text = events.Tensors("recipe")[0].tensor_proto.string_val[0].decode()
        self.assertEqual("\n".join(line[4:] for line in text.split("\n")), self.run_folder.recipe)

    def test_the_recipe_is_shown_as_it_is(self):
        from tensorboard import plugin_util
        shown = plugin_util.markdowns_to_safe_html(["    " + self.run_folder.recipe.replace("\n", "\n    ")], "".join)
        self.assertIn("<pre><code>", shown)
        self.assertIn("x &lt;b&gt;*y*&lt;/b&gt;", shown)

    def test_checksums_and_lengths_hold_in_the_strict_reader(self):
        from tensorboard.backend.event_processing import event_file_loader
        export(self.run_folder.path)
        (path,) = glob.glob(os.path.join(self.run_folder.path, "tensorboard", "*"))
        events = list(event_file_loader.LegacyEventFileLoader(path).Load())
        self.assertEqual(events[0].file_version, "brain.Event:2")
        self.assertEqual(len(events), 3 + 13)

    def test_again_after_more_steps_replaces_the_file(self):
        other = os.path.join(self.run_folder.path, "elsewhere")
        export(self.run_folder.path, "--out", other)
        _, before = self.scalars(other)
        longer = Run(self.run_folder.path, 20)  # the same steps anew, and more
        export(self.run_folder.path, "--out", other)
        self.assertEqual(sorted(os.path.getsize(path) > 0 for path in glob.glob(other + "/*")), [False, True])
        _, after = self.scalars(other)
        self.assertEqual(set(after), set(longer.expected))
        self.assertLess(len(before), len(after))

    def test_a_reader_at_work_forgets_what_a_resume_takes_back(self):
        from tensorboard.backend.event_processing import event_accumulator
        folder = os.path.join(self.run_folder.path, "tensorboard")
        export(self.run_folder.path)
        events = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0})
        events.Reload()
        shorter = Run(self.run_folder.path, 7)
        export(self.run_folder.path)
        events.Reload()
        for tag in events.Tags()["scalars"]:
            steps = [event.step for event in events.Scalars(tag)]
            self.assertEqual(steps, sorted(step for name, step in shorter.expected if name == tag), tag)

    def test_wrong_runs_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn(folder, export(folder, code=2).stderr)
        self.run_folder.write("metrics.jsonl", "{\"step\":1,\"loss\":2}\n\x00\n")
        self.assertIn("metrics.jsonl:2: damaged", export(self.run_folder.path, code=6).stderr)
        for name in ("metrics.jsonl", "timings.jsonl"):
            os.remove(os.path.join(self.run_folder.path, name))
        self.assertIn("nothing to export", export(self.run_folder.path, code=6).stderr)


if __name__ == "__main__":
    TRAINCTL = os.path.abspath(sys.argv.pop(1))
    packages = subprocess.run([os.path.join(ROOT, "third_party", "test_packages.sh")], capture_output=True, text=True)
    if packages.returncode != 0:
        print("skipped:", packages.stderr.strip())
        sys.exit(SKIPPED)
    sys.path.insert(0, packages.stdout.strip())
    unittest.main()
