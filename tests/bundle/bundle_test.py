"""The bundle that ./dev bundle makes, on a machine that has nothing else.

    python3 bundle_test.py BIN_DIR LIBTORCH

Makes the archive from a built tree, unpacks it under another name, and holds every ELF file in it against what
the other machine has: glibc, the C++ library, LibTorch. Then it runs there what a person would: ./setup,
`doctor`, a small training run of two workers. "There" is a mount namespace whose only files are these, without
any network but the loopback. Exit 77: this machine gives no namespaces, or lacks patchelf.
"""

import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
MOST_BYTES = 64 << 20
# Of Debian 12: what a bundle that is made there may need. One that is made on a newer machine needs that.
GLIBC, GLIBCXX, CXXABI = "2.36", "3.4.30", "1.3.13"
# What the other machine has, by name: written out here, and not taken from what makes the bundle.
MACHINE = ("libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 libutil.so.1 libresolv.so.2 ld-linux-x86-64.so.2 "
           "libstdc++.so.6 libgcc_s.so.1").split()
RECIPE = """recipe_version = 1
[run]
name = "tiny"
[model]
preset = "toy-1m"
[data]
seq_len = 32
[[data.train]]
files = ["text.txt"]
kind = "text"
[train]
steps = 3
batch_sequences = 4
precision = "fp32"
[parallel]
dp_shard = 2
zero_stage = 3
[cluster]
devices_per_node = 2
"""


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)


def version_numbers(text):
    return [int(part) for part in text.split(".")]


def glibc_here():
    return os.confstr("CS_GNU_LIBC_VERSION").split()[1]


# ---- what an ELF file needs: by readelf, where the bundle is made with objdump -------------------------


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needed(path):
    text = run("readelf", "-dW", path).stdout
    return (re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", text),
            re.findall(r"\((?:RPATH|RUNPATH)\)\s+Library r\w*path: \[(.*)\]", text))


def versions(path):
    """Of the section of needed versions alone: a library may also define some."""
    text = run("readelf", "-VW", path).stdout
    _, _, text = text.partition("Version needs section")
    return re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI)_([0-9.]+)\b", text)


def elf_files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and is_elf(path))


def problems(folder, libtorch):
    """Why the ELF files of an unpacked bundle or wheel cannot run on the other machine, as sentences."""
    files = elf_files(folder)
    brought = {path.name for path in files}
    of_libtorch = {path.name for path in (libtorch / "lib").iterdir()}
    # CUDA's own libraries come with the wheels that LibTorch needs; libcuda is the driver's.
    for name in ("libtorch_cpu.so", "libtorch_cuda.so", "libc10_cuda.so"):
        if (libtorch / "lib" / name).exists():
            of_libtorch |= {n for n in needed(libtorch / "lib" / name)[0] if re.match(r"lib(cu|nccl|nv)", n)}
    of_libtorch.add("libcuda.so.1")
    of_pyarrow = re.compile(r"lib(arrow|parquet)\.so\.\d+")  # on machines on which Parquet is read
    limits = {"GLIBC": GLIBC, "GLIBCXX": GLIBCXX, "CXXABI": CXXABI}
    newer_machine = version_numbers(glibc_here()) > version_numbers(GLIBC)
    found = []
    for path in files:
        name = path.relative_to(folder)
        needs, run_paths = needed(path)
        found += [f"{name} needs {other}, which neither this nor LibTorch nor the machine has"
                  for other in needs if other not in brought and other not in of_libtorch and other not in MACHINE
                  and not (path.name == "libtrainctl_parquet.so" and of_pyarrow.fullmatch(other))]
        found += [f"{name} looks for libraries in {place}" for place in ":".join(run_paths).split(":")
                  if not place.startswith("$ORIGIN")]
        for family, version in versions(path):
            if not newer_machine and version_numbers(version) > version_numbers(limits[family]):
                found.append(f"{name} needs {family}_{version}; the limit is {limits[family]}")
            if newer_machine and family == "GLIBC" and version_numbers(version) > version_numbers(glibc_here()):
                found.append(f"{name} needs {family}_{version}, newer than this machine's")
    if not files:
        found.append("there is no ELF file")
    return found


