"""A run as seen from outside: metrics as Prometheus's own client (PyPI) reads them, and a program that receives each
event.

    python3 tests/monitor/monitor_test.py TRAINCTL

Real runs of two workers. Scraped values must match the run's logs. The test is skipped, with the reason, if PyPI cannot
be reached.
"""
import datetime
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

SKIPPED = 77  # ctest's word for a test that could not run
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRAINCTL = None
OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
PATIENCE_S = 120

RECIPE = """
recipe_version = 1
[run]
name = "seen"
[model]
family = "llama"
layers = 1
hidden = 32
heads = 4
kv_heads = 2
ffn = 64
vocab = 257
[data]
seq_len = 32
[[data.train]]
files = ["text.txt"]
[[data.eval]]
name = "held-out"
holdout = 0.2
[train]
steps = 6
batch_sequences = 8
eval_every = 2
precision = "fp32"
[cluster]
devices_per_node = 2
[launch]
on_event = ["./hook", "events"]
[checkpoint]
every_steps = 3
"""
# Not a line is lost if the program is started again meanwhile: it runs once at a time.
HOOK = '#!/bin/sh\ncat >> "$1"\n'


def number(value):
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value] if isinstance(value, str) else value


class Scrape:
    """The samples of a text, by family, as prometheus_client reads it."""

    def __init__(self, text, open_metrics):
        if open_metrics:
            from prometheus_client.openmetrics.parser import text_string_to_metric_families
        else:
            from prometheus_client.parser import text_string_to_metric_families
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def has(self, name):
        return name in self.families

    def value(self, name, **labels):
        """Of the one sample that has these labels."""
        family = re.sub("_total$|_info$", "", name)
        samples = self.families[family if family in self.families else name].samples
        (found,) = [sample.value for sample in samples if sample.name == name and
                    all(sample.labels.get(key) == value for key, value in labels.items())]
        return found


