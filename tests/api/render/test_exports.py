"""The exports for tables and for the Firefox Profiler."""

import io
import json
from collections import Counter
from typing import Any

import polars
import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client

from api.render import paths
from tests.api.conftest import Api
from tests.api.fill import Sample, fill, frame, random_samples
from tests.api.http.routes.test_merge import collapsed

MAIN, HOT = frame("main"), frame("hot")


def text(names: list[str]) -> str:
    return ";".join(name.replace(";", ":").replace("\n", " ") for name in names)


def row_lines(rows: list[dict[str, Any]]) -> Counter[str]:
    lines: Counter[str] = Counter()
    for row in rows:
        assert len(row["functions"]) == len(row["modules"])
        lines[text(row["functions"])] += row["value"]
    return Counter({line: value for line, value in lines.items() if value})


def firefox_lines(profile: dict[str, Any]) -> Counter[str]:
    """As profiler.firefox.com reads it: samples have stacks, stacks prefixes and frames, frames functions."""
    shared, (thread,) = profile["shared"], profile["threads"]
    strings, stacks, samples = shared["stringArray"], shared["stackTable"], thread["samples"]
    names = [strings[shared["funcTable"]["name"][func]] for func in shared["frameTable"]["func"]]
    lines: Counter[str] = Counter()
    for stack, weight in zip(samples["stack"], samples["weight"], strict=True):
        path = []
        at = stack
        while True:
            path.append(names[stacks["frame"][at]])
            offset = stacks["prefixOffset"][at]
            assert 0 <= offset <= at
            if not offset:
                break
            at -= offset
        lines[text(path[::-1])] += round(weight * 10**6)
    return lines


@pytest.mark.parametrize("pieces", [5_000, 2])
@pytest.mark.parametrize("seed", range(30, 32))
def test_every_export_says_what_was_sampled(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch, pieces: int, seed: int
) -> None:
    monkeypatch.setattr(paths, "_PATHS", pieces)
    samples = random_samples(seed)
    fill(client, samples)
    expected, counts = collapsed(samples), sum(sample.count for sample in samples)
    arrow = pa.ipc.open_stream(api.get("/api/v1/merge", format="arrow").content).read_all()
    assert row_lines(arrow.to_pylist()) == expected
    assert sum(arrow["samples"].to_pylist()) == counts
    lines = [json.loads(line) for line in api.get("/api/v1/merge", format="jsonl").text.split("\n")[:-1]]
    assert lines == arrow.to_pylist()
    assert firefox_lines(api.json("/api/v1/merge", format="firefox")) == expected


def test_polars_and_pandas_read_the_arrow_stream(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT), 30), Sample((MAIN,), 5, count=2)])
    answer = api.get("/api/v1/merge", format="arrow")
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = polars.read_ipc_stream(io.BytesIO(answer.content))
    top = table.group_by(polars.col("functions").list.last().cast(polars.String).alias("f")).agg(polars.sum("value"))
    assert dict(top.iter_rows()) == {"hot": 30, "main": 5}
    frame = pa.ipc.open_stream(answer.content).read_pandas()
    assert frame["value"].sum() == 35
    assert frame["samples"].sum() == 3


def test_views_hold_for_exports(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT), 30), Sample((MAIN,), 5)])
    assert row_lines(
        [json.loads(line) for line in api.get("/api/v1/merge", format="jsonl", hide="main").text.splitlines()]
    ) == {"hot": 30, "[hidden]": 5}
    profile = api.json("/api/v1/merge", format="firefox", focus="hot", group_by="service")
    assert firefox_lines(profile) == {"checkout;main;hot": 30}


@pytest.mark.parametrize("form", ["arrow", "jsonl", "firefox"])
def test_exports_of_nothing_are_empty(api: Api, form: str) -> None:
    answer = api.get("/api/v1/merge", format=form)
    assert answer.status_code == 200
    if form == "arrow":
        assert pa.ipc.open_stream(answer.content).read_all().num_rows == 0
    elif form == "jsonl":
        assert answer.text == ""
    else:
        assert answer.json()["threads"][0]["samples"]["length"] == 0


def test_tables_of_the_firefox_profiler_have_the_length_that_they_say(api: Api, client: Client) -> None:
    fill(client, random_samples(3))
    profile = api.json("/api/v1/merge", format="firefox")
    (thread,) = profile["threads"]
    tables = {**profile["shared"], "samples": thread["samples"], "markers": thread["markers"]}
    strings = tables.pop("stringArray")
    for name, table in tables.items():
        columns = {column: values for column, values in table.items() if isinstance(values, list)}
        assert {len(values) for values in columns.values()} == {table["length"]}, name
    assert max(tables["funcTable"]["name"]) < len(strings)
    assert max(tables["frameTable"]["category"]) < len(profile["meta"]["categories"])
    assert profile["meta"]["preprocessedProfileVersion"] == 66
    times = thread["samples"]["time"]
    assert times == sorted(times)
