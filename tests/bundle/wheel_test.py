"""The wheels that ./dev wheel makes, installed by pip.

    python3 wheel_test.py BIN_DIR LIBTORCH

Makes both wheels from a built tree, checks what is in them, and installs them with pip into fresh environments: one
with PyTorch, which trains, resumes and exports there, one without, and one that sees PyTorch in another folder. Of
PyTorch the environments have LibTorch's files and a description without dependencies, so that pip needs no network.
Exit 77: there is no patchelf, pip or venv.
"""

import base64
import csv
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from bundle_test import RECIPE, SOURCE, elf_files, needed, problems, run, version_numbers, versions

MOST_BYTES = 32 << 20  # per wheel; PyPI accepts 100 MB
# Versions of glibc, and of GLIBCXX in the C++ library, in the oldest of each family that README and docs name.
DISTRIBUTIONS = {"RHEL 8": ("2.28", "3.4.25"), "Debian 11": ("2.31", "3.4.28"), "RHEL 9": ("2.34", "3.4.29"),
                 "Ubuntu 22.04": ("2.35", "3.4.30"), "Debian 12": ("2.36", "3.4.30"), "Ubuntu 24.04": ("2.39", "3.4.33"),
                 "Debian 13": ("2.41", "3.4.33")}
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


class Environment:
    """A venv without pip in it; pip of this Python installs into it."""

    def __init__(self, folder):
        self.folder = folder
        made = run(sys.executable, "-m", "venv", "--without-pip", folder)
        assert made.returncode == 0, made.stderr
        self.packages = folder / "lib" / PYTHON / "site-packages"
        self.worker = self.packages / "trainctl_worker" / "bin" / "trainctl-worker"
        self.home = folder / "home"
        self.home.mkdir()
        # The shell's own variables (a search path for libraries, say) are left out.
        self.variables = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(self.home), "NO_COLOR": "1",
                          "XDG_CONFIG_HOME": str(self.home / "no-config"), "LC_ALL": "C.UTF-8"}

    def run(self, *command, **variables):
        return run(*command, cwd=self.home, env={**self.variables, **variables}, timeout=300)

    def pip(self, *arguments):
        return self.run(sys.executable, "-m", "pip", "--python", self.folder / "bin" / "python",
                        "--disable-pip-version-check", "--no-cache-dir", *arguments)

    def add_torch(self, libtorch, version="2.11.0", packages=None):
        """PyTorch as far as it is needed: folders of its own, as pip makes them, with links to the libraries."""
        packages = packages or self.packages
        (packages / "torch" / "lib").mkdir(parents=True)
        (packages / "torch" / "__init__.py").write_text("raise ImportError('nobody needs to import torch')\n")
        for library in (libtorch / "lib").iterdir():
            (packages / "torch" / "lib" / library.name).symlink_to(library)
        if (libtorch.parent / "nvidia").is_dir():
            (packages / "nvidia").symlink_to(libtorch.parent / "nvidia")
        info = packages / f"torch-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        (info / "RECORD").write_text("")
        (info / "INSTALLER").write_text("pip\n")


