"""Jobs on the tables of a ClickHouse cluster: two shards, and one shard of replicated tables."""

import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream.clickhouse.client import connect
from jobs.backfill import backfill
from jobs.job import Job, JobError
from jobs.locks.lock import JobLock
from jobs.replay import replay
from jobs.run import run_job
from jobs.staging import staging
from jobs.staging.staging import Staging
from sinks.clickhouse.cluster import delete_from
from sinks.settings import StorageSettings
from streams.partition.process import Operators
from tests.jobs.stored import END, REQUEST_LABELS, T0, Stored, make_stored, tables
from tests.jobs.test_backfill import doubled
from tests.sinks.clusters import OnCluster, OneShard, Shards
from tests.sinks.engine import definitions, remove_rows
from tests.waiting import wait_until

pytestmark = pytest.mark.pipeline
_numbers = itertools.count(1)
THIRD = (END - T0) // 3 // 10**9 * 10**9


# What differs on one shard are the statements: the test of DELETEs and that of locks run on both in CI.
SHARDS_IN_CI = pytest.mark.parametrize(
    "on_cluster", [Shards, pytest.param(OneShard, marks=pytest.mark.soak)], indirect=True
)
_unused: dict[type[OnCluster], OnCluster] = {}
"""Have all tables and no rows: to make all tables takes longer than some tests."""


@pytest.fixture(params=[Shards, OneShard])
def on_cluster(request: pytest.FixtureRequest, engine: str) -> Iterator[OnCluster]:
    kind: type[OnCluster] = request.param
    one = _unused.pop(kind, None) or kind(engine, f"jobs_on_cluster_{next(_numbers)}")
    admin = connect(engine)
    databases = [name for name in (one.database, one.cluster.local) if name]
    before = [definitions(admin, name) for name in databases]
    yield one
    if [definitions(admin, name) for name in databases] == before:
        for name in databases:
            remove_rows(admin, name)
        one.statements.clear()
        _unused[kind] = one
    admin.close()


@pytest.fixture
def stored(on_cluster: OnCluster, tmp_path: Path) -> Stored:
    return make_stored(on_cluster.get(), tmp_path)


def delete_all(on_cluster: OnCluster, *names: str, where: str = "1") -> None:
    for name in names:
        on_cluster.get().command(
            f"{delete_from(name, on_cluster.cluster)} WHERE {where}", settings={"lightweight_deletes_sync": 2}
        )


