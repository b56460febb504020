"""Whether the disk that a sink writes to has room for more.

A disk that is full is dangerous to the embedded ClickHouse: it does not notice what it could not write, and takes rows
that are gone after its next start. So sinks stop before. They keep their ranges, and go on when there is room again.
"""

from dataclasses import dataclass
from pathlib import Path

from icestream.clickhouse.client import embedded_folder
from icestream.files.free_space import free_bytes, require
from sinks import metrics
from sinks.settings import StorageSettings


@dataclass(frozen=True)
class DiskRoom:
    """What a sink leaves free on its disk."""

    sink: str
    folder: Path | None
    """None: what it writes to is not a folder of this machine."""
    keep_free_mb: int

    def check(self) -> None:
        """Raises DiskFullError where there is too little room."""
        if self.folder is None:
            return
        metrics.FREE.labels(self.sink).set(free_bytes(self.folder))
        metrics.KEPT_FREE.labels(self.sink).set(self.keep_free_mb * 1_000_000)
        require(self.folder, self.keep_free_mb)


def room_of(sink: str, settings: StorageSettings) -> DiskRoom:
    """Returns the room of a sink, by its name."""
    destinations = {"lake": settings.lake, "archive": settings.archive}
    if destination := destinations.get(sink):
        folder = None if "://" in destination else Path(destination).absolute()
    else:
        folder = embedded_folder(settings.clickhouse)
    return DiskRoom(sink, folder, settings.keep_free_mb)
