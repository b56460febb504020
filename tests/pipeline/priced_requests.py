"""A traced service whose functions cost what they are told to. It sends itself requests, clocks them, and prints a JSON
list: of each minute {OPERATION: {"requests": n, FUNCTION: thread CPU in ns}}.

python -m tests.pipeline.priced_requests SOCKET BEGIN_UNIX_S MINUTES [FUNCTION=FACTOR ...]
"""

import hashlib
import json
import random
import sys
import time
from collections import defaultdict

from icestream import tracing

ROUNDS = {"GET /checkout": {"price_rules": 60, "render": 30}, "GET /cart": {"hash_cart": 120, "render": 20}}
"""How often a function of each operation works for about 0.1 ms."""
PER_SECOND = 12
"""Requests, by turns of each operation: a fifth of a CPU."""
SIZES = (0.9, 1.0, 1.1)
"""A request costs this many times as much as another one."""


def price_rules(rounds: int) -> None:
    for _ in range(rounds):
        hashlib.pbkdf2_hmac("sha256", b"price", b"rules", 500)


def hash_cart(rounds: int) -> None:
    for _ in range(rounds):
        hashlib.pbkdf2_hmac("sha256", b"hash", b"cart", 500)


def render(rounds: int) -> None:
    for _ in range(rounds):
        hashlib.pbkdf2_hmac("sha256", b"ren", b"der", 500)


FUNCTIONS = {each.__name__: each for each in (price_rules, hash_cart, render)}


def growth(operation: str, factors: dict[str, float]) -> float:
    """By which share a request costs more, as the rounds say."""
    rounds = ROUNDS[operation]
    return sum(count * factors.get(name, 1.0) for name, count in rounds.items()) / sum(rounds.values()) - 1


def main(arguments: list[str]) -> None:
    socket, begin_s, minutes = arguments[0], float(arguments[1]), int(arguments[2])
    factors = {name: float(factor) for name, factor in (each.split("=") for each in arguments[3:])}
    tracing.start(service="priced", socket=socket)
    clocked: list[dict[str, dict[str, int]]] = [defaultdict(lambda: defaultdict(int)) for _ in range(minutes)]
    for number in range(PER_SECOND * 60 * minutes):
        at_s = begin_s + (number + 0.5) / PER_SECOND
        time.sleep(max(0.0, at_s - time.time()))
        operation = list(ROUNDS)[number % len(ROUNDS)]
        sums = clocked[min(minutes - 1, int((time.time() - begin_s) // 60))][operation]
        size = random.choice(SIZES)
        with tracing.span(f"{random.getrandbits(128) or 1:032x}", name=operation):
            for name, rounds in ROUNDS[operation].items():
                begun = time.thread_time_ns()
                FUNCTIONS[name](round(rounds * factors.get(name, 1.0) * size))
                sums[name] += time.thread_time_ns() - begun
        sums["requests"] += 1
    tracing.stop()
    print(json.dumps(clocked))


if __name__ == "__main__":
    main(sys.argv[1:])
