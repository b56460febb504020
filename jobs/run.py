"""Runs a job in this process."""

import importlib
import logging
from pathlib import Path

from clickhouse_connect.driver.exceptions import Error

from icestream.clickhouse import Clients
from icestream.symcache import SymCaches
from jobs.backfill import backfill
from jobs.job import Job, JobError, Progress
from jobs.pipeline_lag import describe_lag
from jobs.replay import replay
from jobs.sources import SourceError, choose
from sinks.migrate import MigrationError, check
from sinks.settings import StorageSettings
from streams.process import Operators
from streams.symbolize import Symbolizer

log = logging.getLogger(__name__)


def run_job(job: Job, settings: StorageSettings, clients: Clients, progress: Progress) -> list[str]:
    """Runs a job in this process; returns what it did, for people. Raises JobError."""
    job.check()
    if (lag := describe_lag(settings, job.end_unix_nano)) is not None:
        raise JobError(lag)
    try:
        client = clients.get()
        check(client, settings.clickhouse)
        source = choose(job.source, settings, settings.archive, job.start_unix_nano)
        log.info("%s from %s", job.kind, source)
        operators = _operators(job, settings)
        if job.kind == "replay":
            return replay(client, source, operators, job.time_range, job.dry_run, progress).lines(job.dry_run)
        return backfill(client, source, operators, job.time_range, job.allow_missing, job.operators, progress).lines()
    except (MigrationError, SourceError, OSError, ValueError, Error) as error:
        clients.discard()
        raise JobError(str(error)) from error


def _operators(job: Job, settings: StorageSettings) -> Operators:
    """Returns the operators that the job names. Raises JobError."""
    if not job.operators:
        symcaches = SymCaches(Path(settings.symbol_cache).expanduser(), settings.symbol_store)
        return Operators(symbolize=Symbolizer(symcaches).names)
    module, _, name = job.operators.partition(":")
    try:
        operators = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise JobError(f"--operators {job.operators}: {error}") from error
    if not isinstance(operators, Operators):
        kind = type(operators).__name__
        raise JobError(f"--operators {job.operators}: expected a streams.process.Operators, got {kind}")
    return operators
