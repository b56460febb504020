"""One file is one module, and what only moved to another folder is the same in a comparison: through the API."""

import dataclasses
import random
import zlib
from collections import Counter

import pytest
from clickhouse_connect.driver.client import Client

from api.terminal.gate import check_diff
from tests.api.conftest import Api
from tests.api.fill import Frame, Sample, fill, random_samples
from tests.api.test_function_sums import added, functions_in, paths

KERNEL = Frame(("schedule",), 0x40, "[kernel]", "gnu:cc", kind=2)


def python(name: str, source: str) -> Frame:
    address = zlib.crc32(f"{name} {source}".encode())  # only for the ID of the location
    return Frame((name,), address, "[python]", "", kind=4, source=source)


def program(name: str, file: str, build_id: str, source: str = "/build/app.c") -> Frame:
    return Frame((name,) if name else (), 0x1000 + sum(name.encode()), file, build_id, source=source)


def of_service(service: str, *stack: Frame, value: int = 10_000_000, version: str = "1") -> Sample:
    return Sample(stack, value, labels={"service": service, "version": version})


def modules(api: Api, **query: object) -> set[str]:
    return {row["module"] for row in api.json("/api/v1/top", **query)["top"]}


def changes(diff: dict) -> dict[str, tuple[int, int]]:
    """Functions by name, and what they have before and now, where that differs."""
    rows = zip(
        functions_in(diff), diff["functions"]["baseline_cumulative"], diff["functions"]["cumulative"], strict=True
    )
    return {name: (before, now) for (name, _, _), before, now in rows if before != now}


def compared(api: Api, baseline: str, profile: str, **query: object) -> dict:
    return api.json("/api/v1/diff", selector=profile, baseline_selector=baseline, **query)


@pytest.fixture
def two_paths(client: Client) -> None:
    """One file by two paths, with a function that has a name and one that has none."""
    for tenant in ("a", "b"):
        main, bare = (program(name, f"/{tenant}/lib.so", "gnu:aa") for name in ("main", ""))
        fill(client, [of_service(tenant, main), of_service(tenant, main, bare, KERNEL)])


@pytest.mark.usefixtures("two_paths")
def test_a_graph_shows_the_path_that_its_processes_mapped(api: Api) -> None:
    for tenant in ("a", "b"):
        assert modules(api, selector=f'{{service="{tenant}"}}') == {f"/{tenant}/lib.so", "[kernel]"}


@pytest.mark.usefixtures("two_paths")
@pytest.mark.parametrize("by", ["function", "line", "address", "file", "module"])
def test_a_file_by_two_paths_has_each_function_once(api: Api, by: str) -> None:
    rows = api.json("/api/v1/top", by=by)["top"]
    assert {row["cumulative"] for row in rows} <= {20_000_000, 40_000_000}
    assert {row["module"] for row in rows if row["kind"] == "user"} <= {"/a/lib.so", ""}
    whole, one = api.json("/api/v1/merge", by=by), api.json("/api/v1/merge", by=by, selector='{service="a"}')
    assert added(paths(whole), whole["nodes"]["total"]) == {
        path: 2 * value for path, value in added(paths(one), one["nodes"]["total"]).items()
    }
    assert changes(compared(api, '{service="a"}', '{service="b"}', by=by)) == {}


def test_builds_of_one_path_are_one_module_and_other_files_of_that_name_are_not(api: Api, client: Client) -> None:
    files = [("/srv/1/app", "gnu:01"), ("/srv/app", "gnu:01"), ("/srv/app", "gnu:02"), ("/srv/3/app", "gnu:03")]
    fill(client, [of_service(f"s{row}", program("main", *file)) for row, file in enumerate(files)])
    rows = {(row["module"], row["flat"]) for row in api.json("/api/v1/top")["top"]}
    assert rows == {("/srv/1/app", 30_000_000), ("/srv/3/app", 10_000_000)}


def test_one_file_has_one_path_in_an_answer_and_may_have_moved_sources(api: Api, client: Client) -> None:
    for version, also in (("1", "old"), ("2", "new")):
        for name in ("main", also):
            release = f"/releases/{version}"
            frame = program(name, f"{release}/app", "gnu:aa", f"{release}/lib/{name}.py")
            fill(client, [of_service("s", frame, version=version)])
    assert modules(api) == {"/releases/1/app"}
    assert modules(api, selector='{version="2"}') == {"/releases/2/app"}
    both = compared(api, '{version="1"}', '{version="2"}')
    assert changes(both) == {"old": (10_000_000, 0), "new": (0, 10_000_000)}


