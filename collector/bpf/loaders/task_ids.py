"""Where the kernel keeps the IDs that a thread has in its PID namespaces: task_struct.thread_pid points to struct pid.

Processes in new namespaces, one inside the other, know all their IDs, and how deep they are.
"""

import contextlib
import ctypes
from pathlib import Path

from collector.bpf.loaders.kernel_look import Look, Rows, Window, in_child
from collector.bpf.loaders.loader import LoadError

_PID_BYTES = 512  # of struct pid
_UPID_BYTES = 16  # an int and a pointer
_DEEPEST = 32  # MAX_PID_NS_LEVEL
_NEW_PID_NAMESPACE = 0x2000_0000


def thread_id_rows(window: Window, size: int) -> Rows:
    """(thread_pid, level, numbers): where below `size` lies the pointer, and from where it points the two others.
    Forks; empty where no PID namespaces can be made."""
    with contextlib.suppress(LoadError):
        return in_child(lambda: {"thread_pid": _nested(window, size, None, namespaces=2)})["thread_pid"]
    return set()


def _nested(window: Window, size: int, among: Rows | None, namespaces: int) -> Rows:
    with Look(window) as look:
        found = _rows(look, size, _own_ids(), None if among is None else {row[0] for row in among})
    found = found if among is None else found & among
    if namespaces == 0:
        return found
    if ctypes.CDLL(None).unshare(_NEW_PID_NAMESPACE):
        return set()
    return in_child(lambda: {"thread_pid": _nested(window, size, found, namespaces - 1)})["thread_pid"]


def _rows(look: Look, size: int, ids: list[int], pointers: set[int] | None) -> Rows:
    rows: Rows = set()
    task = memoryview(look.read(look.task, size)).cast("Q")
    for place, pointer in enumerate(task):
        if pointer < 1 << 63 or pointer % 8 or (pointers is not None and 8 * place not in pointers):
            continue
        memory = memoryview(look.read(pointer, _PID_BYTES)).cast("I")
        for numbers in (i for i in range(0, len(memory), 2) if memory[i] == look.pid):
            rows |= {
                (8 * place, 4 * level, 4 * numbers) for level in range(numbers) if _fits(memory, level, numbers, ids)
            }
    return rows


def _fits(memory: memoryview, level: int, numbers: int, ids: list[int]) -> bool:
    """Whether `memory` has at `level` the index of the last ID of `ids`, and at `numbers` all of them at its end."""
    deepest = memory[level]
    if not len(ids) - 1 <= deepest <= _DEEPEST:
        return False
    places = [numbers + (deepest - i) * _UPID_BYTES // 4 for i in range(len(ids))]
    return places[0] < len(memory) and [memory[place] for place in reversed(places)] == ids


def _own_ids() -> list[int]:
    """Of this thread, from the namespace of /proc to its own."""
    status = Path("/proc/thread-self/status").read_text().splitlines()
    return next([int(each) for each in line.split()[1:]] for line in status if line.startswith("NSpid:"))
