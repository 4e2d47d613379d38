#!/usr/bin/env python3
"""Verbs that need no worker, as a person uses them: new, runs, doctor.

    verbs_test.py TRAINCTL [FILTER]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

TRAINCTL = os.path.abspath(sys.argv[1])
FILTER = sys.argv[2] if len(sys.argv) > 2 else ""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAILURES = []
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"


class Case:
    def __init__(self, name):
        self.name = name
        self.dir = tempfile.mkdtemp(prefix="trainctl-verbs-")

    def write(self, path, text):
        path = os.path.join(self.dir, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def run(self, *args):
        return subprocess.run([TRAINCTL, *args], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=120)

    def expect(self, code, args, *words):
        result = self.run(*args)
        if result.returncode != code:
            self.fail("%s: exit code %d, not %d:\n%s" % (args, result.returncode, code, result.stdout))
        for word in words:
            if word not in result.stdout:
                self.fail("%s does not say '%s':\n%s" % (args, word, result.stdout))
        return result.stdout

    def fail(self, text):
        FAILURES.append("%s: %s" % (self.name, text))
        print("FAILED", FAILURES[-1], flush=True)


CASES = []


def case(function):
    if FILTER in function.__name__:
        CASES.append(function)
    return function


@case
def new_recipes_are_ready_to_use(c):
    presets = [preset["name"] for preset in json.loads(c.run("new", "--list", "--json").stdout)["presets"]]
    if len(presets) < 5:
        c.fail("only these presets: %s" % presets)
    c.write("data/a.txt", "some text of mine\n" * 2000)
    for name in ("web", "books", "eval"):
        c.write("data/%s.jsonl" % name, "".join('{"text": "line %d of it"}\n' % i for i in range(500)))
    c.write("data/train.jsonl", "".join('{"prompt": "%d+1=", "text": "%d"}\n' % (i, i + 1) for i in range(500)))
    shutil.copytree(ROOT + "/tests/goldens/plain", c.dir + "/model")
    with open(c.dir + "/model/config.json") as file:
        config = json.load(file)
    c.write("model/config.json", json.dumps({**config, "vocab_size": 256, "max_position_embeddings": 2048}))
    for preset in presets:
        file = preset + ".toml"
        c.expect(0, ["new", preset, "--out", file], file, "trainctl plan " + file)
        c.expect(0, ["plan", file], "Chosen" if "h100" not in preset else "")
        if "h100" not in preset:
            c.expect(0, ["recipe", "check", file], "is valid")


@case
def new_never_overwrites(c):
    c.expect(0, ["new"], "recipe.toml")
    c.write("recipe.toml", "mine")
    c.expect(2, ["new"], "recipe.toml exists", "--out")
    c.expect(2, ["new", "jsonl", "--out", "recipe.toml", "--json"], "trainctl.error.v1")
    os.symlink("/nonexistent/file", c.dir + "/link.toml")
    c.expect(2, ["new", "--out", "link.toml"], "link.toml exists")
    with open(c.dir + "/recipe.toml") as file:
        if file.read() != "mine":
            c.fail("recipe.toml was changed")
    c.expect(5, ["new", "--out", "no/such/folder.toml"], "no/such/folder.toml")
    c.expect(2, ["new", "tekst"], "did you mean text?")
    c.expect(0, ["new", "--out", "-"], "recipe_version = 1")


@case
def keys_are_explained(c):
    c.expect(0, ["recipe", "explain", "train.steps"], "Length of the run", "train.tokens")
    c.expect(2, ["recipe", "explain", "train.stepz"], "did you mean train.steps?")
    c.expect(2, ["recipe", "explain", "train.stepz", "--json"], "trainctl.error.v1")
    c.expect(2, ["recipe", "explain"], "KEY")


def main():
    for function in CASES:
        c = Case(function.__name__)
        try:
            function(c)
        finally:
            shutil.rmtree(c.dir, ignore_errors=True)
    print("%d cases, %d failures" % (len(CASES), len(FAILURES)))
    return 1 if FAILURES or not CASES else 0


sys.exit(main())
