"""What a few collectors publish, with the totals that must come of it."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from confluent_kafka import KafkaError, Message, Producer

from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from tests.chaos.totals import Totals, of_window
from tests.data.windows import WINDOW_NS, Window, window

_REMEMBERED = 40
"""Windows of each host that may be sent again."""
_SAME_STACKS = 20
"""Windows after which all hosts get new stacks."""
_LOST = None


@dataclass
class Host:
    """A collector: what it does with the activity of its next windows, and what it has sent."""

    number: int
    fates: deque[int | None] = field(default_factory=deque)
    """For each of the next windows: by how many windows the activity is late, or _LOST."""
    waiting: list[tuple[int, bytes]] = field(default_factory=list)
    """Late activity, and the window that it follows."""
    sent: deque[tuple[bytes, bytes | None]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class Load:
    """Publishes one window of each host at every `tick`, from the seed."""

    def __init__(self, settings: KafkaSettings, hosts: int, start_unix_nano: int, seed: int) -> None:
        self.expected = Totals()
        self.windows = 0
        self.published: dict[str, set[bytes]] = {RAW: set(), ACTIVITY: set()}
        """The messages of each topic, by their hashes."""
        self.start_unix_nano = start_unix_nano
        self._seed = seed
        self._sequence = 0
        self._hosts = [Host(number) for number in range(hosts)]
        self._failed: list[KafkaError] = []
        self._settings = settings
        self.connect_again()

    @property
    def end_unix_nano(self) -> int:
        """The end of the latest window."""
        return self.start_unix_nano + self._sequence * WINDOW_NS

    def connect_again(self) -> None:
        """Kafka refuses what comes from a producer whose last messages it has lost."""
        self._producer: Producer = clients.producer(self._settings, **{"message.timeout.ms": 0, "log_level": 0})

    def tick(self) -> None:
        self._sequence += 1
        for host in self._hosts:
            stacks = 1000 * self._seed + self._sequence // _SAME_STACKS
            made = window(self.start_unix_nano, self._sequence, host.number, seed=self._seed, stack_seed=stacks)
            self._publish(host, made, host.fates.popleft() if host.fates else 0)
            self.windows += 1

    def make_late(self, draw: random.Random) -> str:
        """The activity of a host's next windows comes after some later ones."""
        host, windows, late = draw.choice(self._hosts), draw.randint(1, 4), draw.randint(1, 4)
        host.fates.extend([late] * windows)
        return f"host-{host.number}: {windows} windows, by {late}"

    def lose(self, draw: random.Random) -> str:
        """The activity of a host's next windows never comes."""
        host, windows = draw.choice(self._hosts), draw.randint(1, 4)
        host.fates.extend([_LOST] * windows)
        return f"host-{host.number}: {windows} windows"

    def resend(self, draw: random.Random) -> str:
        """Hosts send their last windows again, as after a lost acknowledgement."""
        hosts, windows = draw.sample(self._hosts, draw.randint(1, len(self._hosts))), draw.randint(1, _REMEMBERED)
        for host in hosts:
            for raw, activity in list(host.sent)[-windows:]:
                if activity is not None:
                    self._produce(ACTIVITY, host, activity)
                self._produce(RAW, host, raw)
        return f"{len(hosts)} hosts, {windows} windows"

    def finish(self, wait: Callable[[], None]) -> None:
        """Sends late activity that still waits, and returns when Kafka has everything; calls `wait` meanwhile."""
        for host in self._hosts:
            self._send_late(host, self._sequence + 10)
        self.flush(wait)

    def flush(self, wait: Callable[[], None]) -> None:
        """Returns when Kafka has everything; calls `wait` meanwhile."""
        while self._producer.flush(0.2):
            wait()
        assert not self._failed, self._failed[0].str()

    def _publish(self, host: Host, made: Window, fate: int | None) -> None:
        if fate == 0:
            self._produce(ACTIVITY, host, made.activity)
        elif fate is not _LOST:
            host.waiting.append((self._sequence + fate, made.activity))
        self._produce(RAW, host, made.raw)
        host.sent.append((made.raw, made.activity if fate == 0 else None))
        self.expected += of_window(made.raw, None if fate is _LOST else made.activity)
        self._send_late(host, self._sequence)

    def _send_late(self, host: Host, sequence: int) -> None:
        for after, activity in host.waiting:
            if after <= sequence:
                self._produce(ACTIVITY, host, activity)
        host.waiting = [(after, activity) for after, activity in host.waiting if after > sequence]

    def _produce(self, topic: str, host: Host, value: bytes) -> None:
        self.published[topic].add(sha256(value).digest())
        self._producer.produce(topic, value, key=f"host-{host.number}", on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
