"""Programs with two executable segments that share a page of the file: the kernel maps that page twice."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector.elf import identity
from collector.processes.mapped_files import FileCache
from collector.processes.mapped_ranges import MappedRange, MappedRangeReader
from collector.processes.process_events import Mapped

SCRIPT = """
PHDRS {{
  h PT_LOAD FILEHDR PHDRS FLAGS(4); a PT_LOAD FLAGS(5); b PT_LOAD FLAGS(5);
  d PT_DYNAMIC FLAGS(6); n PT_NOTE FLAGS(4);
}}
SECTIONS {{
  . = {base:#x} + SIZEOF_HEADERS;
  .note : {{ *(.note.gnu.build-id) }} :h :n
  .rodata : {{ *(.rodata* .gnu.hash .hash .dyn* .rela*) }} :h
  . = {base:#x} + 0x100000 + (. & 0xfff);
  .text.a : {{ *(.text.in_a) }} :a
  . = {base:#x} + 0x200000 + (. & 0xfff);
  .text : {{ *(.text*) }} :b
  . = {base:#x} + 0x300000 + (. & 0xfff);
  .dynamic : {{ *(.dynamic) }} :b :d
}}
"""
SOURCE = """
.section .text.in_a, "ax"
.globl in_a
in_a: nop; ret
.text
.globl _start
_start: mov $1, %edi; lea text(%rip), %rsi; mov $6, %edx; mov $1, %eax; syscall
1: mov $34, %eax; syscall; jmp 1b
.globl in_b
in_b: nop; ret
text: .ascii "ready\\n"
"""


@contextmanager
def running(path: Path) -> Iterator[int]:
    with subprocess.Popen([path], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            assert process.stdout.read(6) == b"ready\n"
            yield process.pid
        finally:
            process.kill()


@pytest.fixture(params=["-no-pie", "-static-pie"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    fixed = request.param == "-no-pie"
    (tmp_path / "script").write_text(SCRIPT.format(base=0x400000 if fixed else 0))
    (tmp_path / "source.s").write_text(SOURCE)
    linking = ["-nostdlib", "-static", "-Wl,--build-id", f"-Wl,-T,{tmp_path / 'script'}", request.param]
    subprocess.run(["gcc", tmp_path / "source.s", "-o", tmp_path / "program", *linking], check=True)
    elf = identity.read_bytes((tmp_path / "program").read_bytes())
    assert elf.fixed == fixed
    assert len(elf.segments_at(elf.segments[0].offset & ~0xFFF)) == 2
    return tmp_path / "program"


def symbols(path: Path) -> dict[str, int]:
    lines = [line.split() for line in subprocess.check_output(["nm", path], text=True).splitlines()]
    return {name: int(address, 16) for address, _, name in lines if name in ("in_a", "in_b")}


def check(ranges: list[MappedRange], pid: int, path: Path) -> None:
    first = min(segment.vaddr for segment in identity.read_bytes(path.read_bytes()).segments if segment.executable)
    base = min(each.start for each in ranges if each.file.file == str(path)) - (first & ~0xFFF)
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    for vaddr in symbols(path).values():
        address = vaddr + base
        assert os.pread(memory, 2, address) == b"\x90\xc3"  # the two functions begin so
        [found] = [each for each in ranges if each.start <= address < each.end]
        assert address + found.bias & (1 << 64) - 1 == vaddr
    os.close(memory)


def test_addresses_are_those_of_the_segment_that_is_mapped_there(program: Path) -> None:
    files = FileCache()
    with running(program) as pid:
        check(MappedRangeReader(files).read(pid), pid, program)
        reader = MappedRangeReader(files)
        lines = re.findall(r"(\w+)-(\w+) r-xp (\w+) .* (/.*)\n", Path(f"/proc/{pid}/maps").read_text())
        assert len(lines) == 2
        build_id = bytes.fromhex(identity.read_bytes(program.read_bytes()).build_id.removeprefix("gnu:"))
        for _ in range(2):
            ranges: list[MappedRange] = []
            for start, end, offset, path in lines:
                event = Mapped(1, int(start, 16), int(end, 16), int(offset, 16), build_id, 0, 0, 0, path)
                ranges += [reader.mapped(pid, event, ranges.copy)]
            check(ranges, pid, program)
    files.close()
