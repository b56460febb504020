"""Guards the parts of the embedded ClickHouse while its disk gets full, for as long as the sinks run."""

import logging
import threading

from icestream.clickhouse.client import Clients
from icestream.files.free_space import free_bytes
from sinks.clickhouse.damaged_parts import mend
from sinks.clickhouse.disk_room import DiskRoom
from sinks.runner.periodic import note_failure

_LOOK_S = 1.0
_NAME = "disk guard"
log = logging.getLogger(__name__)


class DiskGuard:
    """Stops merges while less than half of what sinks leave free is free, and mends damaged parts. Used by one thread.

    Between the half and the whole, ClickHouse can still free space: it drops rows by their age with merges.
    """

    def __init__(self, clients: Clients, room: DiskRoom) -> None:
        self._clients = clients
        self._room = room
        self._stopped = False

    def run(self, stop: threading.Event) -> None:
        """Blocks until `stop` is set."""
        while not stop.wait(_LOOK_S):
            try:
                self.step()
            except Exception as error:
                note_failure(_NAME, self._clients, error)
        self._clients.discard()

    def step(self) -> None:
        """Raises the client's errors and OSError."""
        if self._room.folder is None:
            return
        client = self._clients.get()
        mend(client)
        is_low = free_bytes(self._room.folder) < self._room.keep_free_mb * 1_000_000 / 2
        if is_low:  # each time, because tables that were loaded again have not heard it
            client.command("SYSTEM STOP MERGES")
        elif self._stopped:
            client.command("SYSTEM START MERGES")
        if is_low != self._stopped:
            log.warning("merges %s", "wait until the disk has room" if is_low else "go on")
        self._stopped = is_low