# ---- the other machine ---------------------------------------------------------------------------------

# util-linux's unshare gives these; as another user than root, a namespace of users has to come first.
UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--net", "--ipc", *([] if os.getuid() == 0 else
                                                                       ["--user", "--map-root-user"])]
INSIDE = "--inside"


def mount(*arguments):
    done = run("mount", *arguments)
    if done.returncode != 0:
        raise OSError(f"mount {' '.join(map(str, arguments))}: {done.stderr.strip()}")


def copy_program(program, root):
    """A program with the libraries of MACHINE; one that needs others is not taken along."""
    for name in needed(program)[0]:
        assert name in MACHINE, f"{program} needs {name}"
    shutil.copyfile(program, root / "bin" / program.name)
    (root / "bin" / program.name).chmod(0o755)


def library_here(name):
    for folder in ("/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        path = pathlib.Path(folder) / name
        if path.exists():
            return path.resolve()
    return None


def build_root(root, bundle, libtorch):
    """The other machine's files under `root`, an empty folder of a fresh mount namespace."""
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "none", root)
    for folder in ("bin", "lib64", "lib/x86_64-linux-gnu", "proc", "dev/shm", "tmp", "home/a user", "opt/python"):
        (root / folder).mkdir(parents=True)
    for name in MACHINE:
        place = library_here(name)
        if place:
            folder = "lib64" if name.startswith("ld-linux") else "lib/x86_64-linux-gnu"
            shutil.copyfile(place, root / folder / name)
            (root / folder / name).chmod(0o755)
    for program in ("sh", "ln"):
        copy_program(pathlib.Path(shutil.which(program)).resolve(), root)
        (root / "bin" / program).exists() or os.rename(
            root / "bin" / pathlib.Path(shutil.which(program)).resolve().name, root / "bin" / program)
    mount("-t", "proc", "none", root / "proc")
    for device in ("null", "zero", "random", "urandom"):
        (root / "dev" / device).touch()
        mount("--bind", f"/dev/{device}", root / "dev" / device)
    mount("-t", "tmpfs", "none", root / "dev/shm")
    here = root / "home/a user/the kit"
    here.mkdir()
    mount("--bind", bundle, here)
    # A wheel has CUDA's libraries beside it.
    with_neighbours = (libtorch.parent / "nvidia").is_dir()
    mount("--bind", libtorch.parent if with_neighbours else libtorch, root / "opt/python")
    # Through a link, as environments of Python have them.
    os.symlink(f"/opt/python/{libtorch.name}" if with_neighbours else "/opt/python", root / "home/a user/torch")
    (root / "home/a user/tiny.toml").write_text(RECIPE)
    (root / "home/a user/text.txt").write_text("".join(f"{i} apples and {i * i} pears\n" for i in range(2000)))


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14s", b"lo", 0x1 | 0x40, b"")  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def inside(work, bundle, libtorch, command):
    """The process of the other machine: makes it, and becomes the shell that runs `command` on it."""
    root = pathlib.Path(work) / "root"
    build_root(root, bundle, libtorch)
    loopback_up()
    os.chroot(root)
    os.chdir("/home/a user")
    os.execve("/bin/sh", ["sh", "-c", command], {"PATH": "/bin", "HOME": "/home/a user", "NO_COLOR": "1"})


def namespaces_given():
    done = run(*UNSHARE, "mount", "-t", "tmpfs", "none", "/tmp")
    return None if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"


# ---- the tests -----------------------------------------------------------------------------------------


