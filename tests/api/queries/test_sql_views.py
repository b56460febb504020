"""The views for SQL say what the API says."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import START_S, Frame, Sample, fill, frame, insert_locations, insert_samples, random_samples
from tests.api.queries.operations_data import SAMPLE_NS, Request, insert_requests

RANGE = "start = '2026-02-02 00:00:00', end = '2026-02-03 00:00:00'"
_LINES = re.MULTILINE | re.DOTALL
ROOT = Path(__file__).parents[3]
_PAGE = ROOT / "docs" / "storage.md"
NOTEBOOK, EMBEDDED = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), _LINES)
_, NAMES_ONCE, OWN_TABLE = re.findall(r"^```sql\n(.*?)^```$", _PAGE.read_text(encoding="utf-8"), _LINES)
MAIN, HOT, OUTER = frame("main"), frame("hot"), Frame(("inlined", "outer"), 0x10)


@pytest.mark.parametrize("seed", range(40, 42))
def test_samples_have_the_stacks_of_the_api(api: Api, client: Client, seed: int) -> None:
    samples = random_samples(seed)
    fill(client, samples)
    sums = f"SELECT functions, sum(value) AS v FROM profile_samples({RANGE}) GROUP BY functions HAVING v != 0"
    found = {tuple(functions): value for functions, value in client.query(sums).result_rows}
    expected: Counter[tuple[str, ...]] = Counter()
    for sample in samples:
        names = tuple(name for part in sample.stack for name in part.names_with_address)
        expected[names or ("[no stack]",)] += sample.value
    assert found == {stack: value for stack, value in expected.items() if value}


def test_samples_have_labels_and_their_trace(client: Client, database: str) -> None:
    fill(client, [Sample((MAIN, OUTER), 5, labels={"service": "a", "pod": "x"}, trace_id=b"t" * 16, span_id=b"s" * 8)])
    columns = "service, labels['pod'], trace_id, span_id, functions, value, count"
    assert client.query(f"SELECT {columns} FROM profile_samples({RANGE})").result_rows == [
        ("a", "x", (b"t" * 16).hex(), (b"s" * 8).hex(), ["main", "outer", "inlined"], 5, 1)
    ]
    before = RANGE.replace("02-02", "02-01").replace("02-03", "02-02")
    assert client.query(f"SELECT * FROM profile_samples({before})").result_rows == []


def test_sums_of_functions_are_those_of_the_api(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT, MAIN), 30), Sample((MAIN, OUTER), 10), Sample((), 3), Sample((HOT,), 2)])
    rows = client.query(f"SELECT function, flat_ns, cumulative_ns FROM function_cpu({RANGE})").result_rows
    top = api.json("/api/v1/top")["top"]
    assert sorted(rows) == sorted((row["name"], row["flat"], row["cumulative"]) for row in top)
    make, ask = re.findall(r"^[CS].*?;$", NAMES_ONCE.replace("02-01", "02-03").replace("01-31", "02-02"), _LINES)
    client.command("DROP TABLE IF EXISTS named_stacks")
    client.command(make.rstrip(";"))
    flat = {name: cpu_seconds * 1e9 for name, cpu_seconds in client.query(ask.rstrip(";")).result_rows}
    client.command("DROP TABLE named_stacks")
    assert flat == {
        row["name"]: pytest.approx(row["flat"]) for row in top if row["flat"] and row["name"] != "[no stack]"
    }


def test_a_table_of_ids_is_made_as_the_page_says(client: Client) -> None:
    fill(client, [Sample((MAIN, HOT), 30), Sample((MAIN, HOT), 5), Sample((MAIN,), 10)])
    client.command("DROP TABLE IF EXISTS sums_of_stacks")
    client.command(OWN_TABLE.strip().rstrip(";"))
    found = client.query("SELECT value, toTypeName(stack) FROM sums_of_stacks ORDER BY value").result_rows
    client.command("DROP TABLE sums_of_stacks")
    assert found == [(10, "UInt64"), (35, "UInt64")]


def test_the_embedded_clickhouse_is_asked_for_own_samples_as_the_page_says(client: Client, tmp_path: Path) -> None:
    fill(client, [Sample((MAIN, HOT), 30), Sample((MAIN, HOT), 10), Sample((MAIN,), 3)])
    in_functions = client.query(f"SELECT sum(samples) FROM function_cpu({RANGE})").result_rows
    assert in_functions == [(5,)]  # `main` is in all three
    store = (
        "from icestream.clickhouse.client import connect; from sinks.clickhouse.migrate import migrate;"
        "from tests.api.fill import *;"
        f"c = connect('chdb://{tmp_path}/clickhouse'); migrate(c); main, hot = frame('main'), frame('hot');"
        "fill(c, [Sample((main, hot), 30), Sample((main, hot), 10), Sample((main,), 3)]); c.close()"
    )
    block = EMBEDDED.replace("/var/lib/icestream", str(tmp_path))
    block = block.replace("2026-01-31 12:00", "2026-02-02 00:00").replace("2026-01-31 13:00", "2026-02-03 00:00")
    subprocess.run([sys.executable, "-c", store], check=True, cwd=ROOT)
    asked = subprocess.run([sys.executable, "-c", block], check=True, capture_output=True, text=True)
    assert re.findall(r"│ (\w+) +│ +(\d+) │", asked.stdout) == [("hot", "2"), ("main", "1")]


def test_sums_of_operations_are_those_of_the_api(api: Api, client: Client) -> None:
    plain = [
        Sample((MAIN,), SAMPLE_NS, labels={"service": service}, time_s=START_S + 61) for service in ("shop", "plain")
    ]
    for service in ("shop", "go"):
        plain.append(Sample((MAIN,), SAMPLE_NS, labels={"service": service, "span_name": "render"}))
    requests = [
        Request(1, "GET /", samples=2, inner_samples=1),
        Request(2, "GET /", at_s=3700.0, labels={"span_name": "render"}),
        Request(3, "charge", service="pay", ended=False),
    ]
    insert_requests(client, requests, plain)
    names = ("service", "operation", "sampled_cpu_ns", "samples", "thread_cpu_ns")
    rows = set(client.query(f"SELECT {', '.join(names)} FROM operation_cpu({RANGE})").result_rows)
    answer = api.json("/api/v1/operations", start="2026-02-02T00:00:00Z", end="2026-02-03T00:00:00Z")
    expected = {tuple(row[name] for name in names) for row in answer["operations"]}
    expected |= {(row["service"], "", row["sampled_cpu_ns"], row["samples"], 0) for row in answer["unattributed"]}
    assert len(expected) == 5
    assert {key[:4] for key in expected if key[1] == "render"} == {
        (service, "render", SAMPLE_NS, 1) for service in ("shop", "go")
    }
    assert rows == expected | {("plain", "", SAMPLE_NS, 1, 0)}  # the API lists services with requests


def test_stacks_have_the_newest_names(client: Client, database: str) -> None:
    bare = Frame((), 0x1234, "/lib/libc.so.6")
    fill(client, [Sample((MAIN, bare))])
    stacks = f"SELECT functions FROM stacks({RANGE})"
    assert client.query(stacks).result_rows == [(["main", "libc.so.6+0x1234"],)]
    insert_locations(client, {Frame(("memcpy",), 0x1234, "/lib/libc.so.6")}, version=5)
    assert client.query(stacks).result_rows == [(["main", "memcpy"],)]
    insert_samples(client, [Sample((HOT, HOT, HOT))])
    unresolved = f"SELECT count() FROM profile_samples({RANGE}) WHERE functions = ['[unresolved stack]']"
    assert client.query(unresolved).result_rows == [(1,)]
