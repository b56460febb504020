"""Return probes, which put another return address on the stack, are not seen in stacks."""

import ctypes
import os
import struct
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from collector.bpf.perf_event import ATTRIBUTES_SIZE, open_event
from collector.elf import identity
from tests.collector.unwind.programs import HERE, Program
from tests.collector.unwind.test_programs import FREQUENCY_HZ, Seen, run
from tests.collector.watching import watching
from tests.shares import compare_share

pytestmark = pytest.mark.ebpf

PROBES = Path("/sys/bus/event_source/devices/uprobe")
CHAIN = ("spin", "probed_inside", "probed", "beside", "main")


def probe_returns(path: Path, function: str) -> int:
    """Probes the returns of a function of a program until the descriptor is closed."""
    listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()
    address = next(int(line.split()[0], 16) for line in listed if line.endswith(f" {function}"))
    with open(path, "rb") as file:
        code = next(one for one in identity.read_file(file.fileno()).segments if one.executable)
    name = ctypes.create_string_buffer(os.fsencode(path))
    place = address - code.vaddr + code.offset
    kind, returns = int((PROBES / "type").read_text()), 1
    head = struct.pack("=IIQQQQQIIQQ", kind, ATTRIBUTES_SIZE, returns, 0, 0, 0, 0, 0, 0, ctypes.addressof(name), place)
    return open_event(head.ljust(ATTRIBUTES_SIZE, b"\0"), 0)


@pytest.mark.skipif(not PROBES.exists(), reason="the kernel has no uprobes")
def test_functions_with_return_probes_have_their_callers(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    path = folder / "registers"
    subprocess.run(["gcc", "-O2", HERE / "registers.c", "-o", path], check=True)
    program = Program("probed", (str(path), "probed"), CHAIN)
    with ExitStack() as probes, watching(FREQUENCY_HZ) as (host, sampler):
        for function in ("probed_inside", "probed", "probed"):
            probes.callback(os.close, probe_returns(path, function))
        seen: Seen = run([program], host, sampler)[0]
    total, wrong = sum(seen.stacks.values()), seen.wrong()
    assert total > 100
    print(wrong.most_common(3))
    compare_share("callers of functions with return probes", 1, 1 - sum(wrong.values()) / total, 0.015)
