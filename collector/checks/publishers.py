"""Which processes publish trace contexts of their threads, and whether these can be read."""

import os
import time

from collector.activity.context_finder import ContextFinder, ContextPublisher
from collector.checks.row import CheckRow, limited, ok
from collector.labels.process_facts import read_thread_name
from collector.labels.text import clean
from collector.processes.mapped_files import FileCache
from collector.processes.mapped_ranges import MappedRangeReader

_SECONDS = 5.0
_NAMED = 5


def thread_contexts() -> CheckRow:
    """Looks at the processes that run now, the youngest first."""
    thing = "thread contexts"
    publishers = _publishers()
    unreadable = {pid: publisher for pid, publisher in publishers.items() if publisher.place is None}
    if not unreadable:
        return ok(thing, f"{len(publishers)} processes publish them, and all can be read" if publishers else "none now")
    named = [
        f"{pid} ({clean(read_thread_name(pid, pid))}): {publisher.why}"
        for pid, publisher in list(unreadable.items())[:_NAMED]
    ]
    return limited(
        thing,
        f"{len(unreadable)} of {len(publishers)} processes publish some that cannot be read: {'; '.join(named)}",
        "see docs/tracing.md; samples of these processes have a trace only if the process sends activity",
    )


def _publishers() -> dict[int, ContextPublisher]:
    files = FileCache()
    finder, reader, until = ContextFinder(files.open), MappedRangeReader(files), time.monotonic() + _SECONDS
    publishers = {}
    for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
        if time.monotonic() > until:
            break
        try:
            found = finder.find(pid, reader.read(pid))
        except OSError:  # it is gone, or may not be looked at
            continue
        if found is not None:
            publishers[pid] = found
    files.close()
    return publishers
