"""Giving up the capabilities that only loading needs (capabilities(7)), through capset(2) and prctl(2).

Both act on one thread, and threads inherit from the one that starts them. So `drop` must come before any thread.
"""

import contextlib
import ctypes
import enum
import errno
import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path


class Capability(enum.IntEnum):
    """Numbers of include/uapi/linux/capability.h: those that the collector may need."""

    DAC_READ_SEARCH = 2
    SETPCAP = 8
    SYS_PTRACE = 19
    SYS_ADMIN = 21
    SYSLOG = 34
    PERFMON = 38
    BPF = 39
    CHECKPOINT_RESTORE = 40


Capabilities = frozenset[Capability]

BPF_BY_DESCRIPTOR = (5, 19)
"""Since this kernel, a map can be used by its descriptor alone, even if kernel.unprivileged_bpf_disabled is set."""

_READING = frozenset(
    {Capability.SYS_PTRACE, Capability.DAC_READ_SEARCH, Capability.CHECKPOINT_RESTORE, Capability.SYSLOG}
)
"""Capabilities to read files and memory of other processes, their mapped files, and addresses of kernel functions."""

_VERSION_3 = 0x20080522
_BOUNDING_DROP, _SECURE_BITS, _NO_NEW_PRIVILEGES, _AMBIENT = 24, 28, 38, 47
_AMBIENT_RAISE, _AMBIENT_CLEAR = 2, 4
_NO_ROOT, _NO_ROOT_LOCKED = 1, 2  # a child does not get capabilities for being root
_LAST = Path("/proc/sys/kernel/cap_last_cap")


def permitted() -> Capabilities:
    """Returns the capabilities of this thread that the collector may need."""
    mask = _get()[1]
    return frozenset(capability for capability in Capability if mask >> capability & 1)


def at_run_time(held: Capabilities, kernel: tuple[int, int]) -> Capabilities:
    """Returns the held capabilities that profiling needs once it runs. CAP_SYS_ADMIN replaces one that is not held,
    as old container runtimes cannot give CAP_PERFMON, CAP_BPF and CAP_CHECKPOINT_RESTORE."""
    wanted = set(_READING) | {Capability.PERFMON}  # for CPUs that come online, and for changes of the period
    if kernel < BPF_BY_DESCRIPTOR:
        wanted.add(Capability.BPF)
    if wanted & {Capability.PERFMON, Capability.BPF, Capability.CHECKPOINT_RESTORE} - held:
        wanted.add(Capability.SYS_ADMIN)
    return frozenset(wanted & held)


def of_children(remaining: Capabilities) -> Capabilities:
    """Returns those of the remaining capabilities that child processes get, to look for symbols."""
    return remaining & (_READING if Capability.CHECKPOINT_RESTORE in remaining else _READING | {Capability.SYS_ADMIN})


def drop(keep: Capabilities, children: Capabilities) -> None:
    """Gives up for good what is not in `keep`. Programs that this process executes get `children`, and can gain no
    more.

    Raises OSError if the kernel refuses, which it normally does not.
    """
    with contextlib.suppress(PermissionError):  # without CAP_SETPCAP; no_new_privs must be enough then
        _prctl(_SECURE_BITS, _NO_ROOT | _NO_ROOT_LOCKED)
        for number in range(_last() + 1):
            if number not in children:
                _prctl(_BOUNDING_DROP, number)
    _prctl(_NO_NEW_PRIVILEGES, 1)
    remaining = _mask(keep)
    _set(remaining, remaining, _mask(children))
    _prctl(_AMBIENT, _AMBIENT_CLEAR)
    for capability in children:
        _prctl(_AMBIENT, _AMBIENT_RAISE, capability)


def kernel_version(release: str = "") -> tuple[int, int]:
    """The version of this kernel, or of a release as uname(1) writes it: 6.18.44-fc is (6, 18)."""
    numbers = re.match(r"(\d+)(?:\.(\d+))?", release or os.uname().release)
    return (int(numbers[1]), int(numbers[2] or 0)) if numbers else (0, 0)


def _mask(capabilities: Iterable[int]) -> int:
    return sum(1 << capability for capability in capabilities)


def _get() -> tuple[int, int, int]:
    """Effective, permitted and inheritable, as masks of 64 bits."""
    data = ctypes.create_string_buffer(24)
    _call("capget", struct.pack("=Ii", _VERSION_3, 0), data)
    low, high = struct.unpack_from("=3I", data.raw), struct.unpack_from("=3I", data.raw, 12)
    effective, allowed, inheritable = (a | b << 32 for a, b in zip(low, high, strict=True))
    return effective, allowed, inheritable


def _set(*masks: int) -> None:
    """Effective, permitted and inheritable."""
    words = [mask & 0xFFFFFFFF for mask in masks] + [mask >> 32 for mask in masks]
    _call("capset", struct.pack("=Ii", _VERSION_3, 0), struct.pack("=6I", *words))


def _prctl(option: int, *arguments: int) -> None:
    numbers = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    _call("prctl", ctypes.c_int(option), *numbers)


def _call(function: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) != 0:
        raise OSError(code := ctypes.get_errno() or errno.EINVAL, os.strerror(code), function)


def _last() -> int:
    try:
        return int(_LAST.read_text())
    except (OSError, ValueError):
        return max(Capability)
