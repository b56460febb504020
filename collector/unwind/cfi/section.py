"""Turns a section of call frame information (.eh_frame or .debug_frame) into rules."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collector.unwind.cfi import program as cfi_program
from collector.unwind.cfi.machine import Machine
from collector.unwind.cfi.program import Programs, State
from collector.unwind.cfi.records import Cie, Fdes, FrameSection
from collector.unwind.cfi.steps import UNCOVERED, UnwindSteps, merged, overlay
from icestream.columns import address_ranges, index_ranges

SLICE_BYTES = 1 << 20
"""The size of the programs that run at once: limits memory."""


def steps(section: FrameSection, fdes: Fdes, code: np.ndarray) -> UnwindSteps:
    """Returns the rules of all functions that begin in `code`: executable addresses, int64 (k, 2), ascending and apart.

    Where functions overlap, the one that begins later counts; of two that begin at the same address, the first in the
    section. A function that was cut this way still counts where no other function is.
    """
    fdes = _in_code(fdes, code)
    first, cut = _apart(fdes)
    rules = _rules(section, fdes, first)
    if not cut.any():
        return rules
    rest = _take(fdes, cut)
    return overlay(rules, _rules(section, rest, _apart(rest)[0]))


def _in_code(fdes: Fdes, code: np.ndarray) -> Fdes:
    """Returns the functions that begin in code, cut at its end."""
    row = address_ranges.find(code[:, 0], code[:, 1], fdes.start)
    inside = row >= 0
    end = code[row[inside], 1]
    fdes = _take(fdes, inside)
    return replace(fdes, length=np.minimum(fdes.length, end - fdes.start))


def _apart(fdes: Fdes) -> tuple[np.ndarray, np.ndarray]:
    """Returns lengths (int64 (n,)) with which functions do not overlap, and which functions (bool (n,)) were longer and
    are not hidden by one that begins at the same address."""
    order = np.argsort(fdes.start, kind="stable")
    start = fdes.start[order]
    length = np.zeros(len(start), np.int64)
    distinct = np.flatnonzero(np.append(True, start[1:] != start[:-1])[: len(start)])
    room = np.append(start[distinct][1:], np.iinfo(np.int64).max) - start[distinct]
    length[order[distinct]] = np.minimum(fdes.length[order[distinct]], room)
    return length, (length > 0) & (length < fdes.length)


def _take(fdes: Fdes, rows: np.ndarray) -> Fdes:
    return Fdes(
        fdes.start[rows], fdes.length[rows], fdes.cie[rows], fdes.program[rows], fdes.program_end[rows], fdes.cies
    )  # fmt: skip


def _rules(section: FrameSection, fdes: Fdes, length: np.ndarray) -> UnwindSteps:
    """Returns the rules of functions with lengths that do not overlap."""
    initial, bad = _initial(fdes.cies, section.machine)
    fdes = _take(replace(fdes, length=length), (length > 0) & ~bad[fdes.cie])
    fdes = _take(fdes, np.argsort(fdes.start, kind="stable"))
    end = fdes.start + fdes.length
    ends = np.append(end[:-1] != fdes.start[1:], True)[: len(end)]  # at which no other function begins
    addresses: list[np.ndarray] = []
    rules: list[np.ndarray] = []
    for part in _slices(fdes):
        program, location, rule = cfi_program.rows(_programs(section, fdes, part, initial))
        inside = location < fdes.length[part][program]
        gaps = end[part][ends[part]]
        address = np.concatenate([(fdes.start[part][program] + location)[inside], gaps])
        rule = np.concatenate([rule[inside], np.full(len(gaps), UNCOVERED, np.uint64)])
        order = np.argsort(address, kind="stable")
        steps_of_part = merged(address[order], rule[order])
        addresses.append(steps_of_part.address)
        rules.append(steps_of_part.rule)
    return UnwindSteps(_joined(addresses, np.int64), _joined(rules, np.uint64))


def _joined(parts: list[np.ndarray], dtype: npt.DTypeLike) -> np.ndarray:
    """Concatenates the parts; empties the list to free their memory."""
    joined = np.concatenate([np.zeros(0, dtype), *parts])
    parts.clear()
    return joined


def _slices(fdes: Fdes) -> Iterator[slice]:
    """Yields the functions in parts whose programs have about SLICE_BYTES."""
    part = np.cumsum(fdes.program_end - fdes.program) // SLICE_BYTES
    bounds = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(part)]
    return (slice(a, b) for a, b in pairwise(bounds) if a < b)


def _programs(section: FrameSection, fdes: Fdes, part: slice, initial: State) -> Programs:
    """Copies the programs of a part, one behind the other."""
    size = fdes.program_end[part] - fdes.program[part]
    begin = index_ranges.starts(size)
    end = begin + size
    data = section.data[index_ranges.expand(fdes.program[part], size)]
    cie, cies = fdes.cie[part], fdes.cies
    code_align, data_align = np.array([(c.code_align, c.data_align) for c in cies], np.int64).T
    signal = np.array([c.signal for c in cies], bool)
    return Programs(
        data, begin, end, code_align[cie], data_align[cie], signal[cie], initial.select(cie), section.machine
    )


def _initial(cies: list[Cie], machine: Machine) -> tuple[State, np.ndarray]:
    """Returns the state at the start of functions, by row of `cies`, and which of their programs (bool) are invalid."""
    distinct = list(dict.fromkeys((c.program, c.code_align, c.data_align) for c in cies))
    code_align, data_align = (np.array([row[i] for row in distinct], np.int64) for i in (1, 2))
    end = np.cumsum([len(program) for program, _, _ in distinct], dtype=np.int64)
    data = np.frombuffer(b"".join(program for program, _, _ in distinct), np.uint8)
    begin = np.append(0, end)[: len(end)]
    signal = np.zeros(len(end), bool)
    state, bad = cfi_program.final(
        Programs(data, begin, end, code_align, data_align, signal, cfi_program.unset(len(end)), machine)
    )  # fmt: skip
    rows = {key: row for row, key in enumerate(distinct)}
    row = np.array([rows[c.program, c.code_align, c.data_align] for c in cies], np.int64)
    return state.select(row), bad[row]
