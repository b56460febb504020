"""CLOCK_MONOTONIC as Unix time: one offset for everything a batch holds."""

import time

STEP_NS = 50_000_000
"""A difference up to this is left alone, so that times stay in order while NTP slews the clock."""


class Clock:
    """`offset_ns` + CLOCK_MONOTONIC = Unix time in nanoseconds. `steps` counts how often it was set anew."""

    def __init__(self) -> None:
        self.offset_ns = measure()
        self.steps = 0

    def update(self) -> int:
        """Call it between two batches: takes the system's time over where it was set; returns the offset."""
        measured = measure()
        if abs(measured - self.offset_ns) > STEP_NS:
            self.offset_ns = measured
            self.steps += 1
        return self.offset_ns


def measure() -> int:
    """The offset now: of five readings the one that took the shortest time."""
    best = []
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        best.append((after - before, wall - (before + after) // 2))
    return min(best)[1]
