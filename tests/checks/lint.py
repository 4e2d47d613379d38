"""Formatting of every C++ file, and clang-tidy over the product's files that do not need LibTorch.

    python3 tests/checks/lint.py [--format-only] [FILE...]

A file that passed is not looked at again until it, a header of ours that it includes, the checks or the tool
change: what passed is remembered by content in build/lint-cache. Needs the compile commands of build/lint
(./dev lint configures it).
"""
import concurrent.futures
import hashlib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.join(ROOT, "build", "lint-cache")
# Formatting differs between versions, so the version is part of the style.
CLANG_FORMAT = "clang-format-14"
CLANG_TIDY = "clang-tidy"
SKIPPED = 77  # ctest's word for a test that could not run
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def source_files(endings=(".h", ".cc")):
    found = []
    for top in ("apps", "cmake", "kernels", "lib", "tests"):
        for parent, _, names in os.walk(os.path.join(ROOT, top)):
            found += [os.path.join(parent, name) for name in names if name.endswith(endings)]
    return sorted(found)


class Contents:
    """Hashes of files together with the headers of ours that they include."""

    def __init__(self):
        self._text = {}

    def _read(self, path):
        if path not in self._text:
            with open(path, "rb") as file:
                self._text[path] = file.read()
        return self._text[path]

    def closure_hash(self, path, *salt):
        seen, waiting = set(), [path]
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            for name in INCLUDE.findall(self._read(current)):
                for base in (os.path.dirname(current), ROOT, os.path.join(ROOT, "lib")):
                    header = os.path.normpath(os.path.join(base, name.decode()))
                    if os.path.isfile(header):
                        waiting.append(header)
                        break
        digest = hashlib.sha256("\0".join(salt).encode())
        for item in sorted(seen):
            digest.update(os.path.relpath(item, ROOT).encode() + b"\0" + self._read(item))
        return digest.hexdigest()


def check_format(files):
    try:
        result = subprocess.run([CLANG_FORMAT, "--dry-run", "-Werror", "--style=file", *files], cwd=ROOT)
    except FileNotFoundError:
        print(f"lint: {CLANG_FORMAT} is not installed; ./dev setup installs it", file=sys.stderr)
        sys.exit(SKIPPED)
    if result.returncode != 0:
        print("lint: ./dev format puts this right", file=sys.stderr)
    return result.returncode == 0


def run_tidy(arguments):
    result = subprocess.run([CLANG_TIDY, "--quiet", *arguments], cwd=ROOT, capture_output=True, text=True)
    return result.returncode == 0, result.stdout + ("" if result.returncode == 0 else result.stderr)


def declared_names(text):
    """What a source declares outside of functions and classes, as (namespace, name): in our layout these lines begin
    in the first column. Some too many do no harm."""
    names, spaces = set(), []
    for line in text.splitlines():
        if match := re.match(r"namespace ?([\w:]*) \{", line):
            spaces.append(match[1])
        elif line.startswith("}  // namespace"):
            spaces = spaces[:-1]
        elif match := re.match(r"#\s*define (\w+)", line):
            names.add(("#define", match[1]))
        elif match := (re.match(r"using (?:namespace )?(?:\w+::)*(\w+)", line) or
                       re.match(r"(?:struct|class|enum|enum class|union) (?:alignas\(\w+\) )?(\w+)", line) or
                       re.match(r"(?! )[\w:<>,&*\[\] ]*?(?<![:\w~])(\w+)(?: ?[({=;]|\[\w*\])", line)):
            names.add(("::".join(filter(None, spaces)), match[1]))
    return names


