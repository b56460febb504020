"""The second reader that unwinding tables are compared with: readelf --debug-dump=frames-interp."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collector.unwind.cfi import steps as kinds
from collector.unwind.tables.table import UnwindTable

_REGISTERS = ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", *(f"r{n}" for n in range(8, 16))]
_FDE = re.compile(r"^\S+ \S+ \S+ FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)")
_IN_REGISTER = re.compile(r" \(\w+\)")
_CFA = re.compile(r"(\w+)([+-]\d+)")


@dataclass(frozen=True)
class Row:
    """What readelf says of [start, end): of the CFA "rsp+16" or "exp"; of callee-saved registers "u" or "" (same),
    "c-16", "exp"...; of rip "c-8", "u"..."""

    start: int
    end: int
    cfa: str
    saved: tuple[str, ...]
    rip: str


def rows(path: Path, section: str = ".eh_frame") -> Iterator[Row]:
    """Every row of one section, function by function."""
    done = subprocess.run(["readelf", "-W", "--debug-dump=frames-interp", path], capture_output=True, text=True)
    columns: list[str] = []
    held: list[str] | None = None
    end, wanted = 0, False
    for line in [*done.stdout.splitlines(), ""]:
        if line.startswith("Contents of the "):
            wanted = f" {section} " in line
        if not wanted:
            continue
        fields = _IN_REGISTER.sub("", line).split()
        if match := _FDE.match(line):
            end, columns, held = int(match[2], 16), [], None
        elif fields[:2] == ["LOC", "CFA"] and end:
            columns = fields
        elif columns and len(fields) == len(columns):
            if held:
                yield _row(columns, held, int(fields[0], 16))
            held = fields
        elif not fields:
            if held:
                yield _row(columns, held, end)
            columns, held, end = [], None, 0


def agrees(table: UnwindTable, row: Row) -> bool:
    """Whether the table says the same at the row's first and last byte, as far as its rules can say it."""
    return all(_same(table.rule(address), row) for address in {row.start, row.end - 1})


def _row(columns: list[str], fields: list[str], end: int) -> Row:
    said = dict(zip(columns, fields, strict=True))
    saved = tuple(said.get(_REGISTERS[number], "u") for number in kinds.CALLEE_SAVED)
    return Row(int(said["LOC"], 16), end, said["CFA"], saved, said.get("ra", "u"))


def _same(rule: np.void, row: Row) -> bool:
    kind, offset = int(rule["cfa_kind"]) & ~(kinds.SAVED_BY_RBP | kinds.PUSHED), int(rule["cfa_offset"])
    if row.rip == "u":
        return kind == kinds.CFA_END
    if row.cfa == "exp":
        return kind in (kinds.CFA_RBP_DEREF, kinds.CFA_RSP_DEREF, kinds.CFA_PLT, kinds.CFA_SIGNAL)
    if row.cfa.startswith("rsp") and (match := re.fullmatch(r"r(\d+)", row.rip)):
        return kind == kinds.RETURN_REGISTER + int(match[1]) and row.cfa == f"rsp+{offset}"
    if row.rip != "c-8":
        return kind == kinds.CFA_NONE
    match = _CFA.fullmatch(row.cfa)
    assert match is not None
    number = _REGISTERS.index(match[1])
    expected = {6: kinds.CFA_RBP, 7: kinds.CFA_RSP}.get(number, kinds.CFA_REGISTER + number)
    return (kind, offset) == (expected, int(match[2])) and _same_saved(rule, row.saved)


def _same_saved(rule: np.void, registers: tuple[str, ...]) -> bool:
    by_rbp = bool(rule["cfa_kind"] & kinds.SAVED_BY_RBP)
    places = [int(byte) >> shift & 15 for byte in rule["saved"] for shift in (0, 4)]
    for place, said in zip(places, registers, strict=True):
        at_cfa = said.startswith("c")
        if at_cfa and place != (-int(said[1:]) // 8 - 1 if -int(said[1:]) <= 120 and not by_rbp else kinds.LOST):
            return False
        if said in ("u", "s") and place and not rule["cfa_kind"] & kinds.PUSHED:
            return False
        if not at_cfa and said not in ("u", "s") and place != kinds.LOST and not (said == "exp" and by_rbp and place):
            return False
    return True
