"""How the documentation, header comments and messages read: counts of phrases that mark unidiomatic English, and long sentences.

    python3 tests/checks/prose.py [--list docs|headers|strings [PATTERN]]    # where the matches are
    python3 tests/checks/prose.py --renew                                    # lower the stored counts

tests/checks/prose_counts.txt stores a count per pattern and area. A count may fall and never rise: reword the new
sentence instead. Many matches are good English in their place; the counts keep a habit from coming back. In the
documentation no sentence may have more than MAX_WORDS words. A span of code counts as one word.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COUNTS = os.path.join("tests", "checks", "prose_counts.txt")
MAX_WORDS = 40
AREAS = ("docs", "headers", "strings")
# Written by a program from the strings of its source.
GENERATED = ("docs/reference/models.md", "docs/reference/recipe.md", "docs/reference/score-settings.md")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md")
HEADERS = ("lib/*/*.h", "kernels/*.h", "apps/*/*.h")
SOURCES = ("apps/trainctl/*.cc", "lib/recipe/*.cc", "lib/launcher/*.cc", "lib/run/*.cc", "lib/doctor/*.cc")

_SUBJECTS = "it|there|no|nothing|the|that|they|one|nobody|none|this|what|all|each|two|several|a"
_VERBS_AND_ARTICLES = "is|was|it|a|an|the|they|has|had|does|did|one|every|each|of|no|our|its"
_UNITS = "line|step|layer|rank|node|worker|parameter|token|micro-batch|sequence|row|element|document|run|stage|core"
# Name, expression, and the remedy that a failure prints.
PATTERNS = (
    ("where-conditional", rf"\b[Ww]here ({_SUBJECTS})\b", "if, when"),
    ("what-clause", rf"\b[Ww]hat ({_VERBS_AND_ARTICLES})\b", "name the thing: 'saved activations', not 'what is saved'"),
    ("colon-gloss", r'(\bempty|\b0|nullopt|""|-1|null): [a-z]', "'Empty if ...'"),
    ("fragment", r"^\s*(of|by|in|on|over|for|since|as|that|where|with) ", "a full noun phrase (comments only)"),
    ("price", r"\b[Pp]ric(e|es|ed|ing)\b", "estimate, cost"),
    ("alone", r"\balone\b", "only"),
    ("go-on", r"\b(go|goes|went|going) on\b", "continue, resume"),
    ("told", r"\b(is|are|was|were) told\b|\btells?\b", "report, with the component that reports"),
    ("nobody", r"\b([Nn]obody|[Ww]hoever)\b", "name the component"),
    ("stand", r"\b(stands?|stood)\b", "is, hangs"),
    ("beside", r"\bbeside\b", "next to, compared with"),
    ("is-no", r"(?<![Tt]here )\b(is|are|was|were) no\b(?! longer)", "is not a"),
    ("of-its-own", r"\b(of|a) \w+ of (its|our|your|their|one.s) own\b|\bof ours\b|\b[Oo]wn (runs?|plans?|trainer|path)\b", "its own X"),
    ("held-against", r"\b(held|hold|holds|holding)\b[^.;|]{0,25}\bagainst\b", "checked against"),
    ("one-a-line", rf"\b(one|bytes|steps?|times?|layers?|numbers?|pieces?|row|id|ms) an? ({_UNITS})\b", "per"),
    ("of-which", r"\bof (which|whom)\b", "split the sentence"),
    ("word", r"\b(last words|without a word|that word|same words|in words|own words)\b", "error, end of the log"),
    ("anew-mend", r"\banew\b|\bmend(s|ed|ing)?\b", "again, fix"),
)


def _read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def _files(root, globs, left_out=()):
    found = {os.path.relpath(path, root) for pattern in globs for path in glob.glob(os.path.join(root, pattern), recursive=True)}
    return sorted(found - set(left_out))


def pieces_of_page(text):
    """(line, text) of each paragraph, list item and table cell, without fenced or indented code, headings and comments."""
    pieces, open_piece, fenced, comment = [], None, False, False
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced, open_piece = not fenced, None
        elif fenced:
            continue
        elif stripped.startswith("<!--") or comment:
            comment, open_piece = "-->" not in stripped, None
        elif not stripped or stripped.startswith("#") or (line.startswith("    ") and open_piece is None):
            open_piece = None
        elif stripped.startswith("|"):
            pieces += [[number, cell.strip()] for cell in re.split(r"(?<!\\)\|", stripped.strip("|"))]
            open_piece = None
        else:
            item = re.sub(r"^(>\s*)?([-*]|\d+\.)\s+", "", stripped)
            if open_piece is None or item != stripped:
                open_piece = [number, item]
                pieces.append(open_piece)
            else:
                open_piece[1] += " " + stripped.lstrip("> ")
    return [(number, piece) for number, piece in pieces if piece]


def plain(text):
    """Prose only: a span of code becomes one word, a link its text."""
    text = re.sub(r"``?[^`]*``?", "Code", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text):
    text = re.sub(r"\b(e\.g|i\.e|vs|No)\.", r"\1", plain(text))
    return re.split(r"(?<=[.!?])[)\"*_]*\s+(?=[A-Z(*\[\"'0-9])", text)


def num_words(sentence):
    return sum(1 for word in sentence.split() if re.search(r"[A-Za-z]", word))


def comments_of(text):
    for number, line in enumerate(text.split("\n"), 1):
        match = re.search(r"(?:^|\s)//+\s?(.*)$", line)
        if match and "NOLINT" not in match[1]:
            yield number, match[1], bool(line[:match.start()].strip())


def strings_of(text):
    for number, line in enumerate(text.split("\n"), 1):
        if not line.lstrip().startswith(("//", "#")):
            for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
                yield number, literal


def prose_of(root):
    """{area: [(path, line, text, whether the text may start a fragment)]}"""
    found = {area: [] for area in AREAS}
    for path in _files(root, PAGES, GENERATED):
        found["docs"] += [(path, number, plain(text), False) for number, text in pieces_of_page(_read(root, path))]
    for path in _files(root, HEADERS):
        found["headers"] += [(path, *comment) for comment in comments_of(_read(root, path))]
    for path in _files(root, SOURCES):
        found["strings"] += [(path, number, text, False) for number, text in strings_of(_read(root, path))]
    return found


def matches(prose):
    """(pattern, area, path, line, the words around a match)"""
    compiled = [(name, re.compile(expression)) for name, expression, _ in PATTERNS]
    for area in AREAS:
        for path, number, text, trailing in prose[area]:
            for name, expression in compiled:
                if name == "fragment" and not trailing:
                    continue
                for match in expression.finditer(text):
                    yield name, area, path, number, text[max(0, match.start() - 40):match.end() + 40]


def counted(prose):
    counts = {(name, area): 0 for name, _, _ in PATTERNS for area in AREAS}
    for name, area, *_ in matches(prose):
        counts[name, area] += 1
    return counts


def read_counts(text):
    counts = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, *numbers = line.split()
            counts.update({(name, area): int(number) for area, number in zip(AREAS, numbers)})
    return counts


def written(counts):
    lines = ["# Matches of tests/checks/prose.py. They may fall, never rise.", f"# {'pattern':<20}" + "".join(f"{a:>9}" for a in AREAS)]
    lines += [f"{name:<22}" + "".join(f"{counts[name, area]:>9}" for area in AREAS) for name, _, _ in PATTERNS]
    return "\n".join(lines) + "\n"


def long_sentences(root):
    for path in _files(root, PAGES, GENERATED):
        for number, text in pieces_of_page(_read(root, path)):
            for sentence in sentences(text):
                words = num_words(sentence)
                if words > MAX_WORDS:
                    yield f"{path}:{number}: a sentence of {words} words (at most {MAX_WORDS}): {sentence[:90]}..."


def violations(root):
    found = list(long_sentences(root))
    prose = prose_of(root)
    stored, counts = read_counts(_read(root, COUNTS)), counted(prose)
    remedies = {name: remedy for name, _, remedy in PATTERNS}
    for (name, area), count in counts.items():
        allowed = stored.get((name, area), 0)
        if count > allowed:
            found.append(f"{area}: {count} matches of '{name}' ({allowed} allowed): use {remedies[name]}. "
                         f"See them with: python3 tests/checks/prose.py --list {area} {name}")
    return found


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--list"]:
        for name, area, path, number, words in matches(prose_of(ROOT)):
            if area == arguments[1] and name in (arguments[2:] or [name]):
                print(f"{path}:{number}: {name}: ...{words}...")
        return 0
    if arguments == ["--renew"]:
        counts, stored = counted(prose_of(ROOT)), read_counts(_read(ROOT, COUNTS))
        with open(os.path.join(ROOT, COUNTS), "w", encoding="utf-8") as file:
            file.write(written({key: min(count, stored.get(key, count)) for key, count in counts.items()}))
    found = violations(ROOT)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
