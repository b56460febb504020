"""Where fields of the running kernel's task_struct, mm_struct and struct pid lie, where no BTF says so (x86-64).

Threads of ours look at their own task_struct (kernel_look.py). What is known of such a thread from elsewhere (its IDs,
its thread pointer, where its code and stack start, its registers, its parent) tells which field lies where. Two threads
and two forked processes have to agree, each with values of its own. What is not found for certain is left out: no field
is guessed.

Offsets are in bytes. The fields: include/linux/sched.h, mm_types.h, pid.h; arch/x86/include/asm/processor.h.
"""

import ctypes
import mmap
import os
import struct
from dataclasses import astuple, dataclass
from pathlib import Path

from collector.bpf.loaders.kernel_look import PIECE, Candidates, Look, Rows, Window, in_child, in_thread, open_window
from collector.bpf.loaders.task_ids import thread_id_rows
from collector.bpf.loaders.task_state import state_rows

_TASK_BYTES = 8 << 10  # looked at; more than task_struct has up to the end of its thread_struct
_MM_BYTES = 2 << 10
_THREAD_SIZES = (16 << 10, 32 << 10)  # of a kernel stack, without and with KASAN
_USER_CS = 0x33
_WORDS_BEFORE_IP = 16  # in struct pt_regs
_DATA = range(0xFFFF_8000_0000_0000, 0xFFFF_FFFF_8000_0000)  # where the kernel's pointers to data point
_ARCH_PRCTL, _ARCH_GET_FS = 158, 0x1003

_FIELDS = {
    "tgid": ("tgid",),
    "real_parent": ("real_parent",),
    "mm": ("mm", "start_code", "start_stack"),
    "fsbase": ("fsbase",),
    "stack": ("stack", "registers"),
    "state": ("state",),
    "thread_pid": ("thread_pid", "level", "numbers"),
}
_PAIRS = ("mm", "real_parent")
"""Followed by a field that is the same wherever it matters: active_mm (of a thread with user space), and parent (of a
process that nobody traces)."""


_MORE_LOOKS = 2


@dataclass(frozen=True)
class TaskLayout:
    """None: not found."""

    tgid: int | None = None
    real_parent: int | None = None
    mm: int | None = None
    start_code: int | None = None  # in mm_struct
    start_stack: int | None = None  # in mm_struct
    fsbase: int | None = None
    stack: int | None = None
    registers: int | None = None  # from where `stack` points: the registers with which a thread entered the kernel
    state: int | None = None  # before Linux 5.14 of 64 bits, since then of 32
    thread_pid: int | None = None
    level: int | None = None  # in struct pid
    numbers: int | None = None  # in struct pid


def find_task_layout() -> TaskLayout:
    """Takes about 0.2 s, and forks: call it before this process has threads. Raises LoadError.

    On a busy host a look may come to no answer for some field: then it looks again.
    """
    found = _look()
    for _ in range(_MORE_LOOKS):
        if None not in astuple(found):
            break
        found = max(found, _look(), key=lambda layout: sum(offset is not None for offset in astuple(layout)))
    return found


def _look() -> TaskLayout:
    with open_window() as window:
        found = _of_relatives(window, _of_threads(window))
        found["state"] = state_rows(window, _TASK_BYTES)
        found["thread_pid"] = thread_id_rows(window, _TASK_BYTES)
    fields: dict[str, int] = {}
    for name, names in _FIELDS.items():
        offsets = _first_of_pair(found[name]) if name in _PAIRS else _only(found[name])
        fields |= zip(names, offsets or (), strict=False)
    return TaskLayout(**fields)


def _of_threads(window: Window) -> Candidates:
    """What this thread and another one agree on."""
    with Look(window) as look:
        found = _candidates(look, None)

    def other() -> Candidates:
        with Look(window) as look:
            return _candidates(look, found)

    return _common(found, in_thread(other))


