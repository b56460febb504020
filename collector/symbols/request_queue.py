"""The requests for symbols that wait for their answer. Users take turns. One user's requests are answered alternately:
the one for the smallest file, then the oldest one.

A library of gigabytes takes a minute of CPU, and more on a busy host. The names of small programs do not wait for it,
even if it came first: large files are taken apart from the others. Nor do the names of larger programs wait for ever if
a user runs new small programs all the time, because every second answer is the one that was asked for first.

A request belongs to a user who runs the file; if several users do, to the one with the fewest requests. So nobody can
slow down another user's names by running thousands of programs. Requests for files that no process was seen with, and
for the kernel, take turns as if they were those of one more user.
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from collector import metrics
from collector.symbols.symbol_files import SymbolFiles

MAX_BYTES = 2 << 20
"""About 3,000 requests with usual paths. Beyond, those of the user with most are dropped, those that were asked for
least recently first; they are asked again."""
_REQUEST_BYTES = 350
"""About what a request takes beside its texts."""

_FAR_MORE = 2

LARGE_BYTES = 16 << 20
"""A file with more mapped code is large."""

_User = int | None


class QueuedRequest(NamedTuple):
    """A build ID whose symbols are wanted."""

    build_id: str
    path: str  # where the file was seen
    download_error: str | None  # None before debuginfod was asked; then its error, or "" if it had the file
    number: int  # counts requests


@dataclass
class _Waiting:
    """The requests of one user."""

    turn: int  # the user with the lowest one is next
    requests: OrderedDict[str, QueuedRequest] = field(default_factory=OrderedDict)  # what was asked for last comes last
    bytes: int = 0
    oldest_next: dict[bool, bool] = field(default_factory=lambda: {True: False, False: False})  # of large files, others


class RequestQueue:
    """One request for each build ID. One thread may take large files, another one the others."""

    def __init__(self, files: SymbolFiles) -> None:
        self._files = files
        self._users: dict[_User, _Waiting] = {}  # those who have requests
        self._user_of: dict[str, _User] = {}  # by build ID
        self._numbers, self._turns = itertools.count(), itertools.count()
        self._lock = threading.Lock()

    def put(self, build_id: str, path: str, download_error: str | None = None) -> None:
        """A repeat keeps the place of the first request, and what is known of the download."""
        with self._lock:
            known, number = self._find(build_id), next(self._numbers)
            if known is not None:
                number = known.number
                download_error = known.download_error if download_error is None else download_error
            user = self._choose(build_id)
            if known is not None and self._user_of[build_id] != user:
                self._remove(build_id)
            self._set(user, QueuedRequest(build_id, path, download_error, number))
            while self.bytes() > MAX_BYTES:
                most = max(self._users.values(), key=attrgetter("bytes"))
                self._remove(next(iter(most.requests)))
                metrics.SYMBOL_REQUESTS.labels("dropped").inc()

    def pop(self, large: bool) -> QueuedRequest | None:
        """Removes and returns the next request, of the large files or of the others; None if none of them waits."""
        with self._lock:
            for waiting in sorted(self._users.values(), key=attrgetter("turn")):
                requests = self._of_size(waiting, large)
                if requests:
                    oldest = waiting.oldest_next[large]
                    waiting.oldest_next[large] = not oldest
                    waiting.turn = next(self._turns)
                    order: Callable[[QueuedRequest], int] = attrgetter("number") if oldest else self._mapped_bytes
                    return self._remove(min(requests, key=order).build_id)
            return None

    def has_large(self) -> bool:
        """Whether a large file waits."""
        with self._lock:
            return any(self._of_size(waiting, large=True) for waiting in self._users.values())

    def drop_repeat(self, build_id: str) -> None:
        """Drops the request of a build ID that was answered just now, unless it waits for its downloaded file."""
        with self._lock:
            request = self._find(build_id)
            if request is not None and request.download_error is None:
                self._remove(build_id)

    def bytes(self) -> int:
        """About what all requests take."""
        return sum(waiting.bytes for waiting in self._users.values())

    def _choose(self, build_id: str) -> _User:
        """The user of a file with the fewest requests; whose it is already, unless that user has far more."""
        users = self._files.users(build_id) or (None,)
        best = min(users, key=self._bytes_of)
        now = self._user_of.get(build_id, best)
        return now if now in users and self._bytes_of(now) <= _FAR_MORE * self._bytes_of(best) else best

    def _set(self, user: _User, request: QueuedRequest) -> None:
        """Adds a request, or replaces the user's one for the same build ID."""
        waiting = self._users.get(user)
        if waiting is None:  # behind those who wait: a user with one request after the other is not always first
            waiting = self._users[user] = _Waiting(next(self._turns))
        before = waiting.requests.pop(request.build_id, None)
        waiting.bytes += _size(request) - (_size(before) if before is not None else 0)
        waiting.requests[request.build_id] = request
        self._user_of[request.build_id] = user

    def _find(self, build_id: str) -> QueuedRequest | None:
        if build_id not in self._user_of:
            return None
        return self._users[self._user_of[build_id]].requests[build_id]

    def _remove(self, build_id: str) -> QueuedRequest:
        user = self._user_of.pop(build_id)
        waiting = self._users[user]
        request = waiting.requests.pop(build_id)
        waiting.bytes -= _size(request)
        if not waiting.requests:
            del self._users[user]
        return request

    def _bytes_of(self, user: _User) -> int:
        waiting = self._users.get(user)
        return 0 if waiting is None else waiting.bytes

    def _of_size(self, waiting: _Waiting, large: bool) -> list[QueuedRequest]:
        """The requests for large files, or those for the others."""
        return [request for request in waiting.requests.values() if self._is_large(request) == large]

    def _is_large(self, request: QueuedRequest) -> bool:
        """A file that is looked for at its path, because no process was seen with it, may have any size."""
        mapped = self._mapped_bytes(request)
        return mapped > LARGE_BYTES or (mapped == 0 and request.path.startswith("/"))

    def _mapped_bytes(self, request: QueuedRequest) -> int:
        """How much code of a file is mapped, 0 if no process was seen with it. This asks no file system, as the size of
        the file would, so no file system of a user can make the collector wait."""
        entries = self._files.entries(request.build_id)
        return max((entry.end - entry.start for entry in entries), default=0)


def _size(request: QueuedRequest) -> int:
    return _REQUEST_BYTES + 4 * (len(request.build_id) + len(request.path) + len(request.download_error or ""))
