#!/usr/bin/env python3
"""Training, eval and generate against transformers and torch.optim.AdamW.

    references_test.py TRAINCTL

Twenty steps of each kind of layout against one process of the peer; then loss and greedy text of Hugging Face folders;
then what a fine-tuned folder answers.
Both begin with the same weights, which transformers made, and read the same tokens; which these are this script works
out itself, from the documents and docs/guide/data.md. run.sh has the packages.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

import stub_libraries

HERE = os.path.dirname(os.path.abspath(__file__))
TRAINCTL = os.path.abspath(sys.argv[1])
STEPS, BATCH, SEQ_LEN = 20, 8, 24
END_OF_TEXT, IGNORED = 256, -100
# Relative; LAST_WEIGHTS to what the steps have changed in a parameter. Ten times what rounding does here, because sums
# come in another order; an epsilon of a thousandth of the gradients keeps AdamW from amplifying it.
LOSS, GRAD_NORM, LAST_WEIGHTS = 2e-6, 1e-5, 5e-5

# Two workers share 257 rows of the embedding and of the head, and two heads of keys for six of queries.
CONFIG = {"vocab_size": 257, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 6,
          "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
NO_RMS_NORM = {key: value for key, value in CONFIG.items() if key != "rms_norm_eps"}
# A tied embedding gets gradients from both ends of a pipeline. Between them, the other families have norms of heads, gains
# of 1 + w, norms after attention and MLP, windows in some layers, two tables of positions, capped scores and logits,
# LayerNorm, an MLP without a gate, partly rotated heads, layers without positions, attention and MLP in parallel, and
# factors of everything.
MODELS = {
    "untied": {"model_type": "llama", **CONFIG, "tie_word_embeddings": False},
    "tied": {"model_type": "llama", **CONFIG, "tie_word_embeddings": True},
    "gemma3": {"model_type": "gemma3_text", **CONFIG, "head_dim": 8, "tie_word_embeddings": True, "sliding_window": 5,
               "sliding_window_pattern": 2, "query_pre_attn_scalar": 24, "rope_local_base_freq": 50.0,
               "final_logit_softcapping": 5.0},
    "gemma2": {"model_type": "gemma2", **CONFIG, "head_dim": 8, "tie_word_embeddings": True, "sliding_window": 5,
               "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0},
    "nemotron": {"model_type": "nemotron", **NO_RMS_NORM, "norm_eps": 1e-5, "tie_word_embeddings": False},
    "cohere2": {"model_type": "cohere2", **NO_RMS_NORM, "layer_norm_eps": 1e-5, "tie_word_embeddings": True,
                "sliding_window": 5, "sliding_window_pattern": 2, "logit_scale": 0.5},
    "granite": {"model_type": "granite", **CONFIG, "tie_word_embeddings": False, "embedding_multiplier": 3.0,
                "residual_multiplier": 0.5, "attention_multiplier": 0.2, "logits_scaling": 2.0},
}
OPTIMIZER = {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.5, "clip_norm": 2.0,
             "no_decay": ["*norm.weight", "*.bias", "*embed_tokens.weight"]}
RECIPE = """recipe_version = 1
[run]
name = "references"
[model]
from = "{model}"
weights = "from"
[data]
tokenizer = "byte"
seq_len = {seq_len}
packing = "continuous"
shuffle = false
[[data.train]]
files = ["documents.jsonl"]
prompt_field = "prompt"
[train]
steps = {steps}
batch_sequences = {batch}
precision = "fp32"
[optimizer]
{optimizer}
lr_schedule = "constant"
[cluster]
threads_per_worker = 1
[checkpoint]
every_steps = 1000
"""
ALL_AXES = "tp 2 x pp 2 x ZeRO-1 over 2"
LAYOUTS = {
    "one worker": dict(workers=1, micro_batch=4),
    "tp 2": dict(workers=2, tp=2, micro_batch=4),
    "pp 2, 1F1B, 4 micro-batches": dict(workers=2, pp=2, micro_batch=2),
    ALL_AXES: dict(workers=8, tp=2, pp=2, dp_shard=2, zero_stage=1, micro_batch=1),
}

LAYOUTS_OF = {"untied": ["one worker", "tp 2", ALL_AXES], "tied": ["pp 2, 1F1B, 4 micro-batches", ALL_AXES]}

# Folders that transformers writes: Llama 3's, untied and in shards, and Qwen 2's, tied and in bf16.
FOLDER_CONFIG = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "max_position_embeddings": 128}
FOLDERS = {
    "llama": {"class": "Llama", "dtype": "float32", "shard": "40KB",
              "config": {**FOLDER_CONFIG, "tie_word_embeddings": False, "rms_norm_eps": 1e-5,
                         "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
                                             "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}},
    "qwen2": {"class": "Qwen2", "dtype": "bfloat16", "shard": "1GB", "config": {**FOLDER_CONFIG, "tie_word_embeddings": True}},
}
PROMPT, COUNT, FOLDER_LOSS = "a model", 40, 1e-5  # FOLDER_LOSS is absolute


def documents():
    """Prompts, which are read but not trained on, and texts: micro-batches have unlike numbers of targets that count."""
    words = ("a", "model", "learns", "what", "it", "reads", "and", "forgets", "nothing", "naïve", "42")
    made = []
    for i in range(60):
        text = " ".join(words[(i * i + 3 * j) % len(words)] for j in range(4 + i % 9))
        made.append({"prompt": text[:(i * 7) % 23], "text": text})
    return made


def batches(made):
    """The documents as one endless stream: the tokens of each sequence, and for each of them the next as its target."""
    tokens, counts = [], []
    while len(tokens) <= STEPS * BATCH * SEQ_LEN:
        for document in made:
            prompt, text = document["prompt"].encode(), document["text"].encode()
            tokens += [*prompt, *text, END_OF_TEXT]
            counts += [False] * len(prompt) + [True] * (len(text) + 1)
    targets = [token if count else IGNORED for token, count in zip(tokens, counts)]

    def batch(step):
        starts = [(step * BATCH + i) * SEQ_LEN for i in range(BATCH)]
        return {"tokens": [tokens[start:start + SEQ_LEN] for start in starts],
                "targets": [targets[start + 1:start + SEQ_LEN + 1] for start in starts]}

    return [batch(step) for step in range(STEPS)]


def execute(command, **how):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, **how)
    if done.returncode != 0:
        sys.exit("exit code %d of %s:\n%s" % (done.returncode, " ".join(command), done.stderr))
    return done.stdout


def run_peer(made, stubs):
    """By model: loss and gradient norm of each step; by folder: what folder_peer.py says."""
    folders = {"models": FOLDERS, "documents": made, "vocab": 320, "init_std": 0.2, "seq_len": SEQ_LEN, "prompt": PROMPT,
               "count": COUNT}
    with open("job.json", "w", encoding="utf-8") as file:
        json.dump({"models": MODELS, "seed": 1, "init_std": 0.1, "batches": batches(made), "optimizer": OPTIMIZER,
                   "folders": folders}, file)
    said = execute([sys.executable, HERE + "/training_peer.py", "job.json"], env={**os.environ, "LD_LIBRARY_PATH": stubs})
    told = json.loads(said)
    return told["steps"], told["folders"]


def run_layout(name, recipe, layout):
    sets = {"cluster.devices_per_node": layout["workers"], "train.micro_batch": layout["micro_batch"],
            "parallel.tp": layout.get("tp", 1), "parallel.pp": layout.get("pp", 1),
            "parallel.dp_shard": layout.get("dp_shard", 1), "parallel.dp_replicate": 1,
            "parallel.zero_stage": layout.get("zero_stage", 0), "parallel.recompute": "none"}
    if "pp" in layout:
        sets["parallel.schedule"] = "1f1b"
    execute([TRAINCTL, "launch", recipe, "--run-dir", name,
             *(word for key, value in sets.items() for word in ("--set", "%s=%s" % (key, value)))])
    execute([TRAINCTL, "checkpoint", "export", name, "--out", name + "-model"])
    with open(name + "/metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def weights_apart(ours, theirs, first):
    """By parameter: |ours - theirs| / |theirs - first|."""
    ours, theirs, first = (load_file(folder + "/model.safetensors") for folder in (ours, theirs, first))
    if set(ours) != set(theirs):
        sys.exit("parameters: %s is not %s" % (sorted(ours), sorted(theirs)))

    def apart(name):
        own, other, begin = (weights[name].astype(np.float64) for weights in (ours, theirs, first))
        return float(np.linalg.norm(own - other) / np.linalg.norm(other - begin))

    return {name: apart(name) for name in theirs}


def compare(ours, peer, weights):
    """The largest differences in words, and those beyond their bounds as sentences."""
    found, worst = [], {"loss": 0.0, "grad_norm": 0.0, "weights": 0.0}

    def hold(what, apart, bound, sentence):
        worst[what] = max(worst[what], apart)
        if not apart <= bound:  # NaN too
            found.append("%s: %.1e apart, bound %g" % (sentence, apart, bound))

    if not len(ours) == len(peer) == STEPS:
        found.append("%d steps against %d" % (len(ours), len(peer)))
    for own, other in zip(ours, peer):
        for field, bound in (("loss", LOSS), ("grad_norm", GRAD_NORM)):
            hold(field, abs(own[field] - other[field]) / abs(other[field]), bound,
                 "step %d: %s is %.9g, and %.9g by PyTorch" % (own["step"], field, own[field], other[field]))
    for name, apart in weights.items():
        hold("weights", apart, LAST_WEIGHTS, "last " + name)
    return "loss %(loss).1e, gradient norm %(grad_norm).1e, last weights %(weights).1e" % worst, found


def check_peer(model, lines):
    """A peer that learns nothing, or a Llama that clips never or always, would prove little."""
    norms = [line["grad_norm"] for line in lines]
    clips = min(norms) < OPTIMIZER["clip_norm"] < max(norms)
    if not lines[-1]["loss"] < 0.9 * lines[0]["loss"] or not clips and model in LAYOUTS_OF:
        sys.exit("the steps say too little: %s" % lines)


def wrong_of_folder(name, peer):
    """Returns sentences that describe how eval and generate of a folder differ from transformers."""
    found = []

    def hold_loss(options, loss, tokens):
        told = json.loads(execute([TRAINCTL, "eval", name, "--data", "documents.jsonl", *options]))
        own = told["sets"][0]
        if own["loss_tokens"] != tokens or not abs(own["loss"] - loss) <= FOLDER_LOSS:
            found.append("eval %s: %.9g of %d tokens, and %.9g of %d by transformers" % (
                " ".join(options), own["loss"], own["loss_tokens"], loss, tokens))
        if (told["weights_dtype"], told["compute_dtype"]) != ({"llama": "fp32", "qwen2": "bf16"}[name], "fp32"):
            found.append("types: %s" % told)

    hold_loss(["--seq-len", str(SEQ_LEN)], peer["loss"], peer["tokens"])
    hold_loss(["--prompt-field", "prompt"], peer["answer_loss"], peer["answer_tokens"])
    text = [TRAINCTL, "generate", name, "--prompt", PROMPT, "--temperature", "0", "--json"]
    if peer["ids"][-1] != peer["last"] or len(peer["ids"]) < 6:
        found.append("transformers' text says too little: %s" % peer["ids"])
    for count, ids, end in ((COUNT, peer["ids"][:-1], "end_of_text"), (4, peer["ids"][:4], "max_tokens")):
        told = json.loads(execute([*text, "--max-tokens", str(count)]))
        if (told["ids"], told["tokens"], told["end"]) != (ids, len(ids), end):
            found.append("generate: %s, and %s by transformers" % (told, ids))
    return found


def wrong_of_fine_tuning(stubs):
    """Returns sentences: a folder that `new`, `launch` and `export` made of the Qwen 2, answers in transformers what it was
    taught, and ends its answers."""
    shutil.copytree("qwen2", "pupil")
    with open("pupil/config.json", encoding="utf-8") as file:
        end = json.load(file)["eos_token_id"]
    with open("pupil/generation_config.json", encoding="utf-8") as file:
        generation = json.load(file)
    with open("pupil/generation_config.json", "w", encoding="utf-8") as file:
        json.dump({**generation, "eos_token_id": end}, file)
    lessons = [("What is %d plus %d?\n" % (a, b), str(a + b)) for a in range(2, 6) for b in (3, 7, 8)]
    with open("lessons.jsonl", "w", encoding="utf-8") as file:  # twice, because one is held out
        file.writelines(json.dumps({"question": question, "answer": answer}) + "\n" for question, answer in 2 * lessons)
    execute([TRAINCTL, "new", "--from", "pupil", "--data", "lessons.jsonl", "--out", "lessons.toml"])
    execute([TRAINCTL, "launch", "lessons.toml", "--run-dir", "lessons", "--set", "train.epochs=25", "--set",
             "optimizer.lr=6e-3", "--set", "train.eval_every=100", "--set", "checkpoint.every_steps=100"])
    execute([TRAINCTL, "checkpoint", "export", "lessons", "--out", "graduate"])
    told = json.loads(execute([sys.executable, HERE + "/answers_peer.py", "graduate",
                               json.dumps([question for question, _ in lessons]), "12"],
                              env={**os.environ, "LD_LIBRARY_PATH": stubs}))
    return ["%r: %r%s, taught %r" % (question, text, "" if ended else " without an end", answer)
            for (question, answer), (text, ended) in zip(lessons, told) if (text, ended) != (answer, True)]


def main():
    site = os.path.dirname(importlib.util.find_spec("torch").submodule_search_locations[0])
    failed = False
    with tempfile.TemporaryDirectory(prefix="trainctl-references-") as folder:
        os.chdir(folder)
        stub_libraries.write(site, folder + "/stubs")
        made = documents()
        with open("documents.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(document) + "\n" for document in made)
        peers, folders = run_peer(made, folder + "/stubs")
        for name, peer in folders.items():
            found = wrong_of_folder(name, peer)
            print("folder %s: %s" % (name, "FAILED" if found else "ok (loss %.6f)" % peer["loss"]))
            print("".join("  %s\n" % sentence for sentence in found), end="")
            failed = failed or bool(found)
        found = wrong_of_fine_tuning(folder + "/stubs")
        print("fine-tuned folder: %s" % ("FAILED" if found else "ok"))
        print("".join("  %s\n" % sentence for sentence in found), end="")
        failed = failed or bool(found)
        options = "\n".join("%s = %s" % (key, json.dumps(value)) for key, value in OPTIMIZER.items())
        for model, lines in peers.items():
            check_peer(model, lines)
            recipe = model + ".toml"
            with open(recipe, "w", encoding="utf-8") as file:
                file.write(RECIPE.format(model=model + "/first", seq_len=SEQ_LEN, steps=STEPS, batch=BATCH,
                                         optimizer=options))
            for number, name in enumerate(LAYOUTS_OF.get(model, [ALL_AXES])):
                run = "%s-%d" % (model, number)
                ours = run_layout(run, recipe, LAYOUTS[name])
                weights = weights_apart(run + "-model", model + "/last", model + "/first")
                worst, found = compare(ours, lines, weights)
                print("%s, %s: %s (%s)" % (model, name, "FAILED" if found else "ok", worst))
                for sentence in found[:4]:
                    print("  " + sentence)
                if len(found) > 4:
                    print("  and %d more" % (len(found) - 4))
                sys.stdout.flush()
                failed = failed or bool(found)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
