"""The peer of the kit's throughput: Hugging Face's Llama in a plain training loop, as fast as PyTorch makes it.

    python3 train_hf.py --device cuda --tokens tokens.json --model '{"hidden_size": 768, ...}' --micro-batch 16

torch.compile with static shapes, scaled-dot-product attention, fused AdamW, clipped gradients. `autocast` keeps fp32
weights and gradients and computes in bf16; `bf16` keeps everything, the optimizer's state too, in bf16. Prints one
line of JSON. Exit 5: torch, transformers or the device is missing.
"""

import argparse
import json
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

try:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError as error:
    print(f"{sys.executable}: {error}", file=sys.stderr)
    sys.exit(5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--tokens", required=True, help="JSON file: [steps][batch][seq_len]")
    parser.add_argument("--model", required=True, type=json.loads, help="fields of LlamaConfig")
    parser.add_argument("--micro-batch", type=int, required=True, help="sequences")
    parser.add_argument("--warmup", type=int, default=4, help="steps that are not timed; compiling is in the first")
    parser.add_argument("--precision", choices=("autocast", "bf16"), default="autocast")
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("torch sees no CUDA device", file=sys.stderr)
        return 5

    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")  # TF32 for what is left in fp32: the peer at its best
    with device:
        model = LlamaForCausalLM(LlamaConfig(**arguments.model, attn_implementation="sdpa")).train()
    parameters = sum(p.numel() for p in model.parameters())
    if arguments.precision == "bf16":
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    step_model = model if arguments.no_compile else torch.compile(model, dynamic=False)

    with open(arguments.tokens, encoding="utf-8") as file:
        tokens = torch.tensor(json.load(file), dtype=torch.long)
    tokens = tokens.pin_memory() if cuda else tokens
    steps, batch, seq_len = tokens.shape
    losses = []
    for step in range(steps):
        if step == arguments.warmup:
            if cuda:
                torch.cuda.synchronize()
            begin = time.perf_counter()
        micro_batches = tokens[step].to(device, non_blocking=True).split(arguments.micro_batch)
        total = torch.zeros((), device=device)
        for ids in micro_batches:
            with torch.autocast(device.type, torch.bfloat16, enabled=arguments.precision == "autocast"):
                loss = step_model(input_ids=ids, labels=ids, use_cache=False).loss / len(micro_batches)
            loss.backward()
            total += loss.detach().float()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    print(json.dumps({"tokens_per_second": (steps - arguments.warmup) * batch * seq_len / seconds,
                      "parameters": parameters, "first_loss": losses[0].item(), "last_loss": losses[-1].item(),
                      "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
