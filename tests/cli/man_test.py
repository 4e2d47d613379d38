#!/usr/bin/env python3
"""The manual page: clean roff, and every verb and option of the program in it.

    man_test.py TRAINCTL

mandoc and man each judge it where they are installed; what is not is said.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

TRAINCTL = os.path.abspath(sys.argv[1])
FAILURES = []


def fail(text):
    FAILURES.append(text)
    print("FAILED", text, flush=True)


def candidates(*words):
    lines = subprocess.check_output([TRAINCTL, "__complete", "fish", *words], text=True, timeout=60).splitlines()
    return [line.split("\t")[0] for line in lines[1:]]


def leaves(path=()):
    """Every verb that has no verbs below it, with its options."""
    below = [word for word in candidates(*path, "") if re.fullmatch(r"[a-z]+", word)]
    options = candidates(*path, "--")
    is_group = subprocess.run([TRAINCTL, *path, "--help"], stdout=subprocess.PIPE, text=True).stdout.find(" SUBCOMMAND\n") > 0
    if not is_group:
        return [(" ".join(["trainctl", *path]), [option for option in options if option != "--help"])]
    return [leaf for verb in below for leaf in leaves((*path, verb))]


def main():
    page = subprocess.check_output([TRAINCTL, "man"], text=True, timeout=60)
    plain = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")
    sections = re.split(r"^\.S[SH] ", plain, flags=re.M)
    verbs = leaves()
    if len(verbs) < 20:
        fail("only %d verbs" % len(verbs))
    for verb, options in verbs:
        section = next((text for text in sections if re.match(re.escape(verb) + r"(?: |\n)", text)), None)
        if section is None:
            fail("no section for '%s'" % verb)
            continue
        for option in options:
            if not re.search(re.escape(option) + r"(?: |,|\n)", section):
                fail("%s: no %s" % (verb, option))
        if "Example:" not in section:
            fail("%s: no example" % verb)
    with tempfile.TemporaryDirectory(prefix="trainctl-man-") as folder:
        path = folder + "/trainctl.1"
        with open(path, "w") as file:
            file.write(page)
        if shutil.which("mandoc"):
            lint = subprocess.run(["mandoc", "-Tlint", "-Wall", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=60).stdout
            # It bears a version instead of a date, so that two builds of one source are alike.
            for line in lint.splitlines():
                if "missing date" not in line:
                    fail(line)
        else:
            print("skipped: mandoc is not installed (apt-get install mandoc)")
        if shutil.which("man"):
            shown = subprocess.run(["man", "-l", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                                   env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "200", "LC_ALL": "C.UTF-8"})
            if shown.stderr or "recipe explain" not in shown.stdout:
                fail("man -l: %s%s" % (shown.stderr, shown.stdout[:500]))
        else:
            print("skipped: man is not installed (apt-get install man-db)")
    print("%d verbs" % len(verbs))
    return 1 if FAILURES else 0


sys.exit(main())
