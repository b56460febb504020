"""The second reader that unwinding tables are compared with: readelf --debug-dump=frames-interp."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collector.unwind import cfi_steps as kinds
from collector.unwind.table import UnwindTable

_REGISTERS = ["rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", *(f"r{n}" for n in range(8, 16))]
_FDE = re.compile(r"^\S+ \S+ \S+ FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)")
_IN_REGISTER = re.compile(r" \(\w+\)")
_CFA = re.compile(r"(\w+)([+-]\d+)")


@dataclass(frozen=True)
class Row:
    """What readelf says of [start, end): "rsp+16" or "exp"; "u" or "" (same), "c-16", "exp"...; of rip "c-8", "u"..."""

    start: int
    end: int
    cfa: str
    rbp: str
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
    return Row(int(said["LOC"], 16), end, said["CFA"], said.get("rbp", "u"), said.get("ra", "u"))


def _same(rule: np.void, row: Row) -> bool:
    kind, offset = int(rule["cfa_kind"]), int(rule["cfa_offset"])
    if row.rip == "u":
        return kind == kinds.CFA_END
    if row.cfa == "exp":
        return kind in (kinds.CFA_RBP_DEREF, kinds.CFA_RSP_DEREF, kinds.CFA_PLT, kinds.CFA_SIGNAL)
    if row.rip != "c-8":
        return kind == kinds.CFA_NONE
    match = _CFA.fullmatch(row.cfa)
    assert match is not None
    number = _REGISTERS.index(match[1])
    expected = {6: kinds.CFA_RBP, 7: kinds.CFA_RSP}.get(number, kinds.CFA_REGISTER + number)
    return (kind, offset) == (expected, int(match[2])) and _same_rbp(rule, row.rbp)


def _same_rbp(rule: np.void, said: str) -> bool:
    kind, offset = int(rule["rbp_kind"]), int(rule["rbp_offset"])
    if said.startswith("c"):
        return (kind, offset) == (kinds.RBP_AT_CFA, int(said[1:]))
    if said == "exp":
        return kind in (kinds.RBP_AT_RBP, kinds.RBP_UNDEFINED)
    return kind == (kinds.RBP_SAME if said in ("u", "s") else kinds.RBP_UNDEFINED)
