"""No script of ours has the name of one of Python's own modules: it would hide that one from whatever runs beside it.

    python3 tests/checks/python_names.py
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOPS = ("apps", "cmake", "kernels", "lib", "tests", "third_party")


def violations(root):
    found = []
    for top in TOPS:
        for parent, _, names in os.walk(os.path.join(root, top)):
            found += [f"{os.path.relpath(os.path.join(parent, name), root)}: Python has a module of that name"
                      for name in names if name.endswith(".py") and name[:-3] in sys.stdlib_module_names]
    return sorted(found)


if __name__ == "__main__":
    lines = violations(ROOT)
    for line in lines:
        print(line)
    sys.exit(1 if lines else 0)
