"""Runs the commands of README.md.

    python3 tests/checks/readme.py

The blocks that start with ```sh are run as one script, as a reader would type them, in a scratch folder in
which the tree appears by links; each command must succeed. A block after the comment `<!-- not run: REASON -->`
is left out, and the reason is printed. The quickstart is made shorter by TRAINCTL_QUICKSTART_STEPS, which ./dev quickstart understands. The built programs
are in PATH, as if they were installed. The launch of the first block gets a small batch (SMALLER).
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
TIMEOUT_SECONDS = 1500
# The command in the README, and the one that runs in its place and takes only seconds.
SMALLER = ("trainctl launch recipe.toml", "trainctl launch recipe.toml --set train.batch_sequences=4")
BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>[^>]*?) -->\n)?```sh\n(?P<commands>.*?)```", re.DOTALL)


def blocks(text):
    """(line number, reason not to run it or None, commands)"""
    return [(text.count("\n", 0, match.start("commands")) + 1, match["reason"], match["commands"])
            for match in BLOCK.finditer(text)]


def run(commands, folder):
    """The exit status of a script, and what it printed; nothing of it is left running."""
    path = os.path.join(ROOT, "build", "release", "bin") + os.pathsep + os.environ["PATH"]
    environment = dict(os.environ, TRAINCTL_QUICKSTART_STEPS="30", NO_COLOR="1", PATH=path)
    process = subprocess.Popen(["sh", "-euc", commands], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
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
        script = ""
        for line, reason, commands in found:
            if reason is None:
                script += f"echo '== README.md:{line}'\n{commands.replace(*SMALLER)}"
            else:
                script += f"echo '== README.md:{line} is not run: {reason}'\n"
        status, output = run(script, folder)
        print(output)
        if status != 0:
            print(f"exit status {status} in the block named last")
        sys.exit(0 if status == 0 and found else 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
