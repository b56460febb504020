"""Views of stacks (by, hide, frames, invert) against sums made by hand over samples and their frames."""

import itertools
import random
import re
import time
import zlib
from collections import Counter

import pytest
from clickhouse_connect.driver.client import Client

from api.settings import ApiSettings
from icestream.pprof.profile_pb2 import Profile
from icestream.settings import SettingError
from tests.api.conftest import Api
from tests.api.fill import START_S, Frame, Sample, fill, random_samples
from tests.api.render.test_formats import read_pprof
from tests.api.test_function_sums import Function, added, colliding_samples, functions_in, paths, without_zeros
from tests.waiting import PATIENCE_S

SPLIT_S = START_S + 300
Path = tuple[Function, ...]
HIDDEN = ("[hidden]", "", "")


@pytest.fixture
def samples(client: Client) -> list[Sample]:
    made = colliding_samples()
    bare = Frame((), 0x1234, "/usr/lib/libz.so.1")
    made += [Sample((*sample.stack[:2], bare, *sample.stack[2:3]), 7) for sample in random.Random(1).sample(made, 20)]
    fill(client, made)
    return made


def path_of(sample: Sample, by: str = "function", hide: str = "", invert: str = "") -> Path:
    """What a graph should show of a sample, outermost first."""
    path = [
        part_of(by, frame, name, line)
        for frame in sample.stack
        for name, line in reversed([(name, 10 + i) for i, name in enumerate(frame.functions)] or [("", 0)])
        if not hide or not any(re.search(hide, text, re.IGNORECASE) for text in whole(frame, name))
    ]
    if by in ("file", "module"):
        path = [part for part, _ in itertools.groupby(path)]
    path = path or [HIDDEN]
    return tuple(reversed(path)) if invert else tuple(path)


def whole(frame: Frame, name: str) -> Function:
    return (name, frame.file, frame.source_of(name)) if name else (frame.names[0], frame.file, "")


def part_of(by: str, frame: Frame, name: str, line: int) -> Function:
    function, module, file = whole(frame, name)
    if by == "module":
        return module, module, ""
    if by == "file":
        return (file, "", file) if file else (module, module, "")
    if by == "line" and line:
        return f"{function}:{line}", module, file
    if by == "address":
        return f"{function} {frame.address:#x}" if name else frame.names_with_address[0], module, file
    return function, module, file


VIEWS = [
    {"by": "line"},
    {"by": "file"},
    {"by": "module"},
    {"by": "address"},
    {"hide": "^work$"},
    {"hide": "mail/"},
    {"hide": "LIBZ", "by": "line"},
    {"hide": "."},
    {"invert": "true"},
    {"invert": "true", "by": "module", "hide": "^run$"},
]


def values_of(samples: list[Sample], view: dict[str, str], from_leaf: bool) -> Counter[Path]:
    """By path: the self values, or the totals."""
    sums: Counter[Path] = Counter()
    for sample in samples:
        path = path_of(sample, **view)
        for end in [len(path)] if from_leaf else range(len(path) + 1):
            sums[path[:end]] += sample.value
    return without_zeros(sums)


def functions_by_hand(samples: list[Sample], view: dict[str, str]) -> tuple[Counter[Function], Counter[Function]]:
    flat: Counter[Function] = Counter()
    cumulative: Counter[Function] = Counter()
    for sample in samples:
        path = path_of(sample, **(view | {"invert": ""}))
        flat[path[-1]] += sample.value
        for function in set(path):
            cumulative[function] += sample.value
    return without_zeros(flat), without_zeros(cumulative)


def test_a_tree_has_the_sums_of_its_samples(api: Api, samples: list[Sample]) -> None:
    for view in VIEWS:
        tree = api.json("/api/v1/merge", **view)
        assert added(paths(tree), tree["nodes"]["self"]) == values_of(samples, view, from_leaf=True), view
        assert added(paths(tree), tree["nodes"]["total"]) == values_of(samples, view, from_leaf=False), view
        assert len(set(paths(tree))) == len(paths(tree)), view
        flat, cumulative = functions_by_hand(samples, view)
        assert added(functions_in(tree), tree["functions"]["flat"]) == flat, view
        assert added(functions_in(tree), tree["functions"]["cumulative"]) == cumulative, view


