"""What a GPU does at its best in the shapes of our models: copies, products, attention, as PyTorch brings them.

    python3 ceilings.py          # one line of JSON: TB/s, TFLOP/s

Exit 5: torch or a GPU is missing.
"""

import argparse
import json
import statistics
import sys

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    print(f"{sys.executable}: {error}", file=sys.stderr)
    sys.exit(5)

# (tokens, width, width of the feed-forward, heads, key heads, size of a head, vocabulary)
MODELS = {"llama-120m": (16384, 768, 2048, 12, 4, 64, 32000), "llama-1b": (8192, 2048, 5632, 32, 4, 64, 32000),
          "8 B": (8192, 4096, 14336, 32, 8, 128, 128256)}
# (batch, tokens, heads, key heads, size of a head)
ATTENTION = {"llama-120m, 16 x 1024": (16, 1024, 12, 4, 64), "llama-1b, 4 x 2048": (4, 2048, 32, 4, 64),
             "llama-1b, 1 x 8192": (1, 8192, 32, 4, 64), "8 B, 1 x 8192": (1, 8192, 32, 8, 128)}
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def seconds(work):
    """Of one call: the median of calls timed by events, after three that are not."""
    for _ in range(3):
        work()
    times = []
    for _ in range(15):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        times.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in times) / 1e3


def copies(device, size):
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    floats = torch.randn(size // 4, device=device)
    return {"copy": 2 * size / seconds(lambda: target.copy_(source)) / 1e12, "read": size / seconds(floats.sum) / 1e12,
            "write": size / seconds(floats.zero_) / 1e12}


def product(device, tokens, into, out):
    x = torch.randn(tokens, into, device=device, dtype=torch.bfloat16)
    w = torch.randn(out, into, device=device, dtype=torch.bfloat16)
    dy = torch.randn(tokens, out, device=device, dtype=torch.bfloat16)
    gradient = torch.zeros(out, into, device=device)
    flops = 2 * tokens * into * out
    calls = {"forward": lambda: x @ w.t(), "input gradient": lambda: dy @ w, "weight gradient": lambda: dy.t() @ x,
             "weight gradient in fp32": lambda: torch.mm(dy.t(), x, out_dtype=torch.float32),
             "weight gradient added in fp32":
                 lambda: torch.addmm(gradient, dy.t(), x, out_dtype=torch.float32, out=gradient),
             "weight gradient and then added": lambda: gradient.add_(dy.t() @ x)}
    return {name: flops / seconds(call) / 1e12 for name, call in calls.items()}


def libraries(device, tokens, into, out):
    """The same product by each of the two libraries that PyTorch has: which one the trainer should ask for."""
    found = {}
    for library in ("cublas", "cublaslt"):
        try:
            torch.backends.cuda.preferred_blas_library(library)
            found[library] = product(device, tokens, into, out)
        except RuntimeError as error:
            found[library] = str(error).splitlines()[0]
    torch.backends.cuda.preferred_blas_library("default")
    return found


def products(device):
    found = {"8192^3": product(device, 8192, 8192, 8192)}
    for model, (tokens, width, inner, heads, kv_heads, head_dim, vocab) in MODELS.items():
        for name, into, out in (("qkv", width, (heads + 2 * kv_heads) * head_dim), ("o", heads * head_dim, width),
                                ("gate and up", width, 2 * inner), ("down", inner, width), ("head", width, vocab)):
            found[f"{model}, {name}"] = product(device, min(tokens, 2048) if name == "head" else tokens, into, out)
    return found


def attention(device):
    found = {}
    for name, (batch, tokens, heads, kv_heads, head_dim) in ATTENTION.items():
        q, k, v = (torch.randn(batch, n, tokens, head_dim, device=device, dtype=torch.bfloat16, requires_grad=True)
                   for n in (heads, kv_heads, kv_heads))
        flops = 2 * batch * heads * tokens * tokens * head_dim  # of the two products of a causal forward
        for backend, kind in BACKENDS.items():
            with sdpa_kernel(kind):
                forward = seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
                out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                gradient = torch.randn_like(out)
                backward = seconds(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
            found[f"{name}, {backend}"] = {"forward": flops / forward / 1e12, "backward": 2.5 * flops / backward / 1e12}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if not torch.cuda.is_available():
        print("torch sees no CUDA device", file=sys.stderr)
        return 5
    device = torch.device("cuda")
    found = {"copies": copies(device, 1 << 30), "products": products(device), "attention": attention(device)}
    found["by_library"] = {name: libraries(device, *shape) for name, shape in
                           {"llama-1b, gate and up": (8192, 2048, 11264), "8 B, down": (8192, 14336, 4096)}.items()}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
