"""Runs a job in this process."""

import importlib
import logging
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from clickhouse_connect.driver.exceptions import Error
from deltalake.exceptions import DeltaError

from icestream.clickhouse.client import Clients
from icestream.clickhouse.without_pandas import allow_pandas
from icestream.process.progress import Progress
from icestream.symbols.symcache import SymCaches
from jobs.backfill import backfill, plan
from jobs.job import Job, JobError, Outcome
from jobs.lake.rows import JobLake
from jobs.locks.lock import JobLock
from jobs.recompute.cut import check_cut, take_cut
from jobs.recompute.slices import Work
from jobs.recompute.sources import KafkaSource, Source, SourceError, choose
from jobs.replay import replay
from jobs.stored.batches import known_before
from sinks.clickhouse.disk_room import room_of
from sinks.clickhouse.migrate import MigrationError, check
from sinks.settings import StorageSettings
from streams.operators.symbolize import Symbolizer
from streams.partition.process import Operators

log = logging.getLogger(__name__)


def run_job(job: Job, settings: StorageSettings, clients: Clients, progress: Progress) -> Outcome:
    """Runs a job in this process. Raises JobError."""
    job.check()
    try:
        room_of("clickhouse", settings).check()
        client = clients.get()
        cluster = check(client, settings.clickhouse)
        make_operators(job.operators, settings)
        with ExitStack() as stack:
            lock = stack.enter_context(JobLock(clients, job.full_name, job.time_range, cluster))
            lake = JobLake(settings.lake, partial(lock.check, client)) if settings.lake else None
            known = known_before(client, settings.archive, job.time_range, lake)
            cut = take_cut(settings, progress, known=known)
            source: Source = choose(job.source, settings, settings.archive, job.start_unix_nano, cut)
            log.info("%s from %s", job.full_name, source)
            if isinstance(source, KafkaSource):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="icestream-"))
                progress(0.0, f"copies {source.size(job.time_range)} from {source}")
                source = source.copy(folder, job.time_range)
            operators = partial(make_operators, job.operators, settings)
            work = Work(client, source, operators, job, progress, lock.check, fence=lock.fence, lake=lake)
            work = replace(work, request_labels=settings.request_label_names())
            if not job.dry_run:
                work = replace(work, check_cut=partial(check_cut, settings, source.cut))
            if job.kind == "replay":
                return replay(work).outcome(job.dry_run)
            return plan(work) if job.dry_run else backfill(work).outcome()
    except (MigrationError, SourceError, OSError, ValueError, Error, DeltaError) as error:
        clients.discard()
        raise JobError(str(error)) from error


def make_operators(name: str, settings: StorageSettings) -> Operators:
    """Returns the operators that MODULE:NAME names, by default those of the live pipeline. Raises JobError."""
    if not name:
        symcaches = SymCaches(Path(settings.symbol_cache).expanduser(), settings.symbol_store)
        return Operators(symbolize=Symbolizer(symcaches).names)
    allow_pandas()
    module, _, attribute = name.partition(":")
    try:
        operators = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(f"--operators {name}: {error}") from error
    if not isinstance(operators, Operators):
        raise JobError(
            f"--operators {name}: expected a streams.partition.process.Operators, got {type(operators).__name__}"
        )
    return operators
