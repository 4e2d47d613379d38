"""Stubs of the NVIDIA libraries that PyTorch is linked with and a CPU never calls.

PyTorch of PyPI does not load without them, and they are 2 GB. A stub has the name of a missing library and the functions
that PyTorch wants of it; a call of one ends the process.
"""

import os
import re
import subprocess


def read(path):
    """Of a shared library: the names of those it needs, and {(library, version): functions} of NVIDIA's that it wants.
    A function without a version does not say whose it is: it is at (None, None)."""
    said = subprocess.run(["readelf", "--dynamic", "--version-info", "--dyn-syms", "--wide", path],
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    library_of, library = {}, None
    for file, version in re.findall(r"File: (\S+)|Name: (\S+)", said):
        if file:
            library = file
        else:
            library_of[version] = library
    functions = {}
    for name, version in re.findall(r" UND ((?:cu|nv|nccl)\w+)(?:@(\S+))?", said):
        key = (library_of[version], version) if version else (None, None)
        functions.setdefault(key, set()).add(name)
    return re.findall(r"\(NEEDED\).*\[(.+)\]", said), functions


def missing_in(site):
    """The libraries that PyTorch in `site` needs and `site` lacks, and the functions that it wants, as read() has them."""
    nvidia = os.path.join(site, "nvidia")
    folders = [os.path.join(site, "torch", "lib")] + [os.path.join(nvidia, name, "lib") for name in os.listdir(nvidia)]
    missing, functions, seen, todo = set(), {}, set(), ["libtorch_python.so"]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        path = next(filter(os.path.exists, (os.path.join(folder, name) for folder in folders)), None)
        if path:
            needed, wanted = read(path)
            todo += needed
            for key, names in wanted.items():
                functions.setdefault(key, set()).update(names)
        elif re.match(r"lib(cu|nv|nccl)", name):
            missing.add(name)
    return missing, functions


def write(site, out):
    """Writes stubs into the new folder `out`, to be in LD_LIBRARY_PATH."""
    os.mkdir(out)
    missing, functions = missing_in(site)
    for name in sorted(missing):
        own = {version: names for (library, version), names in functions.items() if library == name}
        stub = os.path.join(out, name)
        options = []
        if own:  # the loader looks for the versions too
            with open(stub + ".map", "w", encoding="utf-8") as file:
                file.writelines("%s { global: %s; };\n" % (version, "; ".join(sorted(names)))
                                for version, names in own.items())
            options = ["-Wl,--version-script=" + stub + ".map"]
        with open(stub + ".c", "w", encoding="utf-8") as file:
            for names in own.values() if own else [functions.get((None, None), ())]:
                file.writelines("void %s(void) { __builtin_trap(); }\n" % function for function in sorted(names))
        subprocess.run(["cc", "-shared", "-fPIC", "-nostdlib", "-Wl,-soname=" + name, *options, "-o", stub, stub + ".c"],
                       check=True)
