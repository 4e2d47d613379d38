"""Gathers what trainctl needs to run on another machine into one folder or archive; ./dev bundle calls it.

    python3 bundle.py --bin build/release/bin --libtorch DIR --out trainctl.tar.gz

The folder finds itself: every program and library in it looks for its libraries relative to its own place,
first in lib/, then in libtorch/lib, a link that its ./setup makes to the LibTorch of that machine. Docs:
docs/guide/kit.md. Exit 2: the command line; 5: the environment lacks something, with what to do about it.
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
SCHEMA = "trainctl.bundle.v1"
PROGRAMS = ("trainctl", "trainctl-worker")
PLUGIN = "libtrainctl_cuda.so"
ARCHIVES = (".tar.gz", ".tar.xz", ".tar.zst")

# What every machine brings itself. Beside glibc that is the C++ library, on purpose: LibTorch is loaded into
# the same process and may want a newer one than ours, and what we compile runs with any newer one. A machine
# with glibc 2.36 has that of GCC 12 or newer, which is what we compile with, so none has too old a one.
SYSTEM_LIBRARIES = re.compile(r"(ld-linux-.*|lib(c|m|dl|rt|pthread|util|resolv|anl|mvec|stdc\+\+|gcc_s))\.so\.\d+")
# What a GPU's driver and the CUDA wheels beside LibTorch bring.
CUDA_LIBRARIES = re.compile(r"lib(cu|nccl|nv)[A-Za-z]*\.so\.\d+")
# Compiled into our programs from their headers.
HEADER_PACKAGES = ("libcli11-dev", "libtomlplusplus-dev", "nlohmann-json3-dev", "libxxhash-dev", "libgloo-dev")


class BundleError(Exception):
    pass


def say(text):
    print(f"bundle: {text}", file=sys.stderr, flush=True)


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        raise BundleError(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


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
                    libtorch / "lib" / name).exists():
                continue
            if name not in where:
                missing.append(f"{name}, which {path} needs")
                continue
            found[name] = where[name]
            waiting.append((where[name], where))
    if missing:
        raise BundleError("not found on this machine: " + "; ".join(sorted(missing)))
    return found


def newest(versions, family):
    """The highest of GLIBC_2.4, GLIBC_2.34, ... in `versions`, without the family's name; None: there is none."""
    numbers = [v[len(family) + 1:] for v in versions if v.startswith(family + "_")]
    return max(numbers, key=lambda v: [int(part) for part in v.split(".")], default=None)


# ---- packages and licenses ---------------------------------------------------------------------------


def package_of(path):
    """(Debian package, version) that installed `path`. A file under /usr may be registered without the /usr."""
    real = path.resolve()
    for candidate in (real, pathlib.Path(str(real).removeprefix("/usr")), path):
        done = subprocess.run(["dpkg-query", "--search", candidate], capture_output=True, text=True)
        if done.returncode == 0:
            package = done.stdout.splitlines()[0].rpartition(": ")[0].split(",")[0]
            return package, run("dpkg-query", "--show", "--showformat=${Version}", package)
    raise BundleError(f"no Debian package has {real}, so its license is not known; bundles are made where the "
                      "libraries are packages")


def copy_license(package, out):
    name = package.partition(":")[0]
    license_file = pathlib.Path("/usr/share/doc") / name / "copyright"
    if not license_file.exists():
        raise BundleError(f"{license_file} does not exist (a minimal image leaves such files out): reinstall {name} "
                          "with its documentation, for its license must come along")
    folder = out / "licenses" / name
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(license_file, folder / "copyright")
    # Debian's files refer to one copy of the well-known texts.
    for common in set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9])",
                                 license_file.read_text(errors="replace"))):
        text = pathlib.Path("/usr/share/common-licenses") / common
        if text.exists():
            (out / "licenses" / "common-licenses").mkdir(exist_ok=True)
            shutil.copyfile(text, out / "licenses" / "common-licenses" / common)


# ---- the folder --------------------------------------------------------------------------------------


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


def plugin_run_path(libtorch):
    """The plugin also needs CUDA's libraries itself: they lie where LibTorch looks for them."""
    own = dynamic_section(libtorch / "lib" / "libtorch_cpu.so")[2]
    beside_libtorch = [p.replace("$ORIGIN", "$ORIGIN/../libtorch/lib") for p in own.split(":") if p.startswith("$ORIGIN/")]
    return ":".join(["$ORIGIN/../lib", "$ORIGIN/../libtorch/lib", *beside_libtorch])


def find_plugin(bin_dir):
    for place in (bin_dir / PLUGIN, bin_dir.parent / "lib" / PLUGIN):
        if place.exists():
            return place
    return None


