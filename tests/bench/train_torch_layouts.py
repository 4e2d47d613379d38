"""The peers of the layouts benchmark: a plain Llama under PyTorch's own tensor parallelism and pipelining, in fp32.

    torchrun --standalone --nproc_per_node 2 train_torch_layouts.py --tp 2 --tokens tokens.npy --model '{...}'
    torchrun --standalone --nproc_per_node 2 train_torch_layouts.py --pp 2 --stage-layers 6,2 --micro-batch 1 ...

--tp: torch.distributed.tensor.parallel in TorchTitan's manner (vocabulary and loss are cut too); with --sequence-parallel
norms and residuals are cut along the sequence. --pp: Schedule1F1B of torch.distributed.pipelining.
Prints one line of JSON on the rank that has the losses. Shapes: B batch, T tokens, H hidden, D of a head.
"""

import argparse
import json
import os
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)


def rotate(x_BNTD, cos_TD, sin_TD):
    half = x_BNTD.shape[-1] // 2
    turned = torch.cat((-x_BNTD[..., half:], x_BNTD[..., :half]), dim=-1)
    return x_BNTD * cos_TD + turned * sin_TD


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.head_dim = c["head_dim"]
        heads, kv_heads = (c[key] * self.head_dim for key in ("num_attention_heads", "num_key_value_heads"))
        self.wq = nn.Linear(c["hidden_size"], heads, bias=False)
        self.wk = nn.Linear(c["hidden_size"], kv_heads, bias=False)
        self.wv = nn.Linear(c["hidden_size"], kv_heads, bias=False)
        self.wo = nn.Linear(heads, c["hidden_size"], bias=False)

    def forward(self, x_BTH, cos_TD, sin_TD):
        # As many heads as come: with tensor parallelism the rank's own.
        q, k, v = (w(x_BTH).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, cos_TD, sin_TD), rotate(k, cos_TD, sin_TD)
        k, v = (kv.repeat_interleave(q.shape[1] // kv.shape[1], dim=1) for kv in (k, v))  # the CPU's flash kernel has no GQA
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w1 = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.w2 = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)
        self.w3 = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)

    def forward(self, x_BTH):
        return self.w2(F.silu(self.w1(x_BTH)) * self.w3(x_BTH))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention_norm = nn.RMSNorm(c["hidden_size"], eps=1e-5)
        self.attention = Attention(c)
        self.ffn_norm = nn.RMSNorm(c["hidden_size"], eps=1e-5)
        self.feed_forward = FeedForward(c)

    def forward(self, x_BTH, cos_TD, sin_TD):
        x_BTH = x_BTH + self.attention(self.attention_norm(x_BTH), cos_TD, sin_TD)
        return x_BTH + self.feed_forward(self.ffn_norm(x_BTH))


class Llama(nn.Module):
    """The whole model, or a stage of it once keep() has dropped the rest."""

    def __init__(self, c, seq_len):
        super().__init__()
        self.embedding = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"], eps=1e-5)
        self.output = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        frequencies = 10_000.0 ** -(torch.arange(0, c["head_dim"], 2) / c["head_dim"])
        angles_TD = torch.outer(torch.arange(seq_len), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles_TD.cos())
        self.register_buffer("sin", angles_TD.sin())

    def keep(self, begin, end):
        """Keeps these layers, and the ends of the model that belong to them."""
        if begin > 0:
            self.embedding = None
        if end < len(self.layers):
            self.norm = self.output = None
        self.layers = self.layers[begin:end]

    def forward(self, x):
        x = x if self.embedding is None else self.embedding(x)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return x if self.output is None else self.output(self.norm(x))


