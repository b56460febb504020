"""Finds the offsets of fields in task_struct and mm_struct of a kernel without BTF (x86-64).

Threads of the collector read their own task_struct (kernel_reader.py). Their IDs, thread pointer, starts of code and
stack, registers and parent are known from elsewhere, and tell which field is where. Two threads and two forked
processes have to agree, each with its own values. A field that is not certain is left out: nothing is guessed.

Offsets are in bytes. The fields: include/linux/sched.h, mm_types.h; arch/x86/include/asm/processor.h.
"""

import ctypes
import mmap
import os
import struct
from dataclasses import astuple, dataclass
from pathlib import Path

from collector.bpf.loaders.kernel_reader import (
    PIECE,
    Candidates,
    KernelReader,
    ReaderProgram,
    Rows,
    in_child,
    in_thread,
    load_reader,
)
from collector.bpf.loaders.task_state import state_rows

_TASK_BYTES = 8 << 10  # that are read; more than task_struct has up to the end of its thread_struct
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
}
_PAIRS = ("mm", "real_parent")
"""Fields that are followed by one with the same value: active_mm (in a thread with user space), and parent (in a
process that nobody traces)."""


_MORE_ATTEMPTS = 2


@dataclass(frozen=True)
class TaskLayout:
    """Offsets in bytes, in task_struct unless noted; None if not found."""

    tgid: int | None = None
    real_parent: int | None = None
    mm: int | None = None
    start_code: int | None = None  # in mm_struct
    start_stack: int | None = None  # in mm_struct
    fsbase: int | None = None
    stack: int | None = None
    registers: int | None = None  # from the start of the stack: registers at the entry into the kernel
    state: int | None = None  # 64 bits before Linux 5.14, 32 bits since


def find_task_layout() -> TaskLayout:
    """Finds the fields in about 0.2 s. Forks, so call it before this process has threads. Raises LoadError.

    On a busy host one attempt may miss a field: then it tries again.
    """
    layout = _attempt()
    for _ in range(_MORE_ATTEMPTS):
        if None not in astuple(layout):
            break
        layout = max(layout, _attempt(), key=lambda candidate: sum(offset is not None for offset in astuple(candidate)))
    return layout


def _attempt() -> TaskLayout:
    with load_reader() as program:
        candidates = _of_relatives(program, _of_threads(program))
        candidates["state"] = state_rows(program, _TASK_BYTES)
    fields: dict[str, int] = {}
    for name, names in _FIELDS.items():
        offsets = _first_of_pair(candidates[name]) if name in _PAIRS else _only(candidates[name])
        fields |= zip(names, offsets or (), strict=False)
    return TaskLayout(**fields)


def _of_threads(program: ReaderProgram) -> Candidates:
    """Returns the candidates on which this thread and another one agree."""
    with KernelReader(program) as kernel:
        candidates = _candidates(kernel, None)

    def other() -> Candidates:
        with KernelReader(program) as kernel:
            return _candidates(kernel, candidates)

    return _common(candidates, in_thread(other))


def _of_relatives(program: ReaderProgram, candidates: Candidates) -> Candidates:
    """Returns the candidates on which a child of this process and a child of that child agree."""
    if (last := _only(candidates["fsbase"])) is not None:
        # thread_struct is at the end of task_struct: what follows is another structure
        candidates = {name: {row for row in rows if row[0] <= last[0]} for name, rows in candidates.items()}
    candidates["real_parent"] = {(at,) for at in range(0, _TASK_BYTES, 8)}
    with KernelReader(program) as kernel:
        own_tgid = kernel.tgid
    return in_child(lambda: _family(program, candidates, own_tgid, generations=2))


def _family(program: ReaderProgram, among: Candidates, parent_tgid: int, generations: int) -> Candidates:
    with KernelReader(program) as kernel:
        candidates = _candidates(kernel, among)
        candidates["real_parent"] = _parents(kernel, _only(among["tgid"] & candidates["tgid"]), parent_tgid)
        own_tgid = kernel.tgid
    candidates = _common(among, candidates)
    if generations == 1:
        return candidates
    return in_child(lambda: _family(program, candidates, own_tgid, generations - 1))


def _candidates(kernel: KernelReader, among: Candidates | None) -> Candidates:
    task = kernel.read(kernel.task, _TASK_BYTES)
    pointers = _pointers(task)
    start_code, start_stack = _starts()
    mm: Rows = {
        (at, code, stack)
        for at, pointer in pointers
        if among is None or at in {row[0] for row in among["mm"]}
        for memory in [kernel.read(pointer, _MM_BYTES)]
        for code in _offsets_of(memory, start_code)
        for stack in _offsets_of(memory, start_stack)
    }
    stack: Rows = {
        (at, registers)
        for at, pointer in pointers
        if pointer % mmap.PAGESIZE == 0
        if among is None or at in {row[0] for row in among["stack"]}
        for registers in _registers(kernel, pointer)
    }
    numbers = memoryview(task).cast("I")
    return {
        "tgid": {(4 * i,) for i, number in enumerate(numbers) if number == kernel.tgid},
        "fsbase": {(at,) for at in _offsets_of(task, _thread_pointer())},
        "mm": mm,
        "stack": stack,
    }


def _registers(kernel: KernelReader, stack: int) -> list[int]:
    """Returns the offset of the interrupted program's registers on a kernel stack; [] if they are not found."""
    for size in _THREAD_SIZES:
        for _ in range(10):
            top = kernel.read(stack + size - PIECE, PIECE)
            if kernel.registers[1] == _USER_CS:
                break
        at = top.find(struct.pack("=5Q", *kernel.registers))
        if kernel.registers[1] == _USER_CS and at >= 8 * _WORDS_BEFORE_IP:
            return [size - PIECE + at - 8 * _WORDS_BEFORE_IP]
    return []


def _parents(kernel: KernelReader, tgid: tuple[int, ...] | None, parent_tgid: int) -> Rows:
    if tgid is None:
        return set()
    pointers = _pointers(kernel.read(kernel.task, _TASK_BYTES))
    return {(at,) for at, pointer in pointers if kernel.number(pointer + tgid[0]) == parent_tgid}


def _common(one: Candidates, other: Candidates) -> Candidates:
    return {name: one[name] & other[name] for name in other}


def _only(rows: Rows) -> tuple[int, ...] | None:
    return next(iter(rows)) if len(rows) == 1 else None


def _first_of_pair(rows: Rows) -> tuple[int, ...] | None:
    first = min(rows, default=None)
    return first if first and rows <= {first, (first[0] + 8, *first[1:])} else None


def _pointers(memory: bytes) -> list[tuple[int, int]]:
    """Returns (offset, pointer) of each pointer to data of the kernel."""
    words = memoryview(memory).cast("Q")
    return [(8 * i, word) for i, word in enumerate(words) if word % 8 == 0 and word in _DATA]


def _offsets_of(memory: bytes, word: int) -> list[int]:
    return [8 * i for i, actual in enumerate(memoryview(memory).cast("Q")) if actual == word]


def _starts() -> tuple[int, int]:
    """Returns the addresses where the code and the stack of this process start."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()  # from the third on, see proc(5)
    return int(fields[26 - 3]), int(fields[28 - 3])


def _thread_pointer() -> int:
    pointer = ctypes.c_uint64()
    if ctypes.CDLL(None, use_errno=True).syscall(_ARCH_PRCTL, _ARCH_GET_FS, ctypes.byref(pointer)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "arch_prctl")
    return pointer.value
