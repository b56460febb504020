from collections import Counter

import pytest
from clickhouse_connect.driver.client import Client
from google.protobuf.json_format import Parse

from icestream.pprof.profile_pb2 import Profile
from icestream.pyroscope import querier_pb2 as messages
from tests.api.conftest import Api
from tests.api.fill import Frame, Sample, fill, frame, random_samples
from tests.api.http.querier.calls import CPU, END_MS, START_MS, call, post
from tests.api.http.routes.test_merge import collapsed
from tests.api.render.test_formats import pprof_lines
from tests.api.render.test_pgo import CALL_LINE, MIX, RUN, go_frame, insert

MAIN, HOT, COLD = frame("main"), frame("hot"), frame("cold")
A, S1, S2 = b"a" * 16, b"1" * 8, b"2" * 8


def stacktraces(api: Api, **fields: object) -> messages.FlameGraph:
    answer = call(api, "SelectMergeStacktraces", request(**fields), messages.SelectMergeStacktracesResponse)
    return answer.flamegraph


def request(**fields: object) -> messages.SelectMergeStacktracesRequest:
    return messages.SelectMergeStacktracesRequest(
        **{"profile_typeID": CPU, "label_selector": "{}", "start": START_MS, "end": END_MS} | fields
    )


def lines(graph: messages.FlameGraph | messages.FlameGraphDiff, side: int = 0, width: int = 4) -> Counter[str]:
    """What a flame graph says as collapsed text: read as the format says, node by node."""
    above: list[tuple[int, int, str]] = []
    found: Counter[str] = Counter()
    for depth, level in enumerate(graph.levels):
        rows = [level.values[i : i + width] for i in range(0, len(level.values), width)]
        end, nodes = 0, []
        for row in rows:
            x = end + row[3 * side]
            total, own = row[3 * side + 1], row[3 * side + 2]
            end = x + total
            path = ""
            if depth:
                (parent,) = [p for p in above if p[0] <= x and end <= p[1] and total] or [(0, 0, "?")]
                path = ";".join(filter(None, [parent[2], graph.names[row[-1]].replace(";", ":").replace("\n", " ")]))
            nodes.append((x + own, end, path))
            if own:
                found[path] += own
        above = nodes
    return found


def test_a_flame_graph_has_levels_of_four_numbers_for_each_node(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT), 30), Sample((MAIN, COLD), 10), Sample((MAIN,), 5), Sample((COLD,), 7)])
    graph = stacktraces(api)
    assert list(graph.names) == ["total", "main", "hot", "cold"] or set(graph.names) == {"total", "main", "hot", "cold"}
    assert graph.names[0] == "total"
    at = list(graph.names).index
    assert [list(level.values) for level in graph.levels] == [
        [0, 52, 0, 0],
        [0, 45, 5, at("main"), 0, 7, 7, at("cold")],
        [5, 30, 30, at("hot"), 0, 10, 10, at("cold")],
    ]
    assert (graph.total, graph.max_self) == (52, 30)


@pytest.mark.parametrize("seed", range(20, 23))
def test_a_flame_graph_says_what_was_sampled(api: Api, client: Client, seed: int) -> None:
    samples = [s for s in random_samples(seed) if s.value > 0]
    fill(client, samples)
    assert lines(stacktraces(api, max_nodes=100_000)) == collapsed(samples)
    cart = [s for s in samples if s.labels["service"] == "cart"]
    assert lines(stacktraces(api, label_selector='{service_name="cart"}')) == collapsed(cart)
    few = stacktraces(api, max_nodes=9)
    assert few.total == sum(lines(few).values()) == sum(s.value for s in samples)
    assert "other" in few.names


def test_functions_of_one_name_are_one_node(api: Api, client: Client) -> None:
    twins = [Frame(("work",), address, source=f"{address}.c") for address in (1, 2)]
    samples = [Sample((MAIN, twin, leaf), 5) for twin in twins for leaf in (HOT, COLD)]
    fill(client, [*samples, Sample((MAIN, twins[0]), 3)])
    graph = stacktraces(api)
    at = list(graph.names).index
    assert [list(level.values) for level in graph.levels[1:3]] == [[0, 23, 0, at("main")], [0, 23, 3, at("work")]]
    assert sorted(graph.levels[3].values) == sorted([3, 10, 10, at("hot"), 0, 10, 10, at("cold")])
    diff = call(api, "Diff", messages.DiffRequest(left=request(), right=request()), messages.DiffResponse).flamegraph
    assert list(diff.levels[2].values) == [0, 23, 3, 0, 23, 3, list(diff.names).index("work")]


