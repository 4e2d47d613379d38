"""No call of std::filesystem throws: each takes an error code.

    python3 tests/checks/filesystem_errors.py

A removed working folder or a lost mount would otherwise end a program with an exception.
"""
import os
import re
import sys

from tree import Tree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Functions and iterators that have a throwing form. Of exists() and is_*() the form that takes a file_status
# does not throw.
CALL = re.compile(r"(?:std::filesystem|\bfs)::(absolute|canonical|weakly_canonical|relative|proximate|copy(?:_\w+)?|create_\w+|"
                  r"current_path|equivalent|exists|file_size|hard_link_count|is_\w+|last_write_time|permissions|"
                  r"read_symlink|remove(?:_all)?|rename|resize_file|space|status|symlink_status|temp_directory_path|"
                  r"(?:recursive_)?directory_iterator(?: \w+)?)\(")
STEP = re.compile(r"for \([^;:()]*:\s*(?:std::filesystem|fs)::(?:recursive_)?directory_iterator")
ERROR = re.compile(r"(?:error|ignored|none|unknown|status)$|^(?:\w*_status|status)\(|symlink_status\(")


def arguments(text, begin):
    """The arguments of a call, split at commas; `begin` is behind its parenthesis."""
    found, depth, last = [], 0, begin
    for i in range(begin, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}" and depth > 0:
            depth -= 1
        elif text[i] == ")" or (text[i] == "," and depth == 0):
            found.append(text[last:i].strip())
            last = i + 1
            if text[i] == ")":
                break
    return [argument for argument in found if argument]


def violations(root):
    found = []
    for path in Tree(root).files:
        if not path.startswith(("lib" + os.sep, "apps" + os.sep)):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        for call in list(CALL.finditer(text)) + list(STEP.finditer(text)):
            name = call.group(1) if call.re is CALL else "a loop over a folder"
            given = arguments(text, call.end()) if call.re is CALL else [""]
            # directory_iterator() is the end of a folder.
            if not given and "directory_iterator" in name or any(ERROR.search(argument) for argument in given):
                continue
            found.append("%s:%d: std::filesystem::%s may throw; give it an error code" %
                         (path, text.count("\n", 0, call.start()) + 1, name))
    return found


if __name__ == "__main__":
    lines = violations(ROOT)
    for line in lines:
        print(line)
    sys.exit(1 if lines else 0)
