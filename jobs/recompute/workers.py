"""Recomputes units in several processes. The process of the job inserts what they return: only it has the store open.

A worker sends rows through a pipe, which holds it back while the job inserts: so at most one portion for each worker is
in memory. A worker ends with the job: then its pipe is closed.
"""

import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

import pyarrow as pa

from icestream.clickhouse.without_pandas import without_pandas
from jobs.job import JobError
from jobs.recompute.recompute import RecomputeCounts, Recomputer, Unit
from jobs.recompute.sources import ArchiveSource
from streams.partition.process import Operators

_END_S = 5.0


@dataclass(frozen=True)
class Portion:
    """Rows of a unit for a table, or at last its counts."""

    unit: Unit
    table: str = ""
    rows: pa.Table | None = None
    counts: RecomputeCounts | None = None


MakeOperators = Callable[[], Operators]
"""Makes the operators; with several processes each makes its own, so the function must be picklable."""


def portions(
    units: Iterator[Unit],
    source: ArchiveSource,
    operators: MakeOperators,
    block: str,
    processes: int,
    request_labels: Sequence[str] = (),
) -> Generator[Portion, None, None]:
    """Yields the portions of all units; with several processes, those of several units mixed. Raises JobError."""
    if processes == 1:
        recomputer = Recomputer(source, operators(), block, request_labels)
        for unit in units:
            counts = RecomputeCounts()
            for table, rows in recomputer.portions(unit, counts):
                yield Portion(unit, table, rows)
            yield Portion(unit, counts=counts)
        return
    context = multiprocessing.get_context("spawn")  # the store has threads, and an engine that does not survive a fork
    workers = {}
    try:
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(theirs, source, operators, block, request_labels), daemon=True
            )
            process.start()
            theirs.close()
            workers[ours] = process
        yield from _collect(units, list(workers))
    finally:
        for connection, process in workers.items():
            connection.close()
            process.terminate()
            process.join(_END_S)


def _collect(units: Iterator[Unit], workers: list[Connection]) -> Iterator[Portion]:
    """Hands units to workers that are idle, and yields what comes back."""
    busy: dict[Connection, Unit] = {}
    idle = list(workers)
    while True:
        while idle and (unit := next(units, None)) is not None:
            connection = idle.pop()
            connection.send(unit)
            busy[connection] = unit
        if not busy:
            return
        for ready in wait(list(busy)):
            connection = next(one for one in busy if one is ready)
            try:
                answer = connection.recv()
            except EOFError as error:
                raise JobError("a process of the job was killed (out of memory?): start the job again") from error
            if isinstance(answer, str):
                raise JobError(answer)
            if isinstance(answer, RecomputeCounts):
                yield Portion(busy.pop(connection), counts=answer)
                idle.append(connection)
            else:
                yield Portion(busy[connection], answer.table, answer.rows)


def _work(
    connection: Connection, source: ArchiveSource, operators: MakeOperators, block: str, request_labels: Sequence[str]
) -> None:
    """Runs in a worker: recomputes the units that it receives; an error is sent as text."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal: the job ends the workers
    try:
        with without_pandas():
            recomputer = Recomputer(source, operators(), block, request_labels)
            while True:
                unit, counts = connection.recv(), RecomputeCounts()
                for portion in recomputer.portions(unit, counts):
                    connection.send(portion)
                connection.send(counts)
    except (EOFError, BrokenPipeError):  # the job has ended
        pass
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
