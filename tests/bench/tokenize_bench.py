#!/usr/bin/env python3
"""`trainctl data prepare` beside Python's `tokenizers` (encode_batch, all cores), on the same JSONL.

    tests/tokenizer/run.sh tests/bench/tokenize_bench.py TRAINCTL [--mb N] [--text FOLDER] [--tokenizer FILE] [--rounds N]

Without --tokenizer one of GPT-2's style with 32,000 tokens is trained on the text. Both sides read the JSONL, tokenize
and write the ids as uint16 or int32; start-up and the loading of the tokenizer are told apart. Prints JSON.
"""
import argparse
import array
import json
import os
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


def documents(folder, limit_bytes):
    """Text files of a folder tree, in pieces of some KB, until there are enough bytes."""
    total = 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            try:
                with open(os.path.join(parent, name), encoding="utf-8") as file:
                    text = file.read(200000)
            except (OSError, UnicodeDecodeError):
                continue
            for begin in range(0, len(text), 4000):
                yield text[begin:begin + 4000]
                total += len(text[begin:begin + 4000].encode())
                if total >= limit_bytes:
                    return


def train(texts, path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=32000, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tokenizer.save(path)


def theirs(path, jsonl, out):
    """Reads, encodes and writes in batches of 1,000 documents."""
    tokenizer = Tokenizer.from_file(path)
    code = "H" if tokenizer.get_vocab_size() <= 65536 else "i"
    begin = time.perf_counter()
    with open(jsonl, encoding="utf-8") as file, open(out, "wb") as sink:
        batch = []

        def flush():
            for encoding in tokenizer.encode_batch_fast(batch):
                array.array(code, encoding.ids).tofile(sink)
            batch.clear()
        for line in file:
            batch.append(json.loads(line)["text"])
            if len(batch) == 1000:
                flush()
        flush()
    return time.perf_counter() - begin


def ours(trainctl, path, jsonl, prefix, *args):
    begin = time.perf_counter()
    subprocess.run([trainctl, "data", "prepare", jsonl, "--tokenizer", path, "--out", prefix, "--force", *args],
                   stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--text", default="/usr/include")
    parser.add_argument("--tokenizer")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainctl-bench-") as folder:
        texts = list(documents(args.text, args.mb << 20))
        text_mb = sum(len(text.encode()) for text in texts) / 1e6
        path = args.tokenizer or folder + "/tokenizer.json"
        if not args.tokenizer:
            train(texts[:4000], path)
        jsonl = folder + "/text.jsonl"
        with open(jsonl, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
        with open(folder + "/one.jsonl", "w", encoding="utf-8") as file:
            file.write('{"text": "a"}\n')
        rounds = {"tokenizers_s": [], "trainctl_s": [], "trainctl_start_s": []}
        for _ in range(args.rounds):  # one beside the other, so that a busy machine hits both
            rounds["tokenizers_s"].append(theirs(path, jsonl, folder + "/theirs.bin"))
            rounds["trainctl_s"].append(ours(args.trainctl, path, jsonl, folder + "/ours"))
            rounds["trainctl_start_s"].append(ours(args.trainctl, path, folder + "/one.jsonl", folder + "/one"))
        with open(folder + "/theirs.bin", "rb") as a, open(folder + "/ours.bin", "rb") as b:
            same = a.read() == b.read()
        best = {key: round(min(values), 3) for key, values in rounds.items()}
        work_s = best["trainctl_s"] - best["trainctl_start_s"]
        print(json.dumps({"text_mb": round(text_mb, 1), "documents": len(texts), "cores": os.cpu_count(), **best,
                          "tokenizers_mb_per_s": round(text_mb / best["tokenizers_s"], 1),
                          "trainctl_mb_per_s": round(text_mb / work_s, 1),
                          "ratio": round(best["tokenizers_s"] / work_s, 2),
                          "ratio_with_start": round(best["tokenizers_s"] / best["trainctl_s"], 2), "same_tokens": same},
                         indent=2))
        return 0 if same else 7


if __name__ == "__main__":
    sys.exit(main())