def test_a_function_may_have_the_name_of_the_root(api: Api, client: Client) -> None:
    fill(client, [Sample((frame("total"), MAIN), 5), Sample((MAIN, frame("total")), 2)])
    assert lines(stacktraces(api)) == {"total;main": 5, "main;total": 2}
    asked = request(format=messages.PROFILE_FORMAT_TREE)
    answer = call(api, "SelectMergeStacktraces", asked, messages.SelectMergeStacktracesResponse)
    assert tree_lines(answer.tree) == {"total;main": 5, "main;total": 2}


def test_a_function_with_the_name_of_what_was_cut_is_one_node_with_it(api: Api, client: Client) -> None:
    few = [Sample((MAIN, frame(f"f{i}")), 1) for i in range(5)]
    fill(client, [Sample((MAIN, frame("other")), 20), Sample((MAIN, HOT), 10), *few])
    assert lines(stacktraces(api, max_nodes=4)) == {"main;other": 25, "main;hot": 10}
    assert lines(stacktraces(api))["main;other"] == 20


@pytest.mark.parametrize("seed", range(3))
def test_what_was_cut_can_be_loaded_where_it_was(api: Api, client: Client, seed: int) -> None:
    """As Profiles Drilldown does (progressiveFlameGraph.ts): it finds `other` by its name, asks for what begins with
    the path to it, with as many nodes again, and puts that in its place; for more of them if that was cut, too."""
    written = {"parse:x": "parse;x", "λ f": "λ\nf"}  # names as they were before they became lines
    samples = [s for s in random_samples(seed) if s.value > 0]
    fill(client, samples)
    shown = lines(stacktraces(api, max_nodes=10))
    asked = {(): 10}
    assert any(line.split(";")[-1] == "other" for line in shown)
    while cut := [line.split(";")[:-1] for line in shown if line.split(";")[-1] == "other"]:
        path = min(cut, key=len)
        budget = asked[tuple(path)] = max(10, 4 * asked.get(tuple(path), 0))
        assert budget < 100_000
        sites = messages.StackTraceSelector(
            call_site=[messages.CallSite(name=written.get(each, each)) for each in path]
        )
        below = lines(stacktraces(api, max_nodes=budget + len(path) + 1, stack_trace_selector=sites))
        above = "".join(f"{name};" for name in path)
        shown = Counter({line: value for line, value in shown.items() if not line.startswith(above)})
        shown.update({line: value for line, value in below.items() if line.startswith(above)})
    assert shown == collapsed(samples)


def test_without_samples_there_is_no_flame_graph(api: Api) -> None:
    answer = call(api, "SelectMergeStacktraces", request(), messages.SelectMergeStacktracesResponse)
    assert not answer.HasField("flamegraph")


def test_spans_and_traces_have_their_own_samples(api: Api, client: Client) -> None:
    of_trace = [Sample((MAIN, HOT), 30, trace_id=A, span_id=S1), Sample((MAIN, COLD), 20, trace_id=A, span_id=S2)]
    fill(client, [*of_trace, Sample((MAIN,), 50)])
    assert lines(stacktraces(api, span_selector=[S1.hex()])) == {"main;hot": 30}
    assert stacktraces(api, span_selector=[S1.hex().upper(), S2.hex()]).total == 50
    assert lines(stacktraces(api, trace_id_selector=[A.hex()])) == {"main;hot": 30, "main;cold": 20}
    asked = messages.SelectMergeSpanProfileRequest(
        profile_typeID=CPU, label_selector="{}", start=START_MS, end=END_MS, span_selector=[S2.hex()]
    )
    answer = call(api, "SelectMergeSpanProfile", asked, messages.SelectMergeSpanProfileResponse)
    assert lines(answer.flamegraph) == {"main;cold": 20}
    assert post(api, "SelectMergeStacktraces", request(span_selector=["12"]).SerializeToString()).status_code == 400


