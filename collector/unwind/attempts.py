"""When the unwinding table of a file may be requested: not while it is loaded, and not for a minute after it was put
off, because there was none, or no room for it, or it had to make room."""

import time

AGAIN_S = 60.0  # until a file that was put off may be tried again
LOOK_S = 10.0
MOST_AT_ONCE = 10
"""Files tried again in LOOK_S: where there is no room for many files, reading their tables must not take much CPU."""

_MOST_PUT_OFF = 20_000
"""Beyond, the oldest is not tried again for processes that run. At most 10 MB: a build ID has up to 260 characters."""


class Attempts:
    """Files by build ID. For one thread at a time."""

    def __init__(self) -> None:
        self._loading: set[str] = set()
        self._not_before: dict[str, float] = {}  # file that was put off -> when it may be tried; the earliest first
        self._look_at = 0.0

    def may_begin(self, build_id: str) -> bool:
        return build_id not in self._loading and self._not_before.get(build_id, 0.0) <= time.monotonic()

    def begin(self, build_id: str) -> None:
        """The table is being loaded, until `put_off` or `succeeded`."""
        self._not_before.pop(build_id, None)
        self._loading.add(build_id)

    def loading(self, build_id: str) -> bool:
        return build_id in self._loading

    def succeeded(self, build_id: str) -> None:
        self._loading.discard(build_id)
        self._not_before.pop(build_id, None)

    def put_off(self, build_id: str) -> None:
        """The file has no table for a while."""
        self.succeeded(build_id)
        self._not_before[build_id] = time.monotonic() + AGAIN_S
        if len(self._not_before) > _MOST_PUT_OFF:
            del self._not_before[next(iter(self._not_before))]

    def due(self) -> list[str]:
        """Takes out files whose time has come, at most MOST_AT_ONCE in LOOK_S."""
        now = time.monotonic()
        if now < self._look_at:
            return []
        self._look_at = now + LOOK_S
        due = [file for file, when in list(self._not_before.items())[:MOST_AT_ONCE] if when <= now]
        for build_id in due:
            del self._not_before[build_id]
        return due
