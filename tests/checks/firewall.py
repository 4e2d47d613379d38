"""Which files may see which libraries: LibTorch, gRPC and protobuf, OpenSSL, spdlog and fmt, toml++, CLI11, Arrow.

    python3 tests/checks/firewall.py sources [ROOT]
    python3 tests/checks/firewall.py objects BUILD_FOLDER      # files that the compiler really read
    python3 tests/checks/firewall.py binaries BUILD_FOLDER

LibTorch carries its own fmt and protobuf headers, so a file that read both it and the system's would mix two
versions of one class. The command line stays free of LibTorch, because loading it takes a third of a second.
Gloo's classes come from LibTorch: those compiled from the system's older headers have another layout.
"""
import os
import re
import subprocess
import sys

from tree import Tree, module_of

# Family: the system headers that belong to it, and who may include them directly.
FAMILIES = {
    "LibTorch": (r"(ATen|c10|torch|caffe2)/", None),  # see may_see_libtorch
    "Gloo": (r"gloo/", r"$^"),  # through c10d alone
    "gRPC and protobuf": (r"(grpc|grpcpp|grpc\+\+|google/protobuf)/|.*\.pb\.h$", r"(lib|tests/unit)/rpc/"),
    "OpenSSL": (r"openssl/", r"(lib|tests/unit)/rpc/"),
    "spdlog and fmt": (r"(spdlog|fmt)/", r"lib/base/logging\.cc$"),
    "toml++": (r"toml\+\+/", r"lib/recipe/toml_reader\.cc$"),
    "CLI11": (r"CLI/", r"apps/trainctl/"),
    "Arrow": (r"(arrow|parquet)/", r"apps/parquet/"),
}
FOREIGN = ("gRPC and protobuf", "spdlog and fmt")  # of which LibTorch has its own
OUTSIDE = re.compile(r"/(?:usr|usr/local)/include/(?:grpc|grpcpp|grpc\+\+|google/protobuf|spdlog|fmt)/|/generated/proto/")
# Its precompiled header stands for what it was made of.
LIBTORCH = re.compile(r"/include/(?:ATen|c10|torch)/|/trainctl_torch_pch\.dir/cmake_pch\.hxx")


# The device plugin, which nothing links with; the operators beside it are free of LibTorch.
PLUGIN = ("kernels/cuda/plugin.cc", "kernels/cuda/nccl_backend.cc", "kernels/cuda/graph.cc")


def may_see_libtorch(path, above):
    if path in PLUGIN:
        return True
    module = module_of(path)
    if module is not None:
        return module not in above
    parts = path.split(os.sep)
    if parts[:2] == ["tests", "unit"]:
        return parts[2] not in above
    return parts[0] in ("tests", "cmake") and parts[:2] != ["tests", "tools"]


def families_of(names):
    return {family for name in names for family, (pattern, _) in FAMILIES.items() if re.match(pattern, name)}


def check_sources(root):
    tree = Tree(root)
    above = tree.read_deps()[1]
    found = []
    for path in tree.files:
        quoted, system = tree.includes(path)
        foreign = [name for name in quoted if tree.resolve(path, name) is None]
        for name in system + foreign:
            if name == "torch/torch.h":
                found.append(f"{path} includes <{name}>: 18 s a file; narrow headers do")
            for family, (pattern, allowed) in FAMILIES.items():
                if not re.match(pattern, name):
                    continue
                ok = may_see_libtorch(path, above) if allowed is None else re.match(allowed, path)
                if not ok:
                    found.append(f"{path} includes <{name}>: {family} is not for this file")
    for path in tree.files:
        if not path.endswith(".cc"):
            continue
        closure = tree.closure(path)
        seen = {}
        for part in closure:
            quoted, system = tree.includes(part)
            for family in families_of(system + [name for name in quoted if tree.resolve(part, name) is None]):
                seen.setdefault(family, part)
        for family in FOREIGN:
            if "LibTorch" in seen and family in seen:
                found.append(f"{path} reads LibTorch (through {seen['LibTorch']}) and {family} "
                             f"(through {seen[family]})")
        if "LibTorch" in seen and not may_see_libtorch(path, above):
            found.append(f"{path} reads LibTorch, through {seen['LibTorch']}")
    return found


def check_objects(build):
    listing = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    found, num_objects, num_libtorch = [], 0, 0
    for block in listing.split("\n\n"):
        lines = block.strip().splitlines()
        if len(lines) < 2:
            continue
        num_objects += 1
        headers = [os.path.normpath(os.path.join("/", line.strip())) for line in lines[1:]]
        libtorch = next((h for h in headers if LIBTORCH.search(h) and not OUTSIDE.search(h)), None)
        foreign = next((h for h in headers if OUTSIDE.search(h)), None)
        num_libtorch += libtorch is not None
        if libtorch and foreign:
            found.append(f"{lines[0].split(':')[0]} reads both {libtorch} and {foreign}")
    print(f"{num_objects} objects, {num_libtorch} with LibTorch")
    if num_libtorch == 0:
        found.append(f"no object in {build} reads LibTorch: this check saw nothing")
    return found


def check_binaries(build):
    found = []
    bin_folder = os.path.join(build, "bin")
    needed = subprocess.run(["readelf", "-d", os.path.join(bin_folder, "trainctl")],
                            capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", needed):
        if re.match(r"lib(torch|c10|cud|gloo|nccl)", name):
            found.append(f"trainctl links {name}")
    symbols = subprocess.run(["nm", "-C", os.path.join(bin_folder, "trainctl-worker")],
                             capture_output=True, text=True, check=True).stdout
    if "c10d" not in symbols:
        found.append("trainctl-worker has no symbol of c10d: this check saw nothing")
    for line in symbols.splitlines():
        # "<address> <type> <name>": types U, w and v without an address are references, not definitions.
        if re.search(r"(vtable|typeinfo|VTT) for gloo::", line) and not line.startswith(" "):
            found.append(f"trainctl-worker defines {line.split(' ', 2)[2]}")
    return found


def main():
    mode = sys.argv[1]
    default = os.path.join(os.path.dirname(__file__), "..", "..")
    where = sys.argv[2] if len(sys.argv) > 2 else default
    found = {"sources": check_sources, "objects": check_objects, "binaries": check_binaries}[mode](where)
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
