"""The ELF reader: identities and segments of real files, and clear errors for files that lie."""

import contextlib
import hashlib
import os
import random
import struct
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.elf import identity
from collector.elf.error import ElfError

SOURCE = "int main(void) { return 0; }"


def compiled(folder: Path, *flags: str) -> bytes:
    path = folder / "program"
    subprocess.run(["gcc", "-x", "c", "-", "-o", path, *flags], input=SOURCE.encode(), check=True)
    return path.read_bytes()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compiled(tmp_path_factory.mktemp("elf"), "-Wl,--build-id=0x0123456789abcdef")


def test_the_build_id_is_that_of_the_linker(program: bytes) -> None:
    assert identity.read_bytes(program).build_id == "gnu:0123456789abcdef"


def test_a_build_id_is_found_by_section_where_no_segment_has_it(program: bytes) -> None:
    without = bytearray(program)
    at, size, count = struct.unpack_from("<Q14xHH", program, 32)
    for i in range(count):
        if struct.unpack_from("<I", program, at + i * size)[0] == 4:
            struct.pack_into("<I", without, at + i * size, 0)
    assert identity.read_bytes(bytes(without)).build_id == "gnu:0123456789abcdef"


def test_a_file_without_a_build_id_is_known_by_its_hash(tmp_path: Path) -> None:
    data = compiled(tmp_path, "-Wl,--build-id=none")
    assert identity.read_bytes(data).build_id == ""
    hashed = data[:4096] + data[-4096:] + len(data).to_bytes(8, "big")
    with open(tmp_path / "program", "rb") as file:
        assert identity.file_hash(file.fileno()) == f"htlhash:{hashlib.sha256(hashed).hexdigest()[:32]}"


def test_the_hash_of_a_file_that_is_shorter_than_a_page_has_it_twice(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"short")
    with open(tmp_path / "short", "rb") as file:
        digest = hashlib.sha256(b"shortshort" + bytes([0, 0, 0, 0, 0, 0, 0, 5])).hexdigest()
        assert identity.file_hash(file.fileno()) == f"htlhash:{digest[:32]}"


def test_a_huge_file_is_hashed_at_once(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb+") as file:
        file.truncate(1 << 40)
        began = time.thread_time()
        assert identity.file_hash(file.fileno()).startswith("htlhash:")
        assert time.thread_time() - began < 10  # to hash all of it would take many minutes


def test_file_offsets_become_the_addresses_that_the_linker_gave(tmp_path: Path) -> None:
    found = identity.read_bytes(compiled(tmp_path, "-no-pie"))
    code = next(segment for segment in found.segments if segment.executable)
    assert found.load_address == 0x400000
    assert found.vaddr(code.offset) == code.vaddr > 0x400000
    assert found.vaddr(1 << 40) is None


@pytest.mark.parametrize("size", [1000, 10 << 20])
def test_the_hash_of_code_is_that_of_all_small_and_of_parts_of_large_code(size: int) -> None:
    code = bytearray(random.Random(size).randbytes(size))
    start = 64 + 56
    header = b"\x7fELF\x02\x01" + bytes(10) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, start + size, start + size, 4096)

    def hashed(header: bytes = header) -> str:
        data = header + segment + code
        return identity.code_hash(lambda offset, size: data[offset : offset + size], identity.read_bytes(data))

    before = hashed()
    assert hashed(header[:40] + b"\x07" + header[41:]) == before  # where section headers are, which `strip` changes
    changed = 0
    for at in range(0, size, size // 100):
        code[at] ^= 1
        changed += hashed() != before
        code[at] ^= 1
    assert changed == 100 if size < identity.MAX_CODE_BYTES else changed > 100 * identity.MAX_CODE_BYTES // size // 2
    code[0] ^= 1
    code[-1] ^= 1
    assert hashed() != before


def test_a_go_build_id_counts_where_there_is_no_gnu_one() -> None:
    def note(name: bytes, kind: int, description: bytes) -> bytes:
        return struct.pack("<III", len(name), len(description), kind) + name + description

    go = note(b"Go\0\0", 4, b"abc/defg")
    assert identity.build_id(go) == "go:abc/defg"
    assert identity.build_id(go + note(b"GNU\0", 3, b"\x01\x02\x03\x04")) == "gnu:01020304"


@given(st.binary(max_size=300))
def test_garbage_is_a_clear_error(data: bytes) -> None:
    with pytest.raises(ElfError, match="ELF"):
        identity.read_bytes(data)


@given(st.binary(max_size=200))
def test_a_header_of_garbage_never_does_worse_than_a_clear_error(data: bytes) -> None:
    for bits in (b"\x01", b"\x02"):
        with contextlib.suppress(ElfError):
            identity.read_bytes(b"\x7fELF" + bits + b"\x01" + data)


def test_damaged_files_never_do_worse_than_a_clear_error(program: bytes) -> None:
    chance = random.Random(1)
    for _ in range(2000):
        damaged = bytearray(program[: chance.choice([len(program), chance.randrange(len(program))])])
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(min(len(damaged), 1000)) if damaged else 0
            damaged[at : at + 8] = chance.choice([b"\xff" * 8, bytes(8), chance.randbytes(8)])
        with contextlib.suppress(ElfError):
            identity.read_bytes(bytes(damaged)).vaddr(4096)


def test_reads_are_bounded_whatever_the_header_says() -> None:
    largest = 0

    def read(offset: int, size: int) -> bytes:
        nonlocal largest
        largest = max(largest, size)
        header = (
            b"\x7fELF\x02\x01" + bytes(10) + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 100, 0, 0, 0)
        )
        note = struct.pack("<IIQQQQQQ", 4, 4, 0, 0, 0, 1 << 60, 1 << 60, 4)
        return (header + note * 100)[offset : offset + size]

    identity.read(read)
    assert largest <= 1 << 20


def test_what_is_no_regular_file_is_a_clear_error() -> None:
    reader, writer = os.pipe()
    with pytest.raises(ElfError):
        identity.read_file(reader)
    os.close(reader)
    os.close(writer)
