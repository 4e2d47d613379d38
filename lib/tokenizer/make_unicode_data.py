#!/usr/bin/env python3
"""Writes unicode_data.inc: which characters have which property in the Unicode versions that `tokenizers` 0.23.3 uses.

    python3 -m pip install --target FOLDER unicodedataplus==16.0.0.post1
    PYTHONPATH=FOLDER lib/tokenizer/make_unicode_data.py

`tokenizers` uses several versions: 16.0 in regular expressions, 8.0 in Punctuation and 9.0 in NFC and the like. The data
are of version 16.0; `age` tells which characters an earlier version knew. The test tokenizer_parity compares the result
with `tokenizers` for every code point. If a later `tokenizers` moves on, change the versions here.
"""
import os

import unicodedataplus

VERSION = "16.0.0"
WIDTH = 110
SURROGATES = range(0xD800, 0xE000)
# Punctuation in Unicode 8.0 that became something else.
WERE_PUNCTUATION = (0x166D, 0x111C9)


def runs(value):
    """Pairs of a code point and the value that it and those up to the next pair have."""
    found = []
    for point in range(0x110000):
        here = value(point)
        if not found or found[-1][1] != here:
            found.append((point, here))
    return found


def ranges(has):
    pairs = runs(has)
    ends = [point for point, _ in pairs[1:]] + [0x110000]
    return [(begin, end - 1) for (begin, here), end in zip(pairs, ends) if here]


def array(declaration, items):
    lines = [declaration + " = {"]
    row = "   "
    for item in items:
        if len(row) + len(item) + 2 > WIDTH:
            lines.append(row)
            row = "   "
        row += " " + item + ","
    return "\n".join(lines + [row, "};"]) + "\n"


def range_array(name, has):
    return array("constexpr CodePointRange %s[]" % name, ("{0x%x, 0x%x}" % pair for pair in ranges(has)))


def category(point):
    return unicodedataplus.category(chr(point))


def age(point):
    known = unicodedataplus.age(chr(point))
    return tuple(map(int, known.split("."))) if known != "Unassigned" else (999, 0)


def is_word_by_category(point):
    return category(point)[0] in "LM" or category(point) in ("Nd", "Nl", "Pc")


def is_other_word(point):
    """Other_Alphabetic beyond the categories of words: the circled, squared and other enclosed Latin letters."""
    return not is_word_by_category(point) and (0x24B6 <= point <= 0x24E9 or 0x1F130 <= point <= 0x1F149 or
                                               0x1F150 <= point <= 0x1F169 or 0x1F170 <= point <= 0x1F189)


def is_punctuation_8(point):
    return point in WERE_PUNCTUATION or (category(point)[0] == "P" and age(point) <= (8, 0))


def main():
    if unicodedataplus.unidata_version != VERSION:
        raise SystemExit("unicodedataplus has Unicode %s; Unicode %s is needed" % (unicodedataplus.unidata_version, VERSION))
    categories = sorted({category(point) for point in range(0x110000)})
    scripts = sorted({unicodedataplus.script(chr(point)) for point in range(0x110000)})
    short = [unicodedataplus.property_value_aliases["script"][name][0] for name in scripts]
    parts = [
        "// Written by make_unicode_data.py from unicodedataplus 16.0.0.post1 (Unicode %s); do not edit.\n" % VERSION,
        "// clang-format off\n",
        array("constexpr absl::string_view kCategories[]", ('"%s"' % name for name in categories)),
        "// A code point << 5 | the category of it and of those before the next entry.\n" +
        array("constexpr uint32_t kCategoryRuns[]",
              ("0x%x" % (point << 5 | categories.index(value)) for point, value in runs(category))),
        array("constexpr ScriptNames kScripts[]", ('{"%s", "%s"}' % names for names in zip(scripts, short))),
        "// A code point << 8 | the script of it and of those before the next entry.\n" +
        array("constexpr uint32_t kScriptRuns[]",
              ("0x%x" % (point << 8 | scripts.index(value))
               for point, value in runs(lambda point: unicodedataplus.script(chr(point))))),
        "// Alphabetic, but neither letters nor letter numbers.\n" + range_array("kOtherAlphabetic", is_other_word),
        "// The categories P* of Unicode 8.0.\n" + range_array("kPunctuation8", is_punctuation_8),
        "// Not assigned in Unicode 9.0.\n" +
        range_array("kLaterThan9", lambda point: point not in SURROGATES and age(point) > (9, 0)),
        "// clang-format on\n",
    ]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "unicode_data.inc")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(parts))


if __name__ == "__main__":
    main()