class Wheel(unittest.TestCase):
    bin_dir = libtorch = None

    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="trainctl-wheel-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.out = cls.work / "made here"
        made = run(sys.executable, SOURCE / "apps/bundle/wheels.py", "--bin", cls.bin_dir, "--libtorch", cls.libtorch,
                   "--out", cls.out)
        assert made.returncode == 0, made.stderr
        print(made.stderr, end="", file=sys.stderr)
        cls.words = made.stderr
        cls.wheels = {path.name.split("-")[0]: path for path in cls.out.iterdir()}
        cls.unpacked = {}
        for name, path in cls.wheels.items():
            cls.unpacked[name] = cls.work / "unpacked" / name
            with zipfile.ZipFile(path) as archive:
                archive.extractall(cls.unpacked[name])
        cls.version = cls.wheels["trainctl"].name.split("-")[1]

    def environment(self, name):
        made = Environment(self.work / name)
        self.addCleanup(shutil.rmtree, made.folder)
        (made.home / "tiny.toml").write_text(RECIPE)
        (made.home / "text.txt").write_text("".join(f"{i} apples and {i * i} pears\n" for i in range(2000)))
        return made

    def install(self, environment, *requirements):
        done = environment.pip("install", "--no-index", "--find-links", self.out, *requirements)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def expect(self, environment, code, *command, **variables):
        done = environment.run(*command, **variables)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def finding(self, environment, **variables):
        """What `trainctl doctor` says of the worker."""
        done = environment.run("trainctl", "doctor", "--json", **variables)
        return next(f for f in json.loads(done.stdout)["findings"] if f["name"] == "worker")

    # ---- contents ----

    def test_versions_name_program_and_commit(self):
        base, _, commit = self.version.partition("+g")
        self.assertEqual(base, run(self.bin_dir / "trainctl", "version").stdout.split()[1])
        head = run("git", "-C", SOURCE, "rev-parse", "HEAD").stdout.strip() or "unknown"
        self.assertTrue(head.startswith(commit.partition(".")[0]), commit)
        # PyPI has another project's trainctl, so the worker asks for this one exactly, which PyPI cannot have.
        worker = (self.unpacked["trainctl_worker"] / f"trainctl_worker-{self.version}.dist-info/METADATA").read_text()
        self.assertIn(f"Requires-Dist: trainctl=={self.version}\n", worker)

    def test_record_has_each_file_with_its_checksum(self):
        self.assertEqual(set(self.wheels), {"trainctl", "trainctl_worker"})
        for name, path in self.wheels.items():
            self.assertLessEqual(path.stat().st_size, MOST_BYTES)
            info = f"{name}-{self.version}.dist-info"
            with zipfile.ZipFile(path) as archive:
                record = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode()))}
                self.assertEqual(sorted(record), sorted(archive.namelist()))
                for entry in archive.infolist():
                    contents = archive.read(entry)
                    digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).decode().rstrip("=")
                    own = entry.filename == f"{info}/RECORD"
                    self.assertEqual(record[entry.filename], ["", ""] if own else [f"sha256={digest}", str(len(contents))])
                    self.assertEqual(entry.external_attr >> 16,
                                     0o100755 if contents.startswith(b"\x7fELF") else 0o100644, entry.filename)

    def test_one_commit_gives_one_file(self):
        # What the file system says of the files must not be in the wheel: times, masks, the order in which they were made.
        sys.path.insert(0, str(SOURCE / "apps/bundle"))
        self.addCleanup(sys.path.remove, str(SOURCE / "apps/bundle"))
        import wheels
        files = {"a/program": "\x7fELF", "x-1.dist-info/METADATA": "Name: x\n", "b": "text"}
        made = []
        for attempt, names in enumerate((list(files), list(reversed(files)))):
            folder, out = self.work / f"files {attempt}", self.work / f"packed {attempt}"
            out.mkdir()
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(files[name])
                (folder / name).chmod((0o755 if "program" in name else 0o644) & (~0 if attempt else ~0o077))
                os.utime(folder / name, (attempt * 1e9, attempt * 1e9))
            made.append(wheels.pack(folder, "x", "1", "any", out).read_bytes())
        self.assertEqual(made[0], made[1])

    def test_the_tag_promises_no_more_than_the_files_need(self):
        for name, path in self.wheels.items():
            tag = path.stem.split("-")[-1]
            self.assertIn(f"Tag: py3-none-{tag}\n",
                          (self.unpacked[name] / f"{name}-{self.version}.dist-info" / "WHEEL").read_text())
            glibc = re.fullmatch(r"manylinux_(\d+)_(\d+)_x86_64", tag)
            self.assertIsNotNone(glibc, tag)
            promised = [int(part) for part in glibc.groups()]
            needs = {"GLIBC": [0], "GLIBCXX": [0]}
            for file in elf_files(self.unpacked[name]):
                for family, version in versions(file):
                    if family in needs:
                        needs[family] = max(needs[family], version_numbers(version))
            taken = {d: has for d, has in DISTRIBUTIONS.items() if version_numbers(has[0]) >= promised}
            self.assertTrue(taken)
            for distribution, (has_glibc, has_glibcxx) in taken.items():  # where pip would install it
                self.assertLessEqual(needs["GLIBC"], version_numbers(has_glibc), distribution)
                self.assertLessEqual(needs["GLIBCXX"], version_numbers(has_glibcxx), distribution)
            for distribution, (has_glibc, has_glibcxx) in DISTRIBUTIONS.items():  # where pip would refuse it
                if distribution not in taken:
                    self.assertTrue(needs["GLIBC"] > version_numbers(has_glibc) or
                                    needs["GLIBCXX"] > version_numbers(has_glibcxx), distribution)

    def test_every_object_needs_only_what_the_other_machine_has(self):
        for folder in self.unpacked.values():
            self.assertEqual(problems(folder, self.libtorch), [])

    def test_nothing_of_the_build_machine_is_in_an_object(self):
        build = self.bin_dir.parent
        places = {SOURCE, build, self.libtorch, pathlib.Path.home() / ".cache"}
        for folder in self.unpacked.values():
            for file in elf_files(folder):
                if file.name == "libtrainctl_cuda.so":
                    continue  # its line information, which profilers show, names the sources
                contents = file.read_bytes()
                for place in places:
                    at = contents.find(f"{place}/".encode())
                    self.assertEqual(at, -1, f"{file.name}: {contents[at:at + 200].split(bytes(1))[0]}")

    def test_each_library_has_its_license(self):
        for name, folder in self.unpacked.items():
            licenses = folder / f"{name}-{self.version}.dist-info" / "licenses"
            has = {path.parent.name for path in licenses.glob("*/copyright") if path.stat().st_size > 0}
            # gRPC, protobuf and OpenSSL are in every launcher, as archives or as shared libraries.
            for package in ("libabsl", "libgrpc", "libprotobuf", "libssl", "libcli11-dev"):
                self.assertTrue([h for h in has if h.startswith(package)], f"{name} has no license of {package}")
            for library in folder.rglob("*.so.*"):
                found = run("dpkg-query", "--search", f"*/{library.name}").stdout
                packages = {line.partition(":")[0] for line in found.splitlines()}
                self.assertTrue(packages & has, f"{name}: {library.name} of {packages} has no license")

    # ---- installed ----

    def test_the_launcher_alone_plans_and_says_what_training_needs(self):
        here = self.environment("launcher only")
        self.install(here, "trainctl")
        self.assertIn("Chosen:", self.expect(here, 0, "trainctl", "plan", "tiny.toml"))
        said = self.expect(here, 5, "trainctl", "launch", "tiny.toml")
        self.assertIn(f"trainctl_worker-{self.version}-*.whl", said)
        self.assertEqual(list(here.home.glob("runs/*")), [])
        self.assertIn("trainctl_worker", self.finding(here)["advice"])
        self.assertIn("trainctl", (here.folder / "share/man/man1/trainctl.1").read_text())
        # pip names the missing package instead of installing the worker without PyTorch.
        refused = here.pip("install", "--no-index", "--find-links", self.out, f"trainctl[train]=={self.version}")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("torch==2.11.*", refused.stdout + refused.stderr)

    def test_an_environment_with_torch_trains_resumes_and_exports(self):
        here = self.environment("with torch")
        here.add_torch(self.libtorch)
        self.install(here, "trainctl-worker")  # brings the launcher
        installed = {path.name for path in here.packages.glob("*.dist-info")}
        self.assertEqual(installed, {f"trainctl-{self.version}.dist-info", f"trainctl_worker-{self.version}.dist-info",
                                     "torch-2.11.0.dist-info"})
        self.assertEqual(here.pip("check").returncode, 0)
        for program in (here.folder / "bin" / "trainctl", here.worker):
            for line in self.expect(here, 0, "ldd", program).splitlines():
                found = re.search(r"=> (\S.*) \(0x", line)
                if found and not found[1].startswith(("/lib/", "/lib64/", "/usr/lib/")):
                    self.assertIn(here.folder, pathlib.Path(os.path.normpath(found[1])).parents, line)
        self.expect(here, 0, "trainctl", "launch", "tiny.toml", "--run-dir", "run")
        self.expect(here, 0, "trainctl", "resume", "run", "--set", "train.steps=5")
        steps = [json.loads(line) for line in (here.home / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([step["step"] for step in steps if "loss" in step], [1, 2, 3, 4, 5])
        self.assertTrue(5 < steps[0]["loss"] < 9, steps[0])  # a byte of 1,024 symbols, nothing learnt: about ln 1024
        self.expect(here, 0, "trainctl", "checkpoint", "export", "run", "--out", "model")
        self.assertTrue((here.home / "model/config.json").exists())
        self.assertTrue(list((here.home / "model").glob("*.safetensors")))

        # Another version of the worker is refused before it starts.
        info = here.packages / f"trainctl_worker-{self.version}.dist-info"
        info.rename(here.packages / "trainctl_worker-99.0.dist-info")
        said = self.expect(here, 5, "trainctl", "resume", "run", "--set", "train.steps=6")
        self.assertIn(f"needs trainctl-worker {self.version}, but {here.packages} contains 99.0", said)

    def test_torch_elsewhere_is_found_by_the_environments_python(self):
        here = self.environment("sees others")
        elsewhere = self.work / "system's packages"
        self.addCleanup(shutil.rmtree, elsewhere)
        here.add_torch(self.libtorch, packages=elsewhere)
        (here.packages / "others.pth").write_text(f"{elsewhere}\n")
        self.install(here, "trainctl-worker")
        self.assertEqual(self.finding(here)["health"], "ok")
        # A folder of that name in the working directory is not taken for the package.
        (here.home / "torch").mkdir()
        (here.home / "torch" / "__init__.py").write_text("")
        self.expect(here, 0, "trainctl", "launch", "tiny.toml", "--run-dir", "run", "--set", "train.steps=1")

        (here.packages / "others.pth").unlink()
        said = self.expect(here, 5, "trainctl", "launch", "tiny.toml", "--run-dir", "other")
        for words in ("needs PyTorch", str(here.packages), "pip install 'torch==2.11.*'", "LD_LIBRARY_PATH"):
            self.assertIn(words, said)
        self.assertEqual(self.finding(here, LD_LIBRARY_PATH=str(elsewhere / "torch" / "lib"))["health"], "ok")

    def test_the_plugin_is_in_it_or_its_absence_is_told(self):
        plugin = self.unpacked["trainctl_worker"] / "trainctl_worker/bin/libtrainctl_cuda.so"
        if (self.bin_dir / "libtrainctl_cuda.so").exists():
            self.assertIn("$ORIGIN/../../torch/lib", needed(plugin)[1][0].split(":"))
        else:
            self.assertIn("without the CUDA plugin", self.words)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for what, command in (("patchelf", ["patchelf", "--version"]), ("pip", [sys.executable, "-m", "pip", "--version"]),
                          ("venv", [sys.executable, "-m", "venv", "--help"])):
        if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True).returncode != 0:
            print(f"skipped: there is no {what}; ./dev setup installs it")
            sys.exit(77)
    Wheel.bin_dir, Wheel.libtorch = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)


if __name__ == "__main__":
    main()
