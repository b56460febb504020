"""ClickHouse tables on several shards: sinks and API work through Distributed tables as they do with one server."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.store
ROOT = Path(__file__).parents[2]
SUMS = {"total", "samples", "flat", "cumulative", "cpu_ns", "sampled_cpu_ns", "thread_cpu_ns", "windows"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `tests/pipeline/shards.py` found: an engine with that configuration needs a process of its own."""
    folder = tmp_path_factory.mktemp("shards")
    call = [sys.executable, "-m", "tests.pipeline.shards", str(folder)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_table_has_a_distributed_one_by_host_or_by_the_ids_that_make_rows_equal(found: Any) -> None:
    by = dict(made.split(" by ") for made in found["made"])
    assert {by[name] for name in ("samples", "trace_samples", "activity", "spans", "batches")} == {"host_id"}
    assert (by["nodes"], by["locations"], by["series"]) == ("node_id", "location_id", "series_id")
    assert {"schema_migrations", "jobs", "job_locks"} <= by.keys()
    assert found["made again"] == []
    assert found["made after a change"] == ["spans by host_id"]


def test_what_comes_again_is_stored_once(found: Any) -> None:
    assert found["rows"] == {"samples": 20, "trace_samples": 8, "activity": 12, "batches": 8}


def test_the_api_asks_all_shards(found: Any) -> None:
    """Both shards are the same tables here, so sums are twice those of one, and all else is equal."""
    compared: set[str] = set()

    def compare(one: Any, all_shards: Any, name: str = "") -> None:
        if isinstance(one, dict):
            assert one.keys() == all_shards.keys()
            for key in one:
                compare(one[key], all_shards[key], key)
        elif isinstance(one, list):
            assert len(one) == len(all_shards)
            for before, after in zip(one, all_shards, strict=True):
                compare(before, after, name)
        elif name in ("sampled_cpu_low_ns", "sampled_cpu_high_ns", "few_samples"):
            assert (one is None) == (all_shards is None)  # they do not grow with the sum
        elif name in SUMS:
            assert all_shards == 2 * one, name
            compared.add(name)
        else:
            assert all_shards in ([one, 2 * one] if isinstance(one, int | float) else [one]), name

    for path, (one, all_shards) in found["answers"].items():
        assert isinstance(one, dict), (path, one)
        compare(one, all_shards)
    assert compared == SUMS


def test_more_shards_than_the_tables_were_made_for_are_refused(found: Any) -> None:
    assert found["refused"].startswith("the cluster halves has 2 shards now, and these tables were made for one")
