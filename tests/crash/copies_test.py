#!/usr/bin/env python3
"""What is done with a copy of a run folder does not reach the run.

    copies_test.py TRAINCTL

Every verb on a copy of a running run, of one that was detached, and of one that was stopped. The running one then loses
its worker and must still restart; of the one that was stopped no byte has changed. What a damaged or foreign journal, data.json or batch-job.json says is not acted on.
"""

import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import small_run
from small_run import survivors

TRAINCTL = sys.argv.pop(1) if __name__ == "__main__" else ""


class Copies(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="copies-"))
        text = self.folder / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog\n" * 2000)
        self.recipe = self.folder / "recipe.toml"
        self.recipe.write_text(small_run.recipe(text, steps=100000, every=100, workers=1))
        self.run_dir, self.copy = self.folder / "run", self.folder / "copy"

    def tearDown(self):
        self.wait_for(lambda: not any(survivors(str(run)) for run in (self.run_dir, self.copy)), "the end of all processes")
        shutil.rmtree(self.folder)

    def call(self, *arguments, code, env=None):
        done = subprocess.run([TRAINCTL, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, **(env or {})})
        self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
        return done

    def status(self, run):
        return json.loads(self.call("status", run, "--json", code=0).stdout)

    def wait_for(self, condition, what):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def stopped_run(self):
        self.call("launch", self.recipe, "--run-dir", self.run_dir, "--stop-after", 20, code=75)
        shutil.copytree(self.run_dir, self.copy)

    def read_the_copy(self):
        """The verbs that change nothing, or only write elsewhere."""
        for verb in (["status"], ["status", "--json"], ["logs"], ["logs", "--rank", "0"], ["events"], ["events", "--json"],
                     ["checkpoint", "ls"], ["checkpoint", "verify"]):
            self.call(*verb, self.copy, code=0)
        self.call("eval", self.copy, code=2)  # the recipe has nothing to evaluate on
        self.call("trace", self.copy, "--out", self.folder / "trace.json", code=6)  # and asks for no traces
        self.call("export", "tensorboard", self.copy, "--out", self.folder / "board", code=0)
        shutil.rmtree(self.folder / "board")
        self.call("generate", self.copy, "--prompt", "the", code=0)
        self.call("runs", self.folder, code=0)
        self.call("checkpoint", "export", self.copy, "--out", self.folder / "exported", code=0)
        shutil.rmtree(self.folder / "exported")

    def contents(self, folder):
        return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    def test_a_stopped_run_never_notices_its_copy(self):
        self.stopped_run()
        before = self.contents(self.run_dir)
        self.read_the_copy()
        for verb in (["save"], ["stop"], ["stop", "--now"]):
            self.call(*verb, self.copy, code=5)
        self.call("resume", self.copy, "--stop-after", 40, code=75)
        self.call("launch", self.recipe, "--run-dir", self.copy, "--or-resume", "--stop-after", 60, code=75)
        self.call("launch", self.recipe, "--run-dir", self.copy, code=2)
        self.assertEqual(self.contents(self.run_dir), before)
        self.call("resume", self.run_dir, "--stop-after", 60, code=75)
        self.assertEqual((self.run_dir / "metrics.jsonl").read_text(), (self.copy / "metrics.jsonl").read_text())

    def test_a_detached_run_never_notices_its_copy(self):
        self.call("launch", self.recipe, "--run-dir", self.run_dir, "--detach", code=0)
        try:
            self.meddle_with_a_copy()
        finally:
            subprocess.run([TRAINCTL, "stop", "--now", str(self.run_dir)], capture_output=True)
        self.wait_for(lambda: self.status(self.run_dir)["status"] == "stopped", "the end of the run")

    def test_a_running_run_never_notices_its_copy(self):
        launch = subprocess.Popen([TRAINCTL, "launch", self.recipe, "--run-dir", self.run_dir],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.meddle_with_a_copy()
            self.assertEqual(launch.wait(timeout=60), 75)
        finally:
            launch.kill()
            launch.wait()

    def meddle_with_a_copy(self):
        self.wait_for(lambda: glob.glob(f"{self.run_dir}/checkpoints/step-*"), "a checkpoint")
        # cp complains about files that the run removes meanwhile.
        subprocess.run(["cp", "-a", self.run_dir, self.copy], stderr=subprocess.DEVNULL)
        why = f"this folder is a copy; the run continues in {self.run_dir}"
        status = self.status(self.copy)
        self.assertEqual(status["status"], "interrupted")
        self.assertIn(why, status["no_answer"])
        self.read_the_copy()
        for verb in (["save"], ["stop"], ["stop", "--now"]):
            self.assertIn(why, self.call(*verb, self.copy, code=5).stderr)
        step = max(int(path.rsplit("-", 1)[1]) for path in glob.glob(f"{self.copy}/checkpoints/step-*"))
        self.assertIn(why, self.call("resume", self.copy, "--stop-after", step + 100, code=75).stderr)
        # A launcher without its socket could not start another worker.
        self.assertTrue((self.run_dir / "control.sock").is_socket())
        os.kill(self.status(self.run_dir)["workers"][0]["pid"], signal.SIGKILL)
        self.wait_for(lambda: self.status(self.run_dir)["restarts"] == 1, "a restart")
        self.assertEqual(self.status(self.run_dir)["status"], "running")
        self.call("stop", self.run_dir, code=0)

    def test_a_file_that_the_journal_calls_a_socket_stays(self):
        self.stopped_run()
        victim = self.folder / "thesis.tex"
        victim.write_text("years of work")
        journal = self.copy / "journal.jsonl"
        events = [json.loads(line) for line in journal.read_text().splitlines()]
        for event in events:
            if "socket" in event:
                event["socket"] = str(victim)
        journal.write_text("".join(json.dumps(event) + "\n" for event in events))
        self.call("resume", self.copy, "--stop-after", 40, code=75)
        self.assertEqual(victim.read_text(), "years of work")

    def test_a_data_json_of_another_shape_is_told(self):
        self.stopped_run()
        for text in ("[]", '{"files": 3}', '{"files": [3]}'):
            (self.copy / "data.json").write_text(text)
            self.assertIn("restore the file", self.call("resume", self.copy, code=6).stderr)

    def test_a_copy_does_not_cancel_the_batch_job_of_the_run(self):
        self.stopped_run()
        programs = self.folder / "programs"
        programs.mkdir()
        for name, line in (("scontrol", "echo JobId=17 JobState=PENDING Reason=Priority"), ("scancel", 'touch "$0.called"')):
            (programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (programs / name).chmod(0o755)
        env = {"PATH": f"{programs}:{os.environ['PATH']}"}
        job = {"schema": "trainctl.batch_job.v1", "system": "slurm", "job": "17", "folder": str(self.run_dir)}
        for run in (self.run_dir, self.copy):
            (run / "batch-job.json").write_text(json.dumps(job))
        self.call("stop", self.copy, code=5, env=env)
        self.assertFalse((programs / "scancel.called").exists())
        self.call("stop", self.run_dir, code=0, env=env)
        self.assertTrue((programs / "scancel.called").exists())


if __name__ == "__main__":
    unittest.main()