class Batch:
    """Sources that are read as one, so that the headers that they share are looked at once: that is most of the work."""
    LARGEST = 40

    def __init__(self):
        self.paths, self.names, self.defines, self.rest = [], set(), [], None

    def take(self, path, command, names):
        """Adds a source if it is compiled like the others and declares nothing that one of them does."""
        words = shlex.split(command)
        words = words[next(i for i, word in enumerate(words) if word.startswith("-")):words.index("-o")]
        defines = [word for word in words if word.startswith("-D")]
        rest = [word for word in words if not word.startswith("-D")]
        if self.paths and (len(self.paths) == self.LARGEST or rest != self.rest or names & self.names):
            return False
        self.paths.append(path)
        self.names |= names
        self.defines += [word for word in defines if word not in self.defines]
        self.rest = rest
        return True

    def tidy(self, number):
        """By path: whether it passed, and what was said of it."""
        if len(self.paths) == 1:
            return {self.paths[0]: run_tidy(["-p", os.path.join(ROOT, "build", "lint"), self.paths[0]])}
        whole = os.path.join(CACHE, f"batch-{number}.cc")
        with open(whole, "w", encoding="utf-8") as file:
            file.writelines(f'#include "{path}"\n' for path in self.paths)
        if run_tidy([whole, "--", *self.rest, *self.defines])[0]:
            return {path: (True, "") for path in self.paths}
        # Halves tell whose fault it is, or that some just cannot be read together.
        results = {}
        for half in self.halves():
            results |= half.tidy(number)
        return results

    def halves(self):
        middle = len(self.paths) // 2
        for paths in self.paths[:middle], self.paths[middle:]:
            half = Batch()
            half.paths, half.defines, half.rest = paths, self.defines, self.rest
            yield half


def batches_of(paths, compiled):
    batches = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            names = declared_names(file.read())
        if not any(batch.take(path, compiled[path], names) for batch in batches):
            batches.append(Batch())
            batches[-1].take(path, compiled[path], names)
    return batches


def check_tidy(files):
    with open(os.path.join(ROOT, "build", "lint", "compile_commands.json"), encoding="utf-8") as file:
        compiled = {os.path.normpath(entry["file"]): entry["command"] for entry in json.load(file)}
    version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, text=True, check=True).stdout
    with open(os.path.join(ROOT, ".clang-tidy"), encoding="utf-8") as file:
        checks = file.read()
    # Sources that are compiled together are not in the list.
    absent = [path for path in files if path.startswith(os.path.join(ROOT, "apps", "trainctl")) and path.endswith(".cc")
              and path not in compiled]
    if absent:
        print(f"lint: build/lint does not compile {', '.join(sorted(absent))}", file=sys.stderr)
        return False
    contents = Contents()
    os.makedirs(CACHE, exist_ok=True)
    waiting = {}
    for path in files:
        if path in compiled and not path.startswith(os.path.join(ROOT, "tests")):
            marker = os.path.join(CACHE, contents.closure_hash(path, version, checks, compiled[path]))
            if not os.path.exists(marker):
                waiting[path] = marker
    print(f"lint: clang-tidy on {len(waiting)} files that changed since they passed", file=sys.stderr)
    passed = True
    batches = batches_of(waiting, compiled)
    jobs = int(os.environ.get("TRAINCTL_JOBS", os.cpu_count() or 1))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for results in pool.map(Batch.tidy, batches, itertools.count()):
            for path, (ok, output) in results.items():
                if ok:
                    with open(waiting[path], "w", encoding="utf-8"):
                        pass
                else:
                    passed = False
                    print(f"{os.path.relpath(path, ROOT)}:\n{output}", flush=True)
    return passed


def main():
    arguments = sys.argv[1:]
    format_only = "--format-only" in arguments
    named = [os.path.abspath(name) for name in arguments if not name.startswith("--")]
    files = source_files()
    unknown = sorted(set(named) - set(files))
    if unknown:
        sys.exit("lint: not a C++ file of this tree: " + ", ".join(unknown))
    passed = check_format(named or files + source_files((".cu", ".cuh")))
    if not format_only:
        # A header is checked through the files that include it.
        everything = not named or any(name.endswith(".h") for name in named)
        passed = check_tidy(files if everything else named) and passed
    sys.exit(0 if passed else 1)


main()
