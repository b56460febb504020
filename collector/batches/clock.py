"""Converts CLOCK_MONOTONIC to Unix time, with one offset for everything in a batch."""

import time

STEP_NS = 50_000_000
"""A smaller difference does not change the offset, so that times stay in order while NTP slews the clock."""


class Clock:
    """`offset_ns` + CLOCK_MONOTONIC = Unix time in nanoseconds. `steps` counts how often the offset changed."""

    def __init__(self) -> None:
        self.offset_ns = measure()
        self.steps = 0

    def update(self) -> int:
        """Changes the offset if the system's clock was set, and returns it. Call it between two batches."""
        measured = measure()
        if abs(measured - self.offset_ns) > STEP_NS:
            self.offset_ns = measured
            self.steps += 1
        return self.offset_ns


def measure() -> int:
    """Measures the offset: the quickest of five readings."""
    best = []
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        best.append((after - before, wall - (before + after) // 2))
    return min(best)[1]