def test_stacks_of_a_call_site_begin_with_it(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT, COLD), 30), Sample((MAIN, COLD), 10), Sample((HOT, MAIN, HOT), 5), Sample((), 3)])

    def at(*names: str) -> dict[str, int]:
        sites = [messages.CallSite(name=name) for name in names]
        return dict(lines(stacktraces(api, stack_trace_selector=messages.StackTraceSelector(call_site=sites))))

    assert at("main", "hot") == {"main;hot;cold": 30}
    assert at("main") == {"main;hot;cold": 30, "main;cold": 10}
    assert at("hot") == {"hot;main;hot": 5}
    assert at("hot", "cold") == at("main", "hot", "cold", "main") == at("nobody") == {}


@pytest.mark.parametrize("seed", range(2))
def test_pprof_has_one_value_for_each_sample(api: Api, client: Client, seed: int) -> None:
    samples = random_samples(seed)
    fill(client, samples)
    asked = messages.SelectMergeProfileRequest(profile_typeID=CPU, label_selector="{}", start=START_MS, end=END_MS)
    profile = call(api, "SelectMergeProfile", asked, Profile)
    assert [profile.string_table[each.type] for each in profile.sample_type] == ["cpu"]
    for sample in profile.sample:
        sample.value.insert(0, 0)  # where other exports have counts
    assert pprof_lines(profile) == collapsed(samples)
    whole = request(format=messages.PROFILE_FORMAT_PPROF)
    answer = call(api, "SelectMergeStacktraces", whole, messages.SelectMergeStacktracesResponse)
    assert len(answer.pprof.profile.sample) == len(profile.sample)


def test_a_diff_has_both_sides_over_one_tree(api: Api, client: Client) -> None:
    left = [Sample((MAIN, HOT), 30, labels={"service": "a"}), Sample((MAIN,), 2, labels={"service": "a"})]
    right = [Sample((MAIN, COLD), 10, labels={"service": "b"}), Sample((MAIN, HOT), 4, labels={"service": "b"})]
    fill(client, left + right)
    asked = messages.DiffRequest(
        left=request(label_selector='{service="a"}'), right=request(label_selector='{service="b"}')
    )
    graph = call(api, "Diff", asked, messages.DiffResponse).flamegraph
    assert (graph.total, graph.leftTicks, graph.rightTicks, graph.max_self) == (46, 32, 14, 30)
    at = list(graph.names).index
    assert [list(level.values) for level in graph.levels] == [
        [0, 32, 0, 0, 14, 0, 0],
        [0, 32, 2, 0, 14, 0, at("main")],
        [2, 30, 30, 0, 4, 4, at("hot"), 0, 0, 0, 0, 10, 10, at("cold")],
    ]
    assert lines(graph, 0, 7) == collapsed(left)
    assert lines(graph, 1, 7) == collapsed(right)


def test_json_is_answered_with_json(api: Api, client: Client) -> None:
    fill(client, [Sample((MAIN, HOT), 2**60)])
    body = f'{{"profileTypeID":"{CPU}","labelSelector":"{{}}","start":{START_MS},"end":"{END_MS}"}}'
    response = post(api, "SelectMergeStacktraces", body.encode(), "application/json")
    assert response.headers["content-type"] == "application/json"
    assert response.json()["flamegraph"]["total"] == str(2**60)
    answer = Parse(response.text, messages.SelectMergeStacktracesResponse())
    assert lines(answer.flamegraph) == {"main;hot": 2**60}


@pytest.mark.parametrize(
    "fields",
    [
        {"format": messages.PROFILE_FORMAT_DOT},
        {"format": 7},
        {"stack_trace_selector": messages.StackTraceSelector(go_pgo=messages.GoPGO(keep_locations=5))},
        {"async": messages.AsyncQueryRequest(type=messages.ASYNC_QUERY_TYPE_FORCE)},
    ],
)
def test_what_is_not_there_is_refused(api: Api, fields: dict[str, object]) -> None:
    response = post(api, "SelectMergeStacktraces", request(**fields).SerializeToString())
    assert (response.status_code, response.json()["code"]) == (501, "unimplemented")


