"""Takes from a process that parses files of strangers what parsing does not need: capabilities, network, writing.

By seccomp (Linux's Documentation/userspace-api/seccomp_filter.rst): a classic BPF program sees each system call.
"""

import ctypes
import errno
import os
import platform
import struct

from collector.guest import capabilities

_SET_SECCOMP, _FILTER = 22, 2
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data
_X86_64 = 0xC000003E
_X32 = 0x40000000
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_REFUSE, _UNKNOWN = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_REFUSED = (
    41, 42, 43, 49, 50, 53, 288,  # socket, connect, accept, bind, listen, socketpair, accept4
    57, 58, 59, 322,  # fork, vfork, execve, execveat
    62, 129, 200, 297, 424,  # kill, rt_sigqueueinfo, tkill, rt_tgsigqueueinfo, pidfd_send_signal
    101, 310, 311, 434, 438,  # ptrace, process_vm_readv, process_vm_writev, pidfd_open, pidfd_getfd
    76, 82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94,  # truncate, rename ... creat, link ... chmod, chown
    133, 258, 259, 260, 263, 264, 265, 266, 268, 316, 452,  # mknod, mkdirat ... fchmodat, renameat2, fchmodat2
    132, 235, 261, 280,  # utime, utimes, futimesat, utimensat
    188, 189, 190, 197, 198, 199, 463, 466,  # setxattr, removexattr and their kind
    155, 161, 165, 166, 272, 304, 308, 428, 430, 442,  # pivot_root, chroot, mount, unshare, setns, fsopen
    175, 246, 298, 313, 321, 323, 425, 437,  # init_module, kexec_load, perf_event_open, bpf, io_uring, openat2
    248, 249, 250,  # keys
)  # fmt: skip
_OPEN, _OPENAT = 2, 257
_CLONE, _CLONE3, _TGKILL, _PRLIMIT = 56, 435, 234, 302
_CLONE_THREAD = 0x10000


def confine() -> None:
    """Confines this process for good: call it after its imports, before it has threads. Raises OSError.

    It keeps its open files, and can still open files for reading that its user may read. On machines other than x86-64
    it gives up its capabilities only.
    """
    capabilities.drop(frozenset(), frozenset())
    if platform.machine() != "x86_64":
        return
    code = _program()
    instructions = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(instructions))  # struct sock_fprog
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_ulong(_FILTER), ctypes.create_string_buffer(program, len(program))]
    if libc.prctl(ctypes.c_int(_SET_SECCOMP), *arguments, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "seccomp")


def _program() -> bytes:
    """Instructions (struct sock_filter): code, jumps if true and if false, value."""
    lines = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 1, 0, _X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
    ]
    for number in _REFUSED:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    for number, flags in ((_OPEN, 1), (_OPENAT, 2)):
        lines += [
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * flags),
            (_ANY_BIT, 0, 1, _CHANGES),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    for number, test, value in (
        (_CLONE, _ANY_BIT, _CLONE_THREAD),
        (_TGKILL, _EQUAL, os.getpid()),
        (_PRLIMIT, _EQUAL, 0),  # of this process
    ):
        lines += [
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _ARGUMENTS_AT),
            (test, 1, 0, value),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    # A filter does not see the flags of clone3; where it is unknown, the C library starts threads by clone.
    lines += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _UNKNOWN)]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
