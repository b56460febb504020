"""Names the requests of a program without OpenTelemetry, on threads and in interleaved asyncio tasks."""

import asyncio
import hashlib
import random
import threading

from icestream import tracing


def new_trace_id() -> str:
    return f"{random.getrandbits(128):032x}"


def handle_on_a_thread() -> None:
    trace_id = new_trace_id()
    with tracing.span(trace_id, name="GET /checkout"), tracing.span(trace_id, name="sign"):
        hashlib.pbkdf2_hmac("sha256", b"order", b"salt", 100_000)
    print("GET /checkout", trace_id)


async def handle_as_a_task() -> None:
    trace_id = new_trace_id()
    with tracing.span(trace_id, name="GET /feed"):
        for _ in range(20):
            sorted(random.random() for _ in range(5000))
            await asyncio.sleep(0)  # other tasks run, and their CPU is not ours
        await asyncio.to_thread(hashlib.pbkdf2_hmac, "sha256", b"feed", b"salt", 100_000)  # counts for this request too
    print("GET /feed", trace_id)


async def handle_many_as_tasks() -> None:
    await asyncio.gather(*(handle_as_a_task() for _ in range(3)))


if __name__ == "__main__":
    tracing.start(service="example")
    threads = [threading.Thread(target=handle_on_a_thread) for _ in range(3)]
    for thread in threads:
        thread.start()
    asyncio.run(handle_many_as_tasks())
    for thread in threads:
        thread.join()
