"""What a process had mapped at a time, against snapshots of all that it had mapped."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.processes import mapped_history
from collector.processes.mapped_history import MappedHistory
from collector.processes.mapped_ranges import MappedRange
from tests.collector.processes.test_mapped_ranges import END, mapped_range

EXEC, REUSE = "exec", "reuse"
mapping = st.tuples(st.integers(0, END - 1), st.integers(1, 12), st.integers(0, 3))
change = st.one_of(mapping, mapping, mapping, st.sampled_from([EXEC, REUSE]))
Row = list[str]


class Snapshot(NamedTuple):
    """What each address is from a time on; "" where nothing is mapped."""

    since: int
    program: int
    process: int
    row: Row


def record(changes: list[tuple[int, int, int] | str]) -> tuple[MappedHistory, list[Snapshot]]:
    """Change i happens at the time 10 * (i + 1)."""
    history, snapshots = MappedHistory(()), [Snapshot(0, 0, 0, [""] * END)]
    for i, each in enumerate(changes):
        time, last = 10 * (i + 1), snapshots[-1]
        if isinstance(each, str):
            history.begin(time, another_process=each == REUSE)
            snapshots.append(Snapshot(time, i + 1, i + 1 if each == REUSE else last.process, [""] * END))
        else:
            start, size, number = each
            one = mapped_range(start, min(END, start + size), number)
            history.put(one, time)
            row = list(last.row)
            row[one.start : one.end] = [name(one, address) for address in range(one.start, one.end)]
            snapshots.append(last._replace(since=time, row=row))
    return history, snapshots


def name(one: MappedRange, address: int) -> str:
    return f"{one.file.file} {(address + one.bias) % 2**64}"


def expected(snapshots: list[Snapshot], address: int, time: int) -> str:
    """What was there then; else what the program mapped there first, as nothing else was; else what was there before,
    in the same process."""
    at = max(i for i, snapshot in enumerate(snapshots) if snapshot.since <= time)
    later = [each.row[address] for each in snapshots[at:] if each.program == snapshots[at].program]
    before = [each.row[address] for each in snapshots[:at] if each.process == snapshots[at].process]
    return next(filter(None, [*later, *reversed(before)]), "")


def located(history: MappedHistory, times: list[int]) -> list[Row]:
    """What each address is at each time."""
    addresses = np.tile(np.arange(END, dtype=np.uint64), len(times))
    found, anonymous = history.locate(addresses, np.repeat(np.array(times, np.uint64), END))
    names = [
        f"{found.files[file].file} {address}" if file else ""
        for file, address in zip(found.file.tolist(), found.address.tolist(), strict=True)
    ]
    assert [name.startswith("[anon]") for name in names] == anonymous.tolist()
    return [names[i : i + END] for i in range(0, len(names), END)]


@given(st.lists(change, max_size=14))
def test_an_address_is_what_was_mapped_at_its_time(changes: list[tuple[int, int, int] | str]) -> None:
    history, snapshots = record(changes)
    times = list(range(5, 10 * len(changes) + 15, 5))
    assert located(history, times) == [[expected(snapshots, address, t) for address in range(END)] for t in times]
    for t in times:
        there = {
            address: name(each, address) for each in history.at(t) or () for address in range(each.start, each.end)
        }
        row = max((snapshot for snapshot in snapshots if snapshot.since <= t), key=lambda each: each.since).row
        assert all(there[address] == there_ for address, there_ in enumerate(row) if there_)


@given(st.lists(change, max_size=30), st.integers(1, 6))
def test_what_is_forgotten_is_unknown_and_nothing_else(changes: list[tuple[int, int, int] | str], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapped_history, "MAX_EARLIER", most)
        history, snapshots = record(changes)
    assert len(history) <= max(most, END)  # one change is kept, however much it replaced
    times = list(range(5, 10 * len(changes) + 15, 5))
    for t, row in zip(times, located(history, times), strict=True):
        there = [expected(snapshots, address, t) for address in range(END)]
        assert all(found in ("", name) for found, name in zip(row, there, strict=True))
    now = located(history, [10 * len(changes) + 10])[0]
    assert all(found == there for found, there in zip(now, snapshots[-1].row, strict=True) if there)


def test_where_proc_says_something_else_nobody_knows_what_was_there_meanwhile() -> None:
    history = MappedHistory((mapped_range(0, 4, 1), mapped_range(8, 12, 2), mapped_range(20, 24, 3)))
    history.read((mapped_range(0, 4, 1), mapped_range(8, 12, 3)), 100, 200)
    before, meanwhile, now = located(history, [99, 150, 200])
    assert [row[0].split()[0] for row in (before, meanwhile, now)] == ["/lib/1.so"] * 3
    assert [row[8] for row in (before, meanwhile, now)] == ["/lib/2.so 0", "", "/lib/3.so 0"]
    assert (before[20], meanwhile[20]) == ("/lib/3.so 0", "/lib/3.so 0")  # nothing else was there


def test_a_history_is_forgotten_with_time() -> None:
    history, _ = record([(0, 4, 1), (0, 4, 2), (0, 4, 3)])
    history.forget(25)
    assert [row[0] for row in located(history, [19, 25, 35])] == ["", "/lib/2.so 0", "/lib/3.so 0"]
    assert (len(history), history.at(19)) == (1, None)


def test_the_program_before_counts_only_while_a_thread_leaves_it() -> None:
    history, _ = record([(0, 4, 1), EXEC, (8, 4, 2)])
    assert [row[0] for row in located(history, [15, 25, 20 + 10**7, 21 + 10**7])] == ["/lib/1.so 0"] * 3 + [""]


def test_what_was_replaced_while_events_were_dropped_has_no_time() -> None:
    history = MappedHistory((mapped_range(0, 10, 1),))
    history.read((mapped_range(0, 10, 2),), -1, 20)  # process_table._NEVER
    assert history.changes().tolist() == [0, 20]
    located, _ = history.locate(np.array([5, 5], np.uint64), np.array([10, 30], np.uint64))
    assert [located.files[row].file for row in located.file.tolist()] == ["", "/lib/2.so"]
