#!/usr/bin/env python3
"""What ptxas says of each kernel of kernels/cuda: nothing is spilled, nothing lies on a stack, and no kernel takes more registers
than its row in docs/design/kernels.md allows. The row also says what a kernel moves 128 bits at a time (loads, or loads and
stores), and how many stores of one element it may have. Variants for unaligned memory never move 128 bits at a time.

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
ROW = re.compile(r"^\| `(\w+Kernel)` \| (\d+) \| (none|loads|loads and stores) \| (\d+) \|")
PTX_ENTRY = re.compile(r"\.entry (\w+)\(")
PTX_ACCESS = re.compile(r"\b(ld|st)\.global\S*?(\.v[248])?\.\w?(\d+)\b")


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


def is_unaligned(demangled):
    """The last argument of a template that has a variant for aligned memory says which one it is."""
    return re.search(r"false>\(", demangled) is not None


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


def ptx_of(source, device, folder):
    """PTX differs between devices: stores that are wide for one may be split for another."""
    out = "%s/%s.%s.ptx" % (folder, os.path.basename(source), device)
    subprocess.run([NVCC, "-std=c++20", "-O3", "-I" + SOURCE, "-I" + SOURCE + "/lib", "-arch=" + device, "-ptx", source, "-o", out], check=True)
    with open(out) as file:
        return file.read()


class Accesses:
    """How often an entry names memory of the device."""

    def __init__(self):
        self.wide = {"ld": 0, "st": 0}  # 128 bits at a time
        self.single_stores = 0          # of one element


def accesses_by_entry(ptx):
    entries, entry = {}, None
    for line in ptx.splitlines():
        found = PTX_ENTRY.search(line)
        if found:
            entry = found.group(1)
            entries[entry] = Accesses()
        for kind, vector, bits in PTX_ACCESS.findall(line) if entry else ():
            count = int(vector[2:] or 1) if vector else 1
            if count * int(bits) == 128:
                entries[entry].wide[kind] += 1
            elif kind == "st" and count == 1:
                entries[entry].single_stores += 1
    return entries


class Row:
    def __init__(self, registers, wide, single_stores):
        self.registers, self.wide, self.single_stores = int(registers), wide, int(single_stores)


def read_allowed():
    with open(DOCUMENT, encoding="utf-8") as file:
        return {row.group(1): Row(*row.groups()[1:]) for row in map(ROW.match, file) if row}


def wrong_accesses(text, row, found, is_unaligned):
    """Sentences of what a kernel moves otherwise than its row says."""
    if is_unaligned:
        return ["moves 128 bits at a time: " + text] if any(found.wide.values()) else []
    wrong = []
    for kind, name in (("ld", "loads"), ("st", "stores")):
        if (name in row.wide) != (found.wide[kind] > 0):
            wrong.append("%d %s of 128 bits, its row says '%s': %s" % (found.wide[kind], name, row.wide, text))
    if found.single_stores > row.single_stores:
        wrong.append("%d stores of one element, %d allowed: %s" % (found.single_stores, row.single_stores, text))
    return wrong


def main():
    sources = sorted(SOURCE + "/kernels/cuda/" + name for name in os.listdir(SOURCE + "/kernels/cuda") if name.endswith(".cu"))
    kernels, accesses = [], []  # (symbol, device, accesses)
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for report, ptx in pool.map(lambda source: compile_newer(source, folder), sources):
                kernels += read_report(report)
                accesses += [(symbol, NEWER, found) for symbol, found in accesses_by_entry(ptx).items()]
            for ptx in pool.map(lambda source: ptx_of(source, BUILT[-1], folder), sources):
                accesses += [(symbol, BUILT[-1], found) for symbol, found in accesses_by_entry(ptx).items()]
    for source in sources:
        with open("%s/%s.ptxas" % (REPORTS, os.path.basename(source))) as file:
            kernels += read_report(file.read())
    plain = demangle({kernel.symbol for kernel in kernels})
    most = collections.Counter()
    for kernel in kernels:
        most[name_of(plain[kernel.symbol])] = max(most[name_of(plain[kernel.symbol])], kernel.registers or 0)
    if "--table" in sys.argv:
        for name in sorted(most):
            mine = [found for symbol, _, found in accesses if name_of(plain[symbol]) == name and not is_unaligned(plain[symbol])]
            kinds = [word for kind, word in (("ld", "loads"), ("st", "stores")) if any(found.wide[kind] for found in mine)]
            print("| `%s` | %d | %s | %d |" % (name, most[name], " and ".join(kinds) or "none", max(found.single_stores for found in mine)))
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
        row = allowed.get(name_of(plain[kernel.symbol]))
        if row is None:
            wrong.append("docs/design/kernels.md has no row for " + text)
        elif kernel.registers > row.registers:
            wrong.append("%d registers, %d allowed: %s" % (kernel.registers, row.registers, text))
    for name in sorted(set(allowed) - set(most)):
        wrong.append("no kernel has the name of the row " + name)
    for device in (*BUILT, NEWER):
        if not any(kernel.device == device for kernel in kernels):
            wrong.append("no report of " + device)
    for symbol, device, found in accesses:
        row = allowed.get(name_of(plain[symbol]))
        if row is not None:
            wrong += wrong_accesses("%s for %s" % (plain[symbol], device), row, found, is_unaligned(plain[symbol]))
    for line in wrong:
        print("FAILED " + line)
    print("%d kernels for %s; %d entries of PTX; %d failed" % (len(kernels), ", ".join((*BUILT, NEWER)), len(accesses), len(wrong)))
    sys.exit(1 if wrong or not accesses else 0)


main()