def test_a_table_has_the_sums_of_its_samples(api: Api, samples: list[Sample]) -> None:
    for view in VIEWS:
        if "invert" in view:
            continue
        rows = api.json("/api/v1/top", limit=10_000, **view)["top"]
        keys = [(row["name"], row["module"], row["file"]) for row in rows]
        assert len(set(keys)) == len(keys), view
        flat, cumulative = functions_by_hand(samples, view)
        assert added(keys, [row["flat"] for row in rows]) == flat, view
        assert added(keys, [row["cumulative"] for row in rows]) == cumulative, view


@pytest.mark.parametrize("view", [{"by": "line"}, {"hide": "mail/", "invert": "true"}], ids=str)
def test_a_comparison_has_the_sums_of_both_sides(api: Api, samples: list[Sample], view: dict[str, str]) -> None:
    early = [sample for sample in samples if sample.time_s < SPLIT_S]
    late = [sample for sample in samples if sample.time_s >= SPLIT_S]
    both = api.json("/api/v1/diff", start=SPLIT_S, baseline_start=START_S, baseline_end=SPLIT_S, **view)
    for side, expected in (("", late), ("baseline_", early)):
        assert added(paths(both), both["nodes"][f"{side}self"]) == values_of(expected, view, from_leaf=True)
        flat, cumulative = functions_by_hand(expected, view)
        assert added(functions_in(both), both["functions"][f"{side}flat"]) == flat
        assert added(functions_in(both), both["functions"][f"{side}cumulative"]) == cumulative


def test_below_a_node_of_an_inverted_tree_the_table_has_the_stacks_that_go_through_it(
    api: Api, samples: list[Sample]
) -> None:
    tree = api.json("/api/v1/merge", invert="true")
    node = next(row for row in range(len(paths(tree))) if len(paths(tree)[row]) == 2)
    path = paths(tree)[node]
    below = api.json("/api/v1/merge", invert="true", root=path_id(path))
    assert paths(below)[below["root"]] == path
    through = [sample for sample in samples if path_of(sample, invert="true")[:2] == path]
    flat, cumulative = functions_by_hand(through, {})
    assert added(functions_in(below), below["functions"]["flat"]) == flat
    assert added(functions_in(below), below["functions"]["cumulative"]) == cumulative


def path_id(path: Path) -> str:
    number = 0
    for function in path:
        number = (number * 16777619) % 2**32 ^ zlib.crc32("\0".join(function).encode())
    return f"{number:08x}"


def test_formats_of_frames_show_the_same_frames(api: Api, samples: list[Sample]) -> None:
    text = api.get("/api/v1/merge", format="collapsed", by="module", invert="true").text
    view = {"by": "module", "invert": "true"}
    lines = {";".join(name for name, _, _ in path): value for path, value in values_of(samples, view, True).items()}
    assert {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in text.splitlines()} == lines
    speedscope = api.json("/api/v1/merge", format="speedscope", hide=".")
    assert [frame["name"] for frame in speedscope["shared"]["frames"]] == ["total", "[hidden]"]


def python(name: str) -> Frame:
    return Frame((name,), 0, "[python]", build_id=name, kind=4, source="/srv/app.py")


def native(name: str, file: str = "/usr/bin/python3.11", kind: int = 1) -> Frame:
    return Frame((name,), abs(hash(name)) % 2**40, file, kind=kind)


FLASK = "/srv/.venv/lib/python3.11/site-packages/flask/app.py"


def library(name: str) -> Frame:
    return Frame((name,), 0, "[python]", build_id=name, kind=4, source=FLASK)


STACK = (
    native("main"),
    native("_PyEval_Vector"),
    python("<module>"),
    library("dispatch"),
    native("method_vectorcall"),
    python("handle"),
    native("list_sort"),
    python("price_rules"),
    native("PyFloat_FromDouble"),
)
KERNEL = native("sys_read", "[kernel]", kind=2)
GRPC = (native("start_thread", "/lib/libc.so.6"), native("poll", "/usr/lib/libgrpc.so.10"), KERNEL)


