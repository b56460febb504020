"""Calls that are known: tests/collector/runtimes/python/test_frames.py compares them with what is seen of them.

Arguments: the parts to run, which take turns: `nested`, `threads`, `asyncio`, `fork`, `fork in C`, `interpreter`.
Waits for a line, then runs until standard input ends.
"""

import asyncio
import ctypes
import functools
import os
import select
import sys
import threading

try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:  # 3.6
        interpreters = None

DEPTH = 30
DEFINITION = """
def burn_elsewhere():
    x = 0
    for i in range(200_000):
        x += i * i
"""


class Shop:
    def __init__(self, n):
        self.total = burn(n)

    def price(self, items):
        return sorted(items, key=functools.partial(self.key, 1))

    def key(self, k, item):
        return Shop(item).total + k


def burn(n):
    x = 0
    for i in range(n):
        x += i * i
    return x


def generate(n):
    for i in range(n):
        yield sum(Shop(3 + i).price([200, 300]) and burn(j) for j in [100, 200])


def recurse(depth):
    if depth:
        return recurse(depth - 1)
    return list(generate(5))


def nested():
    [recurse(DEPTH) for _ in range(10)]


async def outer():
    for _ in range(10):
        await middle()


async def middle():
    await asyncio.sleep(0)
    await inner()


async def inner():
    burn(20_000)


def in_tasks():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(outer())
    loop.close()


def in_interpreter():
    interpreters.run_string(INTERPRETER, "burn_elsewhere()")


def worker(stopped):
    while not stopped.is_set():
        recurse(DEPTH)


def main(parts):
    print("ready", flush=True)
    sys.stdin.readline()
    global INTERPRETER
    if "interpreter" in parts:
        INTERPRETER = interpreters.create()
        interpreters.run_string(INTERPRETER, DEFINITION)
    stopped = threading.Event()
    if "threads" in parts:
        for _ in range(2):
            threading.Thread(target=worker, args=(stopped,)).start()
    if "fork" in parts and not os.fork():
        os.setsid()
    if "fork in C" in parts and not ctypes.PyDLL(None).fork():  # of which Python is not told
        os.setsid()
    while not select.select([sys.stdin], [], [], 0)[0]:
        if "asyncio" in parts:
            in_tasks()
        if "interpreter" in parts:
            in_interpreter()
        if "nested" in parts:
            nested()
    stopped.set()


main(sys.argv[1:])
