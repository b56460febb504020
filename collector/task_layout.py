"""Where fields of the running kernel's task_struct and mm_struct lie, where no BTF says so (x86-64).

A program (bpf/task_layout.bpf.c) shows threads of ours their own task_struct. What is known of such a thread from
elsewhere (its IDs, its thread pointer, where its code and stack start, its registers, its parent) tells which field
lies where. Two threads and two forked processes have to agree, each with values of its own. What is not found for
certain is left out: no field is guessed.

Offsets are in bytes. The fields: include/linux/sched.h, include/linux/mm_types.h, arch/x86/include/asm/processor.h.
"""

import ctypes
import json
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from collector.libbpf import LibbpfLoader
from collector.loader_types import LoadError
from collector.perf_event import open_clock

SOURCE = Path(__file__).resolve().parent.parent / "bpf" / "task_layout.bpf.c"

_PIECE = 1024  # that the program shows at a time
_LOOK = struct.Struct("=12Q")  # struct look, without the bytes
_TASK_BYTES = 8 << 10  # a task_struct has 9 KB or more on x86-64; at its end lie floating point registers
_MM_BYTES = 2 << 10
_THREAD_SIZES = (16 << 10, 32 << 10)  # of a kernel stack, without and with KASAN
_TICK_NS = 20_000
_PATIENCE_S = 10.0  # with one tick
_USER_CS = 0x33
_WORDS_BEFORE_IP = 16  # in struct pt_regs
_DATA = range(0xFFFF_8000_0000_0000, 0xFFFF_FFFF_8000_0000)  # where the kernel's pointers to data point
_ARCH_PRCTL, _ARCH_GET_FS = 158, 0x1003

Candidates = dict[str, set[tuple[int, ...]]]
"""Rows of what the fields named in _FIELDS may be, by the first of them."""

_FIELDS = {
    "tgid": ("tgid",),
    "real_parent": ("real_parent",),
    "mm": ("mm", "start_code", "start_stack"),
    "fsbase": ("fsbase",),
    "stack": ("stack", "registers"),
}
_PAIRS = ("mm", "real_parent")
"""Followed by a field that is the same wherever it matters: active_mm (of a thread with user space), and parent (of a
process that nobody traces)."""


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


def find_task_layout() -> TaskLayout:
    """Takes about 0.2 s, and forks: call it before this process has threads. Raises LoadError."""
    program = LibbpfLoader(needs_btf=False).load(SOURCE, "answer", {})
    try:
        with mmap.mmap(program.map_fd("look"), mmap.PAGESIZE) as window:
            return _find(program.fd, window)
    except (OSError, ValueError) as error:
        raise LoadError(f"where the fields of task_struct lie cannot be found out: {error}") from error
    finally:
        program.close()


def _find(program_fd: int, window: mmap.mmap) -> TaskLayout:
    with _Look(program_fd, window) as look:
        found = _candidates(look, None)
        own_tgid = look.tgid
    found = _common(found, _in_thread(lambda: _observe(program_fd, window, found)))
    if (last := _only(found["fsbase"])) is not None:
        # thread_struct ends every task_struct: what lies behind it belongs to another
        found = {name: {offsets for offsets in rows if offsets <= last} for name, rows in found.items()}
    found["real_parent"] = {(at,) for at in range(0, _TASK_BYTES, 8)}
    return _layout(_in_child(lambda: _family(program_fd, window, found, own_tgid, generations=2)))


def _layout(found: Candidates) -> TaskLayout:
    fields: dict[str, int] = {}
    for name, names in _FIELDS.items():
        offsets = _first_of_pair(found[name]) if name in _PAIRS else _only(found[name])
        fields |= zip(names, offsets or (), strict=False)
    return TaskLayout(**fields)


def _observe(program_fd: int, window: mmap.mmap, among: Candidates) -> Candidates:
    with _Look(program_fd, window) as look:
        return _candidates(look, among)


def _family(program_fd: int, window: mmap.mmap, among: Candidates, parent_tgid: int, generations: int) -> Candidates:
    """What this process and its child find, both forked."""
    with _Look(program_fd, window) as look:
        found = _candidates(look, among)
        found["real_parent"] = _parents(look, _only(among["tgid"] & found["tgid"]), parent_tgid)
        own_tgid = look.tgid
    found = _common(among, found)
    if generations == 1:
        return found
    return _in_child(lambda: _family(program_fd, window, found, own_tgid, generations - 1))


