"""Makes two Python wheels of the built programs; ./dev wheel calls it.

    python3 wheels.py --bin build/release/bin --libtorch DIR --out build/wheels

`trainctl` has the launcher and planner and needs no other package. `trainctl-worker` has the trainer, needs that
PyTorch whose LibTorch it was built with, and brings `trainctl` of the same version. Neither has any Python code: pip
only puts the files into their places. Docs: docs/guide/wheels.md. Exit 2: the command line; 5: the environment lacks
something, with what to do about it.

Where the files land, below the environment's folder (of a venv, of conda, ~/.local, ...):

    bin/trainctl                                            searches libexec/trainctl
    libexec/trainctl/*.so                                   its libraries
    lib/python3.X/site-packages/trainctl_worker/bin/        the worker and the CUDA plugin
    lib/python3.X/site-packages/trainctl_worker/lib/*.so    their libraries
    lib/python3.X/site-packages/torch/lib/                  PyTorch's own: the worker searches ../../torch/lib

No path of the worker depends on Python's version; apps/trainctl/installed_worker.cc finds it.

Versions end in the commit (0.1.0+g1a2b3c4d). So pip replaces an older build, and never takes the package of another
project that PyPI has under the name trainctl for the one that the worker needs.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import platform
import stat
import sys
import tempfile
import time
import zipfile

import collect
from collect import CollectError

LIBEXEC = "libexec/trainctl"
WORKER_PACKAGE = "trainctl_worker"
# The C++ library of mainstream distributions with at least that glibc, newest first: (glibc, GLIBCXX, CXXABI).
DISTRIBUTIONS = (("2.39", "3.4.33", "1.3.15"), ("2.35", "3.4.30", "1.3.13"), ("2.34", "3.4.29", "1.3.13"),
                 ("2.31", "3.4.28", "1.3.12"), ("2.28", "3.4.24", "1.3.11"))
# Where `man` and the shells look by themselves, below a prefix: {path: arguments of trainctl that print the file}.
PAGES = {"share/man/man1/trainctl.1": ["man"],
         "share/bash-completion/completions/trainctl": ["completions", "bash"],
         "share/zsh/site-functions/_trainctl": ["completions", "zsh"],
         "share/fish/vendor_completions.d/trainctl.fish": ["completions", "fish"]}

SUMMARIES = {
    "trainctl": "Plan, launch and resume the training of language models from one TOML file",
    "trainctl-worker": "The trainer that trainctl starts: one rank of a run, on LibTorch",
}
DESCRIPTIONS = {
    "trainctl": """trainctl plans, launches and resumes the training of large language models from one TOML file.

    trainctl new text                # writes recipe.toml
    trainctl plan recipe.toml        # layout, memory and step time; needs no GPU
    trainctl launch recipe.toml      # needs trainctl-worker

This package plans, and needs neither PyTorch nor a GPU. To train, install `trainctl-worker` next to it. Linux on x86-64.
""",
    "trainctl-worker": """trainctl-worker is one rank of a training run. `trainctl` starts it; nobody runs it by hand.

The package brings `trainctl` of the same version. The worker is a C++ program: it loads the LibTorch of the PyTorch in the
same environment, and no Python. Linux on x86-64; NVIDIA GPUs if the package was built with the CUDA plugin.
""",
}


def say(text):
    print(f"wheel: {text}", file=sys.stderr, flush=True)


# ---- tags and metadata -------------------------------------------------------------------------------


def numbers(version):
    return [int(part) for part in version.split(".")]


def platform_tag(versions):
    """The oldest manylinux whose distributions have every symbol version of `versions`."""
    glibc = numbers(collect.newest(versions, "GLIBC"))
    needs = [numbers(collect.newest(versions, family) or "0") for family in ("GLIBCXX", "CXXABI")]
    enough = [numbers(first) for first, *has in DISTRIBUTIONS if all(need <= numbers(h) for need, h in zip(needs, has))]
    if not enough:
        raise CollectError(f"a library needs GLIBCXX_{collect.newest(versions, 'GLIBCXX')}, newer than any distribution "
                           "that apps/bundle/wheels.py knows: add the first one that has it to DISTRIBUTIONS")
    major, minor = max(glibc[:2], min(enough))
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def wheel_version(bin_dir):
    """The programs' version and the commit they were built from, as PEP 440 writes it."""
    commit = collect.git("describe", "--always", "--dirty", "--exclude=*") or "unknown"
    return f"{collect.version_of(bin_dir)}+g{commit.replace('-', '.')}"


def metadata(name, version, requirements):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {SUMMARIES[name]}",
             "Requires-Python: >=3", *requirements, "Description-Content-Type: text/markdown", "", DESCRIPTIONS[name]]
    return "\n".join(lines)


# ---- the file ----------------------------------------------------------------------------------------