def test_time_of_libraries_goes_to_ones_own_code_that_called_them(api: Api, client: Client) -> None:
    stacks = {STACK: 5, STACK[:8]: 3, (*STACK, KERNEL): 2, STACK[:5]: 1, STACK[:2]: 4, GRPC: 6, (KERNEL,): 7}
    stacks[(*GRPC[:2], library("wait"))] = 8
    fill(client, [Sample(stack, value) for stack, value in stacks.items()])
    mine = {
        "<module>;handle;price_rules": 10,
        "<module>": 1,
        "[not my code: python3.11]": 4,
        "[not my code: libgrpc.so.10]": 6,
        "[not my code: kernel]": 7,
        "[not my code: flask]": 8,
    }

    def collapsed(**view: str) -> dict[str, int]:
        lines = api.get("/api/v1/merge", format="collapsed", **view).text.splitlines()
        return {stack: int(value) for stack, _, value in (line.rpartition(" ") for line in lines)}

    assert collapsed(frames="own") == mine
    inverted = {";".join(reversed(stack.split(";"))): value for stack, value in mine.items()}
    assert collapsed(frames="own", invert="true") == inverted
    assert collapsed(frames="own", by="line")["<module>:10;handle:10;price_rules:10"] == 10
    assert collapsed(frames="own", by="file") == {
        "/srv/app.py": 11, "/usr/bin/python3.11": 4, "/usr/lib/libgrpc.so.10": 6, "[kernel]": 7,
        "[not my code: flask]": 8,
    }  # fmt: skip
    assert collapsed(frames="own", focus="PyFloat") == {"<module>;handle;price_rules": 7}
    assert collapsed(frames="own", hide="price_rules|handle|<module>")["[not my code: flask]"] == 19
    top = api.json("/api/v1/top", frames="own")
    assert {row["name"]: row["flat"] for row in top["top"]}["price_rules"] == 10
    assert api.json("/api/v1/merge", frames="own")["total"] == top["total"] == 36


def test_own_code_calls_a_library_in_a_sandwich_of_it(api: Api, client: Client) -> None:
    fill(client, [Sample(STACK, 5), Sample((*STACK, KERNEL), 2), Sample(STACK[:8], 1)])
    answer = api.json("/api/v1/sandwich", function="PyFloat_FromDouble", frames="own")
    assert (answer["total"], answer["frames"]) == (7, "own")
    names = [[name for name, _, _ in path] for path in paths(answer["callers"])]
    assert max(names, key=len) == ["PyFloat_FromDouble", "price_rules", "handle", "<module>"]
    assert max(paths(answer["callees"]), key=len)[-1][0] == "PyFloat_FromDouble"
    by_module = api.json("/api/v1/sandwich", function="/usr/bin/python3.11", frames="own", by="module")
    assert by_module["total"] == 8


def test_a_setting_says_what_is_own_code(api: Api, client: Client, settings: ApiSettings) -> None:
    fill(client, [Sample(STACK, 5)])
    object.__setattr__(settings, "api_own_code", "site-packages/flask/")
    object.__setattr__(settings, "api_library_code", "^handle$")
    text = api.get("/api/v1/merge", format="collapsed", frames="own").text
    assert text.strip() == "<module>;dispatch;price_rules 5"
    with pytest.raises(SettingError, match="api_own_code"):
        ApiSettings(api_own_code="(")


def test_own_code_is_shown_by_itself_if_interpreters_run_most_of_it(api: Api, client: Client) -> None:
    fill(client, [Sample(STACK, 5), Sample(GRPC, 4, labels={"service": "native"})])
    for selector, chosen in (("{}", "own"), ('{service="native"}', "all"), ('{service="none"}', "all")):
        for route in ("merge", "top", "diff"):
            given = {"baseline_start": START_S} if route == "diff" else {}
            answer = api.json(f"/api/v1/{route}", frames="auto", selector=selector, **given)
            assert answer["frames"] == chosen, (route, selector)
            named = api.json(f"/api/v1/{route}", frames=chosen, selector=selector, **given)
            assert answer == named
    assert api.get("/api/v1/merge", frames="auto", format="pgo").status_code == 404  # no functions of Go


