"""Formatting of every C++ file, and clang-tidy over the product's files that do not need LibTorch.

    python3 tests/checks/lint.py [--format-only] [FILE...]

A file that passed is not looked at again until it, a header of ours that it includes, the checks or the tool
change: what passed is remembered by content in build/lint-cache. Needs the compile commands of build/lint
(./dev lint configures it).
"""
import concurrent.futures
import hashlib
import json
import os
import re
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


def tidy(path):
    result = subprocess.run([CLANG_TIDY, "--quiet", "-p", os.path.join(ROOT, "build", "lint"), path],
                            cwd=ROOT, capture_output=True, text=True)
    return result.returncode == 0, result.stdout + ("" if result.returncode == 0 else result.stderr)


def check_tidy(files):
    with open(os.path.join(ROOT, "build", "lint", "compile_commands.json"), encoding="utf-8") as file:
        compiled = {os.path.normpath(entry["file"]): entry["command"] for entry in json.load(file)}
    version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, text=True, check=True).stdout
    with open(os.path.join(ROOT, ".clang-tidy"), encoding="utf-8") as file:
        checks = file.read()
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
    jobs = int(os.environ.get("TRAINCTL_JOBS", os.cpu_count() or 1))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for (path, marker), (ok, output) in zip(waiting.items(), pool.map(tidy, waiting)):
            if ok:
                with open(marker, "w", encoding="utf-8"):
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
