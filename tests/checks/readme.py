"""Runs the commands of README.md.

    python3 tests/checks/readme.py

Every block that starts with ```sh is run, in order, in one scratch folder in which the tree appears by
links; all must succeed. A block after the comment `<!-- not run: REASON -->` is left out, and the reason is
printed. The quickstart is made shorter by TRAINCTL_QUICKSTART_STEPS, which ./dev quickstart understands.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINKS = ("apps", "build", "dev", "docs", "lib", "recipes", "tests")
TIMEOUT_SECONDS = 600
BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>[^>]*?) -->\n)?```sh\n(?P<commands>.*?)```", re.DOTALL)


def blocks(text):
    """(line number, reason not to run it or None, commands)"""
    return [(text.count("\n", 0, match.start("commands")) + 1, match["reason"], match["commands"])
            for match in BLOCK.finditer(text)]


def run(commands, folder):
    """The exit status of a block, and what it printed; nothing of it is left running."""
    environment = dict(os.environ, TRAINCTL_QUICKSTART_STEPS="30", NO_COLOR="1")
    process = subprocess.Popen(["sh", "-euxc", commands], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output = process.communicate(timeout=TIMEOUT_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        output = process.communicate()[0] + f"\nstill running after {TIMEOUT_SECONDS} s".encode()
    return process.returncode, output.decode(errors="replace")


def main():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        found = blocks(file.read())
    folder = tempfile.mkdtemp(prefix="trainctl-readme-")
    try:
        for name in LINKS:
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
        num_run = 0
        for line, reason, commands in found:
            if reason is not None:
                print(f"README.md:{line}: not run: {reason}", flush=True)
                continue
            status, output = run(commands, folder)
            print(f"README.md:{line}: exit {status}\n{output}", flush=True)
            if status != 0:
                sys.exit(1)
            num_run += 1
        print(f"{num_run} blocks ran")
        sys.exit(0 if num_run > 0 else 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
