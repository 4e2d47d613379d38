"""Every file that a page of documentation names exists: links, and paths in `code` that begin in this tree.

    python3 tests/checks/links.py
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
# Without placeholders, globs or what a build or a run makes.
PATH = re.compile(r"`((?:\./)?(?:apps|cmake|docs|kernels|lib|proto|recipes|tests|third_party)/[\w./+-]*\w/?)`")


def main():
    pages = [os.path.join(parent, name) for top in (ROOT, os.path.join(ROOT, "docs"))
             for parent, _, names in os.walk(top) for name in names if name.endswith(".md")
             if top != ROOT or parent == ROOT]
    found = []
    for page in sorted(pages):
        with open(page, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                targets = [(target, os.path.dirname(page)) for target in LINK.findall(line) if "://" not in target]
                targets += [(target, ROOT) for target in PATH.findall(line)]
                found += [f"{os.path.relpath(page, ROOT)}:{number}: {target} does not exist"
                          for target, base in targets if not os.path.exists(os.path.join(base, target))]
    for line in found:
        print(line)
    print(f"{len(pages)} pages")
    sys.exit(1 if found or not pages else 0)


main()
