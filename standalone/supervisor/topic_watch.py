"""Makes topics anew that somebody deletes while `icestream up` runs: without them nothing goes on."""

import logging
import threading
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from icestream.commands import topics
from icestream.kafka.clients import client_config
from icestream.settings import KafkaSettings
from standalone.metrics import TOPICS_REMADE

_LOOK_S = 5.0
_TOLD_S = 300.0

log = logging.getLogger(__name__)


class TopicWatch:
    """A thread that looks every 5 seconds, until `close`, whether the topics are there that were there before.

    It makes those that are missing with the partitions and the configuration that they had. Raises KafkaException.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._admin = AdminClient(client_config(settings) | {"log_level": 2})
        self._topics = topics.existing(self._admin)
        self._problem: str | None = None
        self._told_until = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topics", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """What was deleted, as long as it is missing and for five minutes after that; None: nothing."""
        return self._problem if time.monotonic() < self._told_until else None

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            missing: list[str] = []
            try:
                found = topics.existing(self._admin)
                if missing := sorted(self._topics.keys() - found.keys()):
                    self._make(missing)
                self._topics |= found
            except KafkaException as error:
                if missing:
                    self._tell(
                        f"the topics {', '.join(missing)} are missing, and cannot be made: {error.args[0].str()}"
                    )
            self._admin.poll(0)

    def _make(self, missing: list[str]) -> None:
        for name in topics.make(self._admin, [self._topics[name] for name in missing]):
            TOPICS_REMADE.labels(name).inc()
        self._tell(
            f"the topics {', '.join(missing)} were deleted, and made anew at {time.strftime('%H:%M:%S')}. What was not "
            "stored of their messages is lost, but for what `icestream replay` finds in the archive"
        )

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s", problem)
        self._problem, self._told_until = problem, time.monotonic() + _TOLD_S
