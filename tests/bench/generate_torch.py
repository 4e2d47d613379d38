"""The peer of `trainctl generate`: transformers' generate with its key-value cache, greedily, on an exported folder.

    python3 generate_torch.py --model FOLDER --prompt '#include <' --tokens 200 --threads 2

A token is a byte. Prints one line of JSON: tokens per second behind the first, and the text.
"""

import argparse
import json
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--tokens", type=int, required=True, help="to write, at least 2")
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = AutoModelForCausalLM.from_pretrained(arguments.model).eval()
    prompt = torch.tensor([list(arguments.prompt.encode())])

    def generate(count):
        begin = time.perf_counter()
        with torch.inference_mode():
            ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, use_cache=True,
                                 min_new_tokens=count, max_new_tokens=count, pad_token_id=0)
        return time.perf_counter() - begin, ids[0].tolist()

    generate(8)  # warm
    first = min(generate(1)[0] for _ in range(3))
    whole, ids = generate(arguments.tokens)
    print(json.dumps({"tokens_per_second": (arguments.tokens - 1) / (whole - first),
                      "text": bytes(ids).decode(errors="replace")}))


if __name__ == "__main__":
    main()
