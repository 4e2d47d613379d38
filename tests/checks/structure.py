"""How tightly the tree is coupled, counted. A count may only fall, and the commit that lowers it lowers structure.txt.
Counts of sources grow with the tree, so structure.txt has limits for them.

    python3 tests/checks/structure.py [ROOT]

A new kind of model should change data, not readers. These are the counts of what still stands in its way.
"""
import os
import re
import sys

from tree import Tree, module_of

COUNTS = "tests/checks/structure.txt"
LIMITED = ("sources that see", "lines of the longest source")
# A parameter list: no braces and no semicolons within. Declarations and definitions count, calls do not.
PARAMETERS = re.compile(r"\(([^(){};]*&[^(){};]*)\)")
CARRIED = (r"\bArchitecture& \w+", r"\bLedger& \w+", r"\bBuildOptions& \w+")


class Sources:
    """The product's C++ files and their text without comments."""

    def __init__(self, root):
        self.tree = Tree(root)
        self.texts = {}
        for path in self.tree.files:
            if path.split(os.sep)[0] in ("apps", "kernels", "lib"):
                with open(os.path.join(self.tree.root, path), encoding="utf-8") as file:
                    self.texts[path] = re.sub(r"//[^\n]*", "", file.read())

    def outside_model(self):
        return {path: text for path, text in self.texts.items() if module_of(path) != "model"}

    def sources_that_see(self, header):
        return sum(header in self.tree.closure(path) for path in self.tree.files if path.endswith(".cc"))


def uses(texts, pattern):
    return sum(len(re.findall(pattern, text)) for text in texts.values())


def files_with(texts, pattern):
    return sum(re.search(pattern, text) is not None for text in texts.values())


def signatures_that_carry(texts, at_least):
    lists = (found for text in texts.values() for found in PARAMETERS.findall(text))
    return sum(sum(re.search(pattern, found) is not None for pattern in CARRIED) >= at_least for found in lists)


def count(root):
    """Returns {counted item: count}, in the order in which they are printed."""
    sources = Sources(root)
    outside = sources.outside_model()
    return {
        "calls of BuildGraph outside lib/model": uses(outside, r"\bBuildGraph\("),
        "uses of EmbeddingBlock, HeadBlock and NumBlocks outside lib/model":
            uses(outside, r"\b(?:EmbeddingBlock|HeadBlock|NumBlocks)\("),
        "files outside lib/model that name Architecture": files_with(outside, r"\bArchitecture\b"),
        "parameter lists with two of Architecture, Ledger and BuildOptions": signatures_that_carry(sources.texts, 2),
        "sources that see kernels/kernels.h": sources.sources_that_see("kernels/kernels.h"),
        "sources that see lib/model/architecture.h": sources.sources_that_see("lib/model/architecture.h"),
        "sources that see lib/recipe/recipe.h": sources.sources_that_see("lib/recipe/recipe.h"),
        "lines of the longest source": max(text.count("\n") for text in sources.texts.values()),
    }


def read_counts(root):
    with open(os.path.join(root, COUNTS), encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    return {what.strip(): int(number) for number, what in (line.split(None, 1) for line in lines)}


def violations(root):
    stored, counted = read_counts(root), count(root)
    found = [f"{COUNTS} has a line for '{what}', which is not counted" for what in stored if what not in counted]
    for what, number in counted.items():
        if what not in stored:
            found.append(f"{COUNTS} has no line for '{what}': add '{number} {what}'")
        elif number > stored[what]:
            found.append(f"{what}: {number}, more than the {stored[what]} of {COUNTS}")
        elif number < stored[what] and not what.startswith(LIMITED):
            found.append(f"{what}: {number}, fewer than before: lower the {stored[what]} in {COUNTS}")
    return found


if __name__ == "__main__":
    found = violations(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", ".."))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)
