"""Makes another process do what its own code might: exit without a signal and without clean-up, or ask for more memory
than its control group has. x86-64, with the right to trace.

    inject.exit(pid, 3)
    with inject.MemoryGroup("name", host_pids, 1 << 29):
        inject.eat(pid, 1 << 30)  # the kernel ends it
"""
import ctypes
import os
import platform
import time

PTRACE_DETACH, PTRACE_GETREGS, PTRACE_SETREGS = 17, 12, 13
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
MMAP, EXIT_GROUP = 9, 231
PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_POPULATE = 3, 0x8022
MEMORY_GROUPS = "/sys/fs/cgroup/memory"  # version 1: in version 2 a group with processes can have none below it
SYSCALL = bytes((0x0F, 0x05))  # the instruction
SECONDS = 30
NAMES = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs "
         "gs").split()


class _Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in NAMES]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def is_possible():
    return platform.machine() == "x86_64"


def _ptrace(request, pid, address=0, data=0):
    if _libc.ptrace(request, pid, address, data) == -1 and ctypes.get_errno():
        error = ctypes.get_errno()
        raise OSError(error, "ptrace: " + os.strerror(error))


def exit(pid, code):  # noqa: A001  (as exit(3))
    _call(pid, EXIT_GROUP, code)


def eat(pid, num_bytes):
    """Takes and touches that much memory; the process must not survive it."""
    _call(pid, MMAP, 0, num_bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_POPULATE, -1, 0)


def _call(pid, number, *arguments):
    """The call is made where the process makes one itself: its code, which other threads run too, stays as it is."""
    deadline = time.monotonic() + SECONDS
    while not _call_now(pid, number, arguments):
        if time.monotonic() > deadline:
            raise RuntimeError("process %d makes no system calls" % pid)


def _call_now(pid, number, arguments):
    """False: it is in no system call at this moment."""
    _ptrace(PTRACE_SEIZE, pid)
    _ptrace(PTRACE_INTERRUPT, pid)
    os.waitpid(pid, 0x40000000)  # __WALL
    registers = _Registers()
    _ptrace(PTRACE_GETREGS, pid, 0, ctypes.addressof(registers))
    with open("/proc/%d/mem" % pid, "rb") as memory:
        memory.seek(registers.rip - len(SYSCALL))
        is_in_call = memory.read(len(SYSCALL)) == SYSCALL
    if is_in_call:
        registers.rip -= len(SYSCALL)
        registers.rax = number
        for name, value in zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments):
            setattr(registers, name, value & 0xFFFFFFFFFFFFFFFF)
        registers.orig_rax = 0xFFFFFFFFFFFFFFFF  # the one that was interrupted is not begun again
        _ptrace(PTRACE_SETREGS, pid, 0, ctypes.addressof(registers))
    _ptrace(PTRACE_DETACH, pid)
    return is_in_call


class MemoryGroup:
    """A control group in which the memory of these processes, of what they start and of `num_bytes` in all is counted
    from now on. The processes go back where they were at its end."""

    def __init__(self, name, pids, num_bytes):
        with open("/proc/self/cgroup") as file:
            above = next((line.strip().split(":", 2)[2] for line in file if line.split(":")[1] == "memory"), None)
        self._above = MEMORY_GROUPS + (above or "")
        self._path = os.path.join(self._above, name)
        self._pids, self._num_bytes = pids, num_bytes

    def is_possible(self):
        return os.path.exists(self._above + "/memory.limit_in_bytes") and os.access(self._above, os.W_OK)

    def __enter__(self):
        os.mkdir(self._path)
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            if os.path.exists(os.path.join(self._path, name)):
                self._write(self._path, name, self._num_bytes)
        self._move(self._pids, self._path)
        return self

    def __exit__(self, *_):
        with open(self._path + "/cgroup.procs") as file:
            self._move(file.read().split(), self._above)
        os.rmdir(self._path)

    @staticmethod
    def _write(folder, name, value):
        with open(os.path.join(folder, name), "w") as file:
            file.write(str(value))

    def _move(self, pids, folder):
        for pid in pids:
            try:
                self._write(folder, "cgroup.procs", pid)
            except ProcessLookupError:
                pass  # gone
