#!/usr/bin/env python3
"""What ptxas says of each kernel of kernels/cuda: nothing is spilled, nothing lies on a stack, and no kernel takes more registers
than its row in docs/design/kernels.md allows. Aligned variants load or store 128 bits at once, the others never do.

    report_test.py NVCC SOURCE_FOLDER BUILD_FOLDER/cuda [--table]

For the devices that the plugin has code for the build has kept the reports; for a newer one the sources are compiled here. With
--table it prints the rows instead.
"""

import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

NVCC, SOURCE, REPORTS = sys.argv[1:4]
NEWER = "sm_100"
BUILT = ("sm_80", "sm_90a")
DOCUMENT = SOURCE + "/docs/design/kernels.md"

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
ROW = re.compile(r"^\| `(\w+Kernel)` \| (\d+) \|")
PTX_ENTRY = re.compile(r"\.entry (\w+)\(")
PTX_ACCESS = re.compile(r"\b(ld|st)\.global\S*\.v4\.\w?32\b")


def compile_newer(source, folder):
    """(ptxas' report, PTX) of one file for the newer device."""
    name = os.path.basename(source)
    keep = folder + "/" + name
    os.mkdir(keep)
    done = subprocess.run([NVCC, "-std=c++20", "-O3", "-I" + SOURCE, "-I" + SOURCE + "/lib", "-arch=" + NEWER, "-Xptxas", "-v",
                           "-cubin", "--keep", "--keep-dir", keep, source, "-o", keep + "/out.cubin"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError("nvcc cannot compile %s\n%s" % (name, done.stdout))
    with open(keep + "/" + name[:-3] + ".ptx") as file:
        return done.stdout, file.read()


def name_of(demangled):
    """`UpdateKernel` of `void ...::UpdateKernel<...>(...)`."""
    return re.search(r"(\w+Kernel)\b", demangled.rsplit("(", 1)[0] if "Kernel" in demangled else "").group(1)


def demangle(names):
    names = sorted(names)
    out = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(zip(names, out.splitlines()))


class Kernel:
    """One instantiation for one device."""

    def __init__(self, symbol, device):
        self.symbol, self.device = symbol, device
        self.stack = self.spilled = self.registers = None


def read_report(text):
    kernels = []
    for line in text.splitlines():
        entry, stack, registers = ENTRY.search(line), STACK.search(line), REGISTERS.search(line)
        if entry:
            kernels.append(Kernel(*entry.groups()))
        elif stack and kernels:
            kernels[-1].stack = int(stack.group(1))
            kernels[-1].spilled = int(stack.group(2)) + int(stack.group(3))
        elif registers and kernels:
            kernels[-1].registers = int(registers.group(1))
    return kernels


def wide_by_entry(ptx):
    """Whether an entry moves 128 bits at once, by its symbol."""
    wide, entry = {}, None
    for line in ptx.splitlines():
        found = PTX_ENTRY.search(line)
        if found:
            entry = found.group(1)
            wide[entry] = False
        elif entry and PTX_ACCESS.search(line):
            wide[entry] = True
    return wide


def read_allowed():
    with open(DOCUMENT, encoding="utf-8") as file:
        return {row.group(1): int(row.group(2)) for row in map(ROW.match, file) if row}


def main():
    sources = sorted(SOURCE + "/kernels/cuda/" + name for name in os.listdir(SOURCE + "/kernels/cuda") if name.endswith(".cu"))
    kernels, wide = [], {}
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for report, ptx in pool.map(lambda source: compile_newer(source, folder), sources):
                kernels += read_report(report)
                wide.update(wide_by_entry(ptx))
    for source in sources:
        with open("%s/%s.ptxas" % (REPORTS, os.path.basename(source))) as file:
            kernels += read_report(file.read())
    plain = demangle({kernel.symbol for kernel in kernels})
    most = collections.Counter()
    for kernel in kernels:
        most[name_of(plain[kernel.symbol])] = max(most[name_of(plain[kernel.symbol])], kernel.registers or 0)
    if "--table" in sys.argv:
        for name in sorted(most):
            print("| `%s` | %d |" % (name, most[name]))
        return

    wrong = []
    allowed = read_allowed()
    for kernel in kernels:
        text = "%s for %s" % (plain[kernel.symbol], kernel.device)
        if kernel.registers is None or kernel.stack is None:
            wrong.append("ptxas says nothing of " + text)
            continue
        if kernel.stack or kernel.spilled:
            wrong.append("%d bytes of stack, %d spilled: %s" % (kernel.stack, kernel.spilled, text))
        if kernel.registers > allowed.get(name_of(plain[kernel.symbol]), 0):
            wrong.append("%d registers, %d allowed: %s" % (kernel.registers, allowed.get(name_of(plain[kernel.symbol]), 0), text))
    for name in sorted(set(allowed) - set(most)):
        wrong.append("no kernel has the name of the row " + name)
    for device in (*BUILT, NEWER):
        if not any(kernel.device == device for kernel in kernels):
            wrong.append("no report of " + device)
    variants = 0
    for symbol, is_wide in sorted(wide.items()):
        aligned = re.search(r"(true|false)>\(", plain[symbol])
        if aligned is None:
            continue
        variants += 1
        if is_wide != (aligned.group(1) == "true"):
            wrong.append("%s 128 bits at once: %s" % ("moves" if is_wide else "never moves", plain[symbol]))
    for line in wrong:
        print("FAILED " + line)
    print("%d kernels for %s; %d variants by alignment; %d failed" % (len(kernels), ", ".join((*BUILT, NEWER)), variants, len(wrong)))
    sys.exit(1 if wrong or not variants else 0)


main()
