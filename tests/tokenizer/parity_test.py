#!/usr/bin/env python3
"""Token ids and decoded texts against the PyPI packages `tokenizers` and `sentencepiece`.

    parity_test.py TRAINCTL [--strings N] [FILTER]

Tokenizers of each style are trained on the spot; then awkward strings (seeded) go through both. Without the
packages it is skipped (exit code 77); run.sh has them installed.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from shared import (DEEPSEEK3, LLAMA3, O200K, QWEN2, WORDS, check_hugging_face, check_sentencepiece, compare,  # or exit code 77
                    Ours, strings)

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers


def corpus():
    """Sentences with many scripts, to train on."""
    rng = random.Random(7)
    lines = []
    for _ in range(1500):
        lines.append(" ".join(rng.choice(WORDS) for _ in range(rng.randrange(3, 20))) + rng.choice(["", "\n", ".", "  "]))
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "..", "docs", "guide", "data.md"), encoding="utf-8") as file:
        lines += file.read().split("\n\n")
    return lines


def byte_level(pre, trainer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainer or trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return tokenizer


def gpt2(folder):
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def gpt2_prefix_space(folder):
    """RoBERTa's way: a space before the text, <s> and </s> around it, a mask that takes the space before it."""
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True)])
    tokenizer.add_tokens([AddedToken("newword", single_word=True), AddedToken("<pad>", lstrip=True, rstrip=True),
                          AddedToken("<|user|>", normalized=False, rstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))
    return tokenizer


def llama3(folder):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated", invert=False),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_level(pre, ignore_merges=True)
    tokenizer.add_special_tokens(["<s>"] + ["<|reserved_%d|>" % i for i in range(20)] + ["<|user|>"])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                      special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])])
    return tokenizer


def qwen2(folder):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated", invert=False),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_level(pre)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens(["newword", AddedToken("<mask>", normalized=False, special=True)])
    return tokenizer


def o200k(folder):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(O200K), "removed", invert=True),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return byte_level(pre)


