"""What the model in a folder answers by transformers: answers_peer.py FOLDER PROMPTS_JSON COUNT.

Prints a list: for each prompt, the greedy text without its last token, and whether that token is the folder's end of a
text. At most COUNT tokens each.
"""

import json
import sys

import torch
import transformers


def main():
    folder, prompts, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    told = []
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt")
        ids = model.generate(**inputs, do_sample=False, max_new_tokens=count, pad_token_id=0)[0].tolist()
        answer = ids[inputs["input_ids"].shape[1]:]
        told.append([tokenizer.decode(answer[:-1]), answer[-1] == tokenizer.eos_token_id])
    print(json.dumps(told))


if __name__ == "__main__":
    main()
