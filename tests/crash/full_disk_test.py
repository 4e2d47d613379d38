#!/usr/bin/env python3
"""A neighbour fills the disk of a run for a while: the run goes on, and nothing is missing but the saves of that time.

    full_disk_test.py TRAINCTL

The run folder lies in a small file system of its own, in a namespace of mounts. With checkpoints that are written beside training,
and with those that it waits for: metrics and weights are those of a run that nobody disturbed, bit for bit.
"""

import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import small_run
from small_run import state_of

UNSHARE = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
INSIDE = "--inside"
DISK_BYTES = 24 << 20


def checkpoints(run_dir):
    return {int(path.rsplit("-", 1)[1]) for path in glob.glob(f"{run_dir}/checkpoints/step-*")}


class FullDisk(unittest.TestCase):
    trainctl = ""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", self.disk], check=True)
        (self.folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 2000)

    def tearDown(self):
        subprocess.run(["umount", self.disk], check=True)
        self.temporary.cleanup()

    def recipe(self, more):
        path = self.folder / "recipe.toml"
        path.write_text(small_run.recipe(self.folder / "text.txt", steps=100000, every=100, workers=2, more=more))
        return path

    def fill(self):
        with open(self.disk / "of a neighbour", "wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):  # to the last byte
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def disturbed(self, more):
        run = self.disk / "run"
        said = self.folder / "said"
        with open(said, "w") as output:
            launch = subprocess.Popen([self.trainctl, "launch", self.recipe(more), "--run-dir", run], stdout=output,
                                      stderr=subprocess.STDOUT)

        def wait_for(condition, what):
            deadline = time.monotonic() + 60
            while not condition():
                self.assertIsNone(launch.poll(), f"it ended before {what}: {said.read_text()[-3000:]}")
                self.assertLess(time.monotonic(), deadline, f"{what}: {said.read_text()[-3000:]}")
                time.sleep(0.02)

        try:
            wait_for(lambda: checkpoints(run), "a checkpoint")
            self.fill()
            wait_for(lambda: "training continues, and unwritten lines will be written later" in said.read_text(), "a warning of the logs")
            wait_for(lambda: "training continues, and the next save will be attempted as scheduled" in said.read_text(), "a warning of a save")
            (self.disk / "of a neighbour").unlink()
            wait_for(lambda: "the logs can be written again; no lines were lost" in said.read_text(), "the logs")
            last = max(checkpoints(run))
            wait_for(lambda: max(checkpoints(run)) > last, "another checkpoint")
            subprocess.run([self.trainctl, "stop", run], check=True, stdout=subprocess.DEVNULL)
            self.assertEqual(launch.wait(timeout=60), 75, said.read_text()[-3000:])
        finally:
            launch.kill()
            launch.wait()
        return run

    def check(self, more):
        run = self.disturbed(more)
        name, state = state_of(str(run))
        steps = int(name.rsplit("-", 1)[1])
        self.assertEqual([json.loads(line)["step"] for line in (run / "timings.jsonl").read_text().splitlines()],
                         list(range(1, steps + 1)))
        reference = self.folder / "reference"
        done = subprocess.run([self.trainctl, "launch", self.recipe(more), "--run-dir", reference, "--stop-after", str(steps)],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertEqual(state_of(str(reference)), (name, state))

    def test_while_training_waits_for_checkpoints(self):
        self.check("")

    def test_with_checkpoints_written_beside_training(self):
        self.check("async = true\n")


def main():
    if sys.argv[1:2] != [INSIDE]:
        try:
            can = subprocess.run([*UNSHARE, "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, text=True)
            why = "" if can.returncode == 0 else can.stderr.strip()
        except OSError as error:
            why = str(error)
        if why:
            print(f"SKIPPED: a file system of its own needs unshare --mount: {why}")
            return 77
        return subprocess.run([*UNSHARE, sys.executable, os.path.abspath(__file__), INSIDE, *sys.argv[1:]]).returncode
    FullDisk.trainctl = sys.argv.pop(2)
    sys.argv.pop(1)
    unittest.main()


if __name__ == "__main__":
    sys.exit(main())
