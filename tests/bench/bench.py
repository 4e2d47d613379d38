"""Benchmarks of trainctl side by side with what it is an alternative to.

Ours and the peers take turns; each pair gives a ratio, and the median ratio counts. The table goes
between the markers of docs/reference/benchmarks/latest.md with --write; progress goes to stderr.

    tests/bench/run.sh --write                  # everything, as published
    tests/bench/run.sh --only train --smoke     # micro-sizes: does it work at all (under a minute)
    tests/bench/run.sh --against OLD/bin        # our own programs of another build in the peers' place
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import typing

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
sys.path.insert(0, str(SOURCE / "tests" / "gpu"))
from peer_models import PEER_MODELS  # noqa: E402

# Of the speed of another build of ours, what this one has at least.
NO_SLOWER = 0.98

# Seconds that a job whose worker was killed has to go on, or to end.
PATIENCE = 60

# Times as many steps as large models take, for small ones.
MOST_STEPS = 16

DOCS = SOURCE / "docs" / "reference" / "benchmarks" / "latest.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

RECIPE = """recipe_version = 1
[run]
name = "bench"
[model]
{model}
[data]
seq_len = {seq_len}
packing = "continuous"
[[data.train]]
files = ["{data}"]
kind = "indexed"
[train]
steps = {steps}
batch_sequences = {batch}
micro_batch = {micro_batch}
precision = "{precision}"
[optimizer]
lr = 3e-4
lr_schedule = "constant"
[parallel]
dp_replicate = {dp_replicate}
dp_shard = {dp_shard}
zero_stage = {zero_stage}
recompute = "none"
{parallel}
[cluster]
devices_per_node = {workers}
threads_per_worker = {threads}
[launch]
max_restarts = 0
"""


PROMPT = "#include <"

# What --presets may change of a preset, and LlamaConfig's names.
DIMENSIONS = {"layers": "num_hidden_layers", "hidden": "hidden_size", "ffn": "intermediate_size",
              "heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "head_dim": "head_dim",
              "vocab": "vocab_size"}


class BenchError(Exception):
    def __init__(self, message, output=""):
        """`output`: all that a command wrote, where one failed."""
        super().__init__(message)
        self.output = output

    @property
    def reason(self):
        """For a cell of the table: what train_torch.py said of torch.compile, else how its process ended."""
        said = re.findall(r"^torch\.compile: (.*)$", self.output, re.MULTILINE)
        return said[-1] if said else str(self).splitlines()[0].rpartition(": ")[-1]


class Model(typing.NamedTuple):
    name: str    # as given with --presets
    recipe: str  # the lines of [model]
    config: dict  # fields of LlamaConfig

    @staticmethod
    def of(name):
        """Of a preset, or of one with other dimensions: "toy-5m:vocab=6144:layers=4". ValueError where it is neither."""
        preset, *changes = name.split(":")
        if preset not in PEER_MODELS:
            raise ValueError(f"{preset} is none of {', '.join(PEER_MODELS)}")
        recipe, config = {"preset": f'"{preset}"'}, dict(PEER_MODELS[preset])
        for change in changes:
            key, _, value = change.partition("=")
            if key not in DIMENSIONS or not value.isdecimal():
                raise ValueError(f"{name}: {change} is no NUMBER for one of {', '.join(DIMENSIONS)}, such as vocab=6144")
            recipe[key] = value
            config[DIMENSIONS[key]] = int(value)
        return Model(name, "\n".join(f"{key} = {value}" for key, value in recipe.items()), config)

    @property
    def layer_parameters(self):
        c = self.config
        heads, kv_heads = (c[key] * c["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
        return c["hidden_size"] * (2 * heads + 2 * kv_heads + 3 * c["intermediate_size"] + 2)

    @property
    def parameters(self):
        c = self.config
        return c["num_hidden_layers"] * self.layer_parameters + c["hidden_size"] * (2 * c["vocab_size"] + 1)

    @property
    def two_stages(self):
        """Layers of each of two stages that multiply by as many weights; the output projection is the second's."""
        c = self.config
        layers = c["num_hidden_layers"]
        first = round((layers + c["hidden_size"] * c["vocab_size"] / self.layer_parameters) / 2)
        return [min(first, layers - 1), max(layers - first, 1)]

    @property
    def is_small(self):
        """Of well below 25 M parameters: a step is so short that what surrounds the products decides."""
        return self.parameters < 20e6


class Peer(typing.NamedTuple):
    """A way in which train_torch.py trains."""
    label: str
    precision: str
    compiled: bool
    counts: bool  # keeps fp32 weights and gradients, as ours does


PEERS = {"eager": Peer("autocast", "autocast", compiled=False, counts=True),
         "compile": Peer("autocast, torch.compile", "autocast", compiled=True, counts=True),
         "bf16": Peer("bf16", "bf16", compiled=False, counts=False)}

# layout: mode of train_torch.py, what the peer is called, what the row is called
LAYOUTS = {"one": ("eager", "Hugging Face", "1 worker"), "ddp": ("ddp", "DDP", "2 workers, DDP"),
           "zero3": ("fsdp2", "FSDP2", "2 workers, ZeRO-3")}

# What waits on the compute stream of a trace.
WAITS = ("count tokens", "reduce loss")


class Cut(typing.NamedTuple):
    """A layout that cuts the model itself, one thread a rank."""
    label: str
    tp: int
    pp: int

    @property
    def ranks(self):
        return self.tp * self.pp


CUTS = [Cut("TP 2", 2, 1), Cut("PP 2, 1F1B", 1, 2), Cut("TP 2, PP 2, 1F1B", 2, 2)]


