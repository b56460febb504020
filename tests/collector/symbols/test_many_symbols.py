"""A file with more than a million functions has names within the memory of the process that reads them."""

import os
from pathlib import Path

import numpy as np
import pytest
from symbolic.symcache import SymCache

from collector.symbols import names_worker
from collector.symbols.name_kinds import SYMBOL_TABLE
from collector.symbols.names_worker import NamesWorker
from tests.collector.elf.test_hostile import PROGRAM_DATA, STRTAB, SYMTAB, header, section

pytestmark = pytest.mark.slow
COUNT, BYTES, NAME_BYTES, START = 1_500_000, 16, 120, 4096
SYMBOL = np.dtype([("name", "<u4"), ("kind", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8", 2)])
SECTIONS_AT = 1 << 28


def write(path: Path) -> None:
    names = np.full((COUNT, NAME_BYTES), ord("_"), np.uint8)
    names[:, -1] = 0
    for digit in range(7):
        names[:, digit + 1] = ord("0") + np.arange(COUNT) // 10 ** (6 - digit) % 10
    names[:, 0] = ord("f")
    symbols = np.zeros(COUNT + 1, SYMBOL)
    symbols["name"][1:], symbols["kind"][1:], symbols["section"][1:] = NAME_BYTES * np.arange(COUNT) + 1, 0x12, 1
    symbols["value"][1:, 0], symbols["value"][1:, 1] = START + BYTES * np.arange(COUNT), BYTES - 1
    texts = b"\0" + names.tobytes()
    table = START + COUNT * BYTES
    code = bytearray(section(PROGRAM_DATA, START, COUNT * BYTES, address=START))
    code[8] = 6  # SHF_ALLOC | SHF_EXECINSTR
    sections = [section(SYMTAB, table, symbols.nbytes, link=3), section(STRTAB, table + symbols.nbytes, len(texts))]
    with path.open("wb") as file:
        file.write(header(0, 4, SECTIONS_AT))
        for at, part in ((table, symbols.tobytes()), (table + symbols.nbytes, texts)):
            file.seek(at)
            file.write(part)
        assert file.tell() < SECTIONS_AT
        file.seek(SECTIONS_AT)
        file.write(section(0, 0, 0) + code + b"".join(sections))


def test_a_million_and_a_half_functions_have_names(tmp_path: Path) -> None:
    write(tmp_path / "many.so")
    process, jobs = names_worker.start()
    with jobs, (tmp_path / "many.so").open("rb") as file:
        worker = NamesWorker(jobs)
        assert worker.best(file.fileno()) == SYMBOL_TABLE
        made = worker.make(file.fileno(), SYMBOL_TABLE)
    process.wait()
    symcache = SymCache.from_bytes(bytes(made.symcache))
    for number in (0, 12_345, COUNT - 1):
        address = START + BYTES * number - made.load_address
        for at in (address, address + BYTES - 2):
            assert [found.symbol for found in symcache.lookup(at)] == [f"f{number:07}".ljust(NAME_BYTES - 1, "_")]
        assert not symcache.lookup(address + BYTES - 1)
    os.unlink(tmp_path / "many.so")
