#!/usr/bin/env python3
"""Completion in the real shells, at a terminal as a person presses Tab; and the tree of verbs that it is read from.

    completions_test.py TRAINCTL

A shell that is not installed is left out, with a line that says so.
"""
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

TRAINCTL = os.path.abspath(sys.argv[1])
FAILURES = []
# Longer than any machine needs; it is waited for output, never for time.
PATIENCE_SECONDS = 60


def fail(text):
    FAILURES.append(text)
    print("FAILED", text, flush=True)


def environment(folder):
    keep = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "ASAN_OPTIONS") if name in os.environ}
    return {**keep, "HOME": folder, "TERM": "xterm", "LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": folder + "/.config",
            "PATH": os.path.dirname(TRAINCTL) + ":" + os.environ["PATH"], "HISTFILE": ""}


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, argv, folder):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(argv[0], argv, environment(folder))
        # Wide, so that no line is broken.
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 1000, 0, 0))
        self.seen = ""

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, pattern):
        """The match in what came since the last one."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            match = re.search(pattern, self.seen, re.DOTALL)
            if match:
                self.seen = self.seen[match.end():]
                return match
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise TimeoutError("no '%s' in %r" % (pattern, self.seen[-2000:]))
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                raise TimeoutError("the shell ended: %r" % self.seen[-2000:]) from None

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)

    def complete(self, line):
        """The words that `line` has become after a Tab."""
        # Ctrl-A and a command before it turn the line into one that prints its words.
        self.send(line + "\t" + "\x01" + "show " + "\r")
        words = self.wait_for(r"((?:<[^<>\r\n]*>)+)")[1]
        self.wait_for("READY> ")
        return re.findall("<([^<>]*)>", words)


# What is typed, and what it must have become: (line, words).
AT_A_TERMINAL = [
    ("trainctl laun", ["trainctl", "launch"]),
    ("trainctl checkpoint verif", ["trainctl", "checkpoint", "verify"]),
    ("trainctl plan --pare", ["trainctl", "plan", "--pareto"]),
    ("trainctl plan x.toml --set train.ste", ["trainctl", "plan", "x.toml", "--set", "train.steps="]),
    ("trainctl plan x.toml --set train.precision=bf", ["trainctl", "plan", "x.toml", "--set", "train.precision=bf16"]),
    ("trainctl plan x.toml --set=train.precision=bf", ["trainctl", "plan", "x.toml", "--set=train.precision=bf16"]),
    ("trainctl plan --sweep cluster.nodes=1 --set cluster.device=gb300-2",
     ["trainctl", "plan", "--sweep", "cluster.nodes=1", "--set", "cluster.device=gb300-288gb"]),
    ("trainctl new fine", ["trainctl", "new", "finetune"]),
    ("trainctl completions fi", ["trainctl", "completions", "fish"]),
    ("trainctl checkpoint export --dtype bf", ["trainctl", "checkpoint", "export", "--dtype", "bf16"]),
    ("trainctl plan my\\ rec", ["trainctl", "plan", "my recipe.toml"]),
    ("trainctl launch fol", ["trainctl", "launch", "folder/"]),
    ("trainctl status runs/o", ["trainctl", "status", "runs/one-20260101-000000"]),
    ("trainctl plan x.toml --set model.from=fol", ["trainctl", "plan", "x.toml", "--set", "model.from=folder/"]),
    ("trainctl no-such-verb lau", ["trainctl", "no-such-verb", "lau"]),
]


def make_folder():
    folder = tempfile.mkdtemp(prefix="trainctl-completions-")
    for path in ("my recipe.toml", "x.toml", "notes.txt", "folder/in.toml", "runs/one-20260101-000000/journal.jsonl"):
        os.makedirs(os.path.dirname(folder + "/" + path), exist_ok=True)
        open(folder + "/" + path, "w").close()
    return folder


def at_a_terminal(shell, argv, setup, folder):
    terminal = Terminal(argv, folder)
    try:
        terminal.send(setup + "; show() { printf '<%s>' \"$@\"; echo; }; PS1='READ''Y> '\r")
        terminal.wait_for("READY> ")
        for line, expected in AT_A_TERMINAL:
            words = terminal.complete(line)
            # A run folder is a folder too: whether the slash is there yet is the shell's own.
            if [word.rstrip("/") for word in words] != [word.rstrip("/") for word in expected]:
                fail("%s: '%s' became %s, not %s" % (shell, line, words, expected))
    except TimeoutError as error:
        fail("%s: %s" % (shell, error))
    finally:
        terminal.close()
    print("%s: %d lines at a terminal" % (shell, len(AT_A_TERMINAL)))


def run_shell(argv, script, folder):
    result = subprocess.run([*argv, script], cwd=folder, env=environment(folder), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL)
    if result.stderr:
        fail("%s writes to stderr: %s" % (argv[0], result.stderr))
    return result.stdout.splitlines()


def bash(folder):
    # Without its own bash-completion package, which is what a script may not rely on.
    at_a_terminal("bash", ["bash", "--norc", "--noprofile", "-i"],
                  "bind 'set enable-bracketed-paste off'; source <(trainctl completions bash)", folder)
    script = ("source <(trainctl completions bash); COMP_LINE='trainctl plan --set optimizer.lr'; "
              "COMP_POINT=${#COMP_LINE}; _trainctl trainctl optimizer.lr --set; printf '%s\\n' \"${COMPREPLY[@]}\"")
    found = run_shell(["bash", "--norc", "-c"], script, folder)
    if found != ["optimizer.lr=", "optimizer.lr_schedule="]:
        fail("bash: %s" % found)


def zsh(folder):
    at_a_terminal("zsh", ["zsh", "-f", "-i"],
                  "unsetopt zle_bracketed_paste; unset zle_bracketed_paste; PROMPT_EOL_MARK=; "
                  "autoload -U compinit; compinit -u -D; source <(trainctl completions zsh)", folder)
    # As a file of $fpath, where compinit finds it.
    os.makedirs(folder + "/fpath", exist_ok=True)
    with open(folder + "/fpath/_trainctl", "w") as file:
        file.write(subprocess.check_output([TRAINCTL, "completions", "zsh"], text=True))
    found = run_shell(["zsh", "-f", "-c"], "fpath=($PWD/fpath $fpath); autoload -U compinit; compinit -u -D; "
                      "echo $_comps[trainctl]", folder)
    if found != ["_trainctl"]:
        fail("zsh: compinit does not find the file: %s" % found)


def fish(folder):
    def complete(line):
        script = "trainctl completions fish | source; complete -C '%s'" % line.replace("\\", "\\\\")
        return [candidate.split("\t")[0] for candidate in run_shell(["fish", "-c"], script, folder)]

    for line, words in AT_A_TERMINAL:
        found = [candidate.rstrip("/") for candidate in complete(line)]
        expected = words[-1].rstrip("/")
        if line.endswith("lau"):
            if found:
                fail("fish: '%s' has %s" % (line, found))
        elif expected not in [candidate.replace("\\", "") for candidate in found]:
            fail("fish: '%s' has %s and not '%s'" % (line, found, expected))
    print("fish: %d lines" % len(AT_A_TERMINAL))


def candidates(*words):
    output = subprocess.check_output([TRAINCTL, "__complete", "fish", *words], text=True, timeout=PATIENCE_SECONDS)
    lines = output.splitlines()
    return lines[0], [line.split("\t")[0] for line in lines[1:]]


def tree():
    """Every verb and every option that --help shows is completed, and no other."""
    def walk(path):
        help_text = subprocess.check_output([TRAINCTL, *path, "--help"], text=True).partition("\nUsage:")[2]
        verbs = re.findall(r"^  ([a-z]+) ", help_text, re.M)
        options = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", "\n".join(
            line[:line.find("  ", 4)] if "  " in line[4:] else line
            for line in help_text.splitlines() if re.match(r"  -", line))))
        found = set(candidates(*path, "--")[1])
        if found != options:
            fail("%s: completes %s, --help has %s" % (path, sorted(found), sorted(options)))
        if verbs and sorted(candidates(*path, "")[1]) != sorted(verbs):
            fail("%s: completes %s, --help has %s" % (path, candidates(*path, ""), verbs))
        return 1 + sum(walk(path + [verb]) for verb in verbs)

    count = walk([])
    if count < 20:
        fail("only %d verbs were walked through" % count)
    print("tree: %d verbs" % count)
    for words, adds, some in [
            (["plan", ""], "recipes", []), (["data", "prepare", "a", "b", ""], "files", []), (["tokenizer", "info", ""], "files", []),
            (["resume", ""], "folders", ["runs/one-20260101-000000"]), (["recipe", "explain", ""], "none", ["train", "train.steps"]),
            (["plan", "x", "--set", "parallel.offload="], "none", ['parallel.offload=["optimizer"]']),
            (["plan", "x", "--sweep", "train.precision=bf16,"], "none", ["train.precision=bf16,fp8"]),
            (["plan", "x", "--as", ""], "none", ["megatron-core"]), (["plan", "x", "--objective", ""], "none", ["cost"]),
            (["plan", "x", "--set", ""], "none", ["data.train[0].files=", "launch.env."]),
            (["plan", "x", "--set", "no.such.key="], "none", []), (["nonsense", "--nonsense", ""], "none", [])]:
        found = candidates(*words)
        if found[0] != adds or not set(some) <= set(found[1]):
            fail("%s: %s" % (words, found))
    if "--json" in candidates("plan", "x", "--json", "--")[1]:
        fail("--json is offered again")
    if subprocess.run([TRAINCTL, "__complete"], timeout=60, stdout=subprocess.DEVNULL).returncode != 2:
        fail("__complete alone")
    if subprocess.run([TRAINCTL, "completions", "tcsh"], timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 2:
        fail("a shell that is not known")


def main():
    folder = make_folder()
    os.chdir(folder)
    try:
        tree()
        for name, test in (("bash", bash), ("zsh", zsh), ("fish", fish)):
            if shutil.which(name):
                test(folder)
            else:
                print("skipped: %s is not installed (apt-get install %s)" % (name, name))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if FAILURES else 0


sys.exit(main())