def training_target(model, layout):
    """Least ratio to the better peer."""
    return 1.0 if layout == "one" and not model.is_small else 1.1


def median_ratio(results, peer):
    """Of ours to the peer's; each round gives one ratio."""
    return statistics.median(a["value"] / b["value"] for a, b in zip(results["trainctl"], results[peer]))


def bubble(trace):
    """Share of a step that its ranks do not compute, of a trace in Chrome's format."""
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    step = max(span["ts"] + span["dur"] for span in spans) - min(span["ts"] for span in spans)
    compute = {(event["pid"], event["tid"]) for event in trace["traceEvents"]
               if event["name"] == "thread_name" and event["args"]["name"] == "compute"}
    busy = sum(span["dur"] for span in spans if (span["pid"], span["tid"]) in compute and not span["name"].startswith(WAITS))
    return 1 - busy / (step * len(compute))


def failure(rounds):
    """Why a side was given up; None where it ran."""
    return rounds[-1].get("failed")


def better_peer(results, names):
    """The one of `names` that ours is the least ahead of; None where none of them ran."""
    ran = [name for name in names if not failure(results[name])]
    return min(ran, key=lambda name: median_ratio(results, name), default=None)


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, **options):
    """stdout of a command that must succeed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", **options)
    if done.returncode != 0:
        output = done.stdout + done.stderr
        tail = "\n".join(output.splitlines()[-15:])
        raise BenchError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{tail}", output)
    return done.stdout


def seconds_to_line(command, pattern, **options):
    """Seconds from exec to the first line that matches; the command must then end well."""
    begin = time.perf_counter()
    with subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, **options) as process:
        seen, lines = None, []
        for line in process.stdout:
            lines.append(line)
            if seen is None and re.search(pattern, line):
                seen = time.perf_counter() - begin
    if process.returncode != 0 or seen is None:
        raise BenchError(f"{' '.join(map(str, command))}: exit {process.returncode}, "
                         f"{'no' if seen is None else 'a'} line like {pattern!r}\n{''.join(lines[-15:])}")
    return seen


def seconds_after_kill(command, ready, victim_of, until=None, **options):
    """Kills a worker of a job that has written a line like `ready`. Seconds from there to a line like `until`, and the job
    is then ended; without `until` to the job's own end, which is no success. `victim_of`: the process, of the lines so far.
    A job that takes longer than PATIENCE to do so has failed."""
    with subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, errors="replace", **options) as process:
        killed = seconds = None
        lines = []
        timer = threading.Timer(PATIENCE, process.terminate)
        timer.start()
        for line in process.stdout:
            lines.append(line)
            if killed is None and re.search(ready, line):
                os.kill(victim_of(lines), signal.SIGKILL)
                killed = time.perf_counter()
            elif killed is not None and seconds is None and until and re.search(until, line):
                seconds = time.perf_counter() - killed
                process.terminate()
        process.wait()
        timer.cancel()
        if killed is not None and not until and process.returncode != 0:
            seconds = time.perf_counter() - killed
    if seconds is None:
        raise BenchError(f"{' '.join(map(str, command))}: nothing of what was waited for within {PATIENCE} s\n"
                         f"{''.join(lines[-15:])}", "".join(lines))
    return seconds


class Bench:
    def __init__(self, arguments, folder):
        self.a = arguments
        self.folder = pathlib.Path(folder)
        self.trainctl = arguments.bin / "trainctl"
        self.torchrun = arguments.python.parent / "torchrun" if arguments.python else None
        self.ft_launcher = arguments.python.parent / "ft_launcher" if arguments.python else None
        # One thread a rank. The launcher sets it for its workers, torchrun when it is unset, a person by hand.
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        self.num_files = 0

    def fresh(self, name):
        self.num_files += 1
        return self.folder / f"{self.num_files:04d}-{name}"

    # ---- inputs --------------------------------------------------------------------------------

    def dataset(self, vocab):
        """Tokens drawn like words (rank r with weight 1 / (r + 10)), as an indexed dataset of uint16."""
        import random  # the standard library: this process needs no numpy

        prefix = self.folder / f"tokens-{vocab}"
        if not prefix.with_suffix(".idx").exists():
            draw = random.Random(vocab)
            words = list(range(vocab))
            draw.shuffle(words)
            weights = [1.0 / (rank + 10) for rank in range(vocab)]
            documents = [draw.choices(words, weights, k=4096) for _ in range(self.a.documents)]
            prefix.with_suffix(".bin").write_bytes(b"".join(struct.pack("<4096H", *d) for d in documents))
            count = len(documents)
            prefix.with_suffix(".idx").write_bytes(
                b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1) + struct.pack(f"<{count}i", *[4096] * count)
                + struct.pack(f"<{count}q", *[8192 * i for i in range(count)])
                + struct.pack(f"<{count + 1}q", *range(count + 1)))
        return prefix.with_suffix(".bin")

    def threads(self, layout):
        """Of a worker."""
        return self.a.threads if layout == "one" else 1

    def recipe(self, model, steps, layout="one", seq_len=None, batch=None, micro_batch=None, precision="bf16",
               workers=None, parallel=""):
        """`parallel`: more lines of [parallel], and tables that follow it."""
        workers = workers or (1 if layout == "one" else 2)
        path = self.fresh(f"{layout}.toml")
        path.write_text(RECIPE.format(
            model=model.recipe, steps=steps, data=self.dataset(model.config["vocab_size"]), precision=precision,
            seq_len=seq_len or self.a.seq_len, batch=batch or self.a.batch, micro_batch=micro_batch or self.a.micro_batch,
            workers=workers, threads=self.threads(layout), dp_replicate=workers if layout == "ddp" else 1,
            dp_shard=workers if layout == "zero3" else 1, zero_stage=3 if layout == "zero3" else 0, parallel=parallel))
        return path

    def batches(self, recipe, steps):
        """The very tokens that a recipe trains on, as a numpy file."""
        path = self.fresh("tokens.npy")
        rows = [json.loads(run([self.trainctl, "data", "batch", recipe, "--step", step, "--json"]))
                for step in range(1, steps + 1)]
        tokens = [[sequence["tokens"] for sequence in row["sequences"]] for row in rows]
        run([self.a.python, "-c", "import json, numpy, sys\n"
             "numpy.save(sys.argv[1], numpy.array(json.load(sys.stdin), dtype=numpy.int32))", path],
            input=json.dumps(tokens))
        return path

    # ---- one measurement each ------------------------------------------------------------------

    def start_ours(self, recipe, programs=None):
        run_dir = self.fresh("run")
        trainctl = (programs or self.a.bin) / "trainctl"
        seconds = seconds_to_line([trainctl, "launch", recipe, "--run-dir", run_dir], r"worker\(s\) connected",
                                  env=self.environment)
        shutil.rmtree(run_dir)
        return seconds

    def peer(self, launcher, workers, script, restarts=0):
        """The command of a job under torchrun or ft_launcher."""
        if launcher == "torchrun":
            return [self.torchrun, "--standalone", "--nproc_per_node", workers, "--max-restarts", restarts, HERE / script]
        return [self.ft_launcher, "--nproc_per_node", workers, "--nnodes", 1, "--rdzv_backend", "c10d", "--rdzv_endpoint",
                "localhost:0", "--max-restarts", restarts, HERE / script]

    def start_peer(self, launcher, workers):
        return seconds_to_line(self.peer(launcher, workers, "allreduce_torchrun.py"), "first all-reduce done",
                               env=self.environment)

    def kill_ours(self, recipe, restarts):
        run_dir = self.fresh("run")

        def victim_of(_):
            status = json.loads(run([self.trainctl, "status", run_dir, "--json"]))
            return next(worker["pid"] for worker in status["workers"] if worker["rank"] == 1)

        seconds = seconds_after_kill(
            [self.trainctl, "launch", recipe, "--run-dir", run_dir, "--set", f"launch.max_restarts={restarts}"], r"step 1/",
            victim_of, r"step 1/" if restarts else None, env=self.environment)
        shutil.rmtree(run_dir)
        return seconds

    def kill_peer(self, launcher, restarts):
        return seconds_after_kill(
            self.peer(launcher, 2, "steps_torchrun.py", restarts), r"step 20 done",
            lambda lines: int(re.search(r"rank 1 is process (\d+)", "".join(lines))[1]), r"step 1 done" if restarts else None,
            env=self.environment)

    def train_ours(self, recipe, steps, programs=None):
        run_dir = self.fresh("run")
        run([(programs or self.a.bin) / "trainctl", "launch", recipe, "--run-dir", run_dir], env=self.environment)
        lines = [json.loads(line) for line in (run_dir / "timings.jsonl").read_text().splitlines()]
        timed = [line["seconds"] for line in lines if line["step"] > self.a.warmup]
        losses = [json.loads(line).get("loss") for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        bubbles = self.bubbles(run_dir) if (run_dir / "traces").exists() else {}
        shutil.rmtree(run_dir)
        if len(timed) != steps:
            raise BenchError(f"{run_dir}/timings.jsonl has {len(timed)} timed steps, not {steps}")
        return {"value": steps * self.a.batch * self.a.seq_len / sum(timed), "losses": losses, **bubbles}

    def bubbles(self, run_dir):
        """Of the steps that a run traced, with their median."""
        found = []
        for path in sorted((run_dir / "traces").glob("step-*-rank-0.json")):
            # The joined file has all ranks on one clock, and a process with the prediction.
            out = self.fresh("trace.json")
            run([self.trainctl, "trace", run_dir, "--out", out, "--step", path.name.split("-")[1]])
            trace = json.loads(out.read_text())
            ranks = {event["pid"] for event in trace["traceEvents"]
                     if event["name"] == "process_name" and event["args"]["name"].startswith("rank ")}
            found.append(bubble({"traceEvents": [event for event in trace["traceEvents"] if event["pid"] in ranks]}))
        return {"bubbles": found, "bubble": statistics.median(found)}

    def torch_folder(self, threads):
        """Where torch.compile keeps what it builds, from round to round. Its loops have a number of threads, which is no
        part of the key under which they are kept."""
        folder = self.folder / f"torch-{threads}"
        folder.mkdir(exist_ok=True)
        return folder

    def train_torch(self, layout, peer, model, tokens):
        mode, _, _ = LAYOUTS[layout]
        start = [self.a.python] if mode == "eager" else [self.torchrun, "--standalone", "--nproc_per_node", 2]
        # Positions and norms of the presets are the defaults of both sides, but for the epsilon.
        config = json.dumps({**model.config, "rms_norm_eps": 1e-5})
        threads = self.threads(layout)
        built = self.torch_folder(threads)
        out = run([*start, HERE / "train_torch.py", "--mode", mode, "--precision", peer.precision, "--tokens", tokens,
                   "--model", config, "--micro-batch", self.a.micro_batch, "--warmup", self.a.warmup,
                   "--threads", threads, *(["--compile"] if peer.compiled else [])],
                  env={**self.environment, "OMP_NUM_THREADS": str(threads), "TMPDIR": str(built),
                       "TORCHINDUCTOR_CACHE_DIR": str(built / "inductor")})
        report = json.loads(out.splitlines()[-1])
        return {"value": report.pop("tokens_per_second"), **report}

    def train_torch_layout(self, cut, options, model, tokens, micro_batch):
        stages = ["--pp", cut.pp, "--stage-layers", ",".join(map(str, model.two_stages))] if cut.pp > 1 else []
        out = run([self.torchrun, "--standalone", "--nproc_per_node", cut.ranks, HERE / "train_torch_layouts.py", "--tp",
                   cut.tp, *stages, *options, "--tokens", tokens, "--model", json.dumps(model.config), "--micro-batch",
                   micro_batch, "--warmup", self.a.warmup], env=self.environment)
        report = json.loads(out.splitlines()[-1])
        return {"value": report.pop("tokens_per_second"), **report}

    def bytes_run(self, preset):
        """A run of one step whose tokens are bytes, none of which ends a text: both sides write as much as is asked."""
        recipe = self.fresh(f"{preset}-bytes.toml")
        recipe.write_text(RECIPE.format(
            model=Model.of(f"{preset}:vocab=256").recipe, steps=1, data=self.dataset(256), precision="fp32", seq_len=256,
            batch=2, micro_batch=2, workers=1, threads=1, dp_replicate=1, dp_shard=1, zero_stage=0, parallel=""))
        run_dir = self.fresh("run")
        run([self.trainctl, "launch", recipe, "--run-dir", run_dir], env=self.environment)
        return run_dir

    def generate_ours(self, run_dir, programs=None):
        """Tokens per second behind the first: starting, loading and reading the prompt are taken away."""
        seconds = {}
        for count in (1, self.a.generate_tokens):
            begin = time.perf_counter()
            text = run([(programs or self.a.bin) / "trainctl", "generate", run_dir, "--prompt", PROMPT, "--max-tokens", count,
                        "--temperature", 0])
            seconds[count] = time.perf_counter() - begin
        return {"value": (self.a.generate_tokens - 1) / (seconds[self.a.generate_tokens] - seconds[1]), "text": text}

    def generate_torch(self, model):
        out = run([self.a.python, HERE / "generate_torch.py", "--model", model, "--prompt", PROMPT, "--tokens",
                   self.a.generate_tokens, "--threads", len(os.sched_getaffinity(0))])
        report = json.loads(out.splitlines()[-1])
        return {"value": report["tokens_per_second"], "text": report["text"]}

    def latency(self, command):
        """Median milliseconds of a command, after a few that warm the page cache."""
        milliseconds = []
        for i in range(3 + self.a.latency_runs):
            begin = time.perf_counter()
            run(command)
            if i >= 3:
                milliseconds.append(1e3 * (time.perf_counter() - begin))
        return statistics.median(milliseconds)

    def save(self, kind, programs=None):
        folder = self.fresh("save")
        seconds = float(run([(programs or self.a.bin) / "checkpoint_save", kind, folder, self.a.checkpoint_mib << 20]))
        shutil.rmtree(folder)
        return self.a.checkpoint_mib / seconds

    # ---- benchmarks: rows of (name, unit, {who: function}, peer that counts, bound) -----------------

    def rounds(self, name, sides, may_fail=()):
        """{side: [result of each round]}, the sides taking turns; the first round begins with ours. One of `may_fail`
        that fails is given up: its last result says why (see failure())."""
        results = {side: [] for side in sides}
        for i in range(self.a.repeat):
            order = list(sides) if i % 2 == 0 else list(sides)[::-1]
            for side in order:
                if not results[side] or not failure(results[side]):
                    results[side].append(self.one_result(sides[side], side in may_fail))
            values = ", ".join(f"{side} {shown(results[side][-1])}" for side in sides)
            say(f"{name}, round {i + 1} of {self.a.repeat}: {values}")
        return results

    def one_result(self, measure, may_fail):
        try:
            result = measure()
        except BenchError as error:
            if not may_fail:
                raise
            say(f"bench: {error}")
            return {"failed": error.reason}
        return result if isinstance(result, dict) else {"value": result}

    def row(self, name, unit, results, peer, target):
        """`target`: (sense, bound) on the median of ours / peer, or on ours alone without a peer; or why there is none.
        Sense "1 ±": at most so far from 1."""
        ours = statistics.median(r["value"] for r in results["trainctl"])
        row = {"name": name, "unit": unit, "peer": peer, "ours": ours, "theirs": None, "ratio": None, "target": target,
               "met": None, "rounds": results}
        if peer and failure(results[peer]):
            return {**row, "target": f"(failed: {failure(results[peer])})"}
        if peer:
            row["theirs"] = statistics.median(r["value"] for r in results[peer])
            row["ratio"] = median_ratio(results, peer)
        if isinstance(target, tuple):
            sense, bound = target
            value = row["ratio"] if peer else ours
            row["target"] = f"{sense} {bound:g}" + ("×" if peer else f" {unit}")
            row["met"] = {"≤": value <= bound, "≥": value >= bound, "1 ±": abs(value - 1) <= bound}[sense]
        return row

    def skipped(self, name, unit, why):
        return {"name": name, "unit": unit, "peer": None, "ours": None, "theirs": None, "ratio": None,
                "target": f"(skipped: {why})", "met": None, "rounds": {}}

    def against(self, name, unit, measure, sense="≥"):
        """The row of another build: `measure(programs)` of either."""
        sides = {"trainctl": lambda: measure(self.a.bin), "the other build": lambda: measure(self.a.against)}
        bound = NO_SLOWER if sense == "≥" else round(1 / NO_SLOWER, 3)
        return self.row(name, unit, self.rounds(name, sides), "the other build", (sense, bound))

    def bench_start(self):
        recipe = self.recipe(Model.of("toy-1m"), steps=1, layout="ddp", seq_len=64, batch=2, micro_batch=1, precision="fp32")
        if self.a.against:
            yield self.against("from `launch` to the first connection, 2 workers", "s",
                               lambda programs: self.start_ours(recipe, programs), "≤")
            return
        for workers in (2,) if self.a.smoke else (2, 8):
            recipe = self.recipe(Model.of("toy-1m"), steps=1, layout="ddp", seq_len=64, batch=workers, micro_batch=1,
                                 precision="fp32", workers=workers)
            yield from self.beside_launchers(f"from `launch` to the first all-reduce, {workers} workers", 0.35,
                                             lambda recipe=recipe: self.start_ours(recipe),
                                             lambda launcher, workers=workers: self.start_peer(launcher, workers))

    def bench_kill(self):
        """What a `kill -9` of one of two workers costs."""
        if self.a.against:
            return
        recipe = self.recipe(Model.of("toy-1m"), steps=100_000, layout="ddp", seq_len=64, batch=2, micro_batch=1,
                             precision="fp32")
        for what, restarts in (("end of the job", 0), ("next step of all workers", 10)):
            yield from self.beside_launchers(f"from `kill -9` of a worker to the {what}", 1.0,
                                             lambda restarts=restarts: self.kill_ours(recipe, restarts),
                                             lambda launcher, restarts=restarts: self.kill_peer(launcher, restarts))

    def beside_launchers(self, name, bound, ours, theirs):
        """`theirs(launcher)`; ft_launcher where it is installed. A peer that fails, as restarts under Gloo do now and then,
        has a row that says so."""
        peers = ["torchrun"] + (["ft_launcher"] if self.ft_launcher.exists() else [])
        sides = {"trainctl": ours, **{peer: lambda peer=peer: theirs(peer) for peer in peers}}
        results = self.rounds(name, sides, may_fail=peers)
        for peer in peers:
            yield self.row(name, "s", results, peer, ("≤", bound))

    def bench_train(self):
        for model in map(Model.of, self.a.presets.split(",")):
            layouts = self.a.layouts
            if layouts == "auto":
                layouts = "one" if model.is_small else ",".join(LAYOUTS)
            for layout in layouts.split(","):
                yield from self.train_rows(model, layout)

    def timed_steps(self, model):
        """Small models take more steps, so that theirs are seconds too."""
        return self.a.steps if self.a.smoke else self.a.steps * min(MOST_STEPS, max(1, round(25e6 / model.parameters)))

    def train_rows(self, model, layout):
        timed = self.timed_steps(model)
        steps = self.a.warmup + timed
        _, title, label = LAYOUTS[layout]
        if layout == "one" and self.a.threads > 1:
            label += f", {self.a.threads} threads"
        name = f"{model.name} ({number(model.parameters / 1e6)} M), {label}"
        if self.a.against:
            for precision in ("bf16", "fp32"):
                recipe = self.recipe(model, steps, layout, precision=precision)
                yield self.against(f"training {name}, {precision}", "tokens/s",
                                   lambda programs, recipe=recipe: self.train_ours(recipe, timed, programs))
            return
        recipe = self.recipe(model, steps, layout)
        tokens = self.batches(recipe, steps)
        peers = {f"{title}, {PEERS[key].label}": PEERS[key] for key in self.a.peers.split(",")}
        sides = {"trainctl": lambda: self.train_ours(recipe, timed)}
        for side, peer in peers.items():
            sides[side] = lambda peer=peer: self.train_torch(layout, peer, model, tokens)
        results = self.rounds(name, sides, may_fail=[side for side, peer in peers.items() if peer.compiled])
        self.check_same_work(recipe, results)
        better = better_peer(results, [side for side, peer in peers.items() if peer.counts])
        for side, peer in peers.items():
            target = "(the slower peer)" if peer.counts else "(no fp32 weights)"
            if side == better:
                target = ("≥", training_target(model, layout))
            yield self.row(f"training {name}", "tokens/s", results, side, target)

    def bench_layouts(self):
        cores = len(os.sched_getaffinity(0))
        model = Model.of(self.a.preset_of_runs)
        for cut in CUTS:
            # A pipeline takes the smallest micro-batches, for as many of them as there can be.
            micro_batch = 1 if cut.pp > 1 else self.a.micro_batch
            name = (f"{model.name} ({number(model.parameters / 1e6)} M), {cut.label}, fp32, "
                    f"{self.a.batch // micro_batch} micro-batches")
            if cores < cut.ranks:
                yield self.skipped(f"training {name}", "tokens/s", f"{cut.ranks} ranks, {cores} core{'s' * (cores > 1)}")
            else:
                yield from self.layout_rows(cut, model, name, micro_batch)

    def layout_rows(self, cut, model, name, micro_batch):
        steps = self.a.warmup + self.a.steps
        parallel = f"tp = {cut.tp}\npp = {cut.pp}"
        if cut.pp > 1:
            parallel += (f'\nschedule = "1f1b"\nstage_layers = {model.two_stages}\n[metrics]\n'
                         f"trace_steps = {list(range(self.a.warmup + 1, steps + 1))}")
        recipe = self.recipe(model, steps, cut.label.replace(" ", ""), micro_batch=micro_batch, precision="fp32",
                             workers=cut.ranks, parallel=parallel)
        if self.a.against:
            yield self.against(f"training {name}", "tokens/s",
                               lambda programs: self.train_ours(recipe, self.a.steps, programs))
            return
        tokens = self.batches(recipe, steps)
        peers = {"PyTorch": []}
        if cut.tp > 1:
            peers["PyTorch, sequence parallel"] = ["--sequence-parallel"]
        sides = {"trainctl": lambda: self.train_ours(recipe, self.a.steps)}
        for side, options in peers.items():
            sides[side] = lambda options=options: self.train_torch_layout(cut, options, model, tokens, micro_batch)
        results = self.rounds(name, sides)
        self.check_same_work(recipe, results)
        better = better_peer(results, peers)
        for side in peers:
            yield self.row(f"training {name}", "tokens/s", results, side,
                           ("≥", 1.1) if side == better else "(the slower peer)")
        if cut.pp > 1:
            yield self.bubble_row(recipe, name, results["trainctl"], cut)

    def bubble_row(self, recipe, name, rounds, cut):
        """What the ranks did not compute in the steps that ran, and in the step as planned."""
        environment, target = self.environment, "(rates not measured)"
        if not self.a.smoke:
            # Idle shares follow from how long blocks take beside one another.
            environment, target = {**environment, "XDG_CONFIG_HOME": str(self.fresh("config"))}, ("1 ±", 0.1)
            say(f"{name}: calibrating")
            run([self.trainctl, "calibrate", "--precision", "fp32", "--workers", cut.ranks, "--threads", 1], env=environment)
        out = self.fresh("plan.json")
        run([self.trainctl, "plan", recipe, "--trace", out], env=environment)
        simulated = bubble(json.loads(out.read_text()))
        results = {"trainctl": [{"value": result["bubble"], "steps": result["bubbles"]} for result in rounds],
                   "simulated": [{"value": simulated} for _ in rounds]}
        return self.row(f"bubble of {name}", "of a step", results, "simulated", target)

    def check_same_work(self, recipe, results):
        ours = json.loads(run([self.trainctl, "plan", recipe, "--json"]))["num_parameters"]
        for side, rounds in results.items():
            if failure(rounds):
                continue
            theirs = rounds[0].get("parameters", ours)
            if theirs != ours:
                raise BenchError(f"{side} has {theirs} parameters, ours has {ours}")
            # Other random weights, the same tokens: the first losses agree to a few hundredths.
            if abs(rounds[0]["losses"][0] - results["trainctl"][0]["losses"][0]) > 0.1:
                raise BenchError(f"{side} starts with a loss of {rounds[0]['losses'][0]}, "
                                 f"ours with {results['trainctl'][0]['losses'][0]}")

    def bench_generate(self):
        for preset in dict.fromkeys(["toy-1m", self.a.preset_of_runs]):
            run_dir = self.bytes_run(preset)
            name = f"`generate`, {preset}, {self.a.generate_tokens} tokens"
            if self.a.against:
                yield self.against(name, "tokens/s", lambda programs, run_dir=run_dir: self.generate_ours(run_dir, programs))
                continue
            model = self.fresh("model")
            run([self.trainctl, "checkpoint", "export", run_dir, "--out", model])
            results = self.rounds(name, {"trainctl": lambda: self.generate_ours(run_dir),
                                         "transformers": lambda: self.generate_torch(model)})
            texts = {side: rounds[0]["text"][:len(PROMPT) + 8] for side, rounds in results.items()}
            if len(set(texts.values())) > 1:
                raise BenchError(f"{name}: the texts begin differently: {texts}")
            yield self.row(name, "tokens/s", results, "transformers", ("≥", 1.0))

    def bench_latency(self):
        recipe = SOURCE / "recipes" / "toy_1m_cpu.toml"
        for name, command in (("`trainctl plan`", ["plan"]), ("`trainctl recipe check`", ["recipe", "check"])):
            if self.a.against:
                yield self.against(f"{name} {recipe.name}", "ms", lambda programs, command=command: self.latency(
                    [programs / "trainctl", *command, recipe]), "≤")
                continue
            results = self.rounds(name, {"trainctl": lambda: self.latency([self.trainctl, *command, recipe])})
            yield self.row(f"{name} {recipe.name}", "ms", results, None, ("≤", 50))

    def planning(self, options, programs=None):
        """Milliseconds of making a plan, without the start of the program and the advice."""
        report = run([(programs / "trainctl" if programs else self.trainctl), "plan", *options, "--explain", "--json"])
        return json.loads(report)["explanation"]["planning_seconds"] * 1e3

    def bench_plan(self):
        """Plans that take longest of what is asked for often; the targets are for two cores, in milliseconds."""
        recipes = SOURCE / "recipes" / "plan"
        large = [recipes / "llama3.1-405b_16384xh100.toml", "--as", "trainctl"]
        for name, options, target in (("Llama 3.1 8B on 8 H100", [recipes / "llama3.1-8b_8xh100.toml"], 50),
                                      ("Llama 3.1 405B on 16,384 H100", large, 2000),
                                      ("Llama 3.1 405B on 2,048 H100", [*large, "--set", "cluster.nodes=256"], 5000)):
            title = f"planning, {name}"
            if self.a.against:
                yield self.against(title, "ms", lambda programs, options=options: self.planning(options, programs), "≤")
                continue
            results = self.rounds(title, {"trainctl": lambda options=options: self.planning(options)})
            yield self.row(title, "ms", results, None, ("≤", target))
        deepseek = [recipes / "qwen3-30b-a3b_32xh100.toml", "--set", "model.preset=deepseek-v3", "--set", "cluster.nodes=8"]
        for name, options, target in (
                ("Llama 3.1 8B on 360 nodes", [recipes / "llama3.1-8b_8xh100.toml", "--set", "cluster.nodes=360",
                                               "--set", "train.batch_sequences=2880"], 2000),
                ("a what-if of DeepSeek-V3 on 64 GPUs", deepseek, 2000),
                ("the same with `--explain`", [*deepseek, "--explain"], 4000)):
            title = f"`trainctl plan`, {name}"
            if self.a.against:
                yield self.against(title, "ms", lambda programs, options=options: self.latency(
                    [programs / "trainctl", "plan", *options]), "≤")
                continue
            results = self.rounds(title, {"trainctl": lambda options=options: self.latency(
                [self.trainctl, "plan", *options])})
            yield self.row(title, "ms", results, None, ("≤", target))

    def bench_checkpoint(self):
        if self.a.against:
            yield self.against(f"checkpoint save, {self.a.checkpoint_mib} MiB, checksums on", "MiB/s",
                               lambda programs: self.save("ours", programs))
            return
        results = self.rounds("checkpoint", {"trainctl": lambda: self.save("ours"),
                                             "plain writes": lambda: self.save("plain")})
        yield self.row(f"checkpoint save, {self.a.checkpoint_mib} MiB, checksums on", "MiB/s", results, "plain writes",
                       ("≥", 0.8))


    def saves(self, recipe, beside):
        """Mean seconds that training waited for a save, and MiB/s of rank 0's file; the last one left out: nothing
        follows it."""
        run_dir = self.fresh("run")
        run([self.trainctl, "launch", recipe, "--run-dir", run_dir, "--set", "checkpoint.every_steps=2",
             "--set", f"checkpoint.async={beside}"], env=self.environment)
        out = run([self.trainctl, "logs", run_dir])
        shutil.rmtree(run_dir)
        found = re.findall(r"checkpoint saved after step \d+ \(training waited ([0-9.]+) s; this rank wrote ([0-9.]+) MiB "
                           r"in ([0-9.]+) s", out)[:-1]
        return {"value": statistics.mean(float(wait) for wait, _, _ in found),
                "rate": statistics.mean(float(size) / float(seconds) for _, size, seconds in found)}

    def bench_async(self):
        if self.a.against:
            return  # the same code between two steps of training
        preset = self.a.preset_of_runs
        recipe = self.recipe(Model.of(preset), 6, "zero3")
        results = self.rounds("wait for a save", {"trainctl": lambda: self.saves(recipe, "true"),
                                                  "save between steps": lambda: self.saves(recipe, "false")})
        yield self.row(f"training pause per checkpoint of {preset}, 2 workers, ZeRO-3, asynchronous save", "s",
                       results, "save between steps", ("≤", 0.5))
        rates = {side: [{"value": result["rate"]} for result in found] for side, found in results.items()}
        yield self.row("write rate of rank 0's file in that checkpoint", "MiB/s", rates, "save between steps",
                       "(cores shared with training)")


# ---- report -----------------------------------------------------------------------------------------


def number(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shown(result):
    return "failed" if "failed" in result else f"{result['value']:.4g}"


def cpu_model():
    found = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return found.group(1) if found else platform.processor()


def versions(bench):
    if bench.a.against:
        return ", ".join(f"{who} {run([programs / 'trainctl', 'version']).splitlines()[0]}"
                         for who, programs in (("this", bench.a.bin), ("the other", bench.a.against)))
    torch = run([bench.a.python, "-c", "import torch, transformers\nprint(torch.__version__, transformers.__version__)"])
    ours = run([bench.trainctl, "version"]).splitlines()[0]
    commit = subprocess.run(["git", "-C", SOURCE, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return (f"{ours} ({commit.stdout.strip() or 'no git'}); PyTorch {torch.split()[0]}, "
            f"transformers {torch.split()[1]}")


def table(rows, bench, command):
    a = bench.a
    more = "" if a.smoke else f" (small models: up to {MOST_STEPS * a.steps})"
    lines = [
        f"- machine: {cpu_model()}, {len(os.sched_getaffinity(0))} cores, "
        f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 30} GiB, Linux {platform.release()}; "
        f"load at the start {bench.load:.2f}",
        f"- date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        f"- command: `{command}`",
        f"- versions: {versions(bench)}",
        f"- median of {a.repeat} alternating rounds; training: {'' if a.against else 'bf16, '}one worker with "
        f"{a.threads} threads or two with one, T = {a.seq_len}, {a.batch} sequences per step in micro-batches of "
        f"{a.micro_batch}, {a.steps} timed steps{more}, {a.warmup} for warmup", "",
        "| what | unit | trainctl | peer | | ratio | target | |", "|---|---|--:|---|--:|--:|---|---|"]
    return "\n".join(lines + [table_line(row) for row in rows])


def table_line(row):
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}×"
    met = {True: "met", False: "**missed**", None: ""}[row["met"]]
    target = row["target"].replace("|", "\\|")  # a reason is somebody else's text
    return (f"| {row['name']} | {row['unit']} | {number(row['ours'])} | {row['peer'] or ''} | {number(row['theirs'])} | "
            f"{ratio} | {target} | {met} |")


def write_between_markers(path, text):
    page = path.read_text()
    before, found, rest = page.partition(BEGIN)
    _, also_found, after = rest.partition(END)
    if not found or not also_found:
        raise BenchError(f"{path} has no {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


BENCHES = {"start": Bench.bench_start, "kill": Bench.bench_kill, "latency": Bench.bench_latency, "plan": Bench.bench_plan,
           "checkpoint": Bench.bench_checkpoint, "async": Bench.bench_async, "generate": Bench.bench_generate,
           "train": Bench.bench_train, "layouts": Bench.bench_layouts}
SMOKE = dict(presets="toy-1m", preset_of_runs="toy-1m", layouts="one,ddp,zero3", threads=2, seq_len=64, batch=4,
             micro_batch=2, steps=2, warmup=1, repeat=1, latency_runs=2, checkpoint_mib=16, generate_tokens=100, documents=4,
             peers="eager")
# toy-1m with a vocabulary of bytes is the model of recipes/quickstart.toml.
FULL = dict(presets="toy-1m:vocab=256,toy-5m:vocab=6144,llama-25m,llama-120m", preset_of_runs="llama-25m", layouts="auto",
            threads=2, seq_len=512, batch=8, micro_batch=4, steps=5, warmup=1, repeat=5, latency_runs=20, checkpoint_mib=1024,
            generate_tokens=200, documents=64, peers="eager,compile,bf16")
MEANINGS = dict(presets="models to train: presets, with other dimensions as in toy-5m:vocab=6144:layers=4",
                preset_of_runs="model for generate, async and layouts",
                layouts=f"layouts for train, a list of {', '.join(LAYOUTS)}; auto uses all, but only one for small models",
                threads="threads of a single worker; each of two workers has one",
                steps="timed steps; train uses more for small models",
                peers=f"peers for train, a list of {', '.join(PEERS)}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(BENCHES), help=f"a list of {', '.join(BENCHES)} (default: all)")
    parser.add_argument("--smoke", action="store_true", help="use tiny sizes; the results are never written to docs")
    parser.add_argument("--write", action="store_true", help=f"write the table to {DOCS.relative_to(SOURCE)}")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    parser.add_argument("--bin", type=pathlib.Path, default=SOURCE / "build" / "release" / "bin")
    parser.add_argument("--against", type=pathlib.Path, help="compare with the programs of another build instead of the peers")
    parser.add_argument("--python", type=lambda p: pathlib.Path(os.path.abspath(p)),
                        help="a Python with torch and transformers (run.sh sets this)")
    parser.add_argument("--folder", type=pathlib.Path, help="folder for runs and checkpoints (default: $TMPDIR)")
    for name, value in FULL.items():
        meaning = f"{MEANINGS[name]} (default: {value})" if name in MEANINGS else f"default {value}"
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), help=meaning)
    arguments = parser.parse_args()
    for name, value in (SMOKE if arguments.smoke else FULL).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    if unknown := [name for name in arguments.only.split(",") if name not in BENCHES]:
        parser.error(f"--only: {unknown[0]} is not one of {', '.join(BENCHES)}")
    for option, names in (("--presets", arguments.presets.split(",")), ("--preset-of-runs", [arguments.preset_of_runs])):
        try:
            for name in names:
                Model.of(name)
        except ValueError as error:
            parser.error(f"{option}: {error}")
    for name, known in (("layouts", LAYOUTS), ("peers", PEERS)):
        for value in getattr(arguments, name).split(","):
            if value not in known and (name, value) != ("layouts", "auto"):
                parser.error(f"--{name}: {value} is none of {', '.join(known)}")
    if arguments.smoke and arguments.write:
        parser.error("--smoke measures nothing worth writing down; leave out --write")
    if arguments.against and arguments.write:
        parser.error("--write is for the peers; leave it out, or --against")
    if not arguments.against and not arguments.python:
        parser.error("--python: the peers need one (run.sh gives it)")
    programs = ["trainctl", "trainctl-worker"] + ["checkpoint_save"] * ("checkpoint" in arguments.only.split(","))
    for option in ("bin", "against"):
        folder = getattr(arguments, option)
        if folder is None:
            continue
        setattr(arguments, option, folder.resolve())
        for program in programs:
            if not (folder / program).exists():
                say(f"bench: {folder / program} does not exist; run ./dev build, or name another folder with --{option}")
                sys.exit(5)
    return arguments


def published_command(words):
    """Without the options that name places of this machine: they change no number."""
    places = ("--python", "--json", "--bin", "--folder")
    words = ["OLD/bin" if before == "--against" else word for before, word in zip(["", *words], words)]
    kept = [word for before, word in zip(["", *words], words)
            if before not in places and word.split("=")[0] not in places]
    return " ".join(["tests/bench/run.sh", *kept])


def main():
    arguments = parse()
    command = published_command(sys.argv[1:])
    folder = tempfile.mkdtemp(prefix="trainctl-bench-", dir=arguments.folder)
    try:
        bench = Bench(arguments, folder)
        bench.load = os.getloadavg()[0]
        if bench.load > 0.5 and not arguments.smoke:
            say(f"bench: the machine is busy (load {bench.load:.2f}); the numbers will show it")
        rows, failed = [], []
        for name in arguments.only.split(","):
            try:  # what the others measured is worth printing
                rows.extend(BENCHES[name](bench))
            except BenchError as error:
                failed.append(name)
                say(f"bench: {name} failed: {error}")
        text = table(rows, bench, command)
        print(text)
        if arguments.json:
            arguments.json.write_text(json.dumps({"schema": "trainctl.bench.v1", "rows": rows}, indent=1) + "\n")
        if failed:
            return 1
        if arguments.write:
            write_between_markers(DOCS, text)
    except BenchError as error:
        say(f"bench: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 7 if not arguments.smoke and any(row["met"] is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
