"""The agent on a host: makes and runs its parts, which profile, publish to Kafka, and answer requests for symbols.

Each part is made after the parts that it uses. No thread starts before the capabilities are dropped.
"""

import logging
import os
import threading
from dataclasses import dataclass
from functools import partial

from collector import metrics
from collector.activity.activity_socket import ActivityReceiver
from collector.activity.quotas import Quotas, load_quotas
from collector.activity.thread_context import ThreadContexts
from collector.batches.builder import BatchBuilder, BuildQueue
from collector.batches.windows import Windows
from collector.bpf.off_cpu import Waits
from collector.bpf.program import ROW_PAGE_BITS
from collector.bpf.sampler import Sampler
from collector.delivery.publisher import SpoolPublisher
from collector.delivery.spool import Spool
from collector.delivery.window_buffer import WindowBuffer
from collector.generated_code import GeneratedCode
from collector.guest import capabilities, memory, priority, stalls
from collector.guest.own_cpu import process_seconds
from collector.guest.pace import Pace, period_ns
from collector.guest.thread_time import thread_seconds
from collector.host import Host
from collector.labels.label_config import label_config
from collector.labels.thread_labels import ThreadLabels
from collector.processes import memory as process_memory
from collector.processes.mapped_files import FileCache
from collector.profiler import Profiler
from collector.settings import CollectorSettings, host_id, host_name
from collector.symbols.symbol_files import SymbolFiles
from collector.symbols.symbol_responder import SymbolResponder
from collector.unwind.tables.cache import TableCache
from icestream.labels.operations import OperationNames
from icestream.labels.request_labels import RequestLabels
from icestream.process.loaded_code import drop_start_pages

log = logging.getLogger(__name__)


class Agent:
    """Everything that runs on a host. Raises SamplerError, SpoolError or OSError where it cannot begin."""

    def __init__(self, settings: CollectorSettings) -> None:
        memory.keep_small()
        priority.hand_over_soon()
        self._spool = Spool(settings.spool, settings.spool_limit_mb << 20)
        loaded = load(settings)
        drop_start_pages()  # 7 of 86 MB that are resident
        _drop_capabilities()
        self._publisher = SpoolPublisher(settings, self._spool)
        files = FileCache()
        symbol_files = SymbolFiles(files.hold)
        files.add_listener(symbol_files)
        self._profiler = make_profiler(settings, loaded, files, self._publisher)
        self._symbols = SymbolResponder(settings, self._publisher, symbol_files)
        metrics.CPU_SECONDS.read(process_seconds)
        metrics.THREAD_SECONDS.read_each(thread_seconds)

    def ready(self) -> str | None:
        """None while samples reach Kafka, else what keeps them, or their names, from it."""
        return self._publisher.ready() or stalls.why() or process_memory.why_blind()

    def run(self, stop: threading.Event) -> None:
        """Runs until `stop` is set; then sends the last window, for at most 5 seconds."""
        names = ", ".join(sorted(capability.name for capability in capabilities.permitted()))
        log.info("capabilities kept: %s", names or "none")
        self._publisher.start()
        self._symbols.start()
        self._profiler.run(stop)
        self._symbols.close()
        if left := self._publisher.close():
            log.info("%d windows stay in the spool; the next start sends them", left)
        self._spool.close()


@dataclass(frozen=True)
class Loaded:
    """The parts whose making needs privileges. The sampler is started, and paused until processes are known."""

    labels: ThreadLabels
    sampler: Sampler
    generated: GeneratedCode
    pace: Pace
    quotas: Quotas | None


def load(settings: CollectorSettings) -> Loaded:
    """Reads the files of rules, and brings the eBPF programs into the kernel. Raises SettingError or SamplerError."""
    labels = ThreadLabels(host_name(settings), label_config(settings))
    sizes = {"rows": settings.unwind_tables_mb << 20 >> ROW_PAGE_BITS}
    sampler = Sampler(settings.frequency, settings.loader, sizes, _waits(settings))
    sampler.start()
    sampler.pause()
    return Loaded(labels, sampler, GeneratedCode(), Pace(settings, sampler), load_quotas())


def make_profiler(settings: CollectorSettings, loaded: Loaded, files: FileCache, buffer: WindowBuffer) -> Profiler:
    """Makes the parts that sample this host and give the messages of each window to `buffer`. Raises OSError where the
    activity socket cannot be made."""
    labels, sampler = loaded.labels, loaded.sampler
    activity = ActivityReceiver(settings.activity_socket, quotas=loaded.quotas)
    for name in vars(activity.counts):
        metrics.RECEIVED.read(partial(getattr, activity.counts, name), name)
    if loaded.quotas:
        metrics.RECEIVED.read(loaded.quotas.cut, "cut")
    contexts = ThreadContexts(sampler.set_context, sampler.forget, files.open, files.patiently)
    work = BuildQueue()
    listeners = [labels, work, contexts, activity]
    host = Host(sampler.program, files, TableCache(settings.unwind_cache), listeners, loaded.generated)
    operations = OperationNames(settings.most_operations)
    metrics.RECEIVED.read(lambda: operations.replaced, "many_operations")
    sets = RequestLabels(settings.request_label_names())
    metrics.RECEIVED.read(lambda: sets.emptied, "many_label_sets")
    windows = Windows(host_id(settings), host, labels, operations, sets, period_ns(settings.frequency))
    builder = BatchBuilder(work, windows, activity, buffer)
    return Profiler(
        settings, sampler=sampler, pace=loaded.pace, activity=activity, contexts=contexts, host=host, work=work,
        builder=builder,
    )  # fmt: skip


def _waits(settings: CollectorSettings) -> Waits | None:
    return Waits(settings.off_cpu, round(settings.off_cpu_threshold_ms * 1e6)) if settings.off_cpu else None


def _drop_capabilities() -> None:
    """Keeps only the capabilities that profiling needs. Threads that run already would keep theirs, so there should be
    none."""
    keep = capabilities.at_run_time(capabilities.permitted(), capabilities.kernel_version())
    capabilities.drop(keep, capabilities.of_children(keep))
    if (others := len(os.listdir("/proc/self/task")) - 1) > 0:
        log.warning("%d threads that started before keep their capabilities", others)