class Seen(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.dir = os.path.realpath(temporary.name)
        self.write("recipe.toml", RECIPE)
        self.write("text.txt", "the quick brown fox jumps over the lazy dog. " * 200)
        self.write("hook", HOOK)
        os.chmod(self.path("hook"), 0o755)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def lines(self, name):
        """Those of a file of JSON lines that are whole."""
        with open(self.path(name), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def run_verb(self, *args, code=0):
        done = subprocess.run([TRAINCTL, *args], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def events(self):
        return self.lines("events") if os.path.exists(self.path("events")) else []

    def until(self, find):
        """What `find` returns as soon as that is something."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = find()
            if found:
                return found
            time.sleep(0.02)
        return self.fail("it did not come")

    def same_as_logs(self, scrape, folder, **labels):
        step = scrape.value("trainctl_step", **labels)
        metrics = self.lines(folder + "/metrics.jsonl")
        (line,) = [line for line in metrics if line["step"] == step]
        evaluations = [line["eval"] for line in metrics if "eval" in line and line["step"] <= step]
        for name, value in (("loss", line["loss"]), ("learning_rate", line["lr"]), ("gradient_norm", line["grad_norm"]),
                            ("tokens_total", line["tokens"])):
            self.assertEqual(scrape.value("trainctl_" + name, **labels), number(value), name)
        self.assertEqual(scrape.value("trainctl_evaluation_loss", set="held-out", **labels), evaluations[-1]["held-out"])
        timings = {line["step"]: line for line in self.lines(folder + "/timings.jsonl")}
        self.assertIn(scrape.value("trainctl_tokens_per_second", **labels),
                      [timed["tokens_per_second"] for timed in timings.values()])
        self.assertGreaterEqual(scrape.value("trainctl_memory_peak_bytes", rank="0", **labels),
                                timings[step]["memory_bytes"]["tensor_peak"])
        with open(self.path(folder + "/plan.json"), encoding="utf-8") as file:
            predicted = json.load(file)["predicted"]["peak_bytes"]
        self.assertEqual(scrape.value("trainctl_memory_peak_predicted_bytes", **labels), predicted)

    def test_metrics_at_a_port_while_a_run_trains_fails_and_stops(self):
        launch = subprocess.Popen([TRAINCTL, "launch", "recipe.toml", "--run-dir", "run", "--set", "train.steps=1000000", "--set", "checkpoint.every_steps=20",
                                   "--set", "metrics.prometheus=127.0.0.1:0"], cwd=self.dir, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        self.addCleanup(launch.kill)
        printed = []
        for line in launch.stdout:
            printed.append(line)
            if line.startswith("metrics: "):
                break
        url = printed[-1].split()[-1]
        self.assertRegex(url, r"^http://127\.0\.0\.1:\d+/metrics$", "".join(printed))

        def scrape(accept=OPEN_METRICS):
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=30) as answer:
                text = answer.read().decode()
            if accept == OPEN_METRICS:
                self.assertEqual(answer.headers["Content-Type"],
                                 "application/openmetrics-text; version=1.0.0; charset=utf-8")
                self.assertTrue(text.endswith("\n# EOF\n"))
            else:
                self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
            return Scrape(text, accept == OPEN_METRICS)

        # Silent clients do not block other clients.
        port = int(url.split(":")[2].split("/")[0])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        for connection in idle:
            self.addCleanup(connection.close)

        def trained(found):
            return found if found.has("trainctl_step") and found.value("trainctl_step") >= 4 and \
                found.has("trainctl_tokens_per_second") and found.has("trainctl_last_checkpoint_step") and \
                len(found.families["trainctl_memory_peak_bytes"].samples) == 2 else None

        found = self.until(lambda: trained(scrape()))
        self.same_as_logs(found, "run", run="run")
        self.same_as_logs(self.until(lambda: trained(scrape("*/*"))), "run", run="run")
        self.assertEqual(found.families["trainctl_tokens"].unit, "tokens")
        self.assertEqual(found.families["trainctl_memory_peak_bytes"].unit, "bytes")
        self.assertEqual(found.value("trainctl_state", trainctl_state="running"), 1)
        self.assertEqual(found.value("trainctl_run_info", run="run", run_dir=self.path("run")), 1)
        self.assertEqual(found.value("trainctl_steps_target"), 1000000)
        journal = self.lines("run/journal.jsonl")
        self.assertEqual(journal[0]["metrics"], url)
        status = json.loads(self.run_verb("status", "run", "--json"))
        self.assertEqual(status["metrics"], url)
        self.assertEqual(found.value("trainctl_start_time_seconds") // 1,
                         math.floor(datetime.datetime.fromisoformat(journal[0]["time"]).timestamp()))
        # Another run at the same port: nothing is begun.
        said = self.run_verb("launch", "recipe.toml", "--run-dir", "other", "--set",
                             "metrics.prometheus=127.0.0.1:%d" % port, code=5)
        self.assertIn("cannot listen on 127.0.0.1:%d" % port, said)
        self.assertFalse(os.path.exists(self.path("other")))

        os.kill([worker["pid"] for worker in status["workers"] if worker["rank"] == 1][0], signal.SIGKILL)
        self.until(lambda: scrape().value("trainctl_restarts_total") == 1)
        self.until(lambda: [event["event"] for event in self.events()].count("generation") == 2)
        self.run_verb("stop", "run")
        printed += launch.stdout.readlines()
        self.assertEqual(launch.wait(PATIENCE_S), 75, "".join(printed))

        events = self.events()
        # What the journal has, and in its order.
        self.assertEqual([event["event"] for event in events], [event["event"] for event in self.lines("run/journal.jsonl")])
        kinds = {event["event"]: event for event in events}
        for event, recorded in zip(events, self.lines("run/journal.jsonl")):
            self.assertEqual({key: event[key] for key in recorded}, recorded)
            self.assertEqual((event["run"], event["run_dir"]), ("run", self.path("run")))
        self.assertIn("killed by SIGKILL", kinds["worker_exit"]["message"])
        self.assertEqual(kinds["worker_exit"]["rank"], 1)
        self.assertEqual((kinds["end"]["status"], kinds["end"]["launch_exit_code"]), ("stopped", 75))
        last = self.lines("run/metrics.jsonl")[-1]
        self.assertEqual((kinds["end"]["logged"]["step"], kinds["end"]["logged"]["loss"]), (last["step"], last["loss"]))
        self.assertTrue(os.path.isdir(kinds["checkpoint"]["path"]), kinds["checkpoint"])
        self.assertEqual(json.loads(self.run_verb("status", "run", "--json"))["metrics"], None)

    def test_metrics_in_a_file_and_a_program_that_fails(self):
        self.write("hook", "#!/bin/sh\necho 'no route to the chat' >&2\nexit 7\n")
        said = self.run_verb("launch", "recipe.toml", "--run-dir", "run", "--set", "metrics.prometheus=run.prom")
        self.assertIn("warning: launch.on_event: %s for the event launch: exited with code 7: no route to the chat" %
                      self.path("hook"), said)
        self.assertIn("for the event end: exited with code 7", said)
        with open(self.path("run.prom"), encoding="utf-8") as file:
            text = file.read()
        found = Scrape(text, open_metrics=False)
        self.same_as_logs(found, "run", run="run")
        self.assertEqual(found.value("trainctl_step"), 6)
        self.assertEqual(found.value("trainctl_last_checkpoint_step"), 6)
        self.assertEqual(found.value("trainctl_state", trainctl_state="finished"), 1)
        self.assertEqual(os.listdir(self.dir).count("run.prom"), 1)
        self.assertEqual([name for name in os.listdir(self.dir) if name.startswith("run.prom.")], [])
        self.assertEqual(json.loads(self.run_verb("status", "run", "--json"))["metrics"], self.path("run.prom"))
        # Step 0 was not trained: it has an evaluation and no loss.
        first = self.lines("run/metrics.jsonl")[0]
        self.assertEqual((first["step"], first["loss"], list(first["eval"])), (0, None, ["held-out"]))

        # Both may change on a resume.
        self.run_verb("resume", "run", "--set", "train.steps=7", "--set", "metrics.prometheus=later.prom",
                      "--set", "launch.on_event=['sh', '-c', 'cat >> later']")
        with open(self.path("later.prom"), encoding="utf-8") as file:
            self.assertEqual(Scrape(file.read(), open_metrics=False).value("trainctl_steps_target"), 7)
        self.assertEqual([event["event"] for event in self.lines("later")], ["launch", "generation", "checkpoint", "end"])

    def test_what_is_not_there_is_missing_before_a_run_begins(self):
        for setting, words in (("launch.on_event=['./absent']", self.path("absent") + " is not a program"),
                               ("launch.on_event=['no-such-program']", "no-such-program is not in PATH"),
                               ("launch.on_event=['./text.txt']", "is not executable"),
                               ("metrics.prometheus=absent/run.prom", "there is no folder " + self.path("absent"))):
            for dry in ((), ("--dry-run",)):
                self.assertIn(words, self.run_verb("launch", "recipe.toml", "--run-dir", "run", "--set", setting, *dry, code=2))
        self.assertFalse(os.path.exists(self.path("run")))


if __name__ == "__main__":
    TRAINCTL = os.path.abspath(sys.argv.pop(1))
    os.environ["XDG_CONFIG_HOME"] = "/nonexistent"  # no profile of this machine
    packages = subprocess.run([os.path.join(ROOT, "third_party", "test_packages.sh")], capture_output=True, text=True)
    if packages.returncode != 0:
        print("skipped:", packages.stderr.strip())
        sys.exit(SKIPPED)
    sys.path.insert(0, packages.stdout.strip())
    unittest.main()
