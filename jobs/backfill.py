"""Backfill: recomputes a time range, and replaces what is stored of the batches that it recomputed.

It works slice by slice, see jobs/recompute/slices.py. It replaces rows by the batch that they name. Rows of any other
batch, such as one that arrived while the backfill ran, stay as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from jobs.job import JobError, Outcome
from jobs.lake import lake
from jobs.lake.lake import StoredBatch
from jobs.recompute.recompute import RecomputeCounts
from jobs.recompute.slices import Work, work_through
from jobs.staging.staging import Staging
from jobs.stored.batches import batches_of, describe, describe_stored, host_minutes, missing_batches, outside
from jobs.stored.corrections import mark_corrections, marks
from jobs.stored.names import add_names
from jobs.time_range import HostMinute
from sinks.archive.archive import DamagedFile

_NAMED = 100
"""How many missing batches an error names the hosts of."""


@dataclass
class BackfillReport:
    """What a backfill did."""

    counts: RecomputeCounts = field(default_factory=RecomputeCounts)
    missing: int = 0
    resumed: bool = False

    def outcome(self) -> Outcome:
        """Returns the report for people. Batches may be missing: that was allowed."""
        lines = [f"{self.counts.samples} samples in {self.counts.batches} batches recomputed, and replaced"]
        lines += self.counts.lines()
        damaged = self.counts.lacking()
        if self.missing:
            lines.append(f"{self.missing} stored batches are not in the source: their minutes were left alone")
        resumed = ["continued an earlier run that had not finished"] if self.resumed else []
        return Outcome([*lines, *damaged, *resumed], is_complete=not damaged)


def backfill(work: Work) -> BackfillReport:
    """Backfills the range. Raises JobError if the source lacks stored batches of the range, OSError, and the client's
    errors."""
    missing, count = [], 0
    for batch in _missing(work, []):
        count += 1
        missing += [batch] if count <= _NAMED else []
    if missing and not work.job.allow_missing:
        more = " and more" if count > _NAMED else ""
        raise JobError(
            f"{work.source} lacks {describe(missing)}{more} of this range, which cannot be recomputed: "
            "choose another --source or range, or leave their rows as they are with --allow-missing"
        )

    def store(staging: Staging) -> bool:
        missing = missing_batches(work, staging.time_range, staging.names_of_batches())
        protected = host_minutes(missing, staging.time_range)
        complete = outside(staging, protected)
        add_names(staging)
        staging.replace(("trace_samples", "samples"), _leave_alone(staging, protected, "time"))
        if not staging.thinned_days():
            staging.replace(("activity",), _leave_alone(staging, protected, "start_time"))
        staging.mark_stored(complete)
        mark_corrections(staging, work.job.time_range)
        if work.lake is not None:
            lake.replace_all(work.lake, staging, protected)
            lake.add_batches(work.lake, staging.batches(complete))
            lake.add_batches(work.lake, marks(staging, work.job.time_range))
        return True  # what is missing is allowed

    counts, resumed = work_through(work, store)
    return BackfillReport(counts, count, resumed)


def plan(work: Work) -> Outcome:
    """Returns for people what a backfill would read and write. It writes nothing."""
    damaged: list[DamagedFile] = []
    missing = sum(1 for _ in _missing(work, damaged))
    in_lake = [f"would replace the same range in the lake {work.lake.uri}"] if work.lake else []
    end = "leave alone" if work.job.allow_missing or not missing else "end with an error because of"
    lines = [
        f"would read {work.source.size(work.job.time_range)} from {work.source}",
        f"would replace rows of {describe_stored(work.client, work.job.time_range)}",
        *in_lake,
        f"would {end} {missing} stored batches that are not in the source",
        *(f"{file}: what it has would be left alone" for file in sorted(set(map(str, damaged)))),
    ]
    return Outcome(lines, is_complete=not damaged)


def _leave_alone(staging: Staging, protected: set[HostMinute], column: str) -> str:
    """Returns the SQL condition that a row is in no protected minute: in none of a host that has a missing batch.

    Without it, corrections of that batch's samples would go: they name the activity that they come from, which may well
    be recomputed.
    """
    if not protected:
        return "1"
    table = staging.fill_minutes(protected)
    minute = f"toInt64(toUnixTimestamp(toStartOfMinute({column})))"
    return f"(host_id, {minute}) {staging.globally}NOT IN (SELECT host, minute FROM {table})"


def _missing(work: Work, damaged: list[DamagedFile]) -> Iterator[StoredBatch]:
    """Yields the stored batches that the source lacks, but for those in damaged files, which it adds to `damaged`."""
    for time_slice in work.job.time_range.slices():
        work.progress(0.0, "compares the source with what is stored")
        there = batches_of(work.source, time_slice, damaged.append)
        for batch in missing_batches(work, time_slice, there):
            if not any(file.has(batch.topic, batch.cluster, batch.partition, batch.offset) for file in damaged):
                yield batch
