"""The peers of the throughput benchmark: a plain Hugging Face training loop, as it is, under DDP, under FSDP2.

    python train_torch.py --tokens tokens.npy --model '{"hidden_size": 384, ...}' [--mode eager] [--precision autocast]
    torchrun --standalone --nproc_per_node 2 train_torch.py --mode ddp ...

Precisions: `autocast` keeps fp32 weights and gradients and computes in bf16 (FSDP2: by its
MixedPrecisionPolicy, reducing in fp32); `bf16` keeps everything, the optimizer's state too, in bf16.
`--compile` trains under torch.compile with static shapes (FSDP2: layer by layer); compiling is part of the warm-up.
Prints one line of JSON on rank 0. What fails under torch.compile is the last line of stderr.
"""

import argparse
import contextlib
import json
import os
import sys
import time
import traceback

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch._dynamo.utils import counters
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

# While it is traced, transformers gives its own "sdpa" a mask of T x T, and masked products cost twice the causal ones.
# A function that it does not know gets no mask.
AttentionInterface.register("sdpa_causal", sdpa_attention_forward)


def wrap(model, arguments, world):
    """The model as trained, and what keeps its gradients from being reduced before the last micro-batch."""
    if arguments.compile and arguments.mode != "fsdp2":
        model.compile(dynamic=False)
    if arguments.mode == "ddp":
        model = DistributedDataParallel(model)
        return model, lambda last: contextlib.nullcontext() if last else model.no_sync()
    if arguments.mode == "fsdp2":
        mesh = init_device_mesh("cpu", (world,))
        policy = MixedPrecisionPolicy()
        if arguments.precision == "autocast":
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.model.layers:
            if arguments.compile:
                layer.compile(dynamic=False)
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)

        def sync(last):
            model.set_requires_gradient_sync(last)
            return contextlib.nullcontext()

        return model, sync
    return model, lambda last: contextlib.nullcontext()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("eager", "ddp", "fsdp2"), default="eager")
    parser.add_argument("--precision", choices=("autocast", "bf16"), default="autocast")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--tokens", required=True, help="numpy file, int32 [steps, batch, seq_len]")
    parser.add_argument("--model", required=True, type=json.loads, help="fields of LlamaConfig")
    parser.add_argument("--micro-batch", type=int, default=4, help="sequences")
    parser.add_argument("--warmup", type=int, default=2, help="steps that are not timed")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    try:
        train(arguments)
    except Exception as error:
        if not arguments.compile:
            raise
        traceback.print_exc()
        sys.exit(f"torch.compile: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}")


def train(arguments):
    torch.set_num_threads(arguments.threads)
    rank, world = 0, 1
    if arguments.mode != "eager":
        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    attention = {"attn_implementation": "sdpa_causal"} if arguments.compile else {}
    model = LlamaForCausalLM(LlamaConfig(**arguments.model, **attention)).train()
    parameters = sum(p.numel() for p in model.parameters())
    if arguments.precision == "bf16":
        model.to(torch.bfloat16)
    autocast = arguments.precision == "autocast" and arguments.mode != "fsdp2"
    model, sync = wrap(model, arguments, world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    tokens = torch.from_numpy(np.load(arguments.tokens)).long()
    steps, batch, seq_len = tokens.shape
    per_rank = batch // world
    losses = []
    start = time.perf_counter()
    for step in range(steps):
        if step == arguments.warmup:
            num_graphs = counters["stats"]["unique_graphs"]
            begin = time.perf_counter()
        micro_batches = tokens[step, rank * per_rank:(rank + 1) * per_rank].split(arguments.micro_batch)
        total = 0.0
        for i, ids in enumerate(micro_batches):
            with sync(i + 1 == len(micro_batches)):
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss = model(input_ids=ids, labels=ids, use_cache=False).loss / len(micro_batches)
                loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    seconds = time.perf_counter() - begin
    if counters["stats"]["unique_graphs"] != num_graphs:
        raise RuntimeError(f"graphs were compiled in timed steps; {arguments.warmup} steps of warm-up are too few")
    if rank == 0:
        rate = (steps - arguments.warmup) * batch * seq_len / seconds
        print(json.dumps({"tokens_per_second": rate, "parameters": parameters, "losses": losses,
                          "graphs": num_graphs, "warmup_seconds": begin - start}), flush=True)
    if arguments.mode != "eager":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