def _of_relatives(window: Window, found: Candidates) -> Candidates:
    """What a child of this process and a child of that child agree on."""
    if (last := _only(found["fsbase"])) is not None:
        # thread_struct ends every task_struct: what lies behind it belongs to another
        found = {name: {row for row in rows if row[0] <= last[0]} for name, rows in found.items()}
    found["real_parent"] = {(at,) for at in range(0, _TASK_BYTES, 8)}
    with Look(window) as look:
        own_tgid = look.tgid
    return in_child(lambda: _family(window, found, own_tgid, generations=2))


def _family(window: Window, among: Candidates, parent_tgid: int, generations: int) -> Candidates:
    with Look(window) as look:
        found = _candidates(look, among)
        found["real_parent"] = _parents(look, _only(among["tgid"] & found["tgid"]), parent_tgid)
        own_tgid = look.tgid
    found = _common(among, found)
    if generations == 1:
        return found
    return in_child(lambda: _family(window, found, own_tgid, generations - 1))


def _candidates(look: Look, among: Candidates | None) -> Candidates:
    task = look.read(look.task, _TASK_BYTES)
    pointers = _pointers(task)
    start_code, start_stack = _starts()
    mm: Rows = {
        (at, code, stack)
        for at, pointer in pointers
        if among is None or at in {row[0] for row in among["mm"]}
        for memory in [look.read(pointer, _MM_BYTES)]
        for code in _places(memory, start_code)
        for stack in _places(memory, start_stack)
    }
    stack: Rows = {
        (at, registers)
        for at, pointer in pointers
        if pointer % mmap.PAGESIZE == 0
        if among is None or at in {row[0] for row in among["stack"]}
        for registers in _registers(look, pointer)
    }
    numbers = memoryview(task).cast("I")
    return {
        "tgid": {(4 * i,) for i, number in enumerate(numbers) if number == look.tgid},
        "fsbase": {(at,) for at in _places(task, _thread_pointer())},
        "mm": mm,
        "stack": stack,
    }


def _registers(look: Look, stack: int) -> list[int]:
    """Where on a kernel stack the registers of the interrupted program lie."""
    for size in _THREAD_SIZES:
        for _ in range(10):
            top = look.read(stack + size - PIECE, PIECE)
            if look.registers[1] == _USER_CS:
                break
        at = top.find(struct.pack("=5Q", *look.registers))
        if look.registers[1] == _USER_CS and at >= 8 * _WORDS_BEFORE_IP:
            return [size - PIECE + at - 8 * _WORDS_BEFORE_IP]
    return []


def _parents(look: Look, tgid: tuple[int, ...] | None, parent_tgid: int) -> Rows:
    if tgid is None:
        return set()
    pointers = _pointers(look.read(look.task, _TASK_BYTES))
    return {(at,) for at, pointer in pointers if look.number(pointer + tgid[0]) == parent_tgid}


def _common(one: Candidates, other: Candidates) -> Candidates:
    return {name: one[name] & other[name] for name in other}


def _only(rows: Rows) -> tuple[int, ...] | None:
    return next(iter(rows)) if len(rows) == 1 else None


def _first_of_pair(rows: Rows) -> tuple[int, ...] | None:
    first = min(rows, default=None)
    return first if first and rows <= {first, (first[0] + 8, *first[1:])} else None


def _pointers(memory: bytes) -> list[tuple[int, int]]:
    """(offset, pointer)"""
    words = memoryview(memory).cast("Q")
    return [(8 * i, word) for i, word in enumerate(words) if word % 8 == 0 and word in _DATA]


def _places(memory: bytes, word: int) -> list[int]:
    return [8 * i for i, found in enumerate(memoryview(memory).cast("Q")) if found == word]


def _starts() -> tuple[int, int]:
    """Addresses where this process's code and stack start."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()  # from the third on, see proc(5)
    return int(fields[26 - 3]), int(fields[28 - 3])


def _thread_pointer() -> int:
    pointer = ctypes.c_uint64()
    if ctypes.CDLL(None, use_errno=True).syscall(_ARCH_PRCTL, _ARCH_GET_FS, ctypes.byref(pointer)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "arch_prctl")
    return pointer.value