def _candidates(look: "_Look", among: Candidates | None) -> Candidates:
    task = look.task_struct()
    pointers = _pointers(task)
    start_code, start_stack = _starts()
    mm: set[tuple[int, ...]] = {
        (at, code, stack)
        for at, pointer in pointers
        if among is None or at in {offsets[0] for offsets in among["mm"]}
        for memory in [look.read(pointer, _MM_BYTES)]
        for code in _places(memory, start_code)
        for stack in _places(memory, start_stack)
    }
    stack: set[tuple[int, ...]] = {
        (at, registers)
        for at, pointer in pointers
        if pointer % mmap.PAGESIZE == 0
        if among is None or at in {offsets[0] for offsets in among["stack"]}
        for registers in _registers(look, pointer)
    }
    numbers = memoryview(task).cast("I")
    return {
        "tgid": {(4 * i,) for i, number in enumerate(numbers) if number == look.tgid},
        "fsbase": {(at,) for at in _places(task, _thread_pointer())},
        "mm": mm,
        "stack": stack,
    }


def _registers(look: "_Look", stack: int) -> list[int]:
    """Where on a kernel stack the registers of the interrupted program lie."""
    for size in _THREAD_SIZES:
        for _ in range(10):
            top = look.read(stack + size - _PIECE, _PIECE)
            if look.registers[1] == _USER_CS:
                break
        at = top.find(struct.pack("=5Q", *look.registers))
        if look.registers[1] == _USER_CS and at >= 8 * _WORDS_BEFORE_IP:
            return [size - _PIECE + at - 8 * _WORDS_BEFORE_IP]
    return []


def _parents(look: "_Look", tgid: tuple[int, ...] | None, parent_tgid: int) -> set[tuple[int, ...]]:
    if tgid is None:
        return set()
    pointers = _pointers(look.task_struct())
    return {(at,) for at, pointer in pointers if look.number(pointer + tgid[0]) == parent_tgid}


def _common(one: Candidates, other: Candidates) -> Candidates:
    return {name: one[name] & other[name] for name in other}


def _only(candidates: set[tuple[int, ...]]) -> tuple[int, ...] | None:
    return next(iter(candidates)) if len(candidates) == 1 else None


def _first_of_pair(candidates: set[tuple[int, ...]]) -> tuple[int, ...] | None:
    first = min(candidates, default=None)
    return first if first and candidates <= {first, (first[0] + 8, *first[1:])} else None


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
    if ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_GET_FS, ctypes.byref(pointer)):
        raise LoadError("arch_prctl(ARCH_GET_FS) is refused")
    return pointer.value


class _Look:
    """Reads kernel memory by ticks of a clock of the thread that made it."""

    def __init__(self, program_fd: int, window: mmap.mmap) -> None:
        self._window = window
        self._clock = open_clock(program_fd, _TICK_NS, cpu=-1, pid=0)
        self.task = self.tgid = 0
        self.registers: tuple[int, ...] = ()
        """ip, cs, flags, sp, ss, when it was read last."""
        self.read(0, 8)

    def __enter__(self) -> "_Look":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._clock)

    def task_struct(self) -> bytes:
        return self.read(self.task, _TASK_BYTES)

    def number(self, address: int) -> int | None:
        return next(iter(memoryview(self.read(address, 4)).cast("I")), None)

    def read(self, address: int, size: int) -> bytes:
        """Less where the memory ends."""
        read = b""
        while len(read) < size:
            piece = self._piece(address + len(read))
            if piece is None:
                break
            read += piece
        return read[:size]

    def _piece(self, address: int) -> bytes | None:
        asked = _LOOK.unpack_from(self._window)[0] + 1
        struct.pack_into("=Q", self._window, 8, address % (1 << 64))
        struct.pack_into("=Q", self._window, 0, asked)  # last: from here on the program answers
        until = time.monotonic() + _PATIENCE_S
        while (answer := _LOOK.unpack_from(self._window))[2] != asked:
            if time.monotonic() > until:
                raise LoadError("the clock of a thread does not tick (perf_event, software cpu-clock)")
        failed, self.task, pid_tgid = answer[3:6]
        self.tgid, self.registers = pid_tgid >> 32, answer[6:11]
        return None if failed else self._window[_LOOK.size : _LOOK.size + _PIECE]


def _in_thread(observe: Callable[[], Candidates]) -> Candidates:
    found: list[Candidates] = []
    thread = threading.Thread(target=lambda: found.append(observe()))
    thread.start()
    thread.join()
    if not found:
        raise LoadError("a thread could not look at its task_struct")
    return found[0]


def _in_child(observe: Callable[[], Candidates]) -> Candidates:
    """Forks."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            found = {name: sorted(offsets) for name, offsets in observe().items()}
            os.write(writer, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    if not said:
        raise LoadError("a child process could not look at its task_struct")
    return {name: {tuple(offsets) for offsets in rows} for name, rows in json.loads(said).items()}
