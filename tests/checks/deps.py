"""lib/DEPS is the include graph.

    python3 tests/checks/deps.py [ROOT]

Every quoted include of a module is of that module or of one that its line in lib/DEPS lists, and each that is
listed is included; the lines are in order of use, without cycles; the command line and all above LibTorch's line stay above it; only apps/
joins rpc to the rest.
"""
import os
import sys

from tree import Tree, module_of


def violations(root):
    tree = Tree(root)
    deps, above = tree.read_deps()
    found = []
    used = {module: set() for module in deps}
    for path in tree.files:
        module = module_of(path)
        in_cli = path.startswith(os.path.join("apps", "trainctl") + os.sep)
        for name in tree.includes(path)[0]:
            target = tree.resolve(path, name)
            other = module_of(target) if target else None
            if module is not None and target is not None and target.split(os.sep)[0] in ("apps", "tests"):
                found.append(f"{path} includes {name}: a module knows neither programs nor tests")
            if other is None:
                continue
            if module is None:
                if in_cli and other not in above:
                    found.append(f"{path} includes {name}: trainctl uses nothing below LibTorch's line")
            elif module not in deps:
                found.append(f"{path}: module '{module}' has no line in lib/DEPS")
                break
            elif other != module:
                used[module].add(other)
                if other not in deps[module]:
                    found.append(f"{path} includes {name}: lib/DEPS does not list '{other}' for '{module}'")
    order = list(deps)
    for module, listed in deps.items():
        for other in listed:
            if other not in deps:
                found.append(f"lib/DEPS: '{module}' lists '{other}', which has no line")
            elif module in above and other not in above:
                found.append(f"lib/DEPS: '{module}' is above LibTorch's line, '{other}' below it")
            elif order.index(other) >= order.index(module):
                found.append(f"lib/DEPS: '{module}' lists '{other}', which comes later: lines are in order of use")
            elif other != "rpc" and other not in used[module]:
                found.append(f"lib/DEPS: '{module}' lists '{other}' and includes nothing of it")
            if other == "rpc":
                found.append(f"lib/DEPS: '{module}' lists 'rpc'; only apps/ joins it to the rest")
    return found


if __name__ == "__main__":
    found = violations(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", ".."))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)
