"""What the program in the kernel asks of user space (bpf/maps.h): what it lacks to walk a stack to its end."""

from collections.abc import Callable

from collector.bpf import records
from collector.bpf.ringbuf import RingBuffer

PROCESS, MAPPING, CHUNK, CODE, THREAD, TABLE = 1, 2, 3, 4, 5, 6
"""The mappings of a process; what lies at an address of it; the rows of a chunk; a code object of its Python; what is
to be known of a thread that was just seen first, while it lives; the table of the mapping that starts there."""

Answer = Callable[[int, int], None]
"""(process, value)"""


def answer(asks: RingBuffer, answers: dict[int, Answer], read_code: Callable[[int, list[int]], None]) -> int:
    """Reads all questions and has each answered once; returns how many there were. Any number of them are the same:
    several CPUs ask for the same thing. Code objects come first, those of a process together: it may end soon."""
    found = records.complete_asks(asks.unread())
    if not len(found):
        return 0
    distinct = dict.fromkeys(map(tuple, found[:, 1:3].tolist()))
    asks.consume(found.size)
    codes: dict[int, list[int]] = {}
    for what, value in distinct:
        if what & 0xFFFFFFFF == CODE:
            codes.setdefault(what >> 32, []).append(value)
    for pid, addresses in codes.items():
        read_code(pid, addresses)
    for what, value in distinct:
        if reply := answers.get(what & 0xFFFFFFFF):
            reply(what >> 32, value)
    return len(found)