def deepseek(folder):
    """Several splits one after the other, digits, and every behaviour of Split."""
    split = pre_tokenizers.Split
    pre = pre_tokenizers.Sequence([
        split(Regex(r"[\r\n]"), "isolated"), split(Regex(r"\s?\p{L}+"), "isolated"), split(" x", "merged_with_next"),
        split("ab", "merged_with_previous"), split(Regex(r"[!-/:-~]"), "contiguous"), pre_tokenizers.Punctuation(),
        pre_tokenizers.Digits(individual_digits=True), split("\t", "removed"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return byte_level(pre)


BYTES = ["<0x%02X>" % byte for byte in range(256)]


def in_the_style_of_sentencepiece(replaced, train_pre=None, train_normalizer=None, **model):
    """Trains as `train_*` say, then puts the parts in `replaced` in their place, in the file itself."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **model))
    if train_pre:
        tokenizer.pre_tokenizer = train_pre
    if train_normalizer:
        tokenizer.normalizer = train_normalizer
    bytes_too = BYTES if model.get("byte_fallback") else []
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=1500, special_tokens=["<unk>", "<s>", "</s>"] + bytes_too, limit_alphabet=150, show_progress=False))
    file = json.loads(tokenizer.to_str())
    # Bytes are tokens of the model, not words to look for in the text.
    file["added_tokens"] = [token for token in file["added_tokens"] if token["content"] not in BYTES]
    file.update(replaced)
    return Tokenizer.from_str(json.dumps(file))


REPLACE_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
REPLACE_MARK = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
BACK_TO_TEXT = [REPLACE_MARK, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
BOS = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
       "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}


def llama2(folder):
    return in_the_style_of_sentencepiece(
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, REPLACE_SPACE]},
         "pre_tokenizer": None, "decoder": {"type": "Sequence", "decoders": BACK_TO_TEXT + [STRIP]},
         "post_processor": BOS}, pre_tokenizers.Metaspace(), byte_fallback=True, fuse_unk=True)


def mistral(folder):
    return in_the_style_of_sentencepiece(
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
         "decoder": {"type": "Sequence", "decoders": BACK_TO_TEXT + [STRIP]}, "post_processor": BOS},
        pre_tokenizers.Metaspace(), byte_fallback=True, fuse_unk=True)


def gemma(folder):
    """Merges over rows of spaces; no space before the text."""
    return in_the_style_of_sentencepiece(
        {"normalizer": REPLACE_SPACE, "pre_tokenizer": {"type": "Split", "pattern": {"String": " "},
                                                        "behavior": "MergedWithPrevious", "invert": False},
         "decoder": {"type": "Sequence", "decoders": BACK_TO_TEXT}},
        pre_tokenizers.Split(Regex("▁+[^▁]*"), "isolated"), normalizers.Replace(" ", "▁"), byte_fallback=True)


def over_words(folder):
    """Learned over whole lines, so that merges go over the borders of words; unknown characters stay single."""
    return in_the_style_of_sentencepiece({"decoder": {"type": "Sequence", "decoders": BACK_TO_TEXT}},
                                         None, normalizers.Replace(" ", "▁"), fuse_unk=False)


def metaspace(folder):
    return in_the_style_of_sentencepiece({"decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}},
                                         pre_tokenizers.Metaspace(), fuse_unk=True)


STYLES = [gpt2, gpt2_prefix_space, llama3, qwen2, o200k, deepseek, llama2, mistral, gemma, over_words, metaspace]


# sentencepiece's own files: what its trainer is told.
LLAMA_LIKE = {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
              "remove_extra_whitespaces": False, "split_digits": True, "character_coverage": 0.98}
MODELS = {
    "sp_bpe_llama": LLAMA_LIKE,
    "sp_bpe_gemma": {**LLAMA_LIKE, "add_dummy_prefix": False, "allow_whitespace_only_pieces": True,
                     "user_defined_symbols": ["<|user|>", "▁▁", "▁▁▁▁", "newword", "<mask>", "\n\n"]},
    "sp_bpe_plain": {"model_type": "bpe", "character_coverage": 0.98, "control_symbols": ["<mask>"]},
    "sp_bpe_over_words": {"model_type": "bpe", "split_by_whitespace": False, "character_coverage": 0.99},
    "sp_unigram": {"model_type": "unigram", "character_coverage": 0.98},
    "sp_unigram_bytes": {"model_type": "unigram", "byte_fallback": True, "user_defined_symbols": ["<|user|>", "newword"]},
    "sp_unigram_suffix": {"model_type": "unigram", "treat_whitespace_as_suffix": True,
                          "normalization_rule_name": "nfkc_cf"},
}


def train_sentencepiece(name, options, folder):
    prefix = os.path.join(folder, name)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line.replace("\n", " ") for line in corpus()), model_prefix=prefix, vocab_size=900,
        hard_vocab_limit=False, minloglevel=2, **options)
    return prefix + ".model"


def check_trained(style, folder, trainctl, texts):
    tokenizer = style(folder)
    path = os.path.join(folder, style.__name__ + ".json")
    tokenizer.save(path)
    return check_hugging_face(style.__name__, tokenizer, path, trainctl, texts)


def check_training(folder, trainctl, texts):
    """What `trainctl tokenizer train` writes, read by the reference."""
    text = os.path.join(folder, "corpus.txt")
    jsonl = os.path.join(folder, "corpus.jsonl")
    with open(text, "w", encoding="utf-8", newline="") as file:
        file.write("\n".join(corpus()))
    with open(jsonl, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": line}) + "\n" for line in corpus())
    path = os.path.join(folder, "trained.json")
    subprocess.run([trainctl, "tokenizer", "train", text, jsonl, "--vocab", "1000", "--out", path, "--special",
                    "<|endoftext|>", "--special", "<|user|>"], check=True, stdout=subprocess.DEVNULL)
    tokenizer = Tokenizer.from_file(path)
    if tokenizer.get_vocab_size() != 1000 or tokenizer.token_to_id("<|user|>") != 1:
        return [f"trained: {tokenizer.get_vocab_size()} tokens, <|user|> is {tokenizer.token_to_id('<|user|>')}"]
    rows = [e.ids for e in tokenizer.encode_batch(texts)]
    ours = Ours(trainctl, path)
    wrong = compare("trained", "encode", texts, rows, ours.encode(texts))
    wrong += compare("trained", "decode", texts, texts, ours.decode(rows))
    # As good as the reference's own training: no more tokens for the text it learned from.
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=1000, special_tokens=["<|endoftext|>", "<|user|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    sizes = [sum(len(e.ids) for e in t.encode_batch(corpus())) for t in (theirs, tokenizer)]
    print(f"trained: {sizes[1]} tokens for the corpus, {sizes[0]} by the reference's training")
    if sizes[1] > sizes[0] * 1.01:
        wrong.append(f"trained: {sizes[1]} tokens for the corpus where the reference's needs {sizes[0]}")
    return wrong


# All of the planes that have characters, so that no version of Unicode is asked which they are; and some private ones.
POINTS = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000), *range(0xF0000, 0xF0100), 0x10FFFF]
CATEGORIES = """L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn""".split()
CLASSES = [r"\w", r"\W", r"[\w]", r"[^\w]", r"\s", r"\S", r"[^\S]", r"\d", r"\D", r"\P{L}", r"[^\P{M}\p{Lu}]", r"\p{^N}", ".",
           r"[^\x00-\x{2fff}]", "[一-龥぀-ヿ]", r"(?i:[a-z])", r"(?i:[^k-s])", r"(?i:s|k)", r"(?i:\S)",
           *(r"\p{%s}" % name for name in CATEGORIES + ["Han", "Latin", "Cyrl", "hiragana", "Old_Italic", "Common", "Inherited"])]


def characters_and_others():
    """All characters that the reference's patterns know, and some of the code points that they do not."""
    text = "".join(map(chr, POINTS))
    assigned = "".join(part for part, _ in pre_tokenizers.Split(Regex(r"\p{Cn}"), "removed").pre_tokenize_str(text))
    numbers_of_unicode_17 = [*range(0x11DE0, 0x11DF0), *range(0x16FF0, 0x16FF8)]
    return sorted({*assigned, *map(chr, POINTS[::16]), *map(chr, numbers_of_unicode_17)})


def check_classes(folder, trainctl):
    """Which characters a class has: the matches are taken out of the text, the bytes of the others are the ids."""
    points = characters_and_others()
    texts = ["".join(points[i:i + 256]) for i in range(0, len(points), 256)]
    alphabet = {token: i for i, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    wrong = []
    for number, pattern in enumerate(CLASSES):
        tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        path = os.path.join(folder, f"class{number}.json")
        tokenizer.save(path)
        wrong += compare("classes", pattern, texts, [e.ids for e in tokenizer.encode_batch(texts)],
                         Ours(trainctl, path).encode(texts))
    return wrong


def words_of(split):
    """A tokenizer whose ids show where words end: within a word, a and b are one token with the byte next to them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("a", byte) for byte in alphabet] + [(byte, "b") for byte in alphabet]
    tokens = alphabet + sorted({left + right for left, right in merges})
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def check_code_points(folder, trainctl):
    """Checks each character between two letters, with real patterns, other steps and normal forms."""
    def isolated(*patterns):
        return words_of([pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns])
    cases = {"llama3": isolated(LLAMA3), "qwen2": isolated(QWEN2), "deepseek": isolated(*DEEPSEEK3), "o200k": isolated(O200K),
             "steps": words_of([pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True)])}
    points = characters_and_others()
    texts = ["a" + point + "b" for point in points]
    wrong = compare_cases("code_points", cases, texts, folder, trainctl)
    forms = {}
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        forms[form] = words_of([])
        forms[form].normalizer = getattr(normalizers, form)()
    forms["single_word"] = words_of([])
    forms["single_word"].add_tokens([AddedToken("xy", single_word=True)])
    # Marks of several classes around it; then "xy" behind it, which is a token if the character is in no word.
    texts = ["a\u0334" + "\u0345b\u0334".join(points[i:i + 8]) + "\u0323\u0301" for i in range(0, len(points), 8)]
    texts += ["".join(point + "xy" for point in points[i:i + 8]) for i in range(0, len(points), 8)]
    return wrong + compare_cases("code_points", forms, texts, folder, trainctl)


def compare_cases(what, cases, texts, folder, trainctl):
    wrong = []
    for name, tokenizer in cases.items():
        path = os.path.join(folder, f"{what}_{name}.json")
        tokenizer.save(path)
        wrong += compare(what, name, texts, [e.ids for e in tokenizer.encode_batch_fast(texts)], Ours(trainctl, path).encode(texts))
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--strings", type=int, default=10000)
    args = parser.parse_intermixed_args()
    trainctl = os.path.abspath(args.trainctl)
    texts = strings(args.strings)
    wrong = []
    with tempfile.TemporaryDirectory(prefix="trainctl-tokenizer-") as folder:
        for style in STYLES:
            if args.filter in style.__name__:
                wrong += check_trained(style, folder, trainctl, texts)
        for name, options in MODELS.items():
            if args.filter in name:
                wrong += check_sentencepiece(name, train_sentencepiece(name, options, folder), trainctl, texts)
        if args.filter in "classes":
            wrong += check_classes(folder, trainctl)
        if args.filter in "code_points":
            wrong += check_code_points(folder, trainctl)
        if args.filter in "trained":
            wrong += check_training(folder, trainctl, texts)
    for line in wrong:
        print("WRONG " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
