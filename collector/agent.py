"""The agent: profiles this host, publishes to Kafka, answers for the symbols of its files."""

import logging
import resource
import threading

from collector import metrics
from collector.profiler import Profiler
from collector.publish import Publisher
from collector.settings import CollectorSettings
from collector.spool import Spool
from collector.symbol_files import SymbolFiles
from collector.symbol_requests import SymbolRequests

log = logging.getLogger(__name__)


class Agent:
    """Everything that runs on a host. Raises SamplerError, SpoolError or OSError where it cannot begin."""

    def __init__(self, settings: CollectorSettings) -> None:
        files = SymbolFiles()
        self._spool = Spool(settings.spool, settings.spool_limit_mb << 20)
        self._publisher = Publisher(settings, self._spool)
        self._profiler = Profiler(settings, files, self._publisher.publish)
        self._symbols = SymbolRequests(settings, self._publisher, files)
        metrics.CPU_SECONDS.set_function(_cpu_seconds)

    def ready(self) -> str | None:
        """None while samples reach Kafka."""
        return self._publisher.ready()

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set; then sends the last window, for at most 5 seconds."""
        self._publisher.start()
        self._symbols.start()
        self._profiler.run(stop)
        self._symbols.close()
        if left := self._publisher.close():
            log.info("%d windows stay in the spool; the next start sends them", left)
        self._spool.close()


def _cpu_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
