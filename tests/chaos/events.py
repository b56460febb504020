"""The events: what goes wrong, drawn from a seed."""

import itertools
import random
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from icestream.times import format_unix_nano
from icestream.topics import ACTIVITY, RAW, SAMPLES, STACKS
from standalone.supervisor.supervisor import ask_ready
from tests.changed_kafka import add_partitions, copy, log_ends, lose_tail, make_anew, put_back
from tests.chaos.cluster import STORE, Cluster
from tests.chaos.load import Load
from tests.chaos.small_disk import KEEP_FREE_MB, fill
from tests.waiting import PATIENCE_S

FREEZE_S = 13.0
"""Longer than the session timeouts of all groups (6 and 10 s): others have taken the partitions over by then."""
LONG_FREEZE_S = 70.0
"""Longer, too, than a worker without progress goes on (60 s), and than the lock of a job that stands still (60 s)."""
AWAY_S = (2.0, 8.0)
TOPICS_OF_HOSTS = (RAW, ACTIVITY, STACKS, SAMPLES)


@dataclass
class Chaos:
    """Draws events and lets them happen; some of them end later."""

    cluster: Cluster
    load: Load
    draw: random.Random
    long_freezes: bool
    without: Collection[str] = ()
    """Kinds of events that do not happen."""
    wait: Callable[[], None] = lambda: None
    """Is called while an event waits for something."""
    later: list[tuple[float, str, Callable[[], object]]] = field(default_factory=list)
    """When something ends, what it is, and what ends it."""
    backfills: list[tuple[int, int, "subprocess.Popen[bytes]"]] = field(default_factory=list)
    """Time ranges in Unix nanoseconds, and the commands that run."""

    def __post_init__(self) -> None:
        self._deck: list[str] = []
        self._copy: Path | None = None
        self.needs_replay = bool(RESTORED - set(self.without))
        """Whether events lose what the archive has."""

    def happen(self) -> str:
        """Lets the next event happen; returns what it is. Each kind happens once before one happens again."""
        if not self._deck:
            self._deck = sorted(EVENTS.keys() - set(self.without))
            self.draw.shuffle(self._deck)
        name = self._deck.pop()
        return f"{name}: {EVENTS[name](self)}"

    def end_due(self) -> list[str]:
        """Ends what is due; returns what that is."""
        due = [one for one in self.later if one[0] <= time.monotonic()]
        self.later = [one for one in self.later if one not in due]
        for _, _, end in due:
            end()
        return [name for _, name, _ in due]

    def finish_backfills(self) -> list[str]:
        """Starts backfills that were cut off again, one after the other; returns those that do not succeed."""
        failed = []
        for start, end, process in self.backfills:
            for _ in range(5):
                if process.wait(600) == 0:
                    break
                process = self._start_backfill(start, end)
            else:
                failed.append(f"the backfill from {format_unix_nano(start)} to {format_unix_nano(end)} fails")
        return failed

    def _after(self, seconds: float, name: str, end: Callable[[], object]) -> str:
        self.later.append((time.monotonic() + seconds, name, end))
        return f"for {seconds:.0f} s"

    def _victim(self) -> str:
        return self.draw.choice(self.cluster.running())

    def kill(self) -> str:
        victim = self._victim()
        self.cluster.kill(victim)
        return victim

    def freeze(self) -> str:
        """SIGSTOP, for longer than the group waits for its member."""
        victim = self._victim()
        seconds = LONG_FREEZE_S if self.long_freezes and self.draw.random() < 0.3 else FREEZE_S
        return f"{victim} {self._after(seconds, f'{victim} continues', self.cluster.freeze(victim))}"

    def join(self) -> str:
        """A worker joins; a little later another one leaves."""
        leaves = self.draw.choice(self.cluster.workers())
        joins = self.cluster.join_worker()

        def leave() -> None:
            if leaves in self.cluster.parts:
                self.cluster.leave(leaves)

        self._after(self.draw.uniform(*AWAY_S), f"{leaves} leaves", leave)
        return f"{joins}; then {leaves} leaves"

    def broker(self) -> str:
        kill = self.draw.random() < 0.5
        self.cluster.restart_kafka(kill)
        return "kill -9 and a new start" if kill else "a restart"

    def store_away(self) -> str:
        return self._after(self.draw.uniform(*AWAY_S), "the store is back", self.cluster.take_away(STORE))

    def lake_away(self) -> str:
        return self._after(self.draw.uniform(*AWAY_S), "the lake is back", self.cluster.take_lake_away())

    def resend(self) -> str:
        return self.load.resend(self.draw)

    def late_activity(self) -> str:
        return self.load.make_late(self.draw)

    def lost_activity(self) -> str:
        return self.load.lose(self.draw)

    def _wait_for_kafka(self) -> None:
        """Kafka has what was published, and answers."""
        self.load.flush(self.wait)
        assert self.cluster.kafka is not None
        while self.cluster.kafka.not_ready():
            self.wait()

    def _publish_and_archive(self) -> None:
        """What was published is in the archive: Kafka is about to lose it."""
        for topic, messages in self.load.published.items():
            while self.cluster.archived(topic) < len(messages):
                self.wait()
        self._wait_for_kafka()

    def topics_anew(self) -> str:
        topics = self.draw.choice([(RAW, ACTIVITY), (STACKS, SAMPLES)])
        self._publish_and_archive()
        make_anew(self.cluster.settings, *topics, partitions=self.cluster.partitions())
        self.load.connect_again()
        return " and ".join(topics)

    def lost_tail(self) -> str:
        """Some partitions lose their last messages, as when a machine crashes."""
        self._publish_and_archive()
        all_places = itertools.product(TOPICS_OF_HOSTS, range(self.cluster.partitions()))
        lost = {place: self.draw.randint(1, 40) for place in all_places if self.draw.random() < 0.5}

        def lose(data: Path) -> None:
            for place, messages in lost.items():
                lose_tail(data, *place, max(ends[place] - messages, 0))

        ends = log_ends(self.cluster.settings, lost)
        self.cluster.restart_kafka(False, lose)
        self.load.connect_again()
        return ", ".join(f"{messages} of {topic}/{number}" for (topic, number), messages in lost.items())

    def old_copy(self) -> str:
        """Kafka is copied; at the next event of this kind, it is put back to the copy."""
        if self._copy is None:
            aside = self._copy = self.cluster.folder / f"copy-{time.monotonic_ns()}"
            self.cluster.restart_kafka(False, lambda data: copy(data, aside))
            return "is made"
        aside, self._copy = self._copy, None
        self._publish_and_archive()
        self.cluster.restart_kafka(False, lambda data: put_back(data, aside))
        self.load.connect_again()
        for name in self.cluster.running():  # as docs/operations.md says
            self.cluster.kill(name)
        return "is put back"

    def more_partitions(self) -> str:
        self._wait_for_kafka()
        count = self.cluster.partitions() + 1
        add_partitions(self.cluster.settings, count, *TOPICS_OF_HOSTS)
        self.load.connect_again()  # so that it uses them now, and not in minutes
        return f"{count} from now on"

    def full_disk(self) -> str:
        """Another program fills the disk of the store: until sinks stop, or to the last byte."""
        if not self.cluster.has_small_disk:
            return "is impossible here"
        left_mb = self.draw.choice([0, KEEP_FREE_MB // 2])
        name = f"{left_mb} MB are left"
        free = fill(self.cluster.data, left_mb)
        return f"{name} {self._after(self.draw.uniform(*AWAY_S), 'the disk has room', free)}"

    def kafka_stands_still(self) -> str:
        """No commit succeeds."""
        assert self.cluster.kafka is not None
        process = self.cluster.kafka.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        seconds = self.draw.uniform(8, 16)
        return self._after(seconds, "Kafka continues", lambda: process.send_signal(signal.SIGCONT))

    def damaged_archive(self) -> str:
        """A replay names a file of the archive that is damaged, and fails; then the file is repaired."""
        self._publish_and_archive()
        file = self.draw.choice(sorted(self.cluster.archive.rglob("*.parquet")))
        half = self.cluster.folder / "half-file"
        half.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        whole = file.rename(file.with_name("whole-file"))
        file.symlink_to(half)  # which needs no space on a disk that may be full
        try:
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:  # a backfill may run, or the store may be about to start
                assert self._run("replay", self.load.start_unix_nano, self.load.end_unix_nano, "--dry-run") == 1
                if file.name in (log := (self.cluster.folder / "replay.log").read_text()):
                    return file.name
        finally:
            whole.replace(file)
        raise AssertionError(log)

    def replay(self) -> list[str]:
        """Replays everything from the archive; returns what failed."""
        self.cluster.kill(STORE)  # a new start shows what ClickHouse has lost
        while STORE not in self.cluster.running() or ask_ready(self.cluster.parts[STORE].address) is not None:
            self.wait()
        start, end = self.load.start_unix_nano, self.load.end_unix_nano + 10 * 10**9
        for _ in range(5):
            if self._run("replay", start, end) == 0:
                return []
        return ["the replay fails"]

    def backfill(self) -> str:
        """A backfill of the latest minutes, whose windows still come, and are sent again."""
        length = self.load.end_unix_nano - self.load.start_unix_nano
        start = self.load.start_unix_nano + int(length * self.draw.uniform(0, 0.8))
        end = self.load.end_unix_nano + 10 * 10**9
        self.backfills.append((start, end, self._start_backfill(start, end)))
        return f"from {format_unix_nano(start)} to {format_unix_nano(end)}"

    def _start_backfill(self, start: int, end: int) -> "subprocess.Popen[bytes]":
        return self._start("backfill", start, end)

    def _run(self, kind: str, start: int, end: int, *more: str) -> int:
        process = self._start(kind, start, end, *more)
        while process.poll() is None:
            self.wait()
        return process.returncode

    def _start(self, kind: str, start: int, end: int, *more: str) -> "subprocess.Popen[bytes]":
        source = "archive" if self.needs_replay or kind == "replay" else "kafka"
        arguments = [kind, "--from", format_unix_nano(start), "--to", format_unix_nano(end), "--source", source, *more]
        return self.cluster.spawn(kind, *arguments, "--data", str(self.cluster.data))


EVENTS: dict[str, Callable[[Chaos], str]] = {
    "kill -9": Chaos.kill,
    "freeze": Chaos.freeze,
    "join": Chaos.join,
    "broker": Chaos.broker,
    "store away": Chaos.store_away,
    "lake away": Chaos.lake_away,
    "resend": Chaos.resend,
    "late activity": Chaos.late_activity,
    "lost activity": Chaos.lost_activity,
    "backfill": Chaos.backfill,
    "topics anew": Chaos.topics_anew,
    "lost tail": Chaos.lost_tail,
    "old copy": Chaos.old_copy,
    "Kafka stands still": Chaos.kafka_stands_still,
    "damaged archive": Chaos.damaged_archive,
    "more partitions": Chaos.more_partitions,
    "full disk": Chaos.full_disk,
}
RESTORED = {"topics anew", "lost tail", "old copy", "full disk"}
"""Events after which Kafka lacks messages, or ClickHouse rows, that the archive has."""
