"""One user's files fill the kernel's maps: another user's still get in. Real eBPF maps, tables made by hand."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from collector.bpf.program import Image, ProfileProgram
from collector.processes.mapped_files import MappedFile
from collector.processes.mapped_ranges import MappedRange
from collector.processes.process import read_process
from collector.processes.range_limit import MAX_RANGES
from collector.unwind import unwinding as unwinding_module
from collector.unwind.kernel.maps import MAX_CHUNKS, MAX_MAPPINGS, UNKNOWN_CODE, UNREQUESTED_CODE
from collector.unwind.kernel.rules import MAX_RULES_OF_FILE
from collector.unwind.tables import attempts
from collector.unwind.tables.cache import TableCache
from collector.unwind.tables.table import RULE, UnwindTable
from collector.unwind.unwinding import Unwinding
from icestream.v1.common_pb2 import Mapping

pytestmark = pytest.mark.ebpf

ATTACKER, VICTIM = 65_533, 65_532
PAGES = 16  # of 1,024 rows
ROWS = 4000


@pytest.fixture(scope="module")
def program() -> Iterator[ProfileProgram]:
    """Its maps. It is attached to nothing, so that only user space reads them."""
    loaded = ProfileProgram(10**9, "auto", {"rows": PAGES})
    yield loaded
    loaded.close()


@pytest.fixture
def unwinding(program: ProfileProgram) -> Iterator[Unwinding]:
    """Its maps are as empty as those of a program that was just loaded."""
    unwinding = Unwinding(program, TableCache(None), lambda build_id: None)
    unwinding._maps.mappings[:] = 0
    unwinding._maps.chunks[:] = 0
    unwinding._maps.rules[:] = 0
    unwinding.start()
    yield unwinding
    for pid in list(unwinding._installed):
        unwinding.ended(pid)
    unwinding.close()


@pytest.fixture
def start() -> Iterator[Callable[[int], int]]:
    """Starts a process of a user; returns its ID."""
    with ExitStack() as running:

        def start(user: int) -> int:
            process = running.enter_context(subprocess.Popen(["sleep", "1000"], user=user))
            running.callback(process.kill)
            return process.pid

        yield start


def _maps(unwinding: Unwinding, pid: int, *build_ids: str) -> None:
    """The process maps these files."""
    process = read_process(pid)
    assert process
    ranges = [
        MappedRange(4096 * i, 4096 * (i + 1), 0, MappedFile(Mapping.FILE, build_id, build_id), build_id, False, None)
        for i, build_id in enumerate(build_ids, 1)
    ]
    unwinding.changed(process, ranges)


def _add(unwinding: Unwinding, build_id: str, rows: int = ROWS, chunks: int = 1, first_rule: int = 0) -> bool:
    """Adds the table of a file that processes map. Returns whether there was room."""
    starts = np.full(chunks + 1, rows, np.uint32)
    starts[0] = 0
    rules = np.zeros(MAX_RULES_OF_FILE if first_rule else 1, RULE)
    rules["cfa_offset"] = np.arange(first_rule, first_rule + len(rules))
    unwinding._add(build_id, UnwindTable(0, starts, np.arange(rows, dtype=np.uint32) << 16, rules))
    return unwinding._files.get(build_id) is not None


def test_a_user_whose_files_fill_the_map_loses_one_to_another_user(
    unwinding: Unwinding, start: Callable[[int], int]
) -> None:
    attacker, victim = start(ATTACKER), start(VICTIM)
    crafted = [f"crafted{i}" for i in range(6)]
    _maps(unwinding, attacker, *crafted)
    assert [_add(unwinding, build_id) for build_id in crafted] == [True] * 4 + [False] * 2
    _maps(unwinding, victim, "program", "library")
    assert _add(unwinding, "program")
    assert _add(unwinding, "library")
    assert not any(_add(unwinding, build_id) for build_id in crafted[4:])
    assert unwinding._files.get("program")
    assert unwinding._files.get("library")


def test_files_that_several_users_map_are_not_taken_from_them(
    unwinding: Unwinding, start: Callable[[int], int]
) -> None:
    shared = [f"shared{i}" for i in range(4)]
    _maps(unwinding, start(VICTIM), *shared)
    _maps(unwinding, start(ATTACKER), *shared, "crafted")
    assert all(_add(unwinding, build_id) for build_id in shared)
    assert not _add(unwinding, "crafted")
    assert all(unwinding._files.get(build_id) for build_id in shared)


def test_a_file_that_had_to_make_room_is_requested_again_by_a_process_that_still_runs(
    unwinding: Unwinding, start: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    attacker, victim = start(ATTACKER), start(VICTIM)
    files = [f"file{i}" for i in range(4)]
    _maps(unwinding, attacker, *files)
    assert all(_add(unwinding, build_id) for build_id in files)
    _maps(unwinding, victim, "program")
    assert _add(unwinding, "program")
    [evicted] = [number for number, build_id in enumerate(files) if unwinding._files.get(build_id) is None]
    mapping = unwinding._installed[attacker].first + evicted
    unwinding._try_again()
    assert unwinding._maps.mappings[mapping]["table"] == UNKNOWN_CODE
    unwinding.ended(victim)
    later = time.monotonic() + attempts.AGAIN_S + attempts.LOOK_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    unwinding._try_again()
    assert unwinding._maps.mappings[mapping]["table"] == UNREQUESTED_CODE
    assert _add(unwinding, files[evicted])
    assert unwinding._maps.mappings[mapping]["table"] >> 32 == 1


def test_a_file_that_is_larger_than_any_may_be_takes_no_room_from_others(
    unwinding: Unwinding, start: Callable[[int], int]
) -> None:
    _maps(unwinding, start(VICTIM), "program", "library")
    assert _add(unwinding, "program")
    assert _add(unwinding, "library")
    _maps(unwinding, start(ATTACKER), "spread", "long")
    assert not _add(unwinding, "spread", rows=2, chunks=MAX_CHUNKS // 2 + 1)
    assert not _add(unwinding, "long", rows=PAGES * 512 + 1)
    assert unwinding._files.get("program")
    assert unwinding._files.get("library")


@pytest.mark.parametrize("what", ["chunks", "rules"])
def test_files_with_few_rows_make_room_if_they_take_all_chunks_or_rules(
    unwinding: Unwinding, start: Callable[[int], int], what: str
) -> None:
    chunks = MAX_CHUNKS // 4 if what == "chunks" else 1
    crafted = [f"crafted{i}" for i in range(4 if what == "chunks" else 16)]
    _maps(unwinding, start(ATTACKER), *crafted)
    for number, build_id in enumerate(crafted):
        first_rule = 1 + number * MAX_RULES_OF_FILE if what == "rules" else 0
        _add(unwinding, build_id, rows=2, chunks=chunks, first_rule=first_rule)
    _maps(unwinding, start(VICTIM), "program")
    assert _add(unwinding, "program", first_rule=1 << 20)


def test_a_table_that_comes_twice_takes_its_room_once(unwinding: Unwinding, start: Callable[[int], int]) -> None:
    pid = start(VICTIM)
    _maps(unwinding, pid, "program")
    assert _add(unwinding, "program")
    file = unwinding._files.get("program")
    assert _add(unwinding, "program")
    assert unwinding._files.get("program") is file
    assert unwinding._files.rows == ROWS
    unwinding.load_table(pid, 4096)  # as a walk asks for it that began before the table was there
    assert unwinding.ready(pid)


def test_a_process_without_room_is_not_tried_at_every_request(
    unwinding: Unwinding, start: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [""] * MAX_RANGES
    full = [start(ATTACKER) for _ in range(MAX_MAPPINGS // MAX_RANGES)]
    for pid in full:
        _maps(unwinding, pid, *many)
    victim = start(VICTIM)
    _maps(unwinding, victim, "program")
    assert not unwinding.lacks(victim, time.monotonic_ns())
    unwinding.ended(full[0])
    later = time.monotonic() + unwinding_module._PROCESS_AGAIN_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert unwinding.lacks(victim, time.monotonic_ns())
    requested_monotonic_ns = time.monotonic_ns()
    _maps(unwinding, victim, "program")
    assert unwinding.ready(victim)
    assert unwinding.lacks(victim, time.monotonic_ns())
    assert not unwinding.lacks(victim, requested_monotonic_ns)  # a walk before that asked for it


def test_what_the_kernel_said_too_early_of_a_program_is_read_again(
    unwinding: Unwinding, start: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, requested_monotonic_ns = start(VICTIM), time.monotonic_ns()
    with monkeypatch.context() as early:
        early.setattr(unwinding_module, "image_of", lambda pid: Image(0, 1))
        _maps(unwinding, pid, "program")
    assert unwinding.lacks(pid, requested_monotonic_ns)
    _maps(unwinding, pid, "program")
    assert not unwinding.lacks(pid, requested_monotonic_ns)
