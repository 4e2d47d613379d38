"""Collects what the programs need on another machine: their shared libraries, and the licenses of what is in them.

./dev bundle (bundle.py) and ./dev wheel (wheels.py) both take it from here, so an archive and a wheel of one build
hold the same files. CollectError says what is missing and what to do about it.
"""

import os
import pathlib
import re
import shutil
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = ("trainctl", "trainctl-worker")
PLUGIN = "libtrainctl_cuda.so"
PARQUET_PLUGIN = "libtrainctl_parquet.so"
# The programs that collecting takes.
TOOLS = ("patchelf", "objdump", "strip", "ldd", "dpkg-query")

# What every machine brings itself. Beside glibc that is the C++ library, on purpose: LibTorch is loaded into
# the same process and may want a newer one than ours, and what we compile runs with any newer one. A machine
# with glibc 2.36 has that of GCC 12 or newer, which is what we compile with, so none has too old a one.
SYSTEM_LIBRARIES = re.compile(r"(ld-linux-.*|lib(c|m|dl|rt|pthread|util|resolv|anl|mvec|stdc\+\+|gcc_s))\.so\.\d+")
# What a GPU's driver and the CUDA wheels beside LibTorch bring.
CUDA_LIBRARIES = re.compile(r"lib(cu|nccl|nv)[A-Za-z]*\.so\.\d+")
# What the Python package pyarrow brings to a machine on which Parquet is read (lib/data/parquet_plugin.h).
ARROW_LIBRARIES = re.compile(r"lib(arrow|parquet)\.so\.\d+")
# Compiled into our programs from their headers.
HEADER_PACKAGES = ("libcli11-dev", "libtomlplusplus-dev", "nlohmann-json3-dev", "libxxhash-dev", "libgloo-dev")


class CollectError(Exception):
    pass


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        raise CollectError(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def missing_tool():
    """The first program of TOOLS that this machine lacks, or None."""
    return next((tool for tool in TOOLS if shutil.which(tool) is None), None)


# ---- ELF files ---------------------------------------------------------------------------------------


def dynamic_section(path):
    """(names of needed libraries, {symbol version that is needed}, run path) of an ELF file."""
    text = run("objdump", "-p", path)
    needed = re.findall(r"^\s+NEEDED\s+(\S+)$", text, re.M)
    _, _, references = text.partition("Version References:")
    versions = set(re.findall(r"\s([A-Z]+_[0-9.]+)$", references, re.M))
    paths = re.findall(r"^\s+R(?:UN)?PATH\s+(\S*)$", text, re.M)
    return needed, versions, ":".join(paths)


def places(path):
    """{library: its file} as the loader of this machine finds them for `path`; without those it does not find."""
    found = re.findall(r"^\s+(\S+) => (/.*) \(0x[0-9a-f]+\)$", run("ldd", path), re.M)
    return {name: pathlib.Path(place) for name, place in found}


def libraries_of(objects, libtorch):
    """{name: file} of the libraries that `objects` need and no machine has by itself."""
    found, missing, waiting = {}, [], [(path, places(path)) for path in objects]
    while waiting:
        path, where = waiting.pop()
        for name in dynamic_section(path)[0]:
            if name in found or SYSTEM_LIBRARIES.fullmatch(name) or CUDA_LIBRARIES.fullmatch(name) or (
                    ARROW_LIBRARIES.fullmatch(name)) or (libtorch / "lib" / name).exists():
                continue
            if name not in where:
                missing.append(f"{name}, which {path} needs")
                continue
            found[name] = where[name]
            waiting.append((where[name], where))
    if missing:
        raise CollectError("not found on this machine: " + "; ".join(sorted(missing)))
    return found


def newest(versions, family):
    """The highest of GLIBC_2.4, GLIBC_2.34, ... in `versions`, without the family's name; None: there is none."""
    numbers = [v[len(family) + 1:] for v in versions if v.startswith(family + "_")]
    return max(numbers, key=lambda v: [int(part) for part in v.split(".")], default=None)


def needed_versions(folders):
    """The symbol versions that the ELF files directly in `folders` need."""
    versions = set()
    for folder in folders:
        for path in folder.iterdir():
            versions |= dynamic_section(path)[1]
    return versions


def install_object(source, target, run_path):
    """Copies an ELF file without its debug information, looking for its libraries in `run_path`.

    Functions keep their names, so that a stack in a core dump or a profiler can be read; that is a third of the
    program, where debug information would be five times of it. DT_RPATH, as PyTorch's wheels have it, and not
    DT_RUNPATH: what a machine has in LD_LIBRARY_PATH must not put another gRPC or another LibTorch in the place
    of the one that was meant.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source.resolve(), target)
    target.chmod(0o755)
    run("strip", "--strip-debug", target)
    run("patchelf", "--force-rpath", "--set-rpath", run_path, target)


def run_path(source, own, torch, libtorch):
    """What a program or the plugin searches: our libraries in `own`, then LibTorch's in `torch`, both relative to it.
    The plugin also needs CUDA's libraries itself: they lie where the LibTorch of this build looks for them."""
    if source.name != PLUGIN:
        return f"{own}:{torch}"
    searched = dynamic_section(libtorch / "lib" / "libtorch_cpu.so")[2].split(":")
    return ":".join([own, torch, *(place.replace("$ORIGIN", torch) for place in searched if place.startswith("$ORIGIN/"))])


# ---- packages and licenses ---------------------------------------------------------------------------


def package_of(path):
    """(Debian package, version) that installed `path`. A file under /usr may be registered without the /usr."""
    real = path.resolve()
    for candidate in (real, pathlib.Path(str(real).removeprefix("/usr")), path):
        done = subprocess.run(["dpkg-query", "--search", candidate], capture_output=True, text=True)
        if done.returncode == 0:
            package = done.stdout.splitlines()[0].rpartition(": ")[0].split(",")[0]
            return package, run("dpkg-query", "--show", "--showformat=${Version}", package)
    raise CollectError(f"no Debian package has {real}, so its license is not known; bundles and wheels are made where "
                       "the libraries are packages")


def copy_license(package, out):
    """The package's copyright file into the folder `out`, with the license texts that it refers to."""
    name = package.partition(":")[0]
    license_file = pathlib.Path("/usr/share/doc") / name / "copyright"
    if not license_file.exists():
        raise CollectError(f"{license_file} does not exist (a minimal image leaves such files out): reinstall {name} "
                           "with its documentation, for its license must come along")
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(license_file, folder / "copyright")
    # Debian's files refer to one copy of the well-known texts.
    for common in set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9])",
                                 license_file.read_text(errors="replace"))):
        text = pathlib.Path("/usr/share/common-licenses") / common
        if text.exists():
            (out / "common-licenses").mkdir(exist_ok=True)
            shutil.copyfile(text, out / "common-licenses" / common)


