"""Faust's consumer with a short fetch wait, for the in-process broker.

Faust lets a fetch wait for 1.5 s and has no setting for it. A real broker answers as soon as it has a message;
librdkafka's in-process broker lets the whole time pass if it had none at first.
"""

from typing import Any

import faust
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer

FETCH_WAIT_MS = 100


class _Thread(AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # read when it starts
        return consumer


class _Consumer(Consumer):
    def _new_consumer_thread(self) -> Any:
        return _Thread(self, loop=self.loop, beacon=self.beacon)


def use(app: faust.App) -> None:
    """Makes an application fetch this way; call it before the application starts."""
    app.transport.Consumer = _Consumer  # type: ignore[misc]  # of this instance only
