"""What parity_test.py and published_test.py share: awkward strings (seeded), trainctl's side, and the comparisons.

Where the packages are not at hand, importing this ends the program with exit code 77 (skipped).
"""
import json
import os
import random
import subprocess
import sys
import unicodedata

try:
    import sentencepiece
    import tokenizers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
             "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
             " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
SPACES = ("\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
          "\u202f\u205f\u3000\u200b\u180e\ufeff")
WORDS = """the of and in that it's I'm don't we'll they've you're HE'S WE'LL isn't x=1; for (int i = 0; i < 10; ++i) {
 price 1234567 3.14159 2024-01-31 ½ ² ٣٤ 百 naïve café Straße ΣΊΣΥΦΟΣ İstanbul ſ K привет мир 你好世界 こんにちは 안녕하세요
 שלום مرحبا नमस्ते ไทย ភាសា 👩‍👩‍👧‍👦 👍🏽 🇩🇪 e\u0301 a\u0308\u0323 \u1e9b\u0323 ﬁ ㍿ Å \u212b ① ２ ▁ ▁▁ <0x41> </s> <s> <unk>""".split(" ")
SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<|user|>", "<mask>", "<pad>", "newword", "<0x41>", "▁", "<unk>"]


def characters():
    """What Python's Unicode knows, by plane."""
    planes = {}
    for point in range(0x110000):
        if not 0xD800 <= point < 0xE000 and unicodedata.category(chr(point)) != "Cn":
            planes.setdefault(point >> 16, []).append(chr(point))
    return planes


def strings(count, special=tuple(SPECIAL)):
    """Awkward strings, always the same; words of `special` stand in some."""
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
            return rng.choice(["", " ", "x"]) + rng.choice(special) + rng.choice(["", " ", "  ", "x"])
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


def random_ids(vocab, count):
    rng = random.Random(1)
    return [[rng.randrange(vocab) for _ in range(rng.randrange(1, 12))] for _ in range(count)]


def check_hugging_face(name, tokenizer, path, trainctl, texts):
    """`tokenizer` of the package beside trainctl with `path`, which has the same."""
    ours = Ours(trainctl, path)
    rows = [e.ids for e in tokenizer.encode_batch(texts)]
    wrong = compare(name, "encode", texts, rows, ours.encode(texts))
    if tokenizer.num_special_tokens_to_add(False) > 0:
        wrong += compare(name, "encode without special tokens", texts,
                         [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)],
                         ours.encode(texts, "--no-special"))
    rows += random_ids(tokenizer.get_vocab_size(), len(texts) // 5)
    for skip in (True, False):
        wrong += compare(name, "decode" + (" without special tokens" if skip else ""), rows,
                         tokenizer.decode_batch(rows, skip_special_tokens=skip),
                         ours.decode(rows, *(["--skip-special"] if skip else [])))
    return wrong


def check_sentencepiece(name, path, trainctl, texts):
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    ours = Ours(trainctl, path)
    rows = model.encode(texts)
    wrong = compare(name, "encode", texts, rows, ours.encode(texts))
    rows += random_ids(model.vocab_size(), len(texts) // 5)
    return wrong + compare(name, "decode", rows, model.decode(rows), ours.decode(rows))
