"""Kernel addresses, by build ID and offset; names of the kernel's functions."""

import struct
from pathlib import Path

import numpy as np
import pytest
from symbolic.debuginfo import Archive
from symbolic.symcache import SymCache

from collector.kernel import ELSEWHERE, Kernel
from collector.kernel_code import kernel_build_id, stext
from collector.processes.mapped_files import MappedFile
from collector.symbols import kallsyms
from icestream.v1.common_pb2 import Mapping

STEXT, MODULE = 0xFFFFFFFF81000000, 0xFFFFFFFFC0001000


def note(build_id: bytes) -> bytes:
    return struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with a module, which this kernel may not have."""
    files = {
        "proc/kallsyms": f"{0:016x} A fixed_percpu_data\n{STEXT:016x} T _stext\n{STEXT + 0x100:016x} t schedule\n"
        f"{STEXT + 0x180:016x} d data\n{MODULE + 0x40:016x} t read\t[ext4]\n",
        "proc/modules": f"ext4 8192 1 - Live 0x{MODULE:x}\nhidden 4096 0 - Live 0x0\n",
        "proc/iomem": "00000000-0fffffff : System RAM\n  01000000-01000fff : Kernel code\n",
        "sys/module/ext4/sections/.text": f"0x{MODULE + 0x20:x}\n",
    }
    binary = {"sys/kernel/notes": note(b"\xaa\xbb"), "sys/module/ext4/notes/.note.gnu.build-id": note(b"\xcc\xdd")}
    for name, content in {**{k: v.encode() for k, v in files.items()}, **binary}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


def located(root: Path, *addresses: int) -> list[tuple[MappedFile, int]]:
    kernel = Kernel(root)
    found = kernel.locate(np.array(addresses, np.uint64), np.ones(len(addresses), np.uint64))
    return [(found.files[row], offset) for row, offset in zip(found.file.tolist(), found.address.tolist(), strict=True)]


def test_addresses_are_offsets_in_the_kernel_or_in_a_module(machine: Path) -> None:
    assert located(machine, STEXT + 0x120, MODULE + 0x45, MODULE + 8192, STEXT + 0x1000, 5) == [
        (MappedFile(Mapping.KERNEL, "gnu:aabb", "[kernel]"), 0x120),
        (MappedFile(Mapping.MODULE, "gnu:ccdd", "ext4"), 0x25),
        (ELSEWHERE, 0),
        (ELSEWHERE, 0),
        (ELSEWHERE, 0),
    ]


def test_without_the_privilege_to_see_memory_the_kernels_code_ends_where_its_symbols_say(machine: Path) -> None:
    (machine / "proc/iomem").write_text("00000000-00000000 : System RAM\n  00000000-00000000 : Kernel code\n")
    with (machine / "proc/kallsyms").open("a") as symbols:
        symbols.write(f"{STEXT + 0x800:016x} T _etext\n")
    assert located(machine, STEXT + 0x7FF, STEXT + 0x800)[0][0].file == "[kernel]"
    assert located(machine, STEXT + 0x7FF, STEXT + 0x800)[1] == (ELSEWHERE, 0)


def test_a_kernel_that_hides_its_addresses_leaves_frames_unnamed(machine: Path) -> None:
    (machine / "proc/kallsyms").write_text(f"{0:016x} T _stext\n")
    (machine / "proc/modules").unlink()
    assert located(machine, STEXT + 0x120) == [(ELSEWHERE, 0)]
    with pytest.raises(kallsyms.KernelSymbolsError, match="kptr_restrict"):
        kallsyms.breakpad("gnu:aabb", machine)


def lookup(text: bytes | None, *offsets: int) -> list[str]:
    assert text is not None
    cache: SymCache = next(Archive.from_bytes(text).iter_objects()).make_symcache()
    return [found[0].symbol if (found := cache.lookup(offset)) else "" for offset in offsets]


def test_names_count_from_where_addresses_count(machine: Path) -> None:
    assert lookup(kallsyms.breakpad("gnu:aabb", machine), 0x120, 0x17F, 4) == ["schedule", "schedule", "_stext"]
    assert lookup(kallsyms.breakpad("gnu:ccdd", machine), 0x25) == ["read"]
    assert kallsyms.breakpad("gnu:0000", machine) is None


def test_functions_end_where_the_next_symbol_begins_and_the_last_one_with_the_code(machine: Path) -> None:
    assert lookup(kallsyms.breakpad("gnu:aabb", machine), 0x180, 0xFFF) == ["", ""]  # data
    with open(machine / "proc/kallsyms", "a") as lines:
        lines.write(f"{STEXT + 0x200:016x} T last\n{STEXT + 0x1800:016x} t init\n")
    assert lookup(kallsyms.breakpad("gnu:aabb", machine), 0x200, 0xFFF, 0x1000, 0x1800) == ["last", "last", "", ""]
    # A module's other sections follow its code; nobody says where.
    assert lookup(kallsyms.breakpad("gnu:ccdd", machine), 0x1F, 0x20, 0xFFF, 0x1000) == ["", "read", "read", ""]


def test_this_kernel_names_its_scheduler() -> None:
    if not (start := stext()):
        pytest.skip("the kernel hides its addresses")
    with open("/proc/kallsyms") as lines:
        address = next(int(line[:16], 16) for line in lines if line.split()[1:3] == ["T", "schedule"])
    kernel = Kernel()
    found = kernel.locate(np.array([address + 1], np.uint64), np.ones(1, np.uint64))
    assert found.files[int(found.file[0])].build_id == kernel_build_id() != ""
    assert int(found.address[0]) == address + 1 - start
    assert lookup(kallsyms.breakpad(kernel_build_id()), int(found.address[0])) == ["schedule"]
