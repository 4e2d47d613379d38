"""What the checks of this folder share: the source files, what they include, and lib/DEPS."""
import os
import re

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
TOPS = ("apps", "cmake", "kernels", "lib", "tests")


class Tree:
    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.files = []  # relative to root, sorted
        for top in TOPS:
            for parent, _, names in os.walk(os.path.join(self.root, top)):
                self.files += [os.path.relpath(os.path.join(parent, name), self.root)
                               for name in names if name.endswith((".h", ".cc"))]
        self.files.sort()
        self._includes = {}

    def includes(self, path):
        """(quoted, system) names as they are written in `path`."""
        if path not in self._includes:
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                found = INCLUDE.findall(file.read())
            self._includes[path] = ([a for a, _ in found if a], [b for _, b in found if b])
        return self._includes[path]

    def resolve(self, path, name):
        """The file of ours that `path` means by a quoted name, or None (a generated or foreign header)."""
        for base in (os.path.dirname(path), "lib", ""):
            candidate = os.path.normpath(os.path.join(base, name))
            if os.path.isfile(os.path.join(self.root, candidate)):
                return candidate
        return None

    def closure(self, path):
        """{file of ours: the file that includes it} for `path` and all it includes."""
        seen = {path: None}
        waiting = [path]
        while waiting:
            current = waiting.pop()
            for name in self.includes(current)[0]:
                target = self.resolve(current, name)
                if target and target not in seen:
                    seen[target] = current
                    waiting.append(target)
        return seen

    def read_deps(self):
        """({module: modules it may include}, names above LibTorch's line), in the file's order."""
        deps, above, below_line = {}, [], False
        with open(os.path.join(self.root, "lib", "DEPS"), encoding="utf-8") as file:
            for line in file:
                if line.startswith("----"):
                    below_line = True
                elif not line.startswith("#") and ":" in line:
                    module, used = line.split(":", 1)
                    deps[module.strip()] = used.split()
                    if not below_line:
                        above.append(module.strip())
        return deps, above


def module_of(path):
    """lib/<module>/... and kernels/... have one; the rest has none."""
    parts = path.split(os.sep)
    if parts[0] == "lib" and len(parts) > 2:
        return parts[1]
    return "kernels" if parts[0] == "kernels" else None
