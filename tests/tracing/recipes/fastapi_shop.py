"""A shop in FastAPI: a coroutine, and a plain function that runs on a thread."""

import asyncio

from fastapi import FastAPI

app = FastAPI()


@app.get("/checkout/{number}")
async def checkout(number: int) -> int:
    await asyncio.sleep(0)
    return sum(sorted(range(number)))


@app.get("/report/{number}")
def report(number: int) -> int:
    return sum(sorted(range(number)))