def zip_time():
    """The time of every file in a wheel; a zip has none before 1980."""
    return max(time.gmtime(collect.made_at())[:6], (1980, 1, 1, 0, 0, 0))


def pack(folder, name, version, tag, out):
    """Writes the wheel of `folder`, whose files are as they lie in the wheel; returns its path."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    (folder / info / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: trainctl ({version})\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n")
    wheel = out / f"{stem}-py3-none-{tag}.whl"
    # Installers want dist-info at the end.
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (info in path.parts, path))
    record, seconds = [], zip_time()
    with zipfile.ZipFile(wheel, "w") as archive:
        def add(inside, contents, mode):
            entry = zipfile.ZipInfo(inside, seconds)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, whose modes follow
            entry.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(entry, contents)

        for path in files:
            inside, contents = path.relative_to(folder).as_posix(), path.read_bytes()
            add(inside, contents, 0o755 if os.access(path, os.X_OK) else 0o644)
            checksum = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
            record.append(f"{inside},sha256={checksum},{len(contents)}")
        add(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]), 0o644)
    return wheel


# ---- what is in them ---------------------------------------------------------------------------------


def fill_launcher(folder, info, bin_dir, libtorch):
    """The files of `trainctl` in `folder`; returns the folders that have ELF files."""
    data = folder / info.replace(".dist-info", ".data")
    program = collect.find_programs(bin_dir)["trainctl"]
    libraries = data / "data" / LIBEXEC
    collect.install_libraries(collect.libraries_of([program], libtorch), collect.archives_of(bin_dir), libraries,
                              folder / info / "licenses")
    collect.install_object(program, data / "scripts" / "trainctl", f"$ORIGIN/../{LIBEXEC}")
    for place, arguments in PAGES.items():
        (data / "data" / place).parent.mkdir(parents=True, exist_ok=True)
        (data / "data" / place).write_text(collect.run(program, *arguments))
    return [data / "scripts", libraries]


def fill_worker(folder, info, bin_dir, libtorch):
    """The files of `trainctl-worker` in `folder`; returns the folders that have ELF files."""
    package = folder / WORKER_PACKAGE
    objects = [collect.find_programs(bin_dir)["trainctl-worker"], *filter(None, [collect.find_plugin(bin_dir)])]
    collect.install_libraries(collect.libraries_of(objects, libtorch), [], package / "lib", folder / info / "licenses")
    own, torch = "$ORIGIN/../lib", "$ORIGIN/../../torch/lib"
    for place in objects:
        collect.install_object(place, package / "bin" / place.name, collect.run_path(place, own, torch, libtorch))
    return [package / "bin", package / "lib"]


def make(name, fill, requirements, version, bin_dir, libtorch, out):
    """One wheel in the folder `out`; returns its path and the symbol versions that its files need."""
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=out) as work:
        folder = pathlib.Path(work)
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        versions = collect.needed_versions(fill(folder, info, bin_dir, libtorch))
        (folder / info / "METADATA").write_text(metadata(name, version, requirements))
        return pack(folder, name, version, platform_tag(versions), out), versions


def make_both(bin_dir, libtorch, out):
    version = wheel_version(bin_dir)
    torch = ".".join(collect.libtorch_version(libtorch).split(".")[:2])
    return [
        make("trainctl", fill_launcher,
             ["Provides-Extra: train", f"Requires-Dist: trainctl-worker=={version}; extra == \"train\""],
             version, bin_dir, libtorch, out),
        make("trainctl-worker", fill_worker,
             [f"Requires-Dist: trainctl=={version}", f"Requires-Dist: torch=={torch}.*"], version, bin_dir, libtorch, out),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="where the built programs are")
    parser.add_argument("--libtorch", type=pathlib.Path, required=True, help="what they were built with")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a folder for the wheels")
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    if out.exists() and not out.is_dir():
        say(f"{out} is not a folder: wheels are named after their version, so name only the folder they go into")
        return 2
    missing = collect.missing_tool()
    if missing:
        say(f"there is no program {missing}; ./dev wheel installs what is missing")
        return 5
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Made beside their places and renamed, so that a wheel is there whole or not at all.
        with tempfile.TemporaryDirectory(prefix=".wheels-", dir=out) as work:
            made = make_both(arguments.bin.absolute(), arguments.libtorch.absolute(), pathlib.Path(work))
            for wheel, _ in made:
                os.replace(wheel, out / wheel.name)
    except (CollectError, OSError) as error:
        say(str(error))
        return 5
    for wheel, versions in made:
        path = out / wheel.name
        say(f"made {path}, {path.stat().st_size / 2**20:.1f} MiB; needs glibc {collect.newest(versions, 'GLIBC')} and "
            f"libstdc++ with GLIBCXX_{collect.newest(versions, 'GLIBCXX') or '3.4'}")
    if not collect.find_plugin(arguments.bin):
        say(f"without the CUDA plugin: the build has no {collect.PLUGIN}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
