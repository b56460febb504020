"""The sum of a graph is the sum of its samples, in every format."""

import gzip
import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from api.render import paths, pprof
from icestream.pprof.profile_pb2 import Profile
from tests.api.conftest import RANGE, Api
from tests.api.fill import Frame, Sample, fill, frame, random_samples
from tests.api.http.routes.test_merge import collapsed, read_collapsed
from tests.examples import examples
from tests.go import needs_go

MAIN, HOT = frame("main"), frame("hot")
INLINED = Frame(("leaf", "middle", "outer"), 0x4242)
BARE = Frame((), 0x77, "/lib/libc.so.6", "gnu:cafe")


def read_pprof(data: bytes) -> Profile:
    return Profile.FromString(gzip.decompress(data))


def pprof_lines(profile: Profile) -> Counter[str]:
    """A profile as collapsed lines, frames without lines as module."""
    text = profile.string_table
    functions = {f.id: text[f.name] for f in profile.function}
    files = {m.id: text[m.filename].rsplit("/", 1)[-1] or "unknown" for m in profile.mapping}
    names = {
        loc.id: [functions[line.function_id] for line in loc.line] or [f"[{files[loc.mapping_id]}]"]
        for loc in profile.location
    }
    lines: Counter[str] = Counter()
    for sample in profile.sample:
        frames = [name for location in sample.location_id for name in names[location]]
        line = ";".join(name.replace(";", ":").replace("\n", " ") for name in reversed(frames))
        lines[line] += sample.value[1]
    return Counter({line: value for line, value in lines.items() if value})


def speedscope_lines(document: dict) -> Counter[str]:
    (profile,) = document["profiles"]
    names = [f["name"].replace(";", ":").replace("\n", " ") for f in document["shared"]["frames"]]
    lines: Counter[str] = Counter()
    for path, weight in zip(profile["samples"], profile["weights"], strict=True):
        lines[";".join(names[frame] for frame in path)] += weight
    return lines


@pytest.fixture(params=["whole", "in pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports of a few stacks in several pieces, as those of many stacks are."""
    if request.param == "in pieces":
        for module, name in ((pprof, "_STACKS"), (pprof, "_LOCATIONS"), (paths, "_PATHS")):
            monkeypatch.setattr(module, name, 2)


@pytest.mark.parametrize("seed", [10, pytest.param(11, marks=pytest.mark.soak)])
def test_every_format_says_the_same(api: Api, client: Client, pieces: None, seed: int) -> None:
    samples = random_samples(seed)
    fill(client, samples)
    for selector, chosen in (
        ("{}", samples),
        ('{service!="cart"}', [s for s in samples if s.labels["service"] != "cart"]),
        ('{version=""}', [s for s in samples if not s.labels["version"]]),
        ('{version!~"1\\\\.4.*", service="cart"}',
         [s for s in samples if s.labels["service"] == "cart" and not s.labels["version"].startswith("1.4")]),
    ):  # fmt: skip
        expected = collapsed(chosen)
        total = sum(s.value for s in chosen)
        assert read_collapsed(api.get("/api/v1/merge", selector=selector, format="collapsed").text) == expected
        profile = read_pprof(api.get("/api/v1/merge", selector=selector, format="pprof").content)
        assert pprof_lines(profile) == expected
        assert sum(s.value[0] for s in profile.sample) == sum(s.count for s in chosen)
        document = api.json("/api/v1/merge", selector=selector, format="speedscope")
        assert speedscope_lines(document) == expected
        assert document["profiles"][0]["endValue"] == total
        for max_nodes in (1, 2, 5, 17, 1000):
            tree = api.json("/api/v1/merge", selector=selector, max_nodes=max_nodes)
            check_tree(tree)
            assert tree["total"] == total
        top = api.json("/api/v1/top", selector=selector, limit=3)
        assert sum(row["flat"] for row in top["top"]) + top["rest"]["flat"] == total
        timeline = api.json("/api/v1/timeline", selector=selector, sum_by="version", step="7s")
        assert sum(sum(group["values"]) for group in timeline["groups"]) == total


def check_tree(tree: dict) -> None:
    """What docs/query-api.md promises."""
    parent, self_values, total = (tree["nodes"][name] for name in ("parent", "self", "total"))
    assert parent[0] == -1
    assert parent == sorted(parent)
    assert all(parent[i] < i for i in range(len(parent)))
    sums = list(self_values)
    for row in range(len(parent) - 1, 0, -1):
        sums[parent[row]] += sums[row]
    assert sums == total
    assert total[0] == tree["total"]
    names = [tree["strings"][tree["functions"]["name"][f]] for f in tree["nodes"]["function"]]
    assert names[0] == "total"
    assert sum(value for name, value in zip(names, self_values, strict=True) if name == "[cut]") == tree["cut"]["value"]
    siblings = Counter(zip(parent, tree["nodes"]["function"], strict=True))
    assert max(siblings.values()) == 1


@hypothesis_settings(
    max_examples=examples(0.2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 6), max_size=6), st.integers(-(2**40), 2**40)), min_size=1, max_size=30)
)
def test_values_of_any_size_and_sign_are_kept(api: Api, client: Client, stacks: list[tuple[list[int], int]]) -> None:
    client.command("TRUNCATE TABLE samples")
    frames = [Frame((f"f{i % 3}",), i) for i in range(7)]
    samples = [Sample(tuple(frames[i] for i in path), value) for path, value in stacks]
    fill(client, samples)
    expected = collapsed(samples)
    assert read_collapsed(api.get("/api/v1/merge", format="collapsed").text) == expected
    assert pprof_lines(read_pprof(api.get("/api/v1/merge", format="pprof").content)) == expected
    check_tree(api.json("/api/v1/merge", max_nodes=5))


