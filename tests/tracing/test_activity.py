"""CPU time by request: complete, without overlap, and for nobody else."""

import asyncio
import itertools
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio.to_thread
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from icestream import tracing
from icestream.tracing import sender, threads
from tests.tracing.traced import OTHER, TRACE, Listener, burn
from tests.waiting import PATIENCE_S, wait_until


def test_the_collector_hears_of_a_process_before_it_has_any_activity(started: Listener) -> None:
    wait_until(lambda: started.receiver.services() == {os.getpid(): "tested"})


def test_each_thread_has_its_own_context_and_sums_are_its_clock(started: Listener) -> None:
    burned: Counter[str] = Counter()
    spent: Counter[str] = Counter()

    def work(trace: str) -> None:
        for _ in range(10):
            before = time.thread_time_ns()
            with tracing.span(trace):
                burned[trace] += burn(3)
            spent[trace] += time.thread_time_ns() - before
            burn(1)

    workers = [threading.Thread(target=work, args=(trace,)) for trace in (TRACE, OTHER)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    tracing.stop()
    heard = started.take()
    heard.assert_no_overlap()
    assert heard.dropped == 0
    for trace in (TRACE, OTHER):
        assert burned[trace] <= heard.thread_cpu_ns(trace) <= spent[trace]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_interleaved_tasks_each_get_their_own_intervals(
    started: Listener, run: Callable[[Coroutine[None, None, int]], int]
) -> None:
    burned: Counter[str] = Counter()

    async def work(trace: str, amount: float) -> None:
        async with tracing.span(trace):
            for _ in range(10):
                burned[trace] += burn(amount)
                await asyncio.sleep(0)

    async def nobody() -> None:
        for _ in range(10):
            burned["nobody"] += burn(2)
            await asyncio.sleep(0)

    async def main() -> int:
        before = time.thread_time_ns()
        await asyncio.gather(work(TRACE, 1), nobody(), work(OTHER, 3))
        return time.thread_time_ns() - before

    spent = run(main())
    tracing.stop()
    heard = started.take()
    heard.assert_no_overlap()
    for trace in (TRACE, OTHER):
        of_others = burned.total() - burned[trace]
        assert burned[trace] <= heard.thread_cpu_ns(trace) <= spent - of_others
    assert sum(row[5] for row in heard.rows) == heard.thread_cpu_ns(TRACE) + heard.thread_cpu_ns(OTHER)


def test_an_event_loop_inside_a_span_works_for_it_unless_a_task_says_otherwise(started: Listener) -> None:
    async def main() -> tuple[int, int, int]:
        mine, before = burn(5), time.thread_time_ns()
        with tracing.span(OTHER):
            await asyncio.sleep(0)
            others = burn(5)
        spent = time.thread_time_ns() - before
        return mine + burn(5), others, spent

    with tracing.span(TRACE):
        mine, others, spent = asyncio.run(main())
        mine += burn(5)
    tracing.stop()
    heard = started.take()
    heard.assert_no_overlap()
    assert others <= heard.thread_cpu_ns(OTHER) <= spent
    assert heard.thread_cpu_ns(TRACE) >= mine


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_to_thread_carries_the_context_and_an_executor_alone_does_not(
    started: Listener, run: Callable[[Coroutine[None, None, tuple[int, int, int]]], tuple[int, int, int]]
) -> None:
    async def main() -> tuple[int, int, int]:
        loop = asyncio.get_running_loop()
        with tracing.span(TRACE):
            carried = await asyncio.to_thread(burn, 10)
            alone = await loop.run_in_executor(None, burn, 10)
        with tracing.span(OTHER):
            other = await asyncio.to_thread(burn, 10)
        return carried, alone, other

    carried, alone, other = run(main())
    with tracing.span(TRACE), ThreadPoolExecutor(1) as pool:
        alone = min(alone, pool.submit(burn, 10).result())
    tracing.stop()
    heard = started.take()
    # Starting threads counts, too.
    assert carried <= heard.thread_cpu_ns(TRACE) < carried + alone
    assert other <= heard.thread_cpu_ns(OTHER) < other + alone


def test_a_plain_handler_of_a_web_framework_works_for_the_request_that_awaits_it(started: Listener) -> None:
    async def main() -> int:
        with tracing.span(TRACE):
            return await anyio.to_thread.run_sync(burn, 10)

    burned = asyncio.run(main())
    alone = asyncio.run(anyio.to_thread.run_sync(burn, 10))
    tracing.stop()
    # Starting the thread counts, too; the 10 ms without a request do not.
    assert burned <= started.take().thread_cpu_ns(TRACE) < burned + alone


@pytest.mark.slow
def test_a_request_that_computes_long_is_known_while_it_runs(started: Listener) -> None:
    start = time.thread_time_ns()
    in_a_row = 0

    def is_close() -> bool:
        nonlocal in_a_row
        burn(100)
        behind = time.thread_time_ns() - start - started.take().thread_cpu_ns(TRACE)
        in_a_row = in_a_row + 1 if behind < 350e6 else 0
        return in_a_row == 8

    with tracing.span(TRACE):
        wait_until(is_close)  # the sender wakes every 200 ms; on a busy machine it comes late now and then
    tracing.stop()
    heard = started.take()
    heard.assert_no_overlap()
    took = time.thread_time_ns() - start
    assert 800e6 <= heard.thread_cpu_ns(TRACE) <= took
    assert len(heard.rows) >= 3  # by 350 ms, by another 450, and the rest


def test_a_thread_that_ends_in_a_context_leaves_it(started: Listener) -> None:
    burned = []

    def work() -> None:
        tracing.span(TRACE).__enter__()
        burned.append(burn(10))

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    wait_until(lambda: started.take().thread_cpu_ns(TRACE) >= sum(burned))
    heard = started.take()
    heard.assert_no_overlap()
    assert heard.thread_cpu_ns(TRACE) <= sum(burned) + 3 * 5e6
    assert all(not thread.opened for thread in threads.registry.threads)


def test_many_short_lived_threads_leave_nothing_behind(started: Listener) -> None:
    def work() -> None:
        with tracing.span(TRACE):
            pass

    for _ in range(300):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    wait_until(lambda: len(threads.registry.threads) < 10)
    wait_until(lambda: len(started.take().spans) >= 300)
    assert len(started.take().spans) == 300


_HANDLER_WITH_SPANS = f"""
import signal, sys, time
from icestream import tracing

def handler(*_):
    with tracing.span("{OTHER}"):
        sum(range(1000))

tracing.start(service="tested", socket=sys.argv[1])
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
start = time.thread_time_ns()
end = time.monotonic() + 1
while time.monotonic() < end:
    with tracing.span("{TRACE}"):
        sum(range(50))
took = time.thread_time_ns() - start
signal.setitimer(signal.ITIMER_REAL, 0)
tracing.stop()
print(took)
"""


def test_a_signal_handler_with_spans_does_not_disturb_the_sums(listener: Listener) -> None:
    # In a process of its own: any thread may get these signals, and the embedded ClickHouse of other tests has many.
    program = [sys.executable, "-c", _HANDLER_WITH_SPANS, listener.path]
    took = int(subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout)
    heard = listener.take()
    heard.assert_no_overlap()
    assert heard.thread_cpu_ns(TRACE) > 0
    assert heard.thread_cpu_ns(OTHER) > 0
    assert heard.thread_cpu_ns(TRACE) + heard.thread_cpu_ns(OTHER) <= took


def test_without_a_collector_and_with_a_new_one_nothing_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "activity.sock"
    tracing.start(service="tested", socket=str(path))
    try:
        with tracing.span(TRACE):
            first = burn(10)
        time.sleep(0.3)  # the sender finds nobody
        listener = Listener(path)
        wait_until(lambda: listener.take().thread_cpu_ns(TRACE) >= first)
        listener.close()
        listener = Listener(path)
        with tracing.span(OTHER):
            second = burn(10)
        wait_until(lambda: listener.take().thread_cpu_ns(OTHER) >= second)
        assert listener.take().dropped == 0
        listener.close()
    finally:
        tracing.stop()


def test_a_collector_that_does_not_read_costs_intervals_and_they_are_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "deaf.sock")
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    deaf.bind(path)
    tracing.start(service="tested", socket=path)
    made = 0
    slowest = 0

    def trace_more() -> bool:
        nonlocal made, slowest
        for _ in range(1000):
            before = time.monotonic_ns()
            with tracing.span(TRACE, "b7ad6b7169203331"):
                pass
            slowest = max(slowest, time.monotonic_ns() - before)
            made += 1
        return tracing.status().dropped_intervals > 0

    wait_until(trace_more)
    assert slowest < 10e9  # nobody waits for it: that would never end; a busy machine takes the CPU away for a moment
    status = tracing.status()
    deaf.close()
    tracing.stop()
    assert status.dropped_intervals > 0
    assert status.sent_intervals + status.dropped_intervals <= made


