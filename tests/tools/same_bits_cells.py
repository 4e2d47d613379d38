"""The runs that same_bits.py compares: the equivalence matrix as recipes, and longer runs.

matrix/...  Every layout of tests/equivalence/equivalence_main.cc, in fp32; the half with tied == prefetch, which has
            every choice in it, also in bf16. Left out: one worker with zero_stage > 0, which `trainctl launch` refuses.
            Two steps with a checkpoint after each, then an evaluation. After the first step the first moment is
            1 - beta1 times the (clipped) gradient.
optimizer/  The other optimizers, with builds that have them.
long/...    What takes more steps to show: learning-rate schedules, accumulation, evaluation, resume, async saves.
"""
import dataclasses
import itertools
import json
import os
import random

SEQUENCES = 48  # divides by 1, 2, 3, 4 workers times 4 micro-batches

# Everything that could depend on the machine is given: memory, threads, layout.
MATRIX = """recipe_version = 1
[run]
name = "matrix"
[model]
family = "llama"
layers = 3
hidden = 40
heads = 4
kv_heads = 2
head_dim = 10
ffn = 56
vocab = 263
qkv_bias = true
init_std = 0.1
[data]
tokenizer = "byte"
seq_len = 24
packing = "documents"
[[data.train]]
files = ["data/prompts.jsonl"]
prompt_field = "prompt"
[[data.eval]]
name = "held-out"
holdout = 0.2
[train]
steps = 2
batch_sequences = %d
eval_batches = 1
z_loss = 1e-3
[optimizer]
lr = 1e-2
[cluster]
device = "cpu"
threads_per_worker = 1
memory_limit = "1GiB"
[checkpoint]
every_steps = 1
keep = 1000
[launch]
max_restarts = 0
""" % SEQUENCES

LONG = """recipe_version = 1
[run]
name = "long"
[model]
family = "llama"
layers = 2
hidden = 48
heads = 4
kv_heads = 2
ffn = 96
vocab = 257
tie_embeddings = false
[data]
tokenizer = "byte"
seq_len = 48
packing = "documents"
[[data.train]]
files = ["data/text/*.txt"]
[[data.eval]]
name = "held-out"
holdout = 0.2
[train]
steps = 24
batch_sequences = 16
micro_batch = 4
precision = "fp32"
eval_every = 8
eval_batches = 2
[optimizer]
lr = 3e-3
warmup_steps = 4
[parallel]
dp_replicate = 1
dp_shard = 2
zero_stage = 3
recompute = "none"
prefetch = true
[cluster]
device = "cpu"
devices_per_node = 2
threads_per_worker = 1
memory_limit = "1GiB"
[checkpoint]
every_steps = 8
keep = 1000
[launch]
max_restarts = 0
"""

MIXTURE = """extends = "long.toml"
[[data.train]]
name = "prose"
files = ["data/text/*.txt"]
weight = 0.7
[[data.train]]
name = "answers"
files = ["data/prompts.jsonl"]
prompt_field = "prompt"
weight = 0.3
[[data.eval]]
name = "other"
files = ["data/other.txt"]
"""


@dataclasses.dataclass(frozen=True)
class Command:
    """`trainctl launch RECIPE --run-dir RUN ...` or `trainctl resume RUN ...`; {runs} in settings is where runs are."""
    verb: str
    run: str
    settings: tuple
    options: tuple = ()
    exit_code: int = 0


@dataclasses.dataclass(frozen=True)
class Cell:
    name: str
    recipe: str
    commands: tuple
    quick: bool = False  # one of each kind
    needs: str = ""  # a field of recipes that builds before it lack

    def describe(self):
        """What it is, for --list."""
        calls = [" ".join([c.verb, c.run, *c.options, *c.settings]) for c in self.commands]
        return f"{self.name}\n    {self.recipe}: " + "; ".join(calls)


def launch(*settings, run="run", options=(), exit_code=0):
    return Command("launch", run, settings, options, exit_code)


def resume(*settings, run="run"):
    return Command("resume", run, settings)


def settings_of(**fields):
    return tuple(f"{key.replace('__', '.')}={str(value).lower()}" for key, value in fields.items())


# ---- the matrix --------------------------------------------------------------------------------


def layouts():
    """(dp_replicate, dp_shard, zero_stage) of all worlds."""
    yield 1, 1, 0
    for world in (2, 3, 4):
        yield world, 1, 0
        for stage in (1, 2, 3):
            yield 1, world, stage
    for stage in (1, 2, 3):
        yield 2, 2, stage


def matrix():
    choices = itertools.product(("fp32", "bf16"), layouts(), (1, 4), ("none", "full"), (False, True), (False, True))
    return [matrix_cell(precision, layout, accumulation, recompute, tied, prefetch)
            for precision, layout, accumulation, recompute, tied, prefetch in choices
            if precision == "fp32" or tied == prefetch]


