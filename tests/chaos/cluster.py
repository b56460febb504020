"""Everything as processes of one machine: Apache Kafka, stream workers, the store, and lake sinks.

It acts as the supervisor of an orchestrator would: a process that ends is started again, unless it is held away.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from prometheus_client.samples import Sample

from icestream.commands.topics import create
from icestream.http.metrics import parse_metrics
from icestream.kafka.clients import admin_client
from icestream.settings import KafkaSettings
from icestream.times import MAX_UNIX_NANO
from icestream.topics import ACTIVITY, CLICKHOUSE_GROUP, LAKE_GROUP, RAW, SAMPLES, STACKS, STREAMS_GROUP
from sinks.archive import archive
from standalone.supervisor.child_process import spawn, terminate
from standalone.supervisor.in_process_broker import PARTITIONS
from standalone.supervisor.local_kafka import LocalKafka
from standalone.supervisor.supervisor import ask_ready
from tests.chaos import small_disk as small_disks
from tests.pipeline.reading import lag
from tests.ports import free_port
from tests.waiting import PATIENCE_S, pause_s, wait_until

ROOT = Path(__file__).parents[2]
ICESTREAM = [sys.executable, "-m", "icestream.cli"]
STORED = (STACKS, SAMPLES, ACTIVITY)
STORE = "store"
_RESTART_S = 1.0
"""A process that ended is started again after this long, so that one that cannot start does not take all CPU."""


@dataclass
class Part:
    """A process that is to run, and when it was last started."""

    arguments: list[str]
    process: subprocess.Popen[bytes]
    started: float
    address: str
    """HOST:PORT of its metrics."""


class Cluster:
    """Runs from construction to `close`. Use it on the main thread (see `spawn`)."""

    def __init__(
        self,
        folder: Path,
        workers: int = 3,
        sinks: int = 1,
        store_has_lake: bool = False,
        settings: KafkaSettings | None = None,
        small_disk: bool = False,
        partitions: int = PARTITIONS,
    ) -> None:
        """`sinks`: processes of lake sinks. `store_has_lake`: the store has one, too, and its jobs correct the lake.

        `small_disk`: the data folder of the store is a disk of its own, where that is possible.

        `settings`: of a Kafka with empty topics; without, it starts an Apache Kafka of its own.
        """
        self.folder = folder
        self.restarts: Counter[str] = Counter()
        """How often each process ended by itself."""
        self.parts: dict[str, Part] = {}
        self._away: set[str] = set()
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._lake = folder / "lake-folder"
        self._lake.mkdir()
        self.lake.symlink_to(self._lake)
        self.kafka = None if settings else LocalKafka(folder / "kafka", port=free_port())
        if self.kafka is not None:
            self.kafka.start()
            settings = self.kafka.settings()
            create(settings, partitions=partitions, replication=1)
        assert settings is not None
        self.settings = settings
        self._workers = 0
        self.has_small_disk = small_disk and small_disks.mount(self.data)
        keeps_free = ("--keep-free-mb", str(small_disks.KEEP_FREE_MB)) if self.has_small_disk else ()
        to_lake = ("--lake", str(self.lake), "--lake-flush-s", "1")
        to_archive = ("--archive", str(self.archive))
        options = (*to_archive, *(to_lake if store_has_lake else ()), *keeps_free)
        self.start(STORE, "store", "--data", str(self.data), *options, listen="--listen")
        for _ in range(workers):
            self.join_worker()
        for number in range(1, sinks + 1):
            self.start(f"lake-{number}", "sink", "lake", *to_lake)

    @property
    def data(self) -> Path:
        """The store's data folder."""
        return self.folder / "data"

    @property
    def archive(self) -> Path:
        return self.data / "archive"  # where jobs look without a store that runs

    @property
    def lake(self) -> Path:
        """The folder of the lake: a link, so that it can be away."""
        return self.folder / "lake"

    def start(self, name: str, *arguments: str, listen: str = "--metrics-listen") -> None:
        """Starts the `icestream` command; its log goes to NAME.log. `listen`: the flag of where its metrics are."""
        address = f"127.0.0.1:{free_port()}"
        all_arguments = [*arguments, listen, address]
        self.parts[name] = Part(all_arguments, self.spawn(name, *all_arguments), time.monotonic(), address)

    def spawn(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """Starts the `icestream` command, which is not started again when it ends."""
        environ = os.environ | self.settings.environ() | {
            "ICESTREAM_SYMBOL_STORE": str(self.folder / "symbols"),
            "ICESTREAM_SYMBOL_CACHE": str(self.folder / "symbol-cache" / name),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        with open(self.folder / f"{name}.log", "ab") as log:
            return spawn([*ICESTREAM, *arguments], env=environ, output=log)

    def join_worker(self) -> str:
        """Starts one more stream worker; returns its name."""
        self._workers += 1
        name = f"streams-{self._workers}"
        self.start(name, "streams")
        return name

    def workers(self) -> list[str]:
        return [name for name in self.parts if name.startswith("streams")]

    def running(self) -> list[str]:
        return sorted(name for name, part in self.parts.items() if part.process.poll() is None)

    def leave(self, name: str) -> None:
        """Asks a process to end in an orderly way, for good."""
        self._leaving.append(self.parts.pop(name).process)
        self._leaving[-1].terminate()

    def kill(self, name: str) -> None:
        """SIGKILL; it is started again."""
        self.parts[name].process.kill()
        self.parts[name].process.wait()
        self.restarts[name] -= 1  # it did not end by itself

    def freeze(self, name: str) -> Callable[[], None]:
        """SIGSTOP; returns what lets it continue."""
        process = self.parts[name].process
        process.send_signal(signal.SIGSTOP)
        return lambda: process.send_signal(signal.SIGCONT)

    def take_away(self, name: str) -> Callable[[], None]:
        """SIGKILL; returns what has it started again."""
        self._away.add(name)
        self.kill(name)
        return lambda: self._away.discard(name)

    def take_lake_away(self) -> Callable[[], None]:
        """Makes writing the lake fail; returns what makes it work again."""
        self._link_lake(Path("/dev/null/away"))
        return lambda: self._link_lake(self._lake)

    def restart_kafka(self, kill: bool, meanwhile: Callable[[Path], object] = lambda data: None) -> None:
        """Ends Kafka, with SIGKILL or in an orderly way, and starts it again with its messages. `meanwhile` may change
        what is in its folder."""
        assert self.kafka is not None
        assert self.kafka.process is not None
        self.kafka.process.send_signal(signal.SIGCONT)
        terminate(self.kafka.process, 0 if kill else 30)
        meanwhile(self.folder / "kafka")
        self.kafka.start()

    def archived(self, topic: str) -> int:
        """How many batches of raw or activity are in the archive."""
        found = archive.identities(str(self.archive), topic, 0, MAX_UNIX_NANO)
        return len({(one.collector, one.started_unix_nano, one.sequence, one.part) for one in found})

    def partitions(self) -> int:
        """How many partitions each topic that is keyed by host has."""
        with admin_client(self.settings) as admin:
            return len(admin.list_topics(RAW, timeout=PATIENCE_S).topics[RAW].partitions)

    def supervise(self) -> None:
        """Starts what has ended. Call it often."""
        for name, part in list(self.parts.items()):
            ended = part.process.poll() is not None and time.monotonic() - part.started > _RESTART_S
            if ended and name not in self._away:
                self.restarts[name] += 1
                part.process, part.started = self.spawn(name, *part.arguments), time.monotonic()

    def check_alive(self) -> None:
        """Raises AssertionError when a process has ended."""
        for name, part in self.parts.items():
            assert part.process.poll() is None, f"{name} ended with exit code {part.process.returncode}\n{self.logs()}"
        time.sleep(0.1)

    def wait_until_ready(self, name: str) -> None:
        """Waits until /readyz of a process says so."""
        wait_until(lambda: ask_ready(self.parts[name].address) is None, self.logs)

    def wait_until_stored(self, meanwhile: Callable[[], None], patience_s: float) -> None:
        """Waits until every message is processed and stored; calls `meanwhile` again and again."""
        begun = time.monotonic()
        deadline = begun + patience_s
        while any((lags := self.lags()).values()):
            assert time.monotonic() < deadline, f"after {patience_s:.0f} s still not processed: {lags}\n{self.logs()}"
            ask_again = time.monotonic() + pause_s(begun, 0.2)
            while time.monotonic() < ask_again:
                meanwhile()
            begun = time.monotonic()

    def metrics(self, name: str) -> dict[str, list[Sample]]:
        """The metrics of a process, by their names."""
        with urllib.request.urlopen(f"http://{self.parts[name].address}/metrics", timeout=PATIENCE_S) as answer:
            return parse_metrics(answer.read().decode())

    def lags(self) -> dict[str, int]:
        """Messages that each group has not processed; if Kafka cannot say, one of its error."""
        groups = {STREAMS_GROUP: (RAW, ACTIVITY), CLICKHOUSE_GROUP: STORED, LAKE_GROUP: STORED}
        try:
            return {group: lag(self.settings, group, topics) for group, topics in groups.items()}
        except KafkaException as error:
            return {error.args[0].str(): 1}

    def logs(self) -> str:
        """The end of each process's log."""
        return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in self.folder.glob("*.log"))

    def close(self) -> None:
        processes = [part.process for part in self.parts.values()] + self._leaving
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in processes:
            terminate(process, 30)
        if self.kafka is not None:
            self.kafka.close()
        if self.has_small_disk:
            small_disks.unmount(self.data)

    def _link_lake(self, target: Path) -> None:
        link = self.folder / "lake.new"
        link.symlink_to(target)
        os.replace(link, self.lake)
