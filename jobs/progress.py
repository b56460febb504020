"""Shows the progress of a job on standard error."""

import logging
import sys
import time

from jobs.job import Progress

log = logging.getLogger(__name__)

_WIDTH = 30
_LOG_INTERVAL_S = 10.0


def progress_display() -> Progress:
    """Returns a function that draws a bar on a terminal, else logs a line from time to time."""
    start = last_log = time.monotonic()

    def draw_bar(part: float, text: str) -> None:
        full = round(_WIDTH * part)
        left_s = (time.monotonic() - start) * (1 - part) / part if part else 0.0
        bar = "#" * full + "." * (_WIDTH - full)
        sys.stderr.write(f"\r[{bar}] {part:4.0%}  {left_s:5.0f} s left  {text:40.40}")
        sys.stderr.write("\n" if part >= 1 else "")
        sys.stderr.flush()

    def log_line(part: float, text: str) -> None:
        nonlocal last_log
        if part >= 1 or time.monotonic() - last_log > _LOG_INTERVAL_S:
            last_log = time.monotonic()
            log.info("%3.0f %%: %s", 100 * part, text)

    return draw_bar if sys.stderr.isatty() else log_line
