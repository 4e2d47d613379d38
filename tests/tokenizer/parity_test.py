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
import unicodedata

try:
    import sentencepiece
    import tokenizers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPACES = ("\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
          "\u202f\u205f\u3000\u200b\u180e\ufeff")
WORDS = """the of and in that it's I'm don't we'll they've you're HE'S WE'LL isn't x=1; for (int i = 0; i < 10; ++i) {
 price 1234567 3.14159 2024-01-31 ½ ² ٣٤ 百 naïve café Straße ΣΊΣΥΦΟΣ İstanbul ſ K привет мир 你好世界 こんにちは 안녕하세요
 שלום مرحبا नमस्ते ไทย ភាសា 👩‍👩‍👧‍👦 👍🏽 🇩🇪 e\u0301 a\u0308\u0323 \u1e9b\u0323 ﬁ ㍿ Å \u212b ① ２ ▁ ▁▁ <0x41> </s> <s> <unk>""".split(" ")
SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<|user|>", "<mask>", "<pad>", "newword", "<0x41>", "▁", "<unk>"]


def corpus():
    """Sentences with many scripts, to train on."""
    rng = random.Random(7)
    lines = []
    for _ in range(1500):
        lines.append(" ".join(rng.choice(WORDS) for _ in range(rng.randrange(3, 20))) + rng.choice(["", "\n", ".", "  "]))
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "..", "docs", "data.md"), encoding="utf-8") as file:
        lines += file.read().split("\n\n")
    return lines


def characters():
    """What both Python's Unicode and the reference's (which is older) know, by plane: for the others its NFC is not
    that of the standard."""
    nfc = normalizers.NFC()
    planes = {}
    left_out = 0
    for point in range(0x110000):
        if 0xD800 <= point < 0xE000 or unicodedata.category(chr(point)) == "Cn":
            continue
        probe = unicodedata.normalize("NFD", chr(point)) + "\u0334 \u0345" + chr(point)
        if nfc.normalize_str(probe) != unicodedata.normalize("NFC", probe):
            left_out += 1
            continue
        planes.setdefault(point >> 16, []).append(chr(point))
    print(f"{sum(map(len, planes.values()))} characters; {left_out} are not in the reference's tables for NFC")
    return planes


def strings(count):
    rng = random.Random(20240131)
    planes = characters()
    marks = [c for c in planes[0] + planes[1] if unicodedata.combining(c)]
    numbers = sorted(planes)
    latin = [chr(c) for c in range(0x20, 0x250)]
    out = ["", " ", "  ", "\n", "a", "\x00", "a\x00b", "aaaa" * 500, " " * 1000, "é" * 700, "▁" * 300, "\u0301" * 200]

    # Long enough for what adds up over a text.
    out += [" ".join(rng.choice(WORDS) for _ in range(count)) for count in (60000, 20000)]

    def piece():
        kind = rng.randrange(13)
        if kind == 0:
            plane = rng.choice(numbers)
            return "".join(rng.choice(planes[plane]) for _ in range(rng.randrange(1, 12)))
        if kind == 1:
            return rng.choice(latin) + "".join(rng.choice(marks) for _ in range(rng.randrange(1, 5)))
        if kind == 2:
            return "\u200d".join(rng.choice("👩👨👧👦🏳🌈💻🚀") + rng.choice(["", "\ufe0f", "🏽"]) for _ in range(rng.randrange(1, 5)))
        if kind == 3:
            return rng.choice("a 9é世▁🚀\n\t.") * rng.randrange(1, 80)
        if kind == 4:
            return "".join(rng.choice(SPACES) for _ in range(rng.randrange(1, 6)))
        if kind == 5:
            return rng.choice(["", " ", "x"]) + rng.choice(SPECIAL) + rng.choice(["", " ", "  ", "x"])
        if kind == 6:
            return "".join(rng.choice("0123456789٣²½") for _ in range(rng.randrange(1, 9)))
        if kind == 7:
            return rng.choice(["'S", "'ll", "'Ve", "'ſ", "’s", "'", "''re"])
        if kind == 8:
            return "".join(rng.choice(latin) for _ in range(rng.randrange(1, 15)))
        if kind == 9:
            return "".join(chr(rng.randrange(0x20)) for _ in range(rng.randrange(1, 4)))
        return rng.choice(["", " ", " "]) + rng.choice(WORDS)

    while len(out) < count:
        out.append("".join(piece() for _ in range(rng.randrange(1, 9))))
    return out[:count]


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


