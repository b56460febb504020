"""Rules for greenlet, with which a Python thread works on several stacks in turn (gevent, SQLAlchemy).

A greenlet's stack begins in a function of the library: what lies above it is of other greenlets. To switch, the library
moves the stack pointer, and then copies the frames of the next greenlet to where they were: meanwhile nobody knows
the caller.
"""

import re
from collections.abc import Iterator

import numpy as np

from collector.elf.dynamic import Dynamic, entries
from collector.elf.error import ElfError, reading
from collector.unwind.cfi.code_file import CodeFile
from collector.unwind.cfi.steps import CFA_END, CFA_UNKNOWN, NOTHING, UnwindSteps, intervals, pack

_BEGIN = b"_ZN8greenlet12UserGreenlet15inner_bootstrapEP9_greenletP7_object"
_SWITCH = re.compile(  # add of one register to rsp and to rbp; a call at once (Intel's manual, volume 2)
    rb"([\x48\x4c])\x01[\xc4\xcc\xd4\xdc\xe4\xec\xf4\xfc]\1\x01[\xc5\xcd\xd5\xdd\xe5\xed\xf5\xfd](?:\xe8....|\xff\x15....)",
    re.DOTALL,
)
_ADD_BYTES = 3
_MAX_CODE_BYTES = 1 << 20


def layer(file: CodeFile) -> UnwindSteps:
    """Returns the rules where a greenlet's stack begins and where it is switched; none for another file."""
    try:
        with reading():
            begin = Dynamic(file, dict(entries(file))).find(_BEGIN)
            if begin is None or begin.value + begin.size > int(file.code[-1, 1]):
                return NOTHING
            spans = [(begin.value, begin.value + begin.size, pack(CFA_END)), *_switches(file)]
    except ElfError:
        return NOTHING
    start, end, rule = np.array(sorted(spans), np.int64).T
    return intervals(start, end, rule.astype(np.uint64))


def _switches(file: CodeFile) -> Iterator[tuple[int, int, int]]:
    for load in file.loads:
        if load.executable:
            code = file.read(load.offset, min(load.size, _MAX_CODE_BYTES))
            for found in _SWITCH.finditer(code):
                yield load.vaddr + found.start() + _ADD_BYTES, load.vaddr + found.end(), pack(CFA_UNKNOWN)
