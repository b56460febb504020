"""The threads that read profiles and make messages of them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(2, "read")
"""Reading is nearly all Python, so one thread is at work at any time. With more threads, those that wait for their turn
take CPU: with six, a profile takes a tenth more CPU, and a tenth fewer profiles are read in a second. The second
one is for small profiles while the other reads a large one."""


async def in_reading_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what the function returns, or raises what it raises."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, lambda: function(*args, **kwargs))
