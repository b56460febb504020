"""When the unwinding table of a file may be requested: not while it is loaded, and not for a minute after it was put
off, because there was none, or no room for it, or it had to make room."""

import time

AGAIN_S = 60.0  # until a file that was put off may be tried again
LOOK_S = 10.0
MOST_AT_ONCE = 10
"""Files tried again in LOOK_S: where there is no room for many files, reading their tables must not take much CPU."""

_MOST_PUT_OFF = 20_000
"""Beyond, the oldest is not tried again for processes that run. At most 10 MB: a key has up to 280 characters."""


class Attempts:
    """Files by key (MappedRange.file_key). For one thread at a time."""

    def __init__(self) -> None:
        self._loading: set[str] = set()
        self._not_before: dict[str, float] = {}  # file that was put off -> when it may be tried; the earliest first
        self._look_at = 0.0

    def may_begin(self, file_key: str) -> bool:
        return file_key not in self._loading and self._not_before.get(file_key, 0.0) <= time.monotonic()

    def begin(self, file_key: str) -> None:
        """The table is being loaded, until `put_off` or `succeeded`."""
        self._not_before.pop(file_key, None)
        self._loading.add(file_key)

    def loading(self, file_key: str) -> bool:
        return file_key in self._loading

    def succeeded(self, file_key: str) -> None:
        self._loading.discard(file_key)
        self._not_before.pop(file_key, None)

    def put_off(self, file_key: str) -> None:
        """The file has no table for a while."""
        self.succeeded(file_key)
        self._not_before[file_key] = time.monotonic() + AGAIN_S
        if len(self._not_before) > _MOST_PUT_OFF:
            del self._not_before[next(iter(self._not_before))]

    def due(self) -> list[str]:
        """Takes out files whose time has come, at most MOST_AT_ONCE in LOOK_S."""
        now = time.monotonic()
        if now < self._look_at:
            return []
        self._look_at = now + LOOK_S
        due = [file for file, when in list(self._not_before.items())[:MOST_AT_ONCE] if when <= now]
        for file_key in due:
            del self._not_before[file_key]
        return due
