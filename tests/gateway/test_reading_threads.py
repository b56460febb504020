"""Reading a large profile does not hold up the others."""

import asyncio
import threading

import pytest

from gateway import reading_threads
from gateway.reading_threads import in_reading_thread
from tests.waiting import PATIENCE_S


def test_a_profile_is_read_while_large_ones_take_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_threads, "_WAIT_S", 0.05)
    end = threading.Event()

    async def run() -> None:
        large = [asyncio.create_task(in_reading_thread(end.wait, PATIENCE_S)) for _ in range(reading_threads._AT_ONCE)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(in_reading_thread(sum, [1, 2]), PATIENCE_S) == 3
        end.set()
        assert all(await asyncio.gather(*large))

    asyncio.run(run())


def test_no_more_are_read_at_once_while_places_become_free() -> None:
    most, now, lock = 0, 0, threading.Lock()

    def read() -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.002)
        with lock:
            now -= 1

    async def run() -> None:
        await asyncio.gather(*(in_reading_thread(read) for _ in range(50)))

    asyncio.run(run())
    assert most <= reading_threads._AT_ONCE


def test_an_error_is_passed_on_and_gives_its_place_back() -> None:
    async def run() -> None:
        for _ in range(2 * reading_threads._AT_ONCE):
            with pytest.raises(ZeroDivisionError):
                await in_reading_thread(divmod, 1, 0)
        assert await in_reading_thread(divmod, 7, 2) == (3, 1)

    asyncio.run(run())
