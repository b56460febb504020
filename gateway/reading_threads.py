"""Runs what reads profiles, and makes messages of them, on threads."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
T = TypeVar("T")

_AT_ONCE = 2
"""Reading is nearly all Python, so one thread is at work at any time. Where more wait for their turn, they take CPU:
with six threads, a profile takes a tenth more CPU, and a tenth fewer profiles are read in a second."""
_WAIT_S = 0.5
"""Then a function runs beside the others: these may read large profiles for seconds."""
_places: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = WeakKeyDictionary()


async def in_reading_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what the function returns, or raises what it raises."""
    places = _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE))
    try:
        async with asyncio.timeout(_WAIT_S):
            await places.acquire()
    except TimeoutError:
        return await asyncio.to_thread(function, *args, **kwargs)
    try:
        return await asyncio.to_thread(function, *args, **kwargs)
    finally:
        places.release()
