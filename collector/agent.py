"""The agent: profiles this host, publishes to Kafka, answers for the symbols of its files."""

import logging
import os
import threading

from collector import metrics
from collector.delivery.publisher import Publisher
from collector.delivery.spool import Spool
from collector.guest import capabilities, memory
from collector.guest.own_cpu import process_seconds
from collector.profiler import Profiler
from collector.settings import CollectorSettings
from collector.symbols.symbol_files import SymbolFiles
from collector.symbols.symbol_responder import SymbolResponder

log = logging.getLogger(__name__)


class Agent:
    """Everything that runs on a host. Raises SamplerError, SpoolError or OSError where it cannot begin."""

    def __init__(self, settings: CollectorSettings) -> None:
        memory.keep_small()
        files = SymbolFiles()
        self._spool = Spool(settings.spool, settings.spool_limit_mb << 20)
        self._profiler = Profiler(
            settings,
            files,
            publish=lambda messages: self._publisher.publish(messages),
            loaded=_drop_capabilities,
            missing=self._spool.take_dropped_samples,
        )
        self._publisher = Publisher(settings, self._spool)
        self._symbols = SymbolResponder(settings, self._publisher, files)
        metrics.CPU_SECONDS.set_function(process_seconds)

    def ready(self) -> str | None:
        """None while samples reach Kafka."""
        return self._publisher.ready()

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set; then sends the last window, for at most 5 seconds."""
        names = ", ".join(sorted(capability.name for capability in capabilities.permitted()))
        log.info("capabilities kept: %s", names or "none")
        self._publisher.start()
        self._symbols.start()
        self._profiler.run(stop)
        self._symbols.close()
        if left := self._publisher.close():
            log.info("%d windows stay in the spool; the next start sends them", left)
        self._spool.close()


def _drop_capabilities() -> None:
    """Keeps what profiling needs from now on. Threads that run already keep what they have, so there should be none."""
    keep = capabilities.at_run_time(capabilities.permitted(), capabilities.kernel_version())
    capabilities.drop(keep, capabilities.of_children(keep))
    if (others := len(os.listdir("/proc/self/task")) - 1) > 0:
        log.warning("%d threads that began before keep theirs", others)