@pytest.mark.parametrize("parameter", ["hide", "focus", "ignore"])
def test_a_hostile_regular_expression_is_refused_or_takes_no_time(api: Api, client: Client, parameter: str) -> None:
    fill(client, [Sample((Frame(("a" * 20_000 + "!",), 1),))])
    started = time.monotonic()
    assert api.get("/api/v1/merge", **{parameter: "(a*)*(a|aa)+(a*)*$"}).status_code == 200
    assert time.monotonic() - started < PATIENCE_S  # backtracking takes longer than anybody lives
    for pattern in ("(", "((a{1000}){1000}){1000}", "(?=a)", r"(a)\1"):
        answer = api.get("/api/v1/merge", **{parameter: pattern})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_regex")
    assert api.get("/api/v1/merge", **{parameter: "a" * 1001}).status_code == 400


def test_pprof_has_the_sums_of_its_samples(api: Api, samples: list[Sample]) -> None:
    for view in VIEWS:
        profile = read_pprof(api.get("/api/v1/merge", format="pprof", **view).content)
        assert pprof_paths(profile) == values_of(samples, view, from_leaf=True), view
        assert sum(sample.value[0] for sample in profile.sample) == sum(sample.count for sample in samples)


def test_pprof_has_the_values_of_a_label_as_first_frames(api: Api, samples: list[Sample]) -> None:
    profile = read_pprof(api.get("/api/v1/merge", format="pprof", group_by="service", hide="^work$").content)
    expected: Counter[Path] = Counter()
    for sample in samples:
        expected[((sample.labels["service"], "", ""), *path_of(sample, hide="^work$"))] += sample.value
    assert pprof_paths(profile) == without_zeros(expected)


def pprof_paths(profile: Profile) -> Counter[Path]:
    """Values by path, outermost first."""
    text = profile.string_table
    files = {mapping.id: text[mapping.filename] for mapping in profile.mapping} | {0: ""}
    names = {function.id: (text[function.name], text[function.filename]) for function in profile.function}
    frames: dict[int, Function] = {}
    for location in profile.location:
        name, file = names[location.line[0].function_id]
        frames[location.id] = (name, files[location.mapping_id], file)
    sums: Counter[Path] = Counter()
    for sample in profile.sample:
        sums[tuple(frames[each] for each in reversed(sample.location_id))] += sample.value[1]
    return without_zeros(sums)


@pytest.mark.parametrize("view", [{"hide": "x"}, {"frames": "own"}, {"by": "line"}, {"invert": "true"}], ids=str)
def test_a_profile_for_go_says_why_it_has_all_frames(api: Api, view: dict[str, str]) -> None:
    answer = api.get("/api/v1/merge", format="pgo", **view)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_parameter")
    assert "who calls whom" in answer.json()["error"]["message"]


def test_a_frame_that_stands_for_others_or_is_an_ebpf_program_is_no_code_of_an_interpreter(
    api: Api, client: Client
) -> None:
    truncated = Frame(("[truncated: no unwinding rule]",), 0, "[truncated]", kind=4)
    program = Frame(("bpf_prog_6deef7357e7b4530_watch",), 0, "[kernel]", kind=4)
    fill(client, [Sample((truncated, native("main"), program), 5), Sample((python("handle"),), 3)])
    kinds = {row["name"]: row["kind"] for row in api.json("/api/v1/top", order="cumulative")["top"]}
    assert kinds == {
        "[truncated: no unwinding rule]": "unknown",
        "main": "user",
        program.functions[0]: "kernel",
        "handle": "jit",
    }


def test_an_empty_profile_has_every_view(api: Api) -> None:
    for view in [*VIEWS, {"frames": "own"}, {"frames": "auto"}]:
        assert api.json("/api/v1/merge", **view)["nodes"]["parent"] == [-1]
        assert not read_pprof(api.get("/api/v1/merge", format="pprof", **view).content).sample


