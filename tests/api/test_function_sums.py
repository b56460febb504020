"""Every answer about functions against sums made by hand: over samples, the nodes of their stacks, and locations."""

import gzip
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client

from icestream.pprof.profile_pb2 import Profile
from tests.api.conftest import Api
from tests.api.fill import START_S, Frame, Sample, fill

Function = tuple[str, str, str]  # name, module, source file
SEEDS = range(3)
SPLIT_S = START_S + 300


def colliding_samples(seed: int) -> list[Sample]:
    """Few names in several modules and source files; builds of one module; inlined frames, recursion, corrections."""
    rng = random.Random(seed)
    frames = [
        Frame(
            tuple(rng.choice(["work", "run", "main"]) for _ in range(rng.choice([1, 1, 1, 2, 3]))),
            rng.randrange(2**40),
            rng.choice(["[python]", "[python]", "/usr/lib/libz.so.1"]),
            build_id=rng.choice(["", "gnu:aa", "gnu:bb"]),
            source=rng.choice(["/srv/shop/app.py", "/srv/mail/app.py", "/srv/mail/queue.py"]),
        )
        for _ in range(25)
    ]
    stacks = [tuple(rng.choice(frames) for _ in range(rng.randrange(1, 9))) for _ in range(40)]
    return [
        Sample(rng.choice(stacks), rng.choice([10, 52, -3, 1]), 1, time_s=START_S + rng.randrange(600))
        for _ in range(200)
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


@pytest.fixture(params=SEEDS)
def samples(request: pytest.FixtureRequest, client: Client) -> list[Sample]:
    made = colliding_samples(request.param)
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
    strings, columns = tree["strings"], tree["functions"]
    names = [
        tuple(strings[columns[column][row]] for column in ("name", "module", "file"))
        for row in range(len(columns["name"]))
    ]
    result: list[tuple] = []
    for parent, function in zip(tree["nodes"]["parent"], tree["nodes"]["function"], strict=True):
        result.append((*result[parent], names[function]) if parent >= 0 else ())
    return result


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
