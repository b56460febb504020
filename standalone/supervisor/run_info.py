"""run.json in the data folder: what a running `icestream up` runs where, for people and programs."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from icestream import atomic_file

_FILE = "run.json"


@dataclass(frozen=True)
class RunInfo:
    """What `icestream up` runs where."""

    pid: int
    """The supervisor's process."""
    kafka: str
    """HOST:PORT of the broker; more than one are separated by commas."""
    addresses: dict[str, str]
    """HOST:PORT that each part serves HTTP on: api, gateway, otlp_grpc, streams, collector, supervisor."""
    activity_socket: str
    """The socket that traced applications report to."""

    def write(self, folder: Path) -> None:
        """Writes run.json into the data folder. Raises OSError."""
        text = json.dumps(dataclasses.asdict(self), indent=2) + "\n"
        atomic_file.write(folder / _FILE, text.encode())


def read_run_info(folder: Path) -> RunInfo | None:
    """Reads run.json of a data folder; returns None if it is not there yet."""
    try:
        return RunInfo(**json.loads((folder / _FILE).read_text()))
    except FileNotFoundError:
        return None