def test_a_sandwich_has_the_callers_and_callees_of_one_function(api: Api, samples: list[Sample]) -> None:
    name, module, file = ("work", "[python]", "/srv/shop/app.py")
    for chosen in ((name, module, file), (name, None, None)):
        question = dict(zip(("function", "module", "file"), chosen, strict=True))
        answer = api.json("/api/v1/sandwich", **{key: text for key, text in question.items() if text})
        callers: Counter[Path] = Counter()
        callees: Counter[Path] = Counter()
        calls: Counter[Function] = Counter()
        for sample in samples:
            path = path_of(sample)
            at = [i for i, f in enumerate(path) if all(x in (None, y) for x, y in zip(chosen, f, strict=True))]
            if at:
                callers[tuple(reversed(path[: at[0] + 1]))] += sample.value
                callees[path[at[0] :]] += sample.value
                for function in set(path[: at[0] + 1]):
                    calls[function] += sample.value
        assert answer["total"] == sum(callers.values())
        assert answer["of_total"] == sum(sample.value for sample in samples)
        for side, expected in (("callers", callers), ("callees", callees)):
            tree = answer[side]
            assert added(paths(tree), tree["nodes"]["self"]) == without_zeros(expected)
            assert tree["nodes"]["total"][0] == answer["total"]
        assert added(functions_in(answer["callers"]), answer["callers"]["functions"]["cumulative"]) == without_zeros(
            calls
        )
        assert set(answer["callers"]["functions"]["flat"]) == {0}


def test_a_sandwich_of_a_function_that_is_nowhere_is_empty(api: Api, samples: list[Sample]) -> None:
    for name in ("nothing", "total"):
        answer = api.json("/api/v1/sandwich", function=name)
        assert (answer["total"], answer["callers"]["nodes"]["parent"]) == (0, [-1])
    assert api.get("/api/v1/sandwich").status_code == 400


@pytest.mark.parametrize("invert", ["", "true"])
@pytest.mark.parametrize("label", ["service", "version", "nothing"])
def test_values_of_a_label_are_the_first_frames(api: Api, client: Client, label: str, invert: str) -> None:
    samples = random_samples(3)
    fill(client, samples)
    expected: Counter[str] = Counter()
    for sample in samples:
        names = [name for part in sample.stack for name in part.names] or ["[no stack]"]
        first = sample.labels.get(label) or f"(no {label})"
        expected[";".join([first, *(reversed(names) if invert else names)])] += sample.value
    text = api.get("/api/v1/merge", format="collapsed", group_by=label, **({"invert": invert} if invert else {})).text
    shown: Counter[str] = Counter()
    for line in text.splitlines():
        shown[line.rpartition(" ")[0]] += int(line.rpartition(" ")[2])
    assert without_zeros(shown) == without_zeros(
        Counter({key.replace("parse;x", "parse:x").replace("\n", " "): value for key, value in expected.items()})
    )
    grouped = api.json("/api/v1/merge", group_by=label, **({"invert": invert} if invert else {}))
    plain = api.json("/api/v1/merge")
    for column in ("flat", "cumulative"):
        sums = added(functions_in(grouped), grouped["functions"][column])
        assert sums == added(functions_in(plain), plain["functions"][column])
    assert (grouped["total"], grouped["stacks"]) == (plain["total"], plain["stacks"])


def test_values_of_a_label_without_a_stack_in_focus_are_left_out(api: Api, client: Client) -> None:
    fill(
        client,
        [
            Sample((native("parse"),), 5, labels={"version": "1.4"}),
            Sample((native("send"),), 3, labels={"version": "1.5"}),
        ],
    )
    for invert in ({}, {"invert": "true"}):
        tree = api.json("/api/v1/merge", group_by="version", focus="send", **invert)
        assert [path[0][0] for path in paths(tree) if len(path) == 1] == ["1.5"]
        assert api.json("/api/v1/merge", group_by="version", focus="nothing", **invert)["nodes"]["parent"] == [-1]