def git(*arguments):
    """What git says of this tree; nothing where there is no git, or the tree is no clone."""
    try:
        return subprocess.run(["git", "-C", SOURCE, *arguments], capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def libtorch_version(libtorch):
    header = (libtorch / "include" / "torch" / "headeronly" / "version.h").read_text()
    return ".".join(re.search(rf"^#define TORCH_VERSION_{part} (\d+)", header, re.M).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def copy_tree(source, target):
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def fill(out, bin_dir, libtorch):
    """Puts everything into the empty folder `out`; returns the manifest that it wrote there."""
    for program in PROGRAMS:
        if not (bin_dir / program).exists():
            raise BundleError(f"{bin_dir / program} does not exist; ./dev build makes it")
    objects = {f"bin/{program}": bin_dir / program for program in PROGRAMS}
    plugin = find_plugin(bin_dir)
    if plugin:
        objects[f"{plugin.parent.name}/{PLUGIN}"] = plugin

    libraries = libraries_of(objects.values(), libtorch)
    packages = {}
    for name, place in sorted(libraries.items()):
        install_object(place, out / "lib" / name, "$ORIGIN")
        package, version = package_of(place)
        packages.setdefault(package.partition(":")[0], {"version": version, "libraries": []})["libraries"].append(name)
        copy_license(package, out)
    for package in HEADER_PACKAGES:
        version = run("dpkg-query", "--show", "--showformat=${Version}", package)
        packages[package] = {"version": version, "libraries": []}
        copy_license(package, out)
    for name, place in objects.items():
        install_object(place, out / name, plugin_run_path(libtorch) if place == plugin
                       else "$ORIGIN/../lib:$ORIGIN/../libtorch/lib")

    copy_tree(SOURCE / "recipes", out / "recipes")
    copy_tree(SOURCE / "docs", out / "docs")
    if (SOURCE / "tests" / "gpu").is_dir():
        copy_tree(SOURCE / "tests" / "gpu", out / "tests" / "gpu")
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copyfile(SOURCE / name, out / name)
    shutil.copyfile(HERE / "setup.sh", out / "setup")
    (out / "setup").chmod(0o755)

    versions = set()
    for folder in ("bin", "lib"):
        for path in (out / folder).iterdir():
            versions |= dynamic_section(path)[1]
    manifest = {
        "schema": SCHEMA,
        "version": run(bin_dir / "trainctl", "version").split()[1],
        "commit": git("describe", "--always", "--dirty") or "unknown",
        "libtorch": libtorch_version(libtorch),
        "glibc": newest(versions, "GLIBC"),
        "glibcxx": newest(versions, "GLIBCXX"),
        "cuda_plugin": f"{plugin.parent.name}/{PLUGIN}" if plugin else None,
        "packages": packages,
    }
    (out / "MANIFEST.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


# ---- the archive -------------------------------------------------------------------------------------


def made_at():
    """Seconds since 1970 that every file of an archive gets, so that one commit gives one archive."""
    if os.environ.get("SOURCE_DATE_EPOCH"):
        return int(os.environ["SOURCE_DATE_EPOCH"])
    return int(git("log", "-1", "--format=%ct") or 0)


def pack(folder, name, archive):
    """`folder` as `name`/ in an archive; which kind its own name says."""
    seconds = made_at()

    def normal(entry):
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = seconds, 0, 0, "root", "root"
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    def write(file, mode="w"):
        with tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT) as tar:
            tar.add(folder, name, filter=normal)  # in the order of names

    if archive.name.endswith(".tar.zst"):
        if shutil.which("zstd") is None:
            raise BundleError("there is no program zstd: apt-get install zstd, or name the archive .tar.gz")
        with open(archive, "wb") as file, subprocess.Popen(["zstd", "-q", "-15", "-c"], stdin=subprocess.PIPE,
                                                           stdout=file) as zstd:
            write(zstd.stdin, "w|")
        if zstd.returncode != 0:
            raise BundleError(f"zstd: exit {zstd.returncode}")
    elif archive.name.endswith(".tar.xz"):
        with open(archive, "wb") as file:
            write(file, "w:xz")
    else:
        with open(archive, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=seconds) as packed:
            write(packed)


def is_bundle(folder):
    try:
        return json.loads((folder / "MANIFEST.json").read_text())["schema"] == SCHEMA
    except (OSError, ValueError, KeyError, TypeError):
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="where the built programs are")
    parser.add_argument("--libtorch", type=pathlib.Path, required=True, help="what they were built with")
    parser.add_argument("--out", type=pathlib.Path, required=True, help=f"a folder, or an archive ({', '.join(ARCHIVES)})")
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    archive = out.name.endswith(ARCHIVES)
    if not archive and re.search(r"\.(tar|tgz|zip|gz|xz|zst|7z)$", out.name):
        say(f"{out.name}: archives are {', '.join(ARCHIVES)}; any other name is a folder's")
        return 2
    if not archive and out.exists() and not is_bundle(out) and not (out.is_dir() and not any(out.iterdir())):
        say(f"{out} exists and is no bundle: name another folder, or remove it")
        return 2
    if archive and out.is_dir():
        say(f"{out} is a folder: name another archive")
        return 2
    for tool in ("patchelf", "objdump", "strip", "ldd", "dpkg-query"):
        if shutil.which(tool) is None:
            say(f"there is no program {tool}; ./dev bundle installs what is missing")
            return 5
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        # Made beside its place and renamed, so that a bundle is there whole or not at all.
        with tempfile.TemporaryDirectory(prefix=".bundle-", dir=out.parent) as work:
            folder = pathlib.Path(work) / "bundle"
            folder.mkdir()
            manifest = fill(folder, arguments.bin.absolute(), arguments.libtorch.absolute())
            if archive:
                made = pathlib.Path(work) / out.name
                pack(folder, f"trainctl-{manifest['version']}", made)
                os.replace(made, out)
            else:
                if out.exists():
                    os.rename(out, pathlib.Path(work) / "old")
                os.rename(folder, out)
    except (BundleError, OSError) as error:
        say(str(error))
        return 5
    size = f", {out.stat().st_size / 2**20:.1f} MiB" if archive else ""
    num_libraries = sum(len(package["libraries"]) for package in manifest["packages"].values())
    say(f"{num_libraries} libraries; needs glibc {manifest['glibc']}, libstdc++ with "
        f"GLIBCXX_{manifest['glibcxx']} and LibTorch {manifest['libtorch']}")
    say(f"the CUDA plugin is in it ({manifest['cuda_plugin']})" if manifest["cuda_plugin"]
        else f"without the CUDA plugin: the build has no {PLUGIN}")
    say(f"made {out}{size}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