def matrix_cell(precision, layout, accumulation, recompute, tied, prefetch):
    replicate, shard, stage = layout
    world = replicate * shard
    plainest = accumulation == 1 and recompute == "none" and not tied and not prefetch
    fullest = accumulation == 4 and recompute == "full" and tied and prefetch
    name = (f"matrix/{precision} dp_replicate={replicate} dp_shard={shard} zero_stage={stage} "
            f"accumulation={accumulation} recompute={recompute}{' tied' * tied}{' prefetch' * prefetch}")
    settings = settings_of(cluster__devices_per_node=world, parallel__dp_replicate=replicate, parallel__dp_shard=shard,
                           parallel__zero_stage=stage, parallel__recompute=recompute, parallel__prefetch=prefetch,
                           train__micro_batch=SEQUENCES // world // accumulation, train__precision=precision,
                           model__tie_embeddings=tied)
    of_each_kind = (world <= 2 or replicate == shard) and (plainest if precision == "fp32" else fullest)
    return Cell(name, "matrix.toml", (launch(*settings),), of_each_kind)


# ---- longer runs -------------------------------------------------------------------------------


def long_runs():
    ddp = settings_of(parallel__dp_replicate=2, parallel__dp_shard=1, parallel__zero_stage=0)
    alone = settings_of(cluster__devices_per_node=1, parallel__dp_shard=1, parallel__zero_stage=0)
    hsdp = settings_of(cluster__devices_per_node=4, parallel__dp_replicate=2, parallel__zero_stage=2)
    bf16 = settings_of(train__precision="bf16")
    half_way = {"options": ("--stop-after", "12"), "exit_code": 75}
    return [
        Cell("long/fp32 with evaluation", "long.toml", (launch("train.steps=40"),), True),
        Cell("long/bf16 replicated", "long.toml", (launch("train.steps=40", *bf16, *ddp),)),
        Cell("long/accumulation and recompute", "long.toml",
             (launch(*hsdp, *bf16, "train.micro_batch=1", "parallel.recompute=full"),)),
        Cell("long/z-loss, constant rate, no clipping", "long.toml",
             (launch("train.z_loss=1e-2", "optimizer.clip_norm=0", "optimizer.lr_schedule=constant",
                     "parallel.zero_stage=1"),)),
        Cell("long/resume at the same layout", "long.toml", (launch(*bf16, **half_way), resume()), True),
        Cell("long/resume at another layout", "long.toml",
             (launch(**half_way), resume(*alone, "train.micro_batch=8", "parallel.recompute=full"))),
        Cell("long/async checkpoints", "long.toml", (launch("checkpoint.async=true", "checkpoint.every_steps=3"),)),
        Cell("long/packed documents of weighted sources", "mixture.toml",
             (launch("optimizer.lr_schedule=wsd", "data.seq_len=64"),), True),
        Cell("long/weights from a checkpoint", "long.toml",
             (launch("train.steps=8", run="first"),
              launch("model.weights={runs}/first/checkpoints/step-00000008", "run.seed=7", *ddp, run="second"))),
        Cell("long/tied embeddings, RoPE scaling", "long.toml",
             (launch("model.tie_embeddings=true", "model.rope_scaling.factor=8", "model.rope_scaling.low_freq_factor=1",
                     "model.rope_scaling.high_freq_factor=4", "model.rope_scaling.original_max_position=16"),)),
        Cell("long/biases", "long.toml",
             (launch("model.qkv_bias=true", "model.attention_out_bias=true", "model.mlp_bias=true",
                     "parallel.zero_stage=2", *bf16),)),
        Cell("long/continuous stream, two threads", "long.toml",
             (launch(*alone, "data.packing=continuous", "cluster.threads_per_worker=2", "optimizer.lr_schedule=linear",
                     "optimizer.min_lr=1e-4", "train.micro_batch=16", "data.seq_len=128", "train.steps=20"),)),
    ]


def optimizers():
    """Both precisions, accumulated, sharded, and resumed at another layout; AdamW has the matrix."""
    cells = []
    for name, more in (("lion", ()), ("sgd", ("optimizer.momentum=0.9",))):
        for precision in ("fp32", "bf16"):
            settings = (f"optimizer.name={name}", *more, *settings_of(train__precision=precision))
            half_way = launch(*settings, "parallel.zero_stage=3", options=("--stop-after", "12"), exit_code=75)
            cells.append(Cell(f"optimizer/{name} {precision}", "long.toml",
                              (half_way, resume("parallel.zero_stage=1", "train.micro_batch=2")), precision == "bf16",
                              needs="optimizer.momentum"))
    return cells


def all_cells():
    return matrix() + long_runs() + optimizers()


# ---- files -------------------------------------------------------------------------------------


def write_inputs(folder):
    """Writes recipes and data, the same bytes each time."""
    rng = random.Random(1)
    words = ["".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(1, 9))) for _ in range(200)]

    def text(shortest, longest):
        return " ".join(rng.choice(words[:rng.randint(5, 200)]) for _ in range(rng.randint(shortest, longest)))

    os.makedirs(os.path.join(folder, "data", "text"))
    files = {"matrix.toml": MATRIX, "long.toml": LONG, "mixture.toml": MIXTURE}
    for number in range(60):
        files[f"data/text/{number:02}.txt"] = text(3, 120)
    files["data/other.txt"] = text(300, 400)
    rows = [{"prompt": text(1, 6), "text": text(1, 12)} for _ in range(200)]
    files["data/prompts.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)
