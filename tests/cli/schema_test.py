#!/usr/bin/env python3
"""The JSON Schema of a recipe, read by the jsonschema package: it takes every recipe of this tree, and for any
value of any key it says the same as the program itself.

    schema_test.py TRAINCTL

Needs the Python package jsonschema (Debian: python3-jsonschema); without it the test is skipped.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib

try:
    from jsonschema import Draft202012Validator
except ImportError:
    print("skipped: the Python package jsonschema is not installed (apt-get install python3-jsonschema)")
    sys.exit(77)

TRAINCTL = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAILURES = []

# One of every kind of value, and of the edges between them. 1.0 is left out: a whole number to JSON, none to TOML.
VALUES = ["true", "-1", "0", "1", "2", "3", "1.5", "-0.5", "0.5", "100_000", '""', '"auto"', '"10K"', '"2.5M"',
          '"1__0"', '"10 K"', '"10KB"', '"30m"', '"9 m"', '"80GB"', '"1.5GiB"', '"400Gb/s"', '"3.35TB/s"', '"bf16"', '"full"',
          '"random"', '"1f1b"', '"byte"', "[]", "[1]", "[0.5, 0.9]", "[0.5, 1.5]", '["optimizer"]', '["a.txt"]', '[""]',
          "[true]", "{}", "1979-05-27"]
# A value that is of the right type and refused for another reason.
OTHER_REASONS = re.compile(r"this version|this build|exclude each other|there is no |no such |is not a valid |is not a network|"
                           r"the catalogue has no|does not use it")


def fail(text):
    FAILURES.append(text)
    print("FAILED", text, flush=True)


def keys_of(schema, prefix=""):
    """(key, in a list of tables) of everything that can be given a value."""
    for name, part in schema["properties"].items():
        path = prefix + name
        if part.get("type") == "array" and part["items"].get("type") == "object":
            yield from keys_of(part["items"], path + "[].")
        elif "properties" in part:
            yield from keys_of(part, path + ".")
        elif path not in ("extends", "recipe_version", "model.rope_scaling", "launch.env"):
            yield path


def recipe_with(keys, value):
    """Every key at this value, one line each; with the number of its line."""
    lines, where, table = ["recipe_version = 1"], {}, ""
    for key in keys:
        parent, _, leaf = key.rpartition(".")
        if parent != table:
            table = parent
            lines.append("[[%s]]" % parent[:-2] if parent.endswith("[]") else "[%s]" % parent)
        lines.append("%s = %s" % (leaf, value))
        where[len(lines)] = key
    return "\n".join(lines) + "\n", where


def refused_by_program(folder, text, where):
    """The keys whose value is not of their type, or not in their range."""
    path = folder + "/recipe.toml"
    with open(path, "w") as file:
        file.write(text)
    result = subprocess.run([TRAINCTL, "recipe", "check", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, timeout=60)
    refused = set()
    for line in result.stdout.splitlines():
        match = re.search(r"recipe\.toml:(\d+):\d+: (.*)", line)
        if match and int(match[1]) in where and not OTHER_REASONS.search(match[2]):
            key = where[int(match[1])]
            if re.match(re.escape(key).replace(r"\[\]", r"\[0\]") + r":", match[2]):
                refused.add(key)
    return refused, result.stdout


def refused_by_schema(validator, text):
    refused = set()
    for error in validator.iter_errors(tomllib.loads(text)):
        path = "".join("[]" if isinstance(part, int) else "." + part for part in error.absolute_path)[1:]
        refused.add(path)
    return refused


def main():
    schema = json.loads(subprocess.check_output([TRAINCTL, "recipe", "schema"], text=True))
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)

    recipes = sorted(glob.glob(ROOT + "/recipes/**/*.toml", recursive=True))
    if len(recipes) < 10:
        fail("only %d recipes were found" % len(recipes))
    for path in recipes:
        with open(path, "rb") as file:
            for error in validator.iter_errors(tomllib.load(file)):
                fail("%s: %s: %s" % (path, error.json_path, error.message))

    keys = list(keys_of(schema))
    if len(keys) < 90:
        fail("only %d keys" % len(keys))
    compared = 0
    with tempfile.TemporaryDirectory(prefix="trainctl-schema-") as folder:
        # The program tells some twenty mistakes of one file. Keys that exclude each other are neighbours: in one
        # file that error would hide the others.
        chunks = -(-len(keys) // 12)
        for value, chunk in [(value, keys[i::chunks]) for value in VALUES for i in range(chunks)]:
            text, where = recipe_with(chunk, value)
            by_program, output = refused_by_program(folder, text, where)
            by_schema = {re.sub(r"\[\]$", "", path) for path in refused_by_schema(validator, text)}
            for key in chunk:
                compared += 1
                if (key in by_program) != (key in by_schema):
                    fail("%s = %s: the program %s it, the schema %s it\n%s" % (
                        key, value, "refuses" if key in by_program else "takes",
                        "refuses" if key in by_schema else "takes",
                        "\n".join(line for line in output.splitlines() if key.split(".")[-1] in line)))

        # What is wrong beyond one value.
        for text in ("[train]\nstepz = 1\n", "[trian]\nsteps = 1\n", "steps = 1\n", "train = 1\n",
                     "[train]\nsteps = 1\ntokens = 1\n", "[model]\npreset = \"toy-1m\"\nfamily = \"llama\"\n",
                     "[[data.train]]\nname = \"no files\"\n", "[data]\ntrain = []\neval = 1\n", "extends = 1\n", "extends = []\n",
                     "[[data.eval]]\nfiles = [\"a\"]\nholdout = 0.1\n", "[model]\nrope_scaling = \"some\"\n",
                     "[model.rope_scaling]\nfactr = 2.0\n", "recipe_version = 0\n", "[launch.env]\nA = 1\n"):
            path = folder + "/broken.toml"
            with open(path, "w") as file:
                file.write(text)
            if validator.is_valid(tomllib.loads(text)):
                fail("the schema takes: %s" % text)
            code = subprocess.run([TRAINCTL, "recipe", "check", path], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, timeout=60).returncode
            if code != 2:
                fail("the program takes it (exit code %d): %s" % (code, text))
    print("%d recipes, %d values of %d keys" % (len(recipes), compared, len(keys)))
    return 1 if FAILURES else 0


sys.exit(main())
