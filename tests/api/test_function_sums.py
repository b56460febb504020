"""Every answer about functions against sums made by hand: over samples, the nodes of their stacks, and locations."""

import gzip
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client

from icestream.pprof.profile_pb2 import Profile
from tests.api.conftest import Api
from tests.api.fill import START_S, Frame, Sample, fill

Function = tuple[str, str, str]  # name, module, source file
SPLIT_S = START_S + 300


def colliding_samples() -> list[Sample]:
    """Few names in several modules and source files; builds of one module; inlined frames, recursion, corrections."""
    rng = random.Random(0)
    frames = [
        Frame(
            tuple(rng.choice(["work", "run", "main"]) for _ in range(rng.choice([1, 1, 1, 2, 3]))),
            rng.randrange(2**40),
            *rng.choice(
                [("[python]", ""), ("[python]", ""), ("/usr/lib/libz.so.1", "gnu:aa"), ("/usr/lib/libz.so.1", "gnu:bb")]
            ),
            source=rng.choice(["/srv/shop/app.py", "/srv/mail/app.py", "/srv/mail/queue.py"]),
        )
        for _ in range(60)
    ]
    stacks = [tuple(rng.choice(frames) for _ in range(rng.randrange(1, 9))) for _ in range(100)]
    return [
        Sample(rng.choice(stacks), rng.choice([10, 52, -3, 1]), 1, time_s=START_S + rng.randrange(600))
        for _ in range(500)
    ]


def functions_of(sample: Sample) -> list[Function]:
    """Outermost first."""
    return [(name, part.file, part.source_of(name)) for part in sample.stack for name in reversed(part.functions)]


def sums(samples: list[Sample]) -> tuple[Counter[Function], Counter[Function]]:
    """Flat and cumulative, without zeros."""
    flat: Counter[Function] = Counter()
    cumulative: Counter[Function] = Counter()
    for sample in samples:
        functions = functions_of(sample)
        flat[functions[-1]] += sample.value
        for function in set(functions):
            cumulative[function] += sample.value
    return without_zeros(flat), without_zeros(cumulative)


def without_zeros(counter: Counter[Function]) -> Counter[Function]:
    return Counter({key: value for key, value in counter.items() if value})


@pytest.fixture
def samples(client: Client) -> list[Sample]:
    made = colliding_samples()
    fill(client, made)
    return made


def test_the_table_of_functions(api: Api, samples: list[Sample]) -> None:
    flat, cumulative = sums(samples)
    rows = api.json("/api/v1/top", limit=10_000)["top"]
    keys = [(row["name"], row["module"], row["file"]) for row in rows]
    assert len(set(keys)) == len(keys)
    assert added(keys, [row["flat"] for row in rows]) == flat
    assert added(keys, [row["cumulative"] for row in rows]) == cumulative


def test_trees_of_a_profile_and_of_a_comparison(api: Api, samples: list[Sample]) -> None:
    early = [sample for sample in samples if sample.time_s < SPLIT_S]
    late = [sample for sample in samples if sample.time_s >= SPLIT_S]
    whole = api.json("/api/v1/merge")
    both = api.json("/api/v1/diff", start=SPLIT_S, baseline_start=START_S, baseline_end=SPLIT_S)
    for tree, side, expected in ((whole, "", samples), (both, "", late), (both, "baseline_", early)):
        assert added(paths(tree), tree["nodes"][f"{side}self"]) == paths_by_hand(expected, only_leaves=True)
        assert added(paths(tree), tree["nodes"][f"{side}total"]) == paths_by_hand(expected, only_leaves=False)


@pytest.mark.parametrize("shape", [{"max_nodes": 3}, {"width": 2}, {"width": 1, "max_nodes": 2}, {}])
def test_sums_of_functions_beside_a_tree_have_what_the_tree_leaves_out(
    api: Api, samples: list[Sample], shape: dict[str, int]
) -> None:
    tree = api.json("/api/v1/merge", **shape)
    flat, cumulative = sums(samples)
    keys = functions_in(tree)
    beside = {column: added(keys, tree["functions"][column]) for column in ("flat", "cumulative")}
    others = max(0, len(set(map(tuple, keys_of(samples)))) - shape.get("max_nodes", 10**6))
    assert sum(beside["flat"].values()) + tree["rest"]["flat"] == tree["total"] == sum(s.value for s in samples)
    assert tree["rest"]["functions"] <= others
    assert beside["flat"].items() <= flat.items()
    if not others:
        assert beside == {"flat": flat, "cumulative": cumulative}


