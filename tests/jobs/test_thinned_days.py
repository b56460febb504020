"""Jobs on days whose requests are thinned: they leave the requests alone, and say so."""

from datetime import date

import pytest

from jobs.backfill import backfill
from jobs.job import JobError, Outcome
from jobs.replay import replay
from jobs.staging.staging import Staging
from tests.jobs.stored import Stored, tables
from tests.jobs.test_replay import client, clients, delete, empty, stored

__all__ = ["client", "clients", "empty", "stored"]

pytestmark = pytest.mark.pipeline
DAYS = (date(2026, 1, 31), date(2026, 2, 1))


@pytest.mark.parametrize("kind", ["replay", "backfill"])
def test_a_job_leaves_requests_of_thinned_days_alone_and_says_so(
    stored: Stored, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tables(stored.client)
    stored.client.insert("thinned_days", [[day, "thinned"] for day in DAYS], column_names=["day", "state"])
    for table in ("activity", "spans"):
        delete(stored, f"DELETE FROM {table} WHERE host_id = 'host-0'")
    before = tables(stored.client)
    assert 0 < len(before["spans"]) < len(whole["spans"])

    def run() -> Outcome:
        work = stored.work(kind, restart=True)
        return replay(work).outcome(dry_run=False) if kind == "replay" else backfill(work).outcome()

    outcome = run()
    assert outcome.is_complete
    assert outcome.lines[-2:] == [f"requests of {day} are thinned, and were left alone" for day in DAYS]
    assert tables(stored.client) == before
    for table in ("samples", "trace_samples"):
        stored.client.command(f"TRUNCATE TABLE {table}")
    run()
    assert tables(stored.client) == before

    # A day that is thinned after the job has asked, and before it has noted that it begins:
    asked = Staging.thinned_days
    notes = "SELECT count() FROM sample_changes WHERE startsWith(work, 'requests')"

    def thinned_days(staging: Staging) -> set[str]:
        return asked(staging) if stored.client.query(notes).result_rows[0][0] else set()

    monkeypatch.setattr(Staging, "thinned_days", thinned_days)
    with pytest.raises(JobError, match="start the job again"):
        run()
    assert tables(stored.client) == before