@SHARDS_IN_CI
def test_a_backfill_on_a_cluster_gives_the_same_tables_as_live_processing(
    on_cluster: OnCluster, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MAX_HASHES", 4)  # a slice has 6
    before = tables(stored.client)
    backfill(stored.work("backfill", operators=Operators(change=doubled)))
    after = tables(stored.client)
    for name, rows in before.items():
        assert after[name] == ([(*row[:-1], 2 * row[-1]) for row in rows] if "samples" in name else rows), name
    names = ("samples", "trace_samples", "activity", "spans", "series", "nodes", "locations")
    delete_all(on_cluster, *names)
    backfill(stored.work("backfill", T0 + THIRD, T0 + 2 * THIRD))
    assert 0 < stored.total() < sum(row[-1] for row in before["samples"])
    backfill(stored.work("backfill"))
    assert tables(stored.client) == before
    stored.sink_again()
    assert tables(stored.client) == before
    left = stored.client.query("SELECT name FROM system.tables WHERE startsWith(name, 'job_backfill')").result_rows
    assert left == []


def test_a_delete_on_a_cluster_depends_on_nothing_but_its_rows(on_cluster: OnCluster, stored: Stored) -> None:
    """Each replica executes it for itself, maybe later, and has no staging table."""
    on_cluster.statements.clear()
    backfill(stored.work("backfill"))
    replay(stored.work("replay"))
    deletes = [sql for sql in on_cluster.statements if sql.startswith("DELETE")]
    assert {re.split(r"[ .]", sql)[3 if on_cluster.cluster.local else 2] for sql in deletes} == {
        "jobs", "trace_samples", "samples", "activity",
    }  # fmt: skip
    for sql in deletes:
        assert (" ON CLUSTER 'halves' " in sql.partition("WHERE")[0]) == bool(on_cluster.cluster.local)
        assert "IN PARTITION '2026-" in sql or "jobs" in sql.partition("WHERE")[0]
        assert "job_locks" in sql.partition("SELECT")[2]
        assert sql.count("SELECT") == 1
        assert len(sql) < 256 * 1024
    mutations = (
        "SELECT command FROM system.mutations WHERE database = {database:String} AND table IN ('samples', 'jobs')"
    )
    database = on_cluster.cluster.local or on_cluster.database
    commands = on_cluster.get().query(mutations, parameters={"database": database}).result_rows
    assert commands
    assert not any("SELECT" in command for (command,) in commands)


@SHARDS_IN_CI
@pytest.mark.soak  # it deletes and inserts as a backfill does
def test_a_replay_on_a_cluster_restores_what_is_missing(on_cluster: OnCluster, stored: Stored) -> None:
    before = tables(stored.client)
    for where in ("stack_id % 2 = 0", "1"):
        delete_all(on_cluster, "samples", where=where)
        assert replay(stored.work("replay")).clickhouse.restored["samples"]
        assert tables(stored.client) == before
    assert not replay(stored.work("replay")).clickhouse.restored.total()
    delete_all(on_cluster, "activity", "batches")
    report = replay(stored.work("replay"))
    assert report.clickhouse.restored["activity"]
    assert report.clickhouse.restored["batches"]
    assert tables(stored.client) == before
    backfill(stored.work("backfill"))
    assert tables(stored.client) == before


def test_jobs_on_a_cluster_lock_their_range_and_one_that_was_taken_over_changes_nothing(
    on_cluster: OnCluster, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables(stored.client)
    work = stored.work("backfill")

    def lock(name: str) -> JobLock:
        return JobLock(on_cluster, name, work.job.time_range, on_cluster.cluster)

    monkeypatch.setattr("jobs.locks.lock.EXPIRE_S", 1)
    with lock("frozen") as frozen:
        part = next(iter(work.job.time_range.slices()))
        slept = Staging(stored.client, "frozen", part, frozen.fence)
        slept.make()
        stored.client.command(f"INSERT INTO {slept.table('batches')} SELECT * EXCEPT stored_time, 0, 0 FROM batches")
        monkeypatch.setattr("jobs.locks.lock.EXPIRE_S", 60)
        entered: list[JobLock] = []
        wait_until(lambda: _enters(lock("other"), entered))
        (other,) = entered
        with pytest.raises(JobError, match="lost its lock"):
            frozen.check(stored.client)
        with pytest.raises(JobError, match="the job other works on this time range"):
            lock("third").__enter__()
        on_cluster.statements.clear()
        slept.replace(("trace_samples", "samples"))
        slept.mark_stored()
        assert any(sql.startswith("DELETE") for sql in on_cluster.statements)
        assert tables(stored.client) == before
        other.check(stored.client)
        other.__exit__(None, None, None)
        slept.drop()


def _enters(lock: JobLock, entered: list[JobLock]) -> bool:
    with contextlib.suppress(JobError):
        entered.append(lock.__enter__())
    return bool(entered)


@SHARDS_IN_CI
def test_a_job_runs_on_a_cluster_from_the_command_to_its_report(
    on_cluster: OnCluster, stored: Stored, engine: str
) -> None:
    before = tables(stored.client)
    delete_all(on_cluster, "samples", "trace_samples")
    settings = StorageSettings(
        clickhouse=engine, archive=str(stored.archive), kafka="127.0.0.1:1", kafka_timeout_s=0.2,
        request_labels=",".join(REQUEST_LABELS),
    )  # fmt: skip
    job = Job(kind="backfill", start_unix_nano=T0, end_unix_nano=END, source="archive")
    report = run_job(job, settings, on_cluster, lambda part, text: None)
    assert "recomputed, and replaced" in report.lines[0]
    assert tables(stored.client) == before
