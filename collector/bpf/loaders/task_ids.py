"""Finds where the kernel keeps the IDs of a thread in its PID namespaces: task_struct.thread_pid points to struct pid.

Processes in new, nested namespaces know all their IDs and the depth of their namespace.
"""

import contextlib
import ctypes
from pathlib import Path

from collector.bpf.loaders.kernel_reader import KernelReader, ReaderProgram, Rows, in_child
from collector.bpf.loaders.loader import LoadError

_PID_BYTES = 512  # of struct pid
_UPID_BYTES = 16  # an int and a pointer
_DEEPEST = 32  # MAX_PID_NS_LEVEL
_NEW_PID_NAMESPACE = 0x2000_0000


def thread_id_rows(program: ReaderProgram, size: int) -> Rows:
    """Returns rows of (thread_pid, level, numbers): the offset of the pointer, below `size`, and the offsets of the two
    others in what it points to. Forks. Returns no rows if PID namespaces cannot be created."""
    with contextlib.suppress(LoadError):
        return in_child(lambda: {"thread_pid": _nested(program, size, None, namespaces=2)})["thread_pid"]
    return set()


def _nested(program: ReaderProgram, size: int, among: Rows | None, namespaces: int) -> Rows:
    with KernelReader(program) as kernel:
        rows = _rows(kernel, size, _own_ids(), None if among is None else {row[0] for row in among})
    rows = rows if among is None else rows & among
    if namespaces == 0:
        return rows
    if ctypes.CDLL(None).unshare(_NEW_PID_NAMESPACE):
        return set()
    return in_child(lambda: {"thread_pid": _nested(program, size, rows, namespaces - 1)})["thread_pid"]


def _rows(kernel: KernelReader, size: int, ids: list[int], pointers: set[int] | None) -> Rows:
    rows: Rows = set()
    task = memoryview(kernel.read(kernel.task, size)).cast("Q")
    for word, pointer in enumerate(task):
        if pointer < 1 << 63 or pointer % 8 or (pointers is not None and 8 * word not in pointers):
            continue
        memory = memoryview(kernel.read(pointer, _PID_BYTES)).cast("I")
        for numbers in (i for i in range(0, len(memory), 2) if memory[i] == kernel.pid):
            rows |= {
                (8 * word, 4 * level, 4 * numbers) for level in range(numbers) if _fits(memory, level, numbers, ids)
            }
    return rows


def _fits(memory: memoryview, level: int, numbers: int, ids: list[int]) -> bool:
    """Whether `memory` has the depth of the last of `ids` at `level`, and all of `ids` at the end of `numbers`."""
    deepest = memory[level]
    if not len(ids) - 1 <= deepest <= _DEEPEST:
        return False
    positions = [numbers + (deepest - i) * _UPID_BYTES // 4 for i in range(len(ids))]
    return positions[0] < len(memory) and [memory[position] for position in reversed(positions)] == ids


def _own_ids() -> list[int]:
    """Returns the IDs of this thread, from that in the namespace of /proc to that in its own."""
    status = Path("/proc/thread-self/status").read_text().splitlines()
    return next([int(each) for each in line.split()[1:]] for line in status if line.startswith("NSpid:"))