def test_a_thread_keeps_no_more_than_the_limit(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "PERIOD_SECONDS", PATIENCE_S)  # an interval that is open when it wakes is sent in parts
    tracing.start(service="tested", socket=listener.path)
    monkeypatch.setattr(threads.limits, "rows", 10 * threads.WIDTH)
    monkeypatch.setattr(threads.registry, "share_limits", lambda: None)
    for _ in range(5000):
        with tracing.span(TRACE):
            pass
    tracing.stop()
    heard = listener.take()
    assert heard.dropped > 0
    assert len(heard.rows) + heard.dropped == 5000


@given(
    moves=st.lists(st.tuples(st.sampled_from(["enter", "leave", "burn", "take"]), st.integers(0, 3)), max_size=60),
)
def test_however_it_is_cut_intervals_do_not_overlap_and_sums_are_kept(moves: list[tuple[str, int]]) -> None:
    threads.registry.set_limits(True)
    thread = threads.Thread(threads.ctypes.c_char_p())
    contexts = [threads.Context(bytes([number + 1]) * 28) for number in range(4)]
    taken: list[threads.Context | int] = []
    spent: Counter[threads.Context] = Counter()
    for move, number in moves:
        before, context = time.thread_time_ns(), thread.context
        if move == "enter":
            thread.switch(contexts[number])
        elif move == "leave":
            thread.switch(None)
        elif move == "take":
            taken += thread.drain()
        else:
            sum(range(100 * number))
        if context is not None and move in ("burn", "take"):
            spent[context] += time.thread_time_ns() - before
    thread.switch(None)
    taken += thread.drain()
    threads.registry.set_limits(False)
    rows = [taken[at : at + threads.WIDTH] for at in range(0, len(taken), threads.WIDTH)]
    for _, start, start_cpu, end, end_cpu in rows:
        assert start <= end
        assert start_cpu <= end_cpu
    for before_row, after_row in itertools.pairwise(rows):
        assert before_row[3] <= after_row[1]
        assert before_row[4] <= after_row[2]
    for context in spent:
        assert sum(row[4] - row[2] for row in rows if row[0] == context) >= spent[context]


def test_taking_beside_a_thread_that_switches_loses_and_doubles_nothing() -> None:
    threads.registry.set_limits(True)
    made: list[threads.Thread] = []
    first: list[threads.Open | None] = []
    ready = threading.Event()

    def work() -> None:
        thread = threads.Thread(threads.ctypes.c_char_p())
        made.append(thread)
        ready.set()
        choice = random.Random(1)
        contexts = [threads.Context(bytes([number]) * 28) for number in range(5)]
        thread.switch(threads.Context(bytes([7]) * 28))
        first.append(thread.opened)
        for _ in range(30_000):
            thread.switch(choice.choice(contexts))
        thread.switch(None)

    worker = threading.Thread(target=work)
    worker.start()
    ready.wait()
    taken: list[threads.Context | int] = []
    while worker.is_alive():
        taken += made[0].drain()
    taken += made[0].drain()
    threads.registry.set_limits(False)
    starts, ends = taken[2 :: threads.WIDTH], taken[4 :: threads.WIDTH]
    assert made[0].dropped == 0
    assert starts[1:] == ends[:-1]  # every nanosecond of CPU between first and last switch, once
    assert first[0] is not None
    assert starts[0] == first[0][2]