class Ours:
    def __init__(self, trainctl, path):
        self.trainctl, self.path = trainctl, path

    def call(self, lines, *args):
        done = subprocess.run([self.trainctl, "tokenizer", args[0], self.path, "--lines", *args[1:]],
                              input="".join(line + "\n" for line in lines), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", check=False)
        if done.returncode != 0:
            raise SystemExit(f"{self.path}: {args}: exit code {done.returncode}: {done.stderr}")
        return done.stdout.split("\n")[:-1]

    def encode(self, texts, *args):
        return [[int(i) for i in line.split()] for line in self.call(map(json.dumps, texts), "encode", *args)]

    def decode(self, rows, *args):
        return [json.loads(line) for line in self.call([" ".join(map(str, row)) for row in rows], "decode", *args)]


def compare(name, what, texts, theirs, ours):
    if len(theirs) != len(ours):
        return [f"{name}: {what}: {len(ours)} results for {len(theirs)}"]
    wrong = [i for i in range(len(texts)) if theirs[i] != ours[i]]
    print(f"{name}: {what}: {len(texts) - len(wrong)} of {len(texts)} equal", flush=True)
    return [f"{name}: {what} of {texts[i]!r}:\n    theirs {theirs[i]!r}\n    ours   {ours[i]!r}" for i in wrong[:3]]


def check_hugging_face(name, tokenizer, folder, trainctl, texts):
    path = os.path.join(folder, name + ".json")
    tokenizer.save(path)
    ours = Ours(trainctl, path)
    wrong = []
    rows = []
    for special in (True, False):
        rows = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=special)]
        args = [] if special else ["--no-special"]
        wrong += compare(name, "encode" + (" with special tokens" if special else ""), texts, rows,
                         ours.encode(texts, *args))
        if special:
            for skip in (True, False):
                wrong += compare(name, "decode" + (" without special tokens" if skip else ""), texts,
                                 tokenizer.decode_batch(rows, skip_special_tokens=skip),
                                 ours.decode(rows, *(["--skip-special"] if skip else [])))
    rng = random.Random(1)
    random_rows = [[rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randrange(12))] for _ in range(len(texts) // 5)]
    wrong += compare(name, "decode of random ids", random_rows, tokenizer.decode_batch(random_rows, skip_special_tokens=False),
                     ours.decode(random_rows))
    return wrong


def check_sentencepiece(name, options, folder, trainctl, texts):
    prefix = os.path.join(folder, name)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line.replace("\n", " ") for line in corpus()), model_prefix=prefix, vocab_size=900,
        hard_vocab_limit=False, minloglevel=2, **options)
    model = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    ours = Ours(trainctl, prefix + ".model")
    rows = model.encode(texts)
    wrong = compare(name, "encode", texts, rows, ours.encode(texts))
    wrong += compare(name, "decode", texts, model.decode(rows), ours.decode(rows))
    rng = random.Random(1)
    random_rows = [[rng.randrange(model.vocab_size()) for _ in range(rng.randrange(1, 12))] for _ in range(len(texts) // 5)]
    return wrong + compare(name, "decode of random ids", random_rows, model.decode(random_rows), ours.decode(random_rows))


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


CLASSES = [r"\w", r"\W", r"[\w]", r"[^\w]", r"\s", r"[^\S]", r"\d", r"\p{L}", r"\p{Han}", r"(?i:[a-z])"]


def check_classes(folder, trainctl):
    """Which characters a class has: the matches are taken out of the text, the bytes of the others are the ids. The
    characters of Unicode 3.2, which all versions at hand know."""
    points = [p for p in range(0x110000) if unicodedata.ucd_3_2_0.category(chr(p)) not in ("Cn", "Cs", "Co")]
    texts = ["".join(map(chr, points[i:i + 64])) for i in range(0, len(points), 64)]
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainctl")
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--strings", type=int, default=10000)
    args = parser.parse_args()
    texts = strings(args.strings)
    wrong = []
    with tempfile.TemporaryDirectory(prefix="trainctl-tokenizer-") as folder:
        for style in STYLES:
            if args.filter in style.__name__:
                wrong += check_hugging_face(style.__name__, style(folder), folder, os.path.abspath(args.trainctl), texts)
        for name, options in MODELS.items():
            if args.filter in name:
                wrong += check_sentencepiece(name, options, folder, os.path.abspath(args.trainctl), texts)
        if args.filter in "classes":
            wrong += check_classes(folder, os.path.abspath(args.trainctl))
        if args.filter in "trained":
            wrong += check_training(folder, os.path.abspath(args.trainctl), texts)
    for line in wrong:
        print("WRONG " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
