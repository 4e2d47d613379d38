#!/usr/bin/env python3
"""The README's table of supported features, and the verbs of docs/reference/cli.md, are those of the program.

    readme_status_test.py TRAINCTL

The program is asked for its verbs, its schema of recipes, the model types that it trains, and a plan with each kind of parallelism
and precision.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

TRAINCTL = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RECIPE = os.path.join(ROOT, "recipes", "plan", "llama3.2-1b_8xh100.toml")
FAILURES = []


def run(*words):
    return subprocess.run([TRAINCTL, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                          stdin=subprocess.DEVNULL, env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent"})


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def words_in_code(text):
    return set(re.findall(r"`([^`]*)`", text))


def table():
    """{row: (names that are supported, names that are not yet)}"""
    section = read("README.md").split("\n## Supported\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return {row[0].split("(")[0].strip(): (words_in_code(row[1]), words_in_code(row[2])) for row in rows[2:]}


def same(what, said, is_so):
    if said != is_so:
        FAILURES.append(what)
        print(f"FAILED {what}: the documentation says {sorted(said)}, the program {sorted(is_so)}")


def names_of(schema, key):
    """The words that a key of the JSON Schema allows."""
    found = set()

    def walk(node):
        if isinstance(node, dict):
            found.update(value for value in node.get("enum", []) if isinstance(value, str))
            if isinstance(node.get("const"), str):
                found.add(node["const"])
            for name, child in node.items():
                if name != "description":
                    walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    node = schema
    for part in key.split("."):
        node = node["properties"][part]
        node = node.get("items", node)
        while "$ref" in node:
            target = schema
            for step in node["$ref"].lstrip("#/").split("/"):
                target = target[step]
            node = target
    walk(node)
    return found - {"auto"}


def trained_model_types():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            file.write('{"model_type": "nobody-has-this"}')
        said = run("plan", RECIPE, "--set", "model.preset=default", "--set", "model.from=" + folder).stdout
    match = re.search(r"to be trained: ([^;)]*)", " ".join(said.split()))
    return set(re.split(r", | or ", match[1])) if match else {said}


def plans(key, value):
    result = run("plan", RECIPE, "--set", f"{key}={value}")
    if result.returncode not in (0, 2):
        FAILURES.append(key)
        print(f"FAILED plan with {key} = {value}: exit code {result.returncode}: {result.stdout}")
    return result.returncode == 0


def main():
    rows = table()
    schema = json.loads(run("recipe", "schema").stdout)
    same("model types", rows["Models"][0], trained_model_types())
    for row, key in (("Optimizers", "optimizer.name"), ("Data", "data.train.kind"), ("Launch", "launch.backend")):
        same(row, rows[row][0], names_of(schema, key))
    supported, refused = rows["Precision"]
    same("precisions", supported | refused, names_of(schema, "train.precision"))
    same("precisions that train", supported, {name for name in supported | refused if plans("train.precision", name)})
    supported, refused = rows["Parallelism"]
    same("kinds of parallelism", supported | refused, {"tp", "pp", "cp", "ep"})
    same("kinds of parallelism that train", supported, {name for name in supported | refused if plans("parallel." + name, 2)})
    verbs = set(re.findall(r"^  ([a-z]+) ", run("--help").stdout.partition("\nUsage:")[2], re.MULTILINE))
    if "plan" not in verbs:
        FAILURES.append("verbs")
        print("FAILED: --help lists no verbs")
    section = read("docs", "reference", "cli.md").split("| verb | does |", 1)[1].split("\n\n", 1)[0]
    shown = {words.split()[0] for line in section.splitlines()[2:] for words in words_in_code(line.split("|")[1])}
    same("verbs of docs/reference/cli.md", verbs - shown, set())
    return 1 if FAILURES else 0


sys.exit(main())