@pytest.mark.parametrize(
    "fields", [{"format": 7}, {"stack_trace_selector": messages.StackTraceSelector(go_pgo=messages.GoPGO())}]
)
def test_what_a_side_of_a_diff_cannot_have_is_refused(api: Api, fields: dict[str, object]) -> None:
    for sides in ({"left": request(**fields), "right": request()}, {"left": request(), "right": request(**fields)}):
        response = post(api, "Diff", messages.DiffRequest(**sides).SerializeToString())
        assert (response.status_code, response.json()["code"]) == (501, "unimplemented")


def tree_lines(data: bytes) -> Counter[str]:
    """What a tree of Pyroscope says as collapsed text: read as its UnmarshalTree does."""
    found: Counter[str] = Counter()
    at, above = 0, [""]

    def number() -> int:
        nonlocal at
        value = shift = 0
        while data[at] & 0x80:
            value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
        value, at = value | data[at] << shift, at + 1
        return value

    while above:
        parent, length = above.pop(), number()
        name, at = data[at : at + length].decode(), at + length
        name = name.replace(";", ":").replace("\n", " ")
        path = f"{parent};{name}" if parent else name
        if value := number():
            found[path] += value
        above += [path] * number()
    assert at == len(data)
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_tree_says_what_was_sampled(api: Api, client: Client, seed: int) -> None:
    samples = [s for s in random_samples(seed) if s.value > 0]
    fill(client, samples)
    asked = request(format=messages.PROFILE_FORMAT_TREE, max_nodes=100_000)
    answer = call(api, "SelectMergeStacktraces", asked, messages.SelectMergeStacktracesResponse)
    assert tree_lines(answer.tree) == collapsed(samples)
    assert not answer.HasField("flamegraph")


def test_a_tree_has_functions_of_one_name_once(api: Api, client: Client) -> None:
    twins = [Frame(("work",), address, source=f"{address}.c") for address in (1, 2)]
    fill(client, [Sample((MAIN, twin, leaf), 5, trace_id=A, span_id=S1) for twin in twins for leaf in (HOT, COLD)])
    asked = messages.SelectMergeSpanProfileRequest(
        profile_typeID=CPU, label_selector="{}", start=START_MS, end=END_MS, span_selector=[S1.hex()],
        format=messages.PROFILE_FORMAT_TREE,
    )  # fmt: skip
    answer = call(api, "SelectMergeSpanProfile", asked, messages.SelectMergeSpanProfileResponse)
    assert answer.tree.count(b"work") == 1
    assert tree_lines(answer.tree) == {"main;work;hot": 10, "main;work;cold": 10}
    assert not answer.HasField("flamegraph")


def test_a_profile_for_pgo_has_the_innermost_locations_of_go(api: Api, client: Client) -> None:
    insert(client, [Sample((RUN, RUN, MIX), 3), Sample((MIX, RUN, MIX), 4)])
    selector = messages.StackTraceSelector(go_pgo=messages.GoPGO(keep_locations=2))
    asked = request(format=messages.PROFILE_FORMAT_PPROF, stack_trace_selector=selector)
    profile = call(api, "SelectMergeStacktraces", asked, messages.SelectMergeStacktracesResponse).pprof.profile
    of_all = messages.SelectMergeProfileRequest(
        profile_typeID=CPU, label_selector="{}", start=START_MS, end=END_MS, stack_trace_selector=selector
    )
    assert call(api, "SelectMergeProfile", of_all, Profile) == profile
    assert [(len(sample.location_id), list(sample.value)) for sample in profile.sample] == [(2, [7])]


def test_callees_of_a_profile_for_pgo_are_aggregated_whatever_their_innermost_line(api: Api, client: Client) -> None:
    inlined = [go_frame(at, ("app.small", line, 1), ("app.mix", 9, 3)) for at, line in ((0x40, 1), (0x50, 2))]
    insert(client, [Sample((RUN, MIX, each), 3) for each in inlined])
    selector = messages.StackTraceSelector(go_pgo=messages.GoPGO(aggregate_callees=True))
    asked = request(format=messages.PROFILE_FORMAT_PPROF, stack_trace_selector=selector)
    profile = call(api, "SelectMergeStacktraces", asked, messages.SelectMergeStacktracesResponse).pprof.profile
    (sample,) = profile.sample
    lines_of = {each.id: [line.line for line in each.line] for each in profile.location}
    assert [lines_of[each] for each in sample.location_id] == [[0, 9], [7], [CALL_LINE]]
    assert list(sample.value) == [6]
