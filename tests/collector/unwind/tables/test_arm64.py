"""Unwinding tables of programs for aarch64, beside what readelf says of them."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.unwind.cfi import steps as kinds
from collector.unwind.cfi.steps import CFA_RBP, CFA_RSP, IN_LINK_REGISTER
from collector.unwind.tables import table as unwind_table

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[1]
_FDE = re.compile(r"^\S+ \S+ \S+ FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)")
_CFA = re.compile(r"(sp|x29)([+-]\d+)")
_NAMES = {CFA_RSP: "sp", IN_LINK_REGISTER: "sp", CFA_RBP: "x29"}


def said_by_readelf(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Address, CFA, and where x29 and the return address are."""
    command = ["readelf", "-W", "--debug-dump=frames-interp", path]
    columns: list[str] = []
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        fields = re.sub(r" \(\w+\)", "", line).split()
        if _FDE.match(line):
            columns = []
        elif fields[:2] == ["LOC", "CFA"]:
            columns = fields
        elif columns and len(fields) == len(columns):
            said = dict(zip(columns, fields, strict=True))
            yield int(said["LOC"], 16), said["CFA"], said.get("x29", "u"), said.get("ra", "u")


def words(said: str) -> int:
    return -int(said[1:]) // 8 if said.startswith("c") else 0


def test_every_rule_is_what_the_program_says(tmp_path: Path) -> None:
    program = tmp_path / "chain"
    environ = os.environ | {"GOARCH": "arm64", "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", program, HERE / "chain.go"], check=True, env=environ)
    descriptor = os.open(program, os.O_RDONLY)
    table = unwind_table.build(descriptor)
    os.close(descriptor)
    compared = 0
    for address, cfa, frame, back in said_by_readelf(program):
        rule, match = table.rule(address), _CFA.fullmatch(cfa)
        if match is None or rule["cfa_kind"] in (kinds.NONE, kinds.CFA_END):
            continue
        bits = int.from_bytes(rule["saved"].tobytes(), "little")
        told = _NAMES[int(rule["cfa_kind"])], int(rule["cfa_offset"]), bits & 0xFFF, bits >> 12
        assert told == (match[1], int(match[2]), words(frame), words(back)), hex(address)
        compared += 1
    assert compared > 10_000
