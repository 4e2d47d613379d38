"""The Dockerfile and the tables of options that the guides show agree with this tree.

    python3 tests/checks/guides.py

The Dockerfile of docs/guide/operations.md has known instructions in a valid order, and the files, commands and versions that it names
exist. The names of other tools in docs/guide/migrate.md lead to the keys that the program suggests for them.
"""
import os
import re
import shlex
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPERATIONS = os.path.join("docs", "guide", "operations.md")
MIGRATE = os.path.join("docs", "guide", "migrate.md")
INSTRUCTIONS = {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "SHELL",
                "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
KEY = re.compile(r"^[a-z]+(\.[a-z_]+)+$")


def _read(root, *path):
    with open(os.path.join(root, *path), encoding="utf-8") as file:
        return file.read()


def dockerfiles(page):
    return re.findall(r"^```dockerfile\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def instructions(dockerfile):
    """(name, the rest of its line) of each instruction; lines that end with a backslash are joined."""
    for line in re.sub(r"\\\n\s*", " ", dockerfile).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            name, _, rest = line.strip().partition(" ")
            yield name, rest.strip()


def commands(rest):
    """The words of each command of a RUN, or of the list of a CMD."""
    if rest.startswith("["):
        return [re.findall(r'"([^"]*)"', rest)]
    return [shlex.split(command) for command in re.split(r"&&|\|\||;", rest)]


def _command_violations(root, words):
    if words and words[0] == "./dev":
        if not re.search(rf"^  (?:\S* \| )*{re.escape(words[1])}(?: \|.*)?\)", _read(root, "dev"), re.MULTILINE):
            yield f"./dev has no command {words[1]}"
    elif words and words[0] == "trainctl":
        if not os.path.exists(os.path.join(root, "apps", "trainctl", f"cmd_{words[1]}.cc")):
            yield f"trainctl has no verb {words[1]}"
    elif words and words[0].startswith("/opt/trainctl/"):
        name = words[0][len("/opt/trainctl/"):]
        if f'out / "{name}"' not in _read(root, "apps", "bundle", "bundle.py"):
            yield f"apps/bundle/bundle.py makes no {name}"
    for word in words:
        if word.startswith("torch==") and f"VERSION={word[7:]}\n" not in _read(root, "third_party", "libtorch.sh"):
            yield f"{word} is not the version of third_party/libtorch.sh"


def dockerfile_violations(root):
    found = dockerfiles(_read(root, OPERATIONS))
    if len(found) != 1:
        return [f"{OPERATIONS} has {len(found)} Dockerfiles instead of one"]
    violations, stages = [], set()
    for name, rest in instructions(found[0]):
        if name not in INSTRUCTIONS:
            violations.append(f"{name} is not an instruction of a Dockerfile")
        elif name == "FROM":
            stages.add(rest.partition(" AS ")[2] or f"stage {len(stages)}")
        elif not stages and name != "ARG":
            violations.append(f"{name} comes before the first FROM")
        elif name == "COPY" and rest.startswith("--from="):
            stage = rest[len("--from="):].split()[0]
            if stage not in stages:
                violations.append(f"COPY --from={stage}: there is no such stage")
        elif name == "COPY":
            violations += [f"COPY {source}: not in this tree" for source in rest.split()[:-1]
                           if not os.path.exists(os.path.join(root, source))]
        elif name in ("RUN", "CMD", "ENTRYPOINT"):
            violations += [text for words in commands(rest) for text in _command_violations(root, words)]
    return [f"{OPERATIONS}: {text}" for text in violations]


def migration_violations(root):
    keys = _read(root, "lib", "recipe", "foreign_words.cc").partition("kVerbs[]")[0]
    suggested = dict(re.findall(r'\{"([a-z0-9_]+)", "([a-z_.]+)"\}', keys))
    violations = []
    for number, line in enumerate(_read(root, MIGRATE).splitlines(), 1):
        cells = [re.findall(r"`([^`]*)`", cell) for cell in line.strip("|").split("|")] if line.startswith("|") else []
        ours = [key for key in cells[-1] if KEY.match(key)] if len(cells) == 4 else []
        for name in [name for cell in cells[:-1] for name in cell] if ours else []:
            last = name.split(".")[-1].lstrip("-").replace("-", "_")
            if last in suggested and suggested[last] not in ours:
                violations.append(f"{MIGRATE}:{number}: for {name} the program suggests {suggested[last]}")
            elif last not in suggested and name.startswith("--") and last not in [key.split(".")[-1] for key in ours]:
                violations.append(f"{MIGRATE}:{number}: lib/recipe/foreign_words.cc does not know {name}")
    return violations


def main():
    found = dockerfile_violations(ROOT) + migration_violations(ROOT)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
