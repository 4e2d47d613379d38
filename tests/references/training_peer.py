"""Trains models of transformers with torch.optim.AdamW: one process, fp32, plain loops.

    training_peer.py JOB.json

JOB: `models` (by name, model_type and fields of its configuration), `seed`, `init_std`, `batches` ([step]["tokens" | "targets"][sequence]
[position]; a target of -100 does not count) and `optimizer`. Saves a model's first weights in the Hugging Face folder
NAME/first, the last ones in NAME/last. `folders` is the job of folder_peer.py, in the same process, since importing
PyTorch takes longer than either. Prints JSON: `steps` has by name each step's loss, and gradient norm before clipping;
`folders` what folder_peer.py returns.
"""

import fnmatch
import json
import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import folder_peer
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging


def build_model(job, config):
    torch.manual_seed(job["seed"])
    # A padding token's row of the embedding would get no gradient.
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config, pad_token_id=None),
                                             attn_implementation="eager").float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Wide enough that attention is far from uniform and every gradient matters.
            noise = job["init_std"] * torch.randn(parameter.shape)
            parameter.copy_(parameter + noise if name.endswith("norm.weight") else noise)
    return model


def build_optimizer(model, options):
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        spared = any(fnmatch.fnmatchcase(name, pattern) for pattern in options["no_decay"])
        (others if spared else decayed).append(parameter)
    return torch.optim.AdamW([{"params": decayed, "weight_decay": options["weight_decay"]},
                              {"params": others, "weight_decay": 0.0}],
                             lr=options["lr"], betas=tuple(options["betas"]), eps=options["eps"])


def train(job, name):
    model = build_model(job, job["models"][name])
    model.save_pretrained(name + "/first")
    optimizer = build_optimizer(model, job["optimizer"])
    lines = []
    for batch in job["batches"]:
        tokens, targets = torch.tensor(batch["tokens"]), torch.tensor(batch["targets"])
        optimizer.zero_grad()
        # The mean over the targets that count; nothing is shifted.
        loss = model(input_ids=tokens, labels=targets, shift_labels=targets, use_cache=False).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), job["optimizer"]["clip_norm"])
        optimizer.step()
        lines.append({"loss": loss.item(), "grad_norm": norm.item()})
    model.save_pretrained(name + "/last")
    return lines


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    print(json.dumps({"steps": {name: train(job, name) for name in job["models"]}, "folders": folder_peer.run(job["folders"])}))


if __name__ == "__main__":
    main()
