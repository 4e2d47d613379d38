#!/usr/bin/env python3
"""Commands that are shown can be typed: each verb, option, key of a recipe and recipe that --help, the README, docs/
and the shipped recipes name exists, and the examples of --help that need no run work as they stand.

    examples_test.py TRAINCTL
"""
import glob
import gzip
import os
import re
import shlex
import subprocess
import sys
import tempfile

TRAINCTL = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAILURES = []
# Typed wrong on purpose, to show what is said of it.
MISTAKES = {"train.precison"}
# Verbs whose example needs a run or minutes (most are in check/readme), a table, or a published tokenizer.
NOT_RUN = {"resume", "status", "logs", "events", "save", "stop", "checkpoint", "export", "report", "trace", "generate", "eval",
           "calibrate", "doctor", "score", "tokenizer decode"}
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.M | re.S)


def fail(text):
    FAILURES.append(text)
    print("FAILED", text, flush=True)


def run(command, folder):
    environment = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent",
                   "PATH": os.path.dirname(TRAINCTL) + ":" + os.environ["PATH"]}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)


def help_pages(path=()):
    """{words of a verb: its --help}, with the verbs below it."""
    text = subprocess.check_output([TRAINCTL, *path, "--help"], text=True, timeout=60)
    pages = {path: text}
    for verb in re.findall(r"^  ([a-z]+) ", text.partition("\nUsage:")[2], re.M):
        pages.update(help_pages((*path, verb)))
    return pages


def shown_in(page):
    """The lines of a page that a reader would type."""
    text = re.sub(r"\\\n", " ", page)
    for kind, block in FENCE.findall(text):
        lines = block.splitlines()
        yield from (line.strip()[2:] for line in lines if line.strip().startswith("$ "))
        if kind in ("sh", "bash"):  # in a script, an argument may span several lines
            yield from (line for line in lines if "trainctl" in line)
    yield from re.findall(r"^ {4}(trainctl .*)", FENCE.sub("", text), re.M)
    yield from re.findall(r"`(trainctl [^`]*)`", FENCE.sub("", text))


def commands_of(line):
    """The words of each call of trainctl in a line of a shell."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        fail("not a line of a shell: %s" % line)
        return
    for i, word in enumerate(words):
        if os.path.basename(word) == "trainctl":
            end = next((j for j in range(i + 1, len(words)) if re.fullmatch(r"[|&;<>()]+", words[j])), len(words))
            yield words[i + 1:end]


class Checker:
    def __init__(self, pages):
        self.options = {verb: set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text)) for verb, text in pages.items()}
        self.keys = set()
        self.count = 0

    def check(self, place, words):
        if not words or not re.fullmatch(r"-?-?[a-z]+", words[0]):
            return  # VERB, ...
        verb = ()
        while words and (*verb, words[0]) in self.options:
            verb = (*verb, words.pop(0))
        self.count += 1
        has_verbs_below = any(other[:-1] == verb for other in self.options)
        if has_verbs_below and words and re.fullmatch(r"[a-z]+", words[0]):
            name = " ".join(("trainctl", *verb, words[0]))
            if "Usage: %s" % name not in run(name + " --help", "/").stdout:  # some are not listed
                fail("%s: trainctl %s has no verb %s" % (place, " ".join(verb), words[0]))
            return
        for i, word in enumerate(words):
            option, _, value = word.partition("=")
            if option.startswith("-") and option != "-" and option not in self.options[verb]:
                fail("%s: trainctl %s has no option %s" % (place, " ".join(verb), option))
            if option in ("--set", "--sweep"):
                setting = value or (words[i + 1] if i + 1 < len(words) else "")
                self.keys.add((place, re.sub(r"\[\d+\]", "", setting.partition("=")[0])))
            if word.startswith("recipes/") and not os.path.exists(os.path.join(ROOT, word)):
                fail("%s: there is no %s" % (place, word))


def check_keys(keys):
    """`recipe explain` knows each."""
    for key in sorted({key for _, key in keys} - MISTAKES):
        if re.fullmatch(r"[a-z_.]+", key):  # not KEY
            said = run("trainctl recipe explain " + shlex.quote(key), "/")
            if said.returncode != 0:
                fail("%s: %s" % ([place for place, name in keys if name == key], said.stdout))


def make_inputs(folder):
    """What the examples of --help take to be there."""
    for name in ("lib", "recipes"):
        os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
    text, lines = b"the quick brown fox jumps over the lazy dog\n" * 200, b'{"text": "a line"}\n' * 100
    for name, content in {"books/a.txt": text, "data/a.txt": text, "web.jsonl": lines, "corpus.jsonl": lines,
                          "web.jsonl.zst": gzip.compress(lines)}.items():  # either is known by its first bytes
        os.makedirs(os.path.join(folder, os.path.dirname(name)), exist_ok=True)
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
    os.mkdir(folder + "/llama")
    for command in ("trainctl new", "trainctl tokenizer train books/*.txt --vocab 300 --out llama/tokenizer.json"):
        made = run(command, folder)
        if made.returncode != 0:
            fail("%s: %s" % (command, made.stdout))


def run_examples(examples, folder):
    has_worker = os.path.exists(os.path.join(os.path.dirname(TRAINCTL), "trainctl-worker"))
    done = 0
    for verb, example in examples.items():
        if {verb[0], " ".join(verb)} & NOT_RUN or (verb[0] == "launch" and not has_worker):
            continue
        result = run("set -o pipefail; " + example + (" --dry-run" if verb[0] == "launch" else ""), folder)
        done += 1
        if result.returncode != 0:
            fail("%s: exit code %d:\n%s" % (example, result.returncode, result.stdout))
    return done


def main():
    pages = help_pages()
    examples = {verb: text.split("\nExample:\n")[1].partition("\n\nUsage:")[0].strip()
                for verb, text in pages.items() if "\nExample:\n" in text}
    if len(examples) < 30:
        fail("only %d verbs have an example" % len(examples))
    checker = Checker(pages)
    for verb, example in examples.items():
        for words in commands_of(example):
            checker.check("--help of " + " ".join(verb), words)
    for path in [ROOT + "/README.md", *glob.glob(ROOT + "/docs/**/*.md", recursive=True)]:
        with open(path, encoding="utf-8") as file:
            for line in shown_in(file.read()):
                for words in commands_of(line):
                    checker.check(os.path.relpath(path, ROOT), words)
    for path in glob.glob(ROOT + "/recipes/**/*.toml", recursive=True):
        with open(path, encoding="utf-8") as file:
            for line in re.findall(r"^# *(trainctl .*)", file.read(), re.M):
                for words in commands_of(line):
                    checker.check(os.path.relpath(path, ROOT), words)
    check_keys(checker.keys)
    with tempfile.TemporaryDirectory(prefix="trainctl-examples-") as folder:
        make_inputs(folder)
        done = run_examples(examples, folder)
    print("%d commands, %d keys, %d examples were run" % (checker.count, len({key for _, key in checker.keys}), done))
    return 1 if FAILURES else 0


sys.exit(main())
