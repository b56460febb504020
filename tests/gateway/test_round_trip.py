"""A pprof profile that was taken in, stored, and merged again has the same values, stacks, inlined lines, build IDs and
labels."""

import itertools
from collections import Counter

from hypothesis import HealthCheck, given, settings
from opentelemetry.proto.profiles.v1development.profiles_pb2 import Link, ProfilesData

from gateway.labels import to_labels
from gateway.readers.otlp import read_otlp
from gateway.readers.pprof import Source, read_pprof
from icestream.pprof.profile_pb2 import Profile
from tests.data.tables import insert_rows, to_datetime
from tests.examples import examples
from tests.gateway.profiles import START_UNIX_NANO, maker, profiles, simple
from tests.gateway.stored import Frame, Store, Values, values

START, END = str(START_UNIX_NANO // 10**9 - 60), str(START_UNIX_NANO // 10**9 + 60)
_numbers = itertools.count()


@given(profiles())
@settings(max_examples=examples(0.2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_comes_in_comes_out(store: Store, profile: Profile) -> None:
    service = f"round-trip-{next(_numbers)}"
    sent = read_pprof(profile.SerializeToString(), Source(to_labels([("service", service)])), 1000)
    store.take(sent)
    strings = profile.string_table
    types = [(strings[one.type], strings[one.unit]) for one in profile.sample_type]
    stored = {one.profile_type.split(":")[1]: one.profile_type for one in sent.values}
    assert set(stored) == {kind for kind, _ in types if kind != "samples"}
    for column, (kind, _) in enumerate(types):
        of_type = stored.get(kind) or stored["cpu"]
        came = store.pprof(f'{{service="{service}"}}', of_type, START, END)
        assert values(came, 0 if kind == "samples" else 1) == values(profile, column)
        for labels, expected in by_labels(profile, column).items():
            selector = ",".join(f'{name}="{value}"' for name, value in [("service", service), *labels])
            came = store.pprof(f"{{{selector}}}", of_type, START, END)
            assert values(came, 0 if kind == "samples" else 1) == expected


def by_labels(profile: Profile, column: int) -> dict[tuple[tuple[str, str], ...], Values]:
    """The values of the samples that have each of the sets of labels that occur, and maybe more labels."""
    strings = profile.string_table
    sets = [tuple((strings[label.key], strings[label.str]) for label in sample.label) for sample in profile.sample]
    found = {}
    for chosen in set(sets):
        part = Profile()
        part.CopyFrom(profile)
        del part.sample[:]
        part.sample.extend(s for s, own in zip(profile.sample, sets, strict=True) if set(chosen) <= set(own))
        found[chosen] = values(part, column)
    return found


def test_each_build_keeps_its_own_first_line_of_a_function(store: Store) -> None:
    sent = Counter[tuple[Frame, ...]]()
    for number, start_line in enumerate((10, 20)):
        made = maker((("samples", "count"), ("cpu", "nanoseconds")), ("cpu", "nanoseconds"))
        build_id, function, file = f"abcdef0{number}", "main.work", "/src/main.go"
        made.profile.mapping.add(id=1, filename=made.string("/app"), build_id=made.string(build_id))
        made.profile.function.add(id=1, name=made.string(function), filename=made.string(file), start_line=start_line)
        made.profile.location.add(id=1, mapping_id=1, address=0x1000).line.add(function_id=1, line=start_line + 5)
        made.profile.sample.add(location_id=[1], value=[1, 10])
        profile = made.done()
        sent += values(profile, 1)
        taken = read_pprof(profile.SerializeToString(), Source(to_labels([("service", "builds")])), 10)
        store.take(taken)
    selector, of_type = '{service="builds"}', taken.values[0].profile_type
    assert values(store.pprof(selector, of_type, START, END), 1) == sent
    asked = {"start": START, "end": END, "selector": selector}
    exported = ProfilesData.FromString(store.http.get("/api/v1/export/otlp", params=asked).content)
    for one in read_otlp(exported, 10, labels={"service.name": "exported"}).profiles:
        store.take(one)
    assert values(store.pprof('{service="exported"}', of_type, START, END), 1) == sent


def test_a_profile_that_comes_again_counts_once(store: Store) -> None:
    data = simple({("main", "work"): (3, 30_000_000)}).SerializeToString()
    sent = [read_pprof(data, Source(to_labels([("service", "again")])), 10) for _ in range(2)]
    first, second = (store.take(one) for one in sent)
    assert len(first.messages) == len(second.messages) == 1
    came = store.pprof('{service="again"}', sent[0].values[0].profile_type, START, END)
    assert sum(values(came, 1).values()) == 30_000_000
    assert sum(values(came, 0).values()) == 3


def test_a_trace_in_labels_is_the_trace_of_the_samples(store: Store) -> None:
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    profile = simple({("main",): (1, 10_000_000)}, labels={"trace_id": trace, "span_id": span, "pid": "77"})
    store.take(read_pprof(profile.SerializeToString(), Source(to_labels([("service", "traced")])), 10))
    assert store.json(f"/api/v1/traces/{trace}/cpu")["sampled_cpu_ns"] == 10_000_000
    names = store.json("/api/v1/labels", start=START, end=END, selector='{service="traced"}')
    assert not {"trace_id", "span_id", "pid"} & set(names["labels"])


def test_a_span_that_came_without_its_trace_is_found(store: Store) -> None:
    """As older SDKs for span profiles send it."""
    span = "b7ad6b7169203332"
    profile = simple({("main", "work"): (1, 10_000_000)}, labels={"span_id": span, "span_name": "GET /pay"})
    sent = read_pprof(profile.SerializeToString(), Source(to_labels([("service", "spans")])), 10)
    assert not sent.dropped
    store.take(sent)
    asked = {
        "profileTypeID": sent.values[0].profile_type, "labelSelector": '{service_name="spans"}', "spanSelector": [span],
        "start": int(START) * 1000, "end": int(END) * 1000,
    }  # fmt: skip
    for call in ("SelectMergeStacktraces", "SelectMergeSpanProfile"):
        answer = store.http.post(f"/querier.v1.QuerierService/{call}", json=asked)
        assert answer.json()["flamegraph"]["total"] == "10000000"
    selector = f'{{service="spans", span_id="{span}"}}'
    assert store.pprof(selector, sent.values[0].profile_type, START, END).sample[0].value[1] == 10_000_000
    assert store.json("/api/v1/traces", start=START, end=END, selector='{service="spans"}')["traces"] == []
    exported = store.http.get("/api/v1/export/otlp", params={"start": START, "end": END, "selector": selector})
    (link,) = ProfilesData.FromString(exported.content).dictionary.link_table
    assert link == Link()


def test_a_span_name_in_labels_is_the_operation_until_a_span_names_it(store: Store) -> None:
    """The profile of a program whose spans do not come, and one of a request whose entry span comes later."""
    trace, span = "0af7651916cd43dd8448eb211c80319d", "b7ad6b7169203333"
    named = simple({("main", "pay"): (1, 10_000_000)}, labels={"span_name": "GET /pay"})
    traced = simple({("main",): (1, 20_000_000)}, labels={"trace_id": trace, "span_id": span, "span_name": "inner"})
    plain = simple({("main",): (1, 40_000_000)})
    for profile in (named, traced, plain):
        store.take(read_pprof(profile.SerializeToString(), Source(to_labels([("service", "named")])), 10))
    assert sums_of_operations(store) == {"GET /pay": 10_000_000, "inner": 20_000_000, "": 40_000_000}
    (like,) = (store.json(f"/api/v1/traces/{trace}/cpu")["like"],)
    assert like["selector"] == '{service="named", operation="inner"}'
    start = to_datetime(START_UNIX_NANO / 1e9)
    entry = {"trace_id": bytes.fromhex(trace), "span_id": bytes.fromhex(span), "host_id": "a", "service": "named",
             "name": "POST /", "operation": "POST /", "start_time": start, "end_time": start}  # fmt: skip
    insert_rows(store.client, "spans", [entry])
    assert sums_of_operations(store) == {"GET /pay": 10_000_000, "POST /": 20_000_000, "": 40_000_000}


def test_a_label_operation_is_the_operation(store: Store) -> None:
    of_sample = simple({("main", "pay"): (1, 10_000_000)}, labels={"operation": "GET /pay"})
    of_request = simple({("main",): (1, 20_000_000)})
    for profile, labels in ((of_sample, []), (of_request, [("operation", "compact")])):
        store.take(read_pprof(profile.SerializeToString(), Source(to_labels([("service", "jobs"), *labels])), 10))
    assert sums_of_operations(store, "jobs") == {"GET /pay": 10_000_000, "compact": 20_000_000}


def sums_of_operations(store: Store, service: str = "named") -> dict[str, int]:
    """The sums of a service, as each route has them."""
    asked = {"start": START, "end": END, "selector": f'{{service="{service}"}}'}
    answer = store.json("/api/v1/operations", **asked)
    sums = {row.get("operation", ""): row["sampled_cpu_ns"] for row in answer["operations"] + answer["unattributed"]}
    groups = store.json("/api/v1/timeline", sum_by="operation", step="1h", **asked)["groups"]
    assert {group["labels"]["operation"]: sum(group["values"]) for group in groups} == sums
    assert store.json("/api/v1/labels/operation/values", **asked)["values"] == sorted(set(sums) - {""})
    for operation, value in sums.items():
        selector = f'{{service="{service}", operation="{operation}"}}'
        assert store.json("/api/v1/top", **asked | {"selector": selector})["total"] == value
    return sums


def test_labels_beyond_the_limit_of_a_profile_are_dropped_and_told(store: Store) -> None:
    profile = simple({("main",): (1, 1)})
    for number in range(50):
        more = simple({("main",): (1, 1)}, labels={"request": f"r{number}"})
        more.sample[0].label[0].key += len(profile.string_table)
        more.sample[0].label[0].str += len(profile.string_table)
        profile.sample.append(more.sample[0])
        profile.string_table.extend(more.string_table)
    sent = read_pprof(profile.SerializeToString(), Source(to_labels([("service", "flood")])), 10)
    assert sent.dropped == Counter(labels=41)
    assert len(sent.window.labels) <= 11
    store.take(sent)
    came = store.pprof('{service="flood"}', sent.values[0].profile_type, START, END)
    assert sum(values(came, 1).values()) == 51
