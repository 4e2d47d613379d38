"""Makes another process call exit_group(2), as its own code would: no signal, no clean-up. x86-64, with the right to trace.

    inject_exit(pid, 3)
"""
import ctypes
import os
import platform

PTRACE_POKETEXT, PTRACE_DETACH, PTRACE_GETREGS, PTRACE_SETREGS = 4, 17, 12, 13
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
EXIT_GROUP = 231
SYSCALL = 0x050F  # the instruction, as the low bytes of a word
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


def inject_exit(pid, code):
    ctypes.set_errno(0)
    _ptrace(PTRACE_SEIZE, pid)
    _ptrace(PTRACE_INTERRUPT, pid)
    os.waitpid(pid, 0x40000000)  # __WALL
    registers = _Registers()
    _ptrace(PTRACE_GETREGS, pid, 0, ctypes.addressof(registers))
    # Wherever it is, the next instruction is a system call; the page is its own copy from now on.
    _ptrace(PTRACE_POKETEXT, pid, registers.rip, SYSCALL)
    registers.rax, registers.rdi = EXIT_GROUP, code
    registers.orig_rax = 0xFFFFFFFFFFFFFFFF  # no call that was interrupted is begun again
    _ptrace(PTRACE_SETREGS, pid, 0, ctypes.addressof(registers))
    _ptrace(PTRACE_DETACH, pid)
