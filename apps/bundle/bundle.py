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

import collect
from collect import SOURCE, CollectError

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA = "trainctl.bundle.v1"
ARCHIVES = (".tar.gz", ".tar.xz", ".tar.zst")


def say(text):
    print(f"bundle: {text}", file=sys.stderr, flush=True)


# ---- the folder --------------------------------------------------------------------------------------


def copy_tree(source, target):
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def fill(out, bin_dir, libtorch):
    """Puts everything into the empty folder `out`; returns the manifest that it wrote there."""
    objects = {f"bin/{program}": place for program, place in collect.find_programs(bin_dir).items()}
    plugins = {}
    for name in (collect.PLUGIN, collect.PARQUET_PLUGIN):
        if place := collect.find_plugin(bin_dir, name):
            plugins[name] = f"{place.parent.name}/{name}"
            objects[plugins[name]] = place

    libraries = collect.libraries_of(objects.values(), libtorch)
    packages = collect.install_libraries(libraries, collect.archives_of(bin_dir), out / "lib", out / "licenses")
    own, torch = "$ORIGIN/../lib", "$ORIGIN/../libtorch/lib"
    for name, place in objects.items():
        collect.install_object(place, out / name, collect.run_path(place, own, torch, libtorch))

    copy_tree(SOURCE / "recipes", out / "recipes")
    copy_tree(SOURCE / "docs", out / "docs")
    if (SOURCE / "tests" / "gpu").is_dir():
        copy_tree(SOURCE / "tests" / "gpu", out / "tests" / "gpu")
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copyfile(SOURCE / name, out / name)
    shutil.copyfile(HERE / "setup.sh", out / "setup")
    (out / "setup").chmod(0o755)

    versions = collect.needed_versions([out / "bin", out / "lib"])
    manifest = {
        "schema": SCHEMA,
        "version": collect.version_of(bin_dir),
        "commit": collect.git("describe", "--always", "--dirty") or "unknown",
        "libtorch": collect.libtorch_version(libtorch),
        "glibc": collect.newest(versions, "GLIBC"),
        "glibcxx": collect.newest(versions, "GLIBCXX"),
        "cuda_plugin": plugins.get(collect.PLUGIN),
        "parquet_plugin": plugins.get(collect.PARQUET_PLUGIN),
        "packages": packages,
    }
    (out / "MANIFEST.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


# ---- the archive -------------------------------------------------------------------------------------


def pack(folder, name, archive):
    """`folder` as `name`/ in an archive; which kind its own name says."""
    seconds = collect.made_at()

    def normal(entry):
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = seconds, 0, 0, "root", "root"
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    def write(file, mode="w"):
        with tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT) as tar:
            tar.add(folder, name, filter=normal)  # in the order of names

    if archive.name.endswith(".tar.zst"):
        if shutil.which("zstd") is None:
            raise CollectError("there is no program zstd: apt-get install zstd, or name the archive .tar.gz")
        with open(archive, "wb") as file, subprocess.Popen(["zstd", "-q", "-15", "-c"], stdin=subprocess.PIPE,
                                                           stdout=file) as zstd:
            write(zstd.stdin, "w|")
        if zstd.returncode != 0:
            raise CollectError(f"zstd: exit {zstd.returncode}")
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
    missing = collect.missing_tool()
    if missing:
        say(f"there is no program {missing}; ./dev bundle installs what is missing")
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
    except (CollectError, OSError) as error:
        say(str(error))
        return 5
    size = f", {out.stat().st_size / 2**20:.1f} MiB" if archive else ""
    num_libraries = sum(len(package["libraries"]) for package in manifest["packages"].values())
    say(f"{num_libraries} libraries; needs glibc {manifest['glibc']}, libstdc++ with "
        f"GLIBCXX_{manifest['glibcxx']} and LibTorch {manifest['libtorch']}")
    say(f"the CUDA plugin is in it ({manifest['cuda_plugin']})" if manifest["cuda_plugin"]
        else f"without the CUDA plugin: the build has no {collect.PLUGIN}")
    if not manifest["parquet_plugin"]:
        say(f"without the plugin for Parquet files: the build has no {collect.PARQUET_PLUGIN}")
    say(f"made {out}{size}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
