"""Shows the progress of long work on standard error."""

import logging
import sys
import time
from collections.abc import Callable

Progress = Callable[[float, str], None]
"""A function that work calls with the share that is done, 0 to 1, and what it has done so far."""

log = logging.getLogger(__name__)

_WIDTH = 30
_LOG_INTERVAL_S = 10.0


def progress_display() -> Progress:
    """Returns a function that draws a bar on a terminal, else logs a line from time to time."""
    start = last_log = time.monotonic()
    first: list[float] = []  # the share that an earlier run had done

    def left(part: float) -> str:
        first[:] = first or [part]
        done = part - first[0]
        left_s = (time.monotonic() - start) * (1 - part) / done if done > 0 else None
        return "" if left_s is None else f"{left_s:,.0f} s left"

    def draw_bar(part: float, text: str) -> None:
        full = round(_WIDTH * part)
        bar = "#" * full + "." * (_WIDTH - full)
        sys.stderr.write(f"\r[{bar}] {part:4.0%}  {left(part):>12}  {text:60.60}")
        sys.stderr.write("\n" if part >= 1 else "")
        sys.stderr.flush()

    def log_line(part: float, text: str) -> None:
        nonlocal last_log
        time_left = left(part)
        if part >= 1 or time.monotonic() - last_log > _LOG_INTERVAL_S:
            last_log = time.monotonic()
            log.info("%3.0f %%: %s, %s", 100 * part, text, time_left or "time left unknown")

    return draw_bar if sys.stderr.isatty() else log_line