def shard(model, mesh, sequence_parallel):
    between = Shard(1) if sequence_parallel else Replicate()  # what layers hand on
    ends = {"embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
            "output": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)}
    inner = {f"attention.{w}": ColwiseParallel() for w in ("wq", "wk", "wv")}
    inner |= {f"feed_forward.{w}": ColwiseParallel() for w in ("w1", "w3")}
    inner |= {w: RowwiseParallel(output_layouts=between) for w in ("attention.wo", "feed_forward.w2")}
    if sequence_parallel:
        ends["norm"] = SequenceParallel()
        inner |= {"attention_norm": SequenceParallel(), "ffn_norm": SequenceParallel(),
                  "attention": PrepareModuleInput(input_layouts=(Shard(1), None, None),
                                                  desired_input_layouts=(Replicate(), None, None)),
                  "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))}
    parallelize_module(model, mesh, {name: style for name, style in ends.items() if getattr(model, name) is not None})
    for layer in model.layers:
        parallelize_module(layer, mesh, inner)


def clip(groups, max_norm, pipeline):
    """As clip_grad_norm_, over parameters that are no DTensors too, and over the stages."""
    squares = torch.zeros(())
    for group in groups:
        norm = nn.utils.get_total_norm([p.grad for p in group])
        squares += (norm.full_tensor() if isinstance(norm, DTensor) else norm) ** 2
    if pipeline is not None:
        dist.all_reduce(squares, group=pipeline)
    for group in groups:
        nn.utils.clip_grads_with_norm_(group, max_norm, squares.sqrt())


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--sequence-parallel", action="store_true")
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--stage-layers", type=lambda text: [int(n) for n in text.split(",")], help="of each stage")
    parser.add_argument("--tokens", required=True, help="numpy file, int32 [steps, batch, seq_len]")
    parser.add_argument("--model", required=True, type=json.loads, help="fields of LlamaConfig")
    parser.add_argument("--micro-batch", type=int, default=4, help="sequences")
    parser.add_argument("--warmup", type=int, default=2, help="steps that are not timed")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (arguments.pp, arguments.tp), mesh_dim_names=("pp", "tp"))
    stage = mesh.get_local_rank("pp")
    is_first, is_last = stage == 0, stage + 1 == arguments.pp
    tokens = torch.from_numpy(np.load(arguments.tokens)).long()
    steps, batch, seq_len = tokens.shape
    num_micro_batches = batch // arguments.micro_batch

    torch.manual_seed(0)
    model = Llama(arguments.model, seq_len)
    parameters = sum(p.numel() for p in model.parameters())
    pipeline = None
    if arguments.pp > 1:
        begin = sum(arguments.stage_layers[:stage])
        model.keep(begin, begin + arguments.stage_layers[stage])
        pipeline = mesh.get_group("pp")
        schedule = Schedule1F1B(PipelineStage(model, stage, arguments.pp, torch.device("cpu"), group=pipeline),
                                num_micro_batches, loss_fn=loss_of)
    if arguments.tp > 1:
        shard(model, mesh["tp"], arguments.sequence_parallel)
    # Fused updates take DTensors or tensors, not both at once.
    groups = [[p for p in model.parameters() if isinstance(p, DTensor) == sharded] for sharded in (True, False)]
    groups = [group for group in groups if group]
    optimizer = torch.optim.AdamW([dict(params=group) for group in groups], lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)

    def backward(ids, labels):
        """Adds the gradients of a step. The micro-batches' losses, on the last stage."""
        losses = []
        if pipeline is not None:
            schedule.step(*([ids] if is_first else []), target=labels if is_last else None,
                          losses=losses if is_last else None, return_outputs=False)
            return losses
        for ids, labels in zip(ids.split(arguments.micro_batch), labels.split(arguments.micro_batch)):
            loss = loss_of(model(ids), labels)
            (loss / num_micro_batches).backward()
            losses.append(loss)
        return losses

    losses = []
    for step in range(steps):
        if step == arguments.warmup:
            dist.barrier()
            begin = time.perf_counter()
        ids = tokens[step]
        labels = F.pad(ids[:, 1:], (0, 1), value=-100)
        with loss_parallel():
            parts = backward(ids, labels)
        clip(groups, 1.0, pipeline)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum((part.full_tensor() if isinstance(part, DTensor) else part).item() for part in parts)
                      / num_micro_batches)
    dist.barrier()
    seconds = time.perf_counter() - begin
    if is_last and mesh.get_local_rank("tp") == 0:
        rate = (steps - arguments.warmup) * batch * seq_len / seconds
        print(json.dumps({"tokens_per_second": rate, "parameters": parameters, "losses": losses}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
