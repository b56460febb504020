"""Code that the kernel generates has its own name, also where other code was in its place before."""

import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from collector.batches.locations import LocatedStacks, locate
from collector.bpf.loaders import bpf_syscall
from collector.bpf.samples import DrainedSamples
from collector.generated_code import GeneratedCode
from collector.kernel import GENERATED, Kernel
from collector.processes.process_events import parse
from icestream.columns import index_ranges
from tests.collector.watching import watching
from tests.waiting import PATIENCE_S

BASE = 0xFFFFFFFFC0000000

# Loads two programs, one after the other, and runs each for a while; says when each ran.
BURN = """
import ctypes, os, struct, sys, time
from collector.bpf.loaders import bpf_syscall
def instruction(code, target=0, source=0, offset=0, value=0):
    return struct.pack("<BBhi", code, target | source << 4, offset, value)
loop = [(0xb7, 0, 0, 0, 1), (0xb7, 1), (0x0f, 0, 1), (0x27, 0, 0, 0, 3), (0x07, 1, 0, 0, 1), (0xa5, 1, 0, -4, 8000),
        (0xb7, 0), (0x95,)]
data = ctypes.create_string_buffer(64)
for name in sys.argv[1:]:
    program = bpf_syscall.load_program(name, 3, b"".join(instruction(*each) for each in loop))
    began, used = time.monotonic_ns(), time.thread_time_ns()
    test = struct.pack("<IIIIQQII", program, 0, 64, 0, ctypes.addressof(data), 0, 1000, 0)
    while time.thread_time_ns() < used + 200_000_000:
        bpf_syscall._bpf(10, test.ljust(80, b"\\0"))
    print(name, began, time.monotonic_ns(), flush=True)
    os.close(program)
    time.sleep(0.05)
"""


def record(monotonic_ns: int, start: int, size: int, name: str, gone: bool = False) -> bytes:
    """As the kernel writes PERF_RECORD_KSYMBOL for the second event of a CPU: with a size that is too large."""
    text = name.encode().ljust(len(name) + 8 & -8, b"\0")
    body = struct.pack("<QIHH", start, size, 1, int(gone)) + text + struct.pack("<QQ", monotonic_ns, 0)
    return struct.pack("<IHH", 17, 0, 8 + len(body)) + body


def lost(monotonic_ns: int) -> bytes:
    return struct.pack("<IHHQQQ", 2, 0, 32, 0, 1, monotonic_ns)


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GeneratedCode:
    """The generated code of a machine that had a function of 0x40 bytes before, among others."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/kallsyms").write_text(
        f"{BASE:016x} T _stext\n{BASE + 0x1000:016x} t read\t[ext4]\n{BASE + 0x2000:016x} t bpf_prog_known\t[bpf]\n"
        f"{BASE + 0x3000:016x} t bpf_prog_unknown\t[bpf]\n"
        f"{BASE + 0x4080:016x} t ftrace_trampoline\t[__builtin__ftrace]\n"
    )
    monkeypatch.setattr(bpf_syscall, "function_sizes", lambda: {BASE + 0x2000: 0x40})
    return GeneratedCode(tmp_path)


def names(generated: GeneratedCode, *asked: tuple[int, int]) -> list[str]:
    """The names at (offset, time)."""
    addresses, times = np.array(asked, np.uint64).reshape(-1, 2).T
    row, known = generated.find(addresses + np.uint64(BASE), times)
    return [known[i] if i >= 0 else "" for i in row.tolist()]


def test_code_has_the_name_of_what_was_there_at_the_time(generated: GeneratedCode) -> None:
    now = time.monotonic_ns()
    generated.apply(parse([record(now, BASE, 64, "bpf_prog_a") + record(now + 20, BASE, 64, "bpf_prog_a", gone=True)]))
    generated.apply(parse([record(now + 30, BASE, 32, "bpf_prog_b")]))
    asked = [(0, now - 1), (0, now), (63, now + 19), (64, now), (10, now + 25), (10, now + 30), (40, now + 31)]
    assert names(generated, *asked) == ["", "bpf_prog_a", "bpf_prog_a", "", "", "bpf_prog_b", ""]
    assert generated.changes().tolist() == [now + 20]


def test_code_that_was_there_before_ends_where_somebody_says_so(generated: GeneratedCode) -> None:
    asked = [(0x2000, 1), (0x203F, 1), (0x2040, 1), (0x3000, 1), (0x4080, 1), (0x4FFF, 1), (0x5000, 1)]
    known, trampoline = "bpf_prog_known", "ftrace_trampoline"
    assert names(generated, *asked) == [known, known, "", "", trampoline, trampoline, ""]
    now = time.monotonic_ns()
    generated.apply(parse([record(now, BASE + 0x3000, 0x10, "bpf_prog_unknown", gone=True)]))
    assert names(generated, (0x3000, now - 1), (0x3010, now - 1), (0x3000, now)) == ["bpf_prog_unknown", "", ""]


def test_after_lost_records_only_what_is_still_listed_has_a_name(generated: GeneratedCode) -> None:
    now = time.monotonic_ns()
    generated.apply(parse([record(now, BASE + 0x3000, 64, "bpf_prog_unknown") + record(now, BASE, 64, "bpf_prog_a")]))
    generated.apply(parse([lost(now + 10)]))
    asked = [(0x3000, now + 20), (0, now + 20), (0x2000, now + 20), (0, now + 5)]
    assert names(generated, *asked) == ["bpf_prog_unknown", "", "", "bpf_prog_a"]


@pytest.mark.ebpf
def test_ebpf_programs_that_follow_each_other_have_their_names() -> None:
    with watching(499) as (host, sampler):
        process = subprocess.run(
            [sys.executable, "-c", BURN, "first_burns", "second_burns"], capture_output=True, text=True, check=True,
            timeout=PATIENCE_S,
        )  # fmt: skip
        samples = sampler.drain()
        ran = {name: (int(began), int(ended)) for name, began, ended in map(str.split, process.stdout.splitlines())}
        until, kernel = time.monotonic() + PATIENCE_S, Kernel(generated=host.generated)
        seen = [seen_of(name, locate(samples, host.mappings, kernel), samples) for name in ran]
        while min(map(len, seen)) < 20 and time.monotonic() < until:  # records are read up to a second later
            time.sleep(0.2)
            seen = [seen_of(name, locate(samples, host.mappings, kernel), samples) for name in ran]
    assert min(map(len, seen)) >= 20, seen
    for times, (began, ended) in zip(seen, ran.values(), strict=True):
        assert began <= min(times)
        assert max(times) <= ended


def seen_of(own: str, located: LocatedStacks, samples: DrainedSamples) -> list[int]:
    """The times of the samples in a program."""
    if GENERATED not in located.mappings:
        return []
    names = [name.function.endswith(f"_{own}") for name in located.names]
    there = (located.mapping == located.mappings.index(GENERATED)) & np.array(names)[located.name]
    stacks = np.unique(index_ranges.owners(located.depth)[there[located.frames]])
    times: list[int] = samples.time_monotonic_ns[np.isin(located.row, stacks)].tolist()
    return times
