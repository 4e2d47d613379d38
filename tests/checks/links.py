"""What the documentation names exists: linked files, paths of this tree in `code`, and tests.

    python3 tests/checks/links.py
"""
import os
import re
import sys

from tree import Tree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
# Without placeholders, globs or what a build or a run makes.
PATH = re.compile(r"`((?:apps|cmake|docs|kernels|lib|proto|recipes|tests|third_party)/[\w./+-]*\w/?)`")
TEST = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+)`")
GTEST = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)


def pages(root):
    found = [name for name in os.listdir(root) if name.endswith(".md")]
    for top in ("docs", "third_party", "tests"):
        for parent, _, names in os.walk(os.path.join(root, top)):
            found += [os.path.relpath(os.path.join(parent, name), root) for name in names if name.endswith(".md")]
    return sorted(found)


def violations(root):
    tests = set()
    for path in Tree(root).files:
        if path.endswith("_test.cc"):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                tests.update(GTEST.findall(file.read()))
    found = []
    for page in pages(root):
        with open(os.path.join(root, page), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                targets = [(name, os.path.dirname(page)) for name in LINK.findall(line) if "://" not in name]
                targets += [(name, "") for name in PATH.findall(line)]
                missing = [name for name, base in targets if not os.path.exists(os.path.join(root, base, name))]
                missing += [f"test {suite}.{name}" for suite, name in TEST.findall(line) if (suite, name) not in tests]
                found += [f"{page}:{number}: {name} does not exist" for name in missing]
    return found


def main():
    found = violations(ROOT)
    for line in found:
        print(line)
    print(f"{len(pages(ROOT))} pages")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