def test_below_a_node_a_tree_has_all_detail_and_the_path_to_it(api: Api, samples: list[Sample]) -> None:
    whole = api.json("/api/v1/merge")
    node = next(row for row in range(len(whole["nodes"]["parent"])) if len(paths(whole)[row]) == 3)
    path = paths(whole)[node]
    path_id = 0
    for function in path:
        path_id = (path_id * 16777619) % 2**32 ^ zlib.crc32("\0".join(function).encode())
    below = api.json("/api/v1/merge", root=f"{path_id:08x}", width=100_000)
    assert paths(below)[below["root"]] == path
    detail = {key: value for key, value in added(paths(whole), whole["nodes"]["self"]).items() if key[:3] == path}
    seen = added(paths(below), below["nodes"]["self"])
    assert {key: value for key, value in seen.items() if key[:3] == path} == detail
    assert all(key[:3] == path or key[-1][0] == "[cut]" or key == path[: len(key)] for key in seen if key)
    assert below["nodes"]["total"][0] == whole["total"]
    flat, cumulative = sums([sample for sample in samples if tuple(functions_of(sample)[:3]) == path])
    assert added(functions_in(below), below["functions"]["flat"]) == flat
    in_path = Counter({path[2]: cumulative[path[2]]})
    assert added(functions_in(below), below["functions"]["cumulative"])[path[2]] == in_path[path[2]]
    gone = api.json("/api/v1/merge", root="0badc0de")
    assert gone["root"] == 0


@pytest.mark.parametrize("pattern", ["^work$", "MAIL/", "libz", "no such thing"])
def test_focus_and_ignore_choose_stacks_by_any_frame(api: Api, samples: list[Sample], pattern: str) -> None:
    matched = [
        sample
        for sample in samples
        if any(re.search(pattern, text, re.IGNORECASE) for function in functions_of(sample) for text in function)
    ]
    total = sum(sample.value for sample in matched)
    for query, expected in (("focus", total), ("ignore", sum(s.value for s in samples) - total)):
        assert api.json("/api/v1/merge", **{query: pattern})["total"] == expected
        assert api.json("/api/v1/top", **{query: pattern})["total"] == expected
        profile = Profile.FromString(
            gzip.decompress(api.get("/api/v1/merge", format="pprof", **{query: pattern}).content)
        )
        assert sum(sample.value[1] for sample in profile.sample) == expected


def test_a_pattern_that_is_no_regular_expression_is_refused(api: Api) -> None:
    answer = api.get("/api/v1/merge", focus="(")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_regex")
    assert api.get("/api/v1/merge", root="x").status_code == 400
    assert api.get("/api/v1/merge", width=0).status_code == 400


def test_pprof(api: Api, samples: list[Sample]) -> None:
    profile = Profile.FromString(gzip.decompress(api.get("/api/v1/merge", format="pprof").content))
    flat, cumulative = sums(samples)
    assert pprof_sums(profile) == (flat, cumulative)


def added(keys: list, values: list[int]) -> Counter:
    counter: Counter = Counter()
    for key, value in zip(keys, values, strict=True):
        counter[key] += value
    return without_zeros(counter)


def paths(tree: dict) -> list[tuple[Function, ...]]:
    """The functions from the outermost to each node."""
    names = functions_in(tree)
    result: list[tuple] = []
    for parent, function in zip(tree["nodes"]["parent"], tree["nodes"]["function"], strict=True):
        result.append((*result[parent], names[function]) if parent >= 0 else ())
    return result


def functions_in(tree: dict) -> list[Function]:
    strings, columns = tree["strings"], tree["functions"]
    rows = zip(columns["name"], columns["module"], columns["file"], strict=True)
    return [(strings[name], strings[module], strings[file]) for name, module, file in rows]


def keys_of(samples: list[Sample]) -> list[Function]:
    return [function for sample in samples for function in functions_of(sample)]


def paths_by_hand(samples: list[Sample], only_leaves: bool) -> Counter:
    counter: Counter = Counter()
    for sample in samples:
        path = tuple(functions_of(sample))
        for end in range(len(path) if only_leaves else 0, len(path) + 1):
            counter[path[:end]] += sample.value
    return without_zeros(counter)


def pprof_sums(profile: Profile) -> tuple[Counter[Function], Counter[Function]]:
    strings = profile.string_table
    functions = {f.id: (strings[f.name], strings[f.filename]) for f in profile.function}
    files = {mapping.id: strings[mapping.filename] for mapping in profile.mapping}
    lines = {
        location.id: [(functions[line.function_id], files[location.mapping_id]) for line in location.line]
        for location in profile.location
    }
    flat: Counter[Function] = Counter()
    cumulative: Counter[Function] = Counter()
    for sample in profile.sample:
        stack = list(_functions(sample.location_id, lines))
        flat[stack[0]] += sample.value[1]
        for function in set(stack):
            cumulative[function] += sample.value[1]
    return without_zeros(flat), without_zeros(cumulative)


def _functions(location_ids: list[int], lines: dict) -> Iterator[Function]:
    """Innermost first."""
    for location_id in location_ids:
        for (name, source), module in lines[location_id]:
            yield name, module, source
