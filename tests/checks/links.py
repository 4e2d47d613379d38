"""Checks that everything the documentation names exists: linked files and headings, paths of this tree in `code`, and
tests. Pages that the sources name must exist, too.

    python3 tests/checks/links.py
"""
import os
import re
import sys

from tree import Tree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?[^)]*\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
# Without placeholders, globs or what a build or a run makes.
PATH = re.compile(r"`((?:apps|cmake|docs|kernels|lib|proto|recipes|tests|third_party)/[\w./+-]*\w/?)`")
PAGE = re.compile(r"(?<![\w/])docs/[\w/.-]+\.md")
TEST = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+)`")
GTEST = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)


def pages(root):
    found = [name for name in os.listdir(root) if name.endswith(".md")]
    for top in ("docs", "third_party", "tests"):
        for parent, _, names in os.walk(os.path.join(root, top)):
            found += [os.path.relpath(os.path.join(parent, name), root) for name in names if name.endswith(".md")]
    return sorted(found)


def anchors(text):
    """The fragments by which GitHub reaches the headings of a page."""
    found = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).strip().replace(" ", "-")
        repeats = sum(1 for other in found if re.fullmatch(re.escape(slug) + r"(-\d+)?", other))
        found.add(slug if slug not in found else f"{slug}-{repeats}")
    return found


def violations(root):
    tests, found, texts = set(), [], {}
    for path in Tree(root).files:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        if path.endswith("_test.cc"):
            tests.update(GTEST.findall(text))
        elif "docs/" in text:
            for number, line in enumerate(text.splitlines(), 1):
                # A path after an @ is in the repository of somebody else.
                named = PAGE.findall(line) if "@" not in line else []
                found += [f"{path}:{number}: {page} does not exist" for page in named if not os.path.exists(os.path.join(root, page))]
    for page in pages(root):
        with open(os.path.join(root, page), encoding="utf-8") as file:
            texts[page] = file.read()
    for page, text in texts.items():
        base = os.path.dirname(page)
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith(("<<<<<<< ", ">>>>>>> ")):
                found.append(f"{page}:{number}: a mark of a merge")
            links = [(name, fragment) for name, fragment in LINK.findall(line) if "://" not in name]
            missing = [name for name, _ in links if not os.path.exists(os.path.join(root, base, name))]
            missing += [name for name in PATH.findall(line) if not os.path.exists(os.path.join(root, name))]
            for name, fragment in links:
                target = os.path.normpath(os.path.join(base, name)) if name else page
                if fragment and target in texts and fragment not in anchors(texts[target]):
                    missing.append(f"{name}#{fragment}")
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