@pytest.mark.parametrize("by", ["function", "line", "file", "module"])
def test_what_moved_to_another_folder_has_not_changed(api: Api, client: Client, by: str) -> None:
    """A release of a program, whose sources were elsewhere when it was built, and of a script with its library."""
    for version in ("1", "2"):
        main, work = (
            program(name, f"/releases/{version}/app", f"gnu:0{version}", f"/home/ci/{version}/src/{name}.c")
            for name in ("main", "work")
        )
        script, library = (
            python(name, f"/srv/releases/{version}/{file}")
            for name, file in (("serve", "index.py"), ("load", "lib/index.py"))
        )
        fill(client, [of_service("s", main, work, KERNEL, version=version)] * 300)
        fill(client, [of_service("s", main, script, library, version=version)] * 300)
    both = compared(api, '{version="1"}', '{version="2"}', by=by)
    assert changes(both) == {}
    assert check_diff(both, 0.1, "share").changes == []
    assert not any("/1/" in text for text in both["strings"])
    assert both["nodes"]["total"] == both["nodes"]["baseline_total"]
    small = compared(api, '{version="1"}', '{version="2"}', by=by, max_nodes=2, invert=True)
    assert "[cut]" in small["strings"]
    assert changes(small) == {}


def test_what_moved_and_grew_fails_the_gate_by_as_much_as_it_grew(api: Api, client: Client) -> None:
    for version, slow in (("1", 100), ("2", 400)):
        fast_one, slow_one = (python(name, f"/releases/{version}/app.py") for name in ("fast", "slow"))
        fill(client, [of_service("s", fast_one, version=version)] * (1000 - slow))
        fill(client, [of_service("s", slow_one, version=version)] * slow)
    gate = check_diff(compared(api, '{version="1"}', '{version="2"}'), 5, "share")
    assert [(c.name, c.file, c.before_percent, c.now_percent) for c in gate.changes] == [
        ("slow", "/releases/2/app.py", 10, 40)
    ]


def test_functions_of_one_name_of_two_programs_stay_two(api: Api, client: Client) -> None:
    """Two services whose scripts have one name, and two whose scripts have not, and their next releases."""
    scripts = {"a": "a/{}/main.py", "b": "b/{}/main.py", "alpha": "c/{}/alpha.py", "beta": "c/{}/beta.py"}
    for version in ("1", "2"):
        for factor, (service, path) in enumerate(scripts.items(), 1):
            main = python("main", f"/srv/{path.format(version)}")
            fill(client, [of_service(service, main, value=factor * 1000, version=version)])
    flats = [row["flat"] for row in api.json("/api/v1/top", selector='{version="2"}')["top"]]
    assert sorted(flats) == [1000, 2000, 3000, 4000]
    both = compared(api, '{version="1"}', '{version="2"}')
    rows = zip(functions_in(both), both["functions"]["baseline_flat"], both["functions"]["flat"], strict=True)
    expected = {(f"/srv/{path.format(2)}", 1000 * n, 1000 * n) for n, path in enumerate(scripts.values(), 1)}
    assert {(file, before, now) for (name, _, file), before, now in rows if name == "main"} == expected
    alpha_and_beta = compared(api, '{service="alpha", version="1"}', '{service="beta", version="1"}')
    assert sorted(alpha_and_beta["functions"]["flat"]) == [0, 0, 4000]


@pytest.mark.parametrize(
    ("name", "by", "shown", "modules"),
    [
        ("app+0x1000", "function", "app+0x1000", ["/1/app", "/2/app"]),
        ("", "address", "app+0x1000", ["/1/app", "/2/app"]),
        ("", "function", "[app]", ["/2/app"]),
    ],
)
def test_addresses_of_two_builds_are_not_paired(
    api: Api, client: Client, name: str, by: str, shown: str, modules: list[str]
) -> None:
    for version in ("1", "2"):
        bare = Frame((name,) if name else (), 0x1000, f"/{version}/app", f"gnu:0{version}")
        fill(client, [of_service("s", bare, version=version)])
    both = compared(api, '{version="1"}', '{version="2"}', by=by)
    assert sorted(module for name, module, _ in functions_in(both) if name == shown) == modules


@pytest.mark.parametrize("seed", range(5))
def test_a_comparison_of_moved_files_has_the_sums_of_one_where_nothing_moved(
    api: Api, client: Client, seed: int
) -> None:
    """Any stacks: with recursion, inlined frames, and functions of one side only."""
    rng = random.Random(seed)
    samples = random_samples(seed)
    for sample in samples:
        sample.stack = tuple(frame for frame in sample.stack if frame.functions)
        sample.labels = {"service": rng.choice(["before", "now"])}
    fill(client, samples + [moved(sample) for sample in samples])
    stays = compared(api, '{service="before"}', '{service="now"}')
    both = compared(api, '{service="before-moved"}', '{service="now-moved"}')
    assert nodes_by_name(both) == nodes_by_name(stays)


def moved(sample: Sample) -> Sample:
    service = sample.labels["service"]
    files = [f"/{service}/{frame.file or 'app'}" for frame in sample.stack]
    stack = tuple(
        Frame(frame.functions, frame.address, file, source=f"{file}.c")
        for frame, file in zip(sample.stack, files, strict=True)
    )
    return dataclasses.replace(sample, stack=stack, labels={"service": f"{service}-moved"})


def nodes_by_name(tree: dict) -> Counter:
    """The names from the outermost function to each node, and its values."""
    names = [tuple(name for name, _, _ in path) for path in paths(tree)]
    columns = [tree["nodes"][f"{side}{column}"] for side in ("", "baseline_") for column in ("self", "total")]
    return Counter(zip(names, *columns, strict=True))
