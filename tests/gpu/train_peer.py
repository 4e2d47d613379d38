"""A peer of the kit's throughput: the same model in a plain PyTorch training loop, as fast as PyTorch makes it.

    python3 train_peer.py --peer huggingface --tokens tokens.json --model '{"hidden_size": 768, ...}' --micro-batch 16

`huggingface` is transformers' Llama, compiled as a whole with static shapes. `torchtitan` is a plain Llama in that
trainer's manner: each block is compiled, and so is the loss, which is taken in chunks of tokens. Both have fused AdamW,
clipped gradients and scaled-dot-product attention with the backend that PyTorch prefers. `autocast` keeps fp32 weights
and gradients and computes in bf16; `bf16` keeps everything, the optimizer's state too, in bf16. Prints one line of
JSON. Exit 5: torch, transformers or the device is missing.
"""

import argparse
import json
import os
import sys
import time

BEGIN = time.perf_counter()
os.environ.setdefault("HF_HUB_OFFLINE", "1")

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    print(f"{sys.executable}: {error}", file=sys.stderr)
    sys.exit(5)

LOSS_CHUNK = 2048  # tokens


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config["head_dim"]
        hidden = config["hidden_size"]
        self.wq = nn.Linear(hidden, self.heads * self.head_dim, bias=False)
        self.wk = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(self.heads * self.head_dim, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape

        def turned(heads):
            first, second = heads.float().chunk(2, dim=-1)
            return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(heads.dtype)

        q = turned(self.wq(x).view(batch, seq, self.heads, self.head_dim)).transpose(1, 2)
        k = turned(self.wk(x).view(batch, seq, self.kv_heads, self.head_dim)).transpose(1, 2)
        v = self.wv(x).view(batch, seq, self.kv_heads, self.head_dim).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(y.transpose(1, 2).reshape(batch, seq, -1))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.attention_norm = nn.RMSNorm(hidden, eps=config["rms_norm_eps"])
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(hidden, eps=config["rms_norm_eps"])
        self.w1 = nn.Linear(hidden, inner, bias=False)
        self.w2 = nn.Linear(inner, hidden, bias=False)
        self.w3 = nn.Linear(hidden, inner, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        y = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class PlainLlama(nn.Module):
    def __init__(self, config, mode):
        super().__init__()
        hidden, vocab = config["hidden_size"], config["vocab_size"]
        self.embedding = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Block(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(hidden, eps=config["rms_norm_eps"])
        self.output = nn.Linear(hidden, vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        half = config["head_dim"] // 2
        angles = torch.outer(torch.arange(config["max_position_embeddings"]).float(), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)
        self.loss_of_chunk = self.chunk_loss
        if mode:
            for layer in self.layers:
                layer.compile(fullgraph=True, dynamic=False, mode=mode)
            self.loss_of_chunk = torch.compile(self.chunk_loss, dynamic=False, mode=mode)

    def chunk_loss(self, hidden, targets):
        return F.cross_entropy(self.output(hidden).float(), targets, reduction="sum", ignore_index=-100)

    def train_step(self, ids, autocast, scale):
        """Adds the gradients of scale * the mean loss; returns it."""
        with autocast:
            x = self.embedding(ids).to(torch.bfloat16)
            for layer in self.layers:
                x = layer(x, self.cos, self.sin)
            x = self.norm(x).flatten(0, 1)
        targets = torch.cat((ids[:, 1:], ids.new_full((ids.shape[0], 1), -100)), dim=1).flatten()
        num_targets = ids.shape[0] * (ids.shape[1] - 1)
        head = x.detach().requires_grad_()
        total = torch.zeros((), device=ids.device)
        for chunk, target in zip(head.split(LOSS_CHUNK), targets.split(LOSS_CHUNK)):
            with autocast:
                loss = self.loss_of_chunk(chunk, target) * (scale / num_targets)
            loss.backward()
            total += loss.detach()
        x.backward(head.grad)
        return total


# Each takes the mode of torch.compile, None: not compiled.
def huggingface(config, mode):
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        print(f"{sys.executable}: {error}", file=sys.stderr)
        sys.exit(5)
    model = LlamaForCausalLM(LlamaConfig(**config, attn_implementation="sdpa")).train()
    forward = torch.compile(model, dynamic=False, mode=mode) if mode else model

    def train_step(ids, autocast, scale):
        with autocast:
            loss = forward(input_ids=ids, labels=ids, use_cache=False).loss * scale
        loss.backward()
        return loss.detach().float()

    return model, train_step


def torchtitan(config, mode):
    model = PlainLlama(config, mode).train()
    return model, model.train_step


PEERS = {"huggingface": huggingface, "torchtitan": torchtitan}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=PEERS, default="huggingface")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--tokens", required=True, help="JSON file: [steps][batch][seq_len]")
    parser.add_argument("--model", required=True, type=json.loads, help="fields of LlamaConfig")
    parser.add_argument("--micro-batch", type=int, required=True, help="sequences")
    parser.add_argument("--warmup", type=int, default=4, help="steps that are not timed; compiling is in the first")
    parser.add_argument("--precision", choices=("autocast", "bf16"), default="autocast")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--max-autotune", action="store_true", help="compiling takes minutes, and products may be faster")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no CUDA device", file=sys.stderr)
        return 5

    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")  # TF32 for what is left in fp32: the peer at its best
    with device:
        mode = "max-autotune-no-cudagraphs" if arguments.max_autotune else "default"
        model, train_step = PEERS[arguments.peer](arguments.model, None if arguments.no_compile else mode)
    parameters = sum(p.numel() for p in model.parameters())
    if arguments.precision == "bf16":
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=arguments.precision == "autocast")

    with open(arguments.tokens, encoding="utf-8") as file:
        tokens = torch.tensor(json.load(file), dtype=torch.long)
    tokens = tokens.pin_memory() if cuda else tokens
    steps, batch, seq_len = tokens.shape
    losses = []
    first_step = begin = 0.0
    for step in range(steps):
        if step == arguments.warmup:
            if cuda:
                torch.cuda.synchronize()
            begin = time.perf_counter()
        micro_batches = tokens[step].to(device, non_blocking=True).split(arguments.micro_batch)
        total = torch.zeros((), device=device)
        for ids in micro_batches:
            total += train_step(ids, autocast, 1 / len(micro_batches))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
        if step == 0:
            losses[0].item()
            first_step = time.perf_counter() - BEGIN
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    print(json.dumps({"tokens_per_second": (steps - arguments.warmup) * batch * seq_len / seconds,
                      "parameters": parameters, "first_loss": losses[0].item(), "last_loss": losses[-1].item(),
                      "first_step_seconds": first_step,
                      "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
