"""The in-process broker lets each new group wait for 3 seconds for more members. In tests it waits for a moment.

librdkafka has a function for that, which confluent-kafka does not offer.
"""

import ctypes
from pathlib import Path

import confluent_kafka
from confluent_kafka import Producer

from standalone.supervisor.in_process_broker import InProcessBroker

_DELAY_MS = 50
_HANDLE_OFFSET = object.__basicsize__
"""Where a client of confluent-kafka keeps its `rd_kafka_t *` (confluent_kafka.h: the first field of Handle)."""


def use() -> None:
    """Makes all brokers of this process do so."""
    library = _library()
    init = InProcessBroker.__init__

    def quick(self: InProcessBroker, *arguments: object, **more: object) -> None:
        init(self, *arguments, **more)  # type: ignore[arg-type]
        assert self._holder is not None
        cluster = library.rd_kafka_handle_mock_cluster(_handle(self._holder))
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, _DELAY_MS)

    InProcessBroker.__init__ = quick  # type: ignore[method-assign]


def _handle(client: Producer) -> int | None:
    return ctypes.c_void_p.from_address(id(client) + _HANDLE_OFFSET).value


def _library() -> ctypes.CDLL:
    """Returns the librdkafka that confluent-kafka has loaded."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*"))))
    library.rd_kafka_handle_mock_cluster.argtypes = [ctypes.c_void_p]
    library.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    library.rd_kafka_mock_group_initial_rebalance_delay_ms.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.rd_kafka_mock_group_initial_rebalance_delay_ms.restype = None
    return library