def archives_of(bin_dir):
    """The static libraries that cmake/archives.cmake puts into trainctl, one of Abseil's for all of them."""
    script = bin_dir.parent / "generated" / "packages.ld"
    words = script.read_text().split() if script.exists() else []
    archives = [pathlib.Path(word) for word in words if word.endswith(".a") and pathlib.Path(word).exists()]
    of_abseil = [archive for archive in archives if archive.name.startswith("libabsl_")]
    return [archive for archive in archives if archive not in of_abseil[1:]]


def install_libraries(libraries, archives, lib, licenses):
    """Copies the shared `libraries` ({name: file}) into the folder `lib`, and the licenses of them, of `archives` and
    of HEADER_PACKAGES into `licenses`. Returns {package: {"version", "libraries"}} with the names of shared ones."""
    packages = {}
    for name, place in sorted(libraries.items()):
        install_object(place, lib / name, "$ORIGIN")
        package, version = package_of(place)
        packages.setdefault(package.partition(":")[0], {"version": version, "libraries": []})["libraries"].append(name)
    for archive in archives:
        package, version = package_of(archive)
        packages.setdefault(package.partition(":")[0], {"version": version, "libraries": []})
    for package in HEADER_PACKAGES:
        version = run("dpkg-query", "--show", "--showformat=${Version}", package)
        packages.setdefault(package, {"version": version, "libraries": []})
    for package in packages:
        copy_license(package, licenses)
    return packages


# ---- the build ---------------------------------------------------------------------------------------


def find_programs(bin_dir):
    """{program: its file}; CollectError if one was not built."""
    for program in PROGRAMS:
        if not (bin_dir / program).exists():
            raise CollectError(f"{bin_dir / program} does not exist; ./dev build makes it")
    return {program: bin_dir / program for program in PROGRAMS}


def find_plugin(bin_dir, name=PLUGIN):
    for place in (bin_dir / name, bin_dir.parent / "lib" / name):
        if place.exists():
            return place
    return None


def version_of(bin_dir):
    """The version that the program prints: that of CMakeLists.txt."""
    return run(bin_dir / "trainctl", "version").split()[1]


def libtorch_version(libtorch):
    header = (libtorch / "include" / "torch" / "headeronly" / "version.h").read_text()
    return ".".join(re.search(rf"^#define TORCH_VERSION_{part} (\d+)", header, re.M).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def git(*arguments):
    """What git says of this tree; nothing where there is no git, or the tree is no clone."""
    try:
        return subprocess.run(["git", "-C", SOURCE, *arguments], capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def made_at():
    """Seconds since 1970 that every file of an archive or a wheel gets, so that one commit gives one file."""
    if os.environ.get("SOURCE_DATE_EPOCH"):
        return int(os.environ["SOURCE_DATE_EPOCH"])
    return int(git("log", "-1", "--format=%ct") or 0)
