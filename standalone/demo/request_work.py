"""The work that the demo's requests spend CPU on: library functions, so that profiles show well-known names."""

import bz2
import hashlib
import json
import random
import re
import zlib
from collections.abc import Callable, Iterator

Work = Callable[[], Iterator[None]]
"""Does a request's work in steps of about a millisecond, so that a coroutine can let others run in between."""

_random = random.Random(7)
_ORDER = {
    "lines": [
        {"sku": f"SKU-{_random.randrange(10**6):06}", "price": _random.random() * 90, "tags": ["new", "sale", "blue"]}
        for _ in range(150)
    ]
}
_ORDER_TEXT = json.dumps(_ORDER)
_TEXT = " ".join(_random.choice(("teapot", "kettle", "cup", "saucer", "spoon", "sugar")) for _ in range(3000))
_PATTERN = re.compile(r"(teapot|kettle)(?: \w+){2,3} (?:sugar|spoon)\b")
_IMAGE = bytes(_random.choice(b"aabbbcdz") for _ in range(40_000))
_PAGE = _IMAGE * 60
_SCORES = [_random.random() for _ in range(8000)]


def checkout() -> Iterator[None]:
    """Prices an order and signs it."""
    for step in range(70):
        json.loads(_ORDER_TEXT)
        json.dumps(_ORDER)
        hashlib.pbkdf2_hmac("sha256", b"order", step.to_bytes(4, "big"), 200)
        yield


def search() -> Iterator[None]:
    """Searches descriptions with a regular expression."""
    for _ in range(60):
        sum(1 for _ in _PATTERN.finditer(_TEXT))
        yield


def thumbnail() -> Iterator[None]:
    """Compresses a picture, and computes its checksum."""
    for _ in range(4):
        zlib.compress(_IMAGE, 1)
        bz2.compress(_IMAGE)
        yield
        zlib.crc32(_PAGE)
        yield


def recommend() -> Iterator[None]:
    """Sorts products by score."""
    for _ in range(10):
        sorted(_SCORES)
        yield


def cart() -> Iterator[None]:
    """Serializes an order."""
    for _ in range(6):
        json.dumps(_ORDER)
        yield


def feed() -> Iterator[None]:
    """Makes a page of offers: a little of everything."""
    for _ in range(12):
        sorted(_SCORES)
        yield
        json.dumps(_ORDER)
        zlib.adler32(_PAGE)
        yield


THREADED: dict[str, Work] = {
    "/checkout": checkout,
    "/search": search,
    "/thumbnail": thumbnail,
    "/recommend": recommend,
    "/cart": cart,
}
"""Path -> work, of the threaded server."""

ASYNCIO: dict[str, Work] = {"/feed": feed, "/suggest": recommend}
"""Path -> work, of the asyncio server."""
