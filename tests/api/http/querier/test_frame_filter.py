"""Stacks by the functions that are on them, as Grafana's data source and Profiles Drilldown ask for them."""

import json

import pytest
from clickhouse_connect.driver.client import Client

from icestream.pprof.profile_pb2 import Profile
from icestream.pyroscope import querier_pb2 as messages
from tests.api.conftest import Api
from tests.api.fill import Frame, Sample, fill, frame
from tests.api.http.querier.calls import CPU, END_MS, START_MS, call, post
from tests.api.http.querier.test_profiles import lines, request, stacktraces

ROOT, A, B, FORBIDDEN = frame("root"), frame("a"), frame("b"), frame("forbidden")
INLINED = Frame(("tiny", "big"), 0x50)
STACKS = [(ROOT, A), (ROOT, A, B), (ROOT, B), (ROOT, FORBIDDEN), (ROOT, A, FORBIDDEN)]


def selector(**fields: list[str]) -> messages.StackTraceSelector:
    return messages.StackTraceSelector(frame_filter=messages.StackFrameFilter(**fields))


@pytest.fixture
def filled(client: Client) -> None:
    fill(client, [*(Sample(stack, 1) for stack in STACKS), Sample((), 100)])


@pytest.mark.parametrize(
    ("fields", "samples"),
    [
        ({"include_function_names": ["a"]}, 3),
        ({"include_function_names": ["a", "b"]}, 1),
        ({"exclude_function_names": ["forbidden"]}, 103),
        ({"include_function_names": ["a"], "exclude_function_names": ["forbidden"]}, 2),
        ({"include_function_names": ["missing"]}, 0),
        ({"include_function_names": ["A"]}, 0),
        ({"include_function_names": ["total"]}, 0),
        ({"include_function_name_regexes": ["^a$"]}, 3),
        ({"include_function_name_regexes": ["^A$"]}, 0),
        ({"exclude_function_name_regexes": ["forbid"]}, 103),
        ({"exclude_function_name_regexes": ["^forbid$"]}, 105),
        ({"include_function_name_regexes": ["^a$", "^b$"]}, 1),
        ({"include_function_names": ["a"], "include_function_name_regexes": ["^b$"]}, 1),
        ({"include_function_names": ["a"], "include_function_name_regexes": ["^a$"]}, 3),
        ({"include_function_name_regexes": ["^a$"], "exclude_function_name_regexes": ["^forbidden$"]}, 2),
        ({"exclude_function_names": ["a", "b", "forbidden"]}, 100),
        ({"exclude_function_names": ["forbidden", "[no stack]"]}, 3),
        ({}, 105),
    ],
)
@pytest.mark.usefixtures("filled")
def test_stacks_have_all_included_functions_and_none_of_the_excluded(
    api: Api, fields: dict[str, list[str]], samples: int
) -> None:
    """Most cases are those of Pyroscope's own test (pkg/phlaredb/symdb). [no stack] has 100."""
    assert stacktraces(api, stack_trace_selector=selector(**fields)).total == samples
    asked = messages.SelectMergeProfileRequest(
        profile_typeID=CPU, label_selector="{}", start=START_MS, end=END_MS, stack_trace_selector=selector(**fields)
    )
    assert sum(sample.value[0] for sample in call(api, "SelectMergeProfile", asked, Profile).sample) == samples


@pytest.mark.usefixtures("filled")
def test_chosen_stacks_are_whole(api: Api) -> None:
    graph = stacktraces(api, stack_trace_selector=selector(include_function_names=["b"]))
    assert lines(graph) == {"root;a;b": 1, "root;b": 1}


@pytest.mark.usefixtures("filled")
def test_a_call_site_and_a_filter_both_hold(api: Api) -> None:
    both = selector(include_function_names=["b"])
    both.call_site.extend([messages.CallSite(name="root"), messages.CallSite(name="a")])
    assert lines(stacktraces(api, stack_trace_selector=both)) == {"root;a;b": 1}


@pytest.mark.usefixtures("filled")
def test_each_side_of_a_diff_has_its_own_filter(api: Api) -> None:
    asked = messages.DiffRequest(
        left=request(stack_trace_selector=selector(include_function_names=["a"])),
        right=request(stack_trace_selector=selector(include_function_names=["b"])),
    )
    graph = call(api, "Diff", asked, messages.DiffResponse).flamegraph
    assert (graph.leftTicks, graph.rightTicks) == (3, 2)


def test_inlined_functions_are_on_the_stack(api: Api, client: Client) -> None:
    fill(client, [Sample((ROOT, INLINED), 3), Sample((ROOT,), 4)])
    for name in INLINED.functions:
        assert stacktraces(api, stack_trace_selector=selector(include_function_names=[name])).total == 3


@pytest.mark.usefixtures("filled")
def test_the_bytes_and_the_json_that_clients_send_are_understood(api: Api) -> None:
    """Profiles Drilldown writes both by hand; so does Grafana's data source, whose module does not have the field."""
    plain = messages.SelectMergeStacktracesRequest(profile_typeID=CPU, label_selector="{}", start=START_MS, end=END_MS)
    conditions = b"\x0a\x01a\x12\x09forbidden\x1a\x02oo\x22\x02^x"
    filtered = b"\x1a" + bytes([len(conditions)]) + conditions
    body = plain.SerializeToString() + b"\x3a" + bytes([len(filtered)]) + filtered
    answer = messages.SelectMergeStacktracesResponse.FromString(post(api, "SelectMergeStacktraces", body).content)
    assert lines(answer.flamegraph) == {"root;a": 1, "root;a;b": 1}
    asked = {
        "profile_typeID": CPU, "label_selector": "{}", "start": START_MS, "end": END_MS, "maxNodes": 500,
        "stackTraceSelector": {
            "call_site": [{"name": "root"}],
            "frameFilter": {
                "includeFunctionNames": ["a"], "excludeFunctionNames": ["forbidden"],
                "includeFunctionNameRegexes": [], "excludeFunctionNameRegexes": [],
            },
        },
    }  # fmt: skip
    response = post(api, "SelectMergeProfile", json.dumps(asked).encode(), "application/json")
    assert [each["value"] for each in response.json()["sample"]] == [["1"], ["1"]]


@pytest.mark.parametrize(
    "fields",
    [
        {"include_function_name_regexes": ["["]},
        {"exclude_function_name_regexes": ["("]},
        {"include_function_names": [str(n) for n in range(101)]},
    ],
)
def test_what_cannot_be_asked_is_refused(api: Api, fields: dict[str, list[str]]) -> None:
    asked = request(stack_trace_selector=selector(**fields))
    response = post(api, "SelectMergeStacktraces", asked.SerializeToString())
    assert (response.status_code, response.json()["code"]) == (400, "invalid_argument")
    assert "frame_filter" in response.json()["message"]
