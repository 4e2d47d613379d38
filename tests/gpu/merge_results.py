"""Puts the table of a kit's results.json into a page, in the place of the one that is there.

    python3 tests/gpu/merge_results.py results/results.json [docs/reference/benchmarks/latest.md]

The page has two lines of comment between which the table lies; see BEGIN and END. Exit 2: no such file, or a page without them.
"""

import json
import os
import pathlib
import sys

from kit_report import SCHEMA, table

BEGIN, END = "<!-- results of tests/gpu/run.sh -->", "<!-- end of results -->"
PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "benchmarks" / "latest.md"


def merge(report, page):
    """The text of the page with the table of these results; ValueError: it has no place for one."""
    before, found, rest = page.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not found or not ends:
        raise ValueError(f"no place for results: a line {BEGIN} and after it a line {END}")
    return f"{before}{BEGIN}\n\n{table(report)}\n{END}{after}"


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    page = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else PAGE
    try:
        report = json.loads(pathlib.Path(sys.argv[1]).read_text())
        if report.get("schema") != SCHEMA:
            raise ValueError(f"{sys.argv[1]}: schema is {report.get('schema')}, not {SCHEMA}")
        if report["small"]:
            raise ValueError(f"{sys.argv[1]}: micro-sizes, which say nothing of speed")
        merged = merge(report, page.read_text())
    except (OSError, ValueError) as error:
        print(f"merge_results: {error}", file=sys.stderr)
        return 2
    draft = page.with_name(f".{page.name}")
    draft.write_text(merged)
    os.replace(draft, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