class Bundle(unittest.TestCase):
    bin_dir = libtorch = None

    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="trainctl-bundle-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        (cls.work / "root").mkdir()
        cls.archive = cls.work / "kit.tar.gz"
        made = cls.make(cls.archive)
        assert made.returncode == 0, made.stderr
        cls.words = made.stderr
        print(made.stderr, end="", file=sys.stderr)
        with tarfile.open(cls.archive) as tar:
            cls.names = tar.getnames()
        (cls.work / "un packed").mkdir()
        unpacked = run("tar", "xzf", cls.archive, "-C", cls.work / "un packed")  # as a person would
        assert unpacked.returncode == 0, unpacked.stderr
        (cls.bundle,) = (cls.work / "un packed").iterdir()
        cls.manifest = json.loads((cls.bundle / "MANIFEST.json").read_text())

    @classmethod
    def make(cls, out):
        return run(sys.executable, SOURCE / "apps/bundle/bundle.py", "--bin", cls.bin_dir, "--libtorch", cls.libtorch,
                   "--out", out)

    def there(self, command, bundle=None):
        return run(*UNSHARE, sys.executable, __file__, INSIDE, self.work, bundle or self.bundle, self.libtorch, command,
                   timeout=300)

    def broken(self, library):
        """A copy of the bundle that lacks one library."""
        copy = self.work / f"without {library}"
        shutil.copytree(self.bundle, copy, symlinks=True)
        (copy / "lib" / library).unlink()
        self.addCleanup(shutil.rmtree, copy)
        return copy

    def test_the_archive_is_small_and_has_one_folder(self):
        self.assertLessEqual(self.archive.stat().st_size, MOST_BYTES)
        self.assertEqual({name.split("/")[0] for name in self.names}, {f"trainctl-{self.manifest['version']}"})

    def test_every_object_needs_only_what_the_other_machine_has(self):
        self.assertEqual(problems(self.bundle, self.libtorch), [])

    def test_a_missing_library_is_found(self):
        found = problems(self.broken("libupb.so.29" if (self.bundle / "lib/libupb.so.29").exists() else "libz.so.1"),
                         self.libtorch)
        self.assertTrue(found)
        self.assertIn("which neither this nor LibTorch nor the machine has", found[0])

    def test_each_library_has_its_license(self):
        libraries = {path.name for path in (self.bundle / "lib").iterdir() if not path.name.startswith("libtrainctl_")}
        named = [name for package in self.manifest["packages"].values() for name in package["libraries"]]
        self.assertEqual(sorted(libraries), sorted(named))
        for package in self.manifest["packages"]:
            self.assertGreater((self.bundle / "licenses" / package / "copyright").stat().st_size, 0, package)

    def test_the_plugins_are_in_it_or_their_absence_is_told(self):
        for name, entry, words in (("libtrainctl_cuda.so", "cuda_plugin", "without the CUDA plugin"),
                                   ("libtrainctl_parquet.so", "parquet_plugin", "without the plugin for Parquet files")):
            if any(path.exists() for path in (self.bin_dir / name, self.bin_dir.parent / "lib" / name)):
                self.assertTrue((self.bundle / self.manifest[entry]).exists())
            else:
                self.assertIsNone(self.manifest[entry])
                self.assertIn(words, self.words)

    def test_a_folder_of_somebody_else_is_left_alone(self):
        precious = self.work / "precious"
        precious.mkdir()
        (precious / "thesis.txt").write_text("all of it")
        done = self.make(precious)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is no bundle", done.stderr)
        self.assertEqual([path.name for path in precious.iterdir()], ["thesis.txt"])

    def test_setup_names_what_is_wrong(self):
        for arguments, code, words in ((["/nowhere"], 5, "no folder /nowhere"), ([self.work], 5, "not a torch folder"),
                                       (["--torch"], 2, "usage"), (["a", "b"], 2, "usage")):
            done = run(self.bundle / "setup", *arguments)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stderr)

    def test_setup_finds_the_pytorch_of_a_python(self):
        if self.libtorch.name != "torch":
            raise unittest.SkipTest(f"{self.libtorch} is no torch folder of a Python installation")
        done = run(self.bundle / "setup", env={**os.environ, "TRAINCTL_LIBTORCH": "", "TRAINCTL_PYTHON": sys.executable,
                                               "PYTHONPATH": str(self.libtorch.parent)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.readlink(self.bundle / "libtorch"), str(self.libtorch))
        self.assertIn("the worker starts", done.stdout)
        bare = self.work / "bare python"
        bare.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S \"$@\"\n")
        bare.chmod(0o755)
        done = run(self.bundle / "setup", env={**os.environ, "TRAINCTL_LIBTORCH": "", "TRAINCTL_PYTHON": str(bare)})
        self.assertEqual(done.returncode, 5)
        self.assertIn("bare python has no torch", done.stderr)

    def test_libraries_of_an_environment_do_not_take_the_place_of_ours(self):
        others = self.work / "others"
        others.mkdir()
        for path in (self.bundle / "lib").iterdir():
            (others / path.name).write_text("no library")
        done = run(self.bundle / "bin" / "trainctl", "version", env={**os.environ, "LD_LIBRARY_PATH": str(others)})
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    # ---- on the other machine ----

    def in_namespace(self):
        refused = namespaces_given()
        if refused:
            raise unittest.SkipTest(f"this machine gives no namespaces: {refused}")

    def test_without_setup_the_doctor_says_that_the_worker_does_not_start(self):
        self.in_namespace()
        (self.bundle / "libtorch").unlink(missing_ok=True)
        done = self.there("'the kit/bin/trainctl' doctor --json")
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        worker = {f["name"]: f for f in json.loads(done.stdout)["findings"]}["worker"]
        self.assertEqual(worker["health"], "bad")
        self.assertIn("libtorch_cpu.so", worker["advice"])
        self.assertIn("./setup", worker["advice"])

    def test_doctor_and_a_training_run(self):
        self.in_namespace()
        done = self.there(
            "set -e; TRAINCTL_LIBTORCH='/home/a user/torch' './the kit/setup' >&2;"
            "'the kit/bin/trainctl' doctor --json || [ $? = 5 ];"  # another finding may be bad: a full disk, say
            "'the kit/bin/trainctl' launch tiny.toml --run-dir run >&2;"
            "'the kit/bin/trainctl' status run >&2; read line < run/metrics.jsonl; echo \"$line\"")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        doctor, at = json.JSONDecoder().raw_decode(done.stdout)
        worker = {f["name"]: f for f in doctor["findings"]}["worker"]
        self.assertEqual((worker["health"], worker["value"]), ("ok", f"starts, with LibTorch {self.manifest['libtorch']}"))
        first_step = json.loads(done.stdout[at:])
        self.assertEqual(first_step["step"], 1)
        self.assertTrue(5 < first_step["loss"] < 9, first_step)  # a byte of 1,024 symbols, nothing learnt: about ln 1024
        self.assertIn("finished", done.stderr)

    def test_without_a_library_the_other_machine_says_which(self):
        self.in_namespace()
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", subprocess.run(
            ["readelf", "-d", self.bundle / "bin/trainctl"], capture_output=True, text=True, check=True).stdout)
        library = next(name for name in needed if (self.bundle / "lib" / name).exists())
        done = self.there("'the kit/bin/trainctl' version", self.broken(library))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"{library}: cannot open shared object file", done.stderr)


def main():
    if len(sys.argv) == 6 and sys.argv[1] == INSIDE:
        inside(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4]), sys.argv[5])
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if shutil.which("patchelf") is None:
        print("skipped: there is no patchelf; ./dev setup installs it")
        sys.exit(77)
    Bundle.bin_dir, Bundle.libtorch = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    outcome = unittest.main(argv=[sys.argv[0], *sys.argv[3:]], exit=False, verbosity=2).result
    if outcome.skipped and outcome.wasSuccessful():
        print(f"skipped: {outcome.skipped[0][1]}")
        sys.exit(77)
    sys.exit(not outcome.wasSuccessful())


if __name__ == "__main__":
    main()
