"""run.json in the data folder: what a running `icestream up` runs where, for people and programs."""

import dataclasses
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from icestream.files import atomic_file, file_lock
from icestream.files.data_folder import SYSTEM_DATA, default_data

_FILE = "run.json"
_LOOPBACK = "127.0.0.1:"

log = logging.getLogger(__name__)


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
    kafka_clients: str = ""
    """The file with the settings of Kafka's clients, among them the password; only some may read it. Empty: anybody may
    use Kafka with its address alone, or has got the settings elsewhere."""

    def write(self, folder: Path) -> None:
        """Writes run.json into the data folder. Raises OSError."""
        text = json.dumps(dataclasses.asdict(self), indent=2) + "\n"
        with atomic_file.replacing(folder / _FILE) as file:
            os.fchmod(file.fileno(), 0o644)  # whatever the umask: the user of the parts reads it
            file.write(text.encode())


def read_run_info(folder: Path) -> RunInfo | None:
    """Reads run.json of a data folder; returns None if it is not there yet."""
    try:
        return RunInfo(**json.loads((folder / _FILE).read_text()))
    except FileNotFoundError:
        return None


def running_with(kafka: str | None, data: Path | None = None) -> RunInfo | None:
    """Returns what a running `icestream up` with the broker at this address (None: any) runs where; None: there is none
    on this machine, or this user may not know. `data`: its data folder; by default this user's and the system's are
    looked at."""
    address = kafka and kafka.replace("localhost", "127.0.0.1")
    for folder in [data] if data else dict.fromkeys((default_data(), SYSTEM_DATA)):
        try:
            info = read_run_info(folder)
            if info and address in (None, info.kafka) and file_lock.is_locked(folder / "lock"):
                return info
        except PermissionError:
            if address and address.startswith(_LOOPBACK):
                log.warning(
                    "cannot look into %s: if %s is the Kafka of that icestream, only root and the user of its parts "
                    "can use it (docs/security.md)",
                    folder,
                    kafka,
                )
        except (OSError, ValueError, TypeError):  # it is of another version
            continue
    return None


def kafka_clients(kafka: str, data: Path | None = None) -> Path | None:
    """Returns the file with the settings of clients of the broker at this address, if a running `icestream up` started
    it; None: it did not. `data`: as in `running_with`."""
    if not kafka.replace("localhost", "127.0.0.1").startswith(_LOOPBACK):
        return None
    info = running_with(kafka, data)
    return Path(info.kafka_clients) if info and info.kafka_clients else None
