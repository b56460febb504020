"""SIGINT and SIGTERM as an event, for commands that run until told to stop."""

import signal
import threading


def stop_event() -> threading.Event:
    """An event that the first SIGINT or SIGTERM sets; the second one ends the process at once. Main thread only."""
    event = threading.Event()

    def stop(number: int, frame: object) -> None:
        if event.is_set():
            raise SystemExit(128 + number)
        event.set()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    return event