# In CI, Go's pprof asks the API (tests/api/commands/test_query.py), and its compiler reads profiles (test_pgo.py).
@pytest.mark.soak
@needs_go
def test_go_reads_the_pprof(api: Api, client: Client, tmp_path: Path) -> None:
    fill(client, [Sample((MAIN, INLINED))] * 3 + [Sample((MAIN, BARE)), Sample(())])
    path = tmp_path / "profile.pb.gz"
    path.write_bytes(api.get("/api/v1/merge", format="pprof").content)
    raw = subprocess.run(["go", "tool", "pprof", "-raw", str(path)], capture_output=True, text=True, check=True).stdout
    assert "samples/count cpu/nanoseconds[dflt]" in raw
    assert "/lib/libc.so.6 cafe" in raw
    top = subprocess.run(
        ["go", "tool", "pprof", "-top", "-unit=ms", "-symbolize=none", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    _, _, table = top.partition("cum%\n")
    rows = {line.split()[5]: line.split() for line in table.splitlines()}
    assert "Total samples = 50ms" in top
    assert rows["leaf"][0] == "30ms"
    assert "(inline)" in top
    assert rows["main"][3] == "40ms"


@pytest.mark.soak
@needs_go
def test_go_reads_the_pprof_of_a_view(api: Api, client: Client, tmp_path: Path) -> None:
    fill(client, [Sample((MAIN, INLINED))] * 3 + [Sample((MAIN, BARE)), Sample(())])
    path = tmp_path / "profile.pb.gz"
    answer = api.get("/api/v1/merge", format="pprof", hide="^(leaf|middle)$", group_by="service")
    path.write_bytes(answer.content)
    tree = ["go", "tool", "pprof", "-traces", "-unit=ms", str(path)]
    text = subprocess.run(tree, capture_output=True, text=True, check=True).stdout
    traces = [
        tuple(line.split()[-1] for line in trace.split("\n") if line) for trace in re.split("-{9,}.*\n", text)[1:]
    ]
    assert ("outer", "main", "checkout") in traces
    assert "30ms   outer" in text


def test_pprof_keeps_inlined_lines_callee_first_and_build_ids(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, INLINED)), Sample((BARE,))])
    profile = read_pprof(api.get("/api/v1/merge", format="pprof").content)
    text = profile.string_table
    functions = {f.id: (text[f.name], text[f.filename], f.start_line) for f in profile.function}
    lines = {loc.address: [functions[line.function_id] for line in loc.line] for loc in profile.location}
    assert lines[0x4242] == [("leaf", "leaf.c", 10), ("middle", "middle.c", 10), ("outer", "outer.c", 10)]
    assert lines[0x77] == []
    mappings = {text[m.filename]: (text[m.build_id], m.memory_limit, m.has_functions) for m in profile.mapping}
    assert mappings["/lib/libc.so.6"] == ("cafe", 0x78, True)
    assert profile.time_nanos == int(RANGE["start"]) * 10**9


def test_a_pprof_has_every_location_once_and_is_compressed_once(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT)), Sample((HOT, MAIN, HOT)), Sample((MAIN, HOT, HOT))])
    answer = api.get("/api/v1/merge", format="pprof")
    profile = read_pprof(answer.content)
    assert "content-encoding" not in answer.headers
    assert len(profile.location) == len(profile.function) == 2
    assert {tuple(sample.location_id) for sample in profile.sample} == {(1, 2), (1, 2, 1), (1, 1, 2)} or {
        tuple(sample.location_id) for sample in profile.sample
    } == {(2, 1), (2, 1, 2), (2, 2, 1)}


def test_the_pprof_of_a_request_has_its_trace_id(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN,), trace_id=b"a" * 16)])
    profile = read_pprof(api.get(f"/api/v1/traces/{'61' * 16}/cpu", format="pprof").content)
    text = profile.string_table
    assert [(text[la.key], text[la.str]) for s in profile.sample for la in s.label] == [("trace_id", "61" * 16)]


def test_speedscope_finds_what_its_format_requires(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT)), Sample((MAIN,))])
    document = json.loads(api.get("/api/v1/merge", format="speedscope").text)
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    (profile,) = document["profiles"]
    assert profile["type"] == "sampled"
    assert profile["unit"] == "nanoseconds"
    assert len(profile["samples"]) == len(profile["weights"]) == 2
    assert all(0 <= f < len(document["shared"]["frames"]) for path in profile["samples"] for f in path)
    assert all(set(f) <= {"name", "file", "line", "col"} and f["name"] for f in document["shared"]["frames"])
    assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
