"""OTLP profiles as windows: the three shapes of samples, attributes, links, build IDs, frame types, other versions."""

import base64
import json

import pytest
from google.protobuf import json_format
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData

from gateway.encode import encode
from gateway.errors import Refused
from gateway.readers import otlp_json
from gateway.readers.otlp import parse_profiles, read_otlp
from gateway.sent_profile import SentProfile
from icestream.columns.packed import varint
from icestream.messages.plausible import ANY_TIME
from icestream.messages.raw import RawColumns, decode_raw
from icestream.topics import DEFAULT_PROFILE_TYPE, OFF_CPU_PROFILE_TYPE
from icestream.v1.common_pb2 import Mapping
from tests.gateway.otlp import PERIOD_NS, START_UNIX_NANO, Otlp, field_of, host, of_samples, packed


def read(data: ProfilesData) -> SentProfile:
    found = read_otlp(parse_profiles(data.SerializeToString()), 100)
    assert found.refused == []
    return found.profiles[0]


def raw(profile: SentProfile) -> RawColumns:
    (message,) = encode(profile, ANY_TIME).messages
    return decode_raw(message)


def test_the_three_shapes_of_samples() -> None:
    batch = raw(read(host().data))
    assert batch.profile_type == DEFAULT_PROFILE_TYPE
    assert batch.sample_count.tolist() == [1, 1, 3, 2, 5]
    assert batch.sample_value.tolist() == [count * PERIOD_NS for count in (1, 1, 3, 2, 5)]
    seconds = [(time - START_UNIX_NANO) // 10**9 for time in batch.time_unix_nano.tolist()]
    assert seconds == [1, 2, 0, 3, 4]


def test_attributes_are_labels_and_columns() -> None:
    batch = raw(read(host().data))
    of_process = (("host", "web-1"), ("pod", "checkout-7"), ("service", "checkout"))
    assert batch.series == [(*of_process, ("thread_name", "w0")), of_process]
    assert batch.host_id == "m1"
    assert (batch.sample_pid[0], batch.sample_tid[0]) == (71, 72)


def test_links_are_trace_contexts() -> None:
    batch = raw(read(host().data))
    assert batch.sample_context.tolist() == [1, 1, 0, 0, 0]
    assert batch.contexts[0].tobytes().hex() == "0af7651916cd43dd8448eb211c80319cb7ad6b7169203331"


def test_a_span_may_come_without_its_trace() -> None:
    made = Otlp()
    made.resource_attributes({"service.name": "shop"})
    stack = made.stack(made.location("jvm", [("run", "A.java", 3)]))
    links = [made.link(bytes(16), b"\1" * 8), made.link(bytes(16), bytes(8)), made.link(b"\1" * 3, b"\2" * 8)]
    for link in links:
        made.profile.samples.add(stack_index=stack, link_index=link, values=[1])
    sent = read(made.data)
    batch = raw(sent)
    assert batch.sample_context.tolist() == [1, 0, 0]
    assert batch.contexts[0].tobytes() == bytes(16) + b"\1" * 8
    assert sent.dropped == {"contexts": 1}


@pytest.mark.parametrize(
    ("engine", "unit", "profile_type"),
    [
        ("itimer", "ns", DEFAULT_PROFILE_TYPE),
        ("ctimer", "ns", DEFAULT_PROFILE_TYPE),
        ("perf_events", "ns", DEFAULT_PROFILE_TYPE),
        ("perf_events", "total", "perf_events:perf_events:total:perf_events:total"),
        ("wall", "ns", "wall:wall:nanoseconds:wall:nanoseconds"),
        ("object_sampler", "bytes", "memory:alloc_space:bytes:alloc_space:bytes"),
    ],
)
def test_async_profiler_names_types_by_its_engines(engine: str, unit: str, profile_type: str) -> None:
    made = Otlp()
    made.scope.ClearField("profiles")
    profile = made.add_profile((engine, unit), (engine, unit), 10)
    profile.samples.add(stack_index=made.stack(made.location("", [("run", "A.java", 3)])), values=[70])
    batch = raw(read(made.data))
    assert (batch.profile_type, batch.sample_value.tolist()) == (profile_type, [70])


def test_native_frames_keep_their_addresses_for_symbol_files_and_named_frames_their_names() -> None:
    batch = raw(read(host().data))
    kernel, native, python = batch.stack_frames[:3].tolist()
    of_native = batch.mappings[batch.location_mapping[native]]
    assert (of_native.kind, of_native.build_id, of_native.file) == (Mapping.FILE, "gnu:aabb01", "/usr/lib/libz.so")
    assert batch.location_address[native] == 0x1234
    assert batch.mappings[batch.location_mapping[kernel]].kind == Mapping.KERNEL
    assert batch.strings[batch.line_function[0]] == "do_syscall_64"
    of_python = batch.mappings[batch.location_mapping[python]]
    assert (of_python.kind, of_python.file) == (Mapping.NAMED, "[python]")
    assert batch.strings[batch.location_function[python]] == "handle"


def test_strings_may_be_references_into_the_dictionary() -> None:
    made = Otlp()
    made.resource_attributes({"service.name": "by-reference"}, by_reference=True)
    made.profile.samples.add(stack_index=made.stack(made.location("jvm", [("run", "A.java", 3)])), values=[1])
    assert raw(read(made.data)).series == [(("service", "by-reference"),)]


def test_without_a_service_the_executable_names_it() -> None:
    made = Otlp()
    made.resource_attributes({"service.name": "unknown_service:java", "process.executable.name": "java"})
    made.profile.samples.add(stack_index=made.stack(made.location("jvm", [("run", "A.java", 3)])), values=[1])
    assert dict(raw(read(made.data)).series[0])["service"] == "java"


@pytest.mark.parametrize(
    ("thread", "service"), [("kworker/u8:3", "kworker"), ("kdamond.0", "kdamond.0"), ("/opt/run", "/opt/run")]
)
def test_without_an_executable_the_thread_names_it_and_kernel_threads_share_a_service(
    thread: str, service: str
) -> None:
    made = Otlp()
    stack = made.stack(made.location("kernel", [("schedule", "", 0)]))
    made.profile.samples.add(stack_index=stack, attribute_indices=[made.attribute("thread.name", thread)], values=[1])
    assert raw(read(made.data)).series == [(("service", service), ("thread_name", thread))]


def test_named_frames_without_a_type_are_in_the_file_of_their_mapping() -> None:
    made = Otlp()
    made.resource_attributes({"service.name": "shop"})
    untyped = made.location("", [("work", "", 0)], mapping=made.mapping("/usr/bin/shop", {}))
    made.profile.samples.add(stack_index=made.stack(untyped), values=[1])
    assert [mapping.file for mapping in raw(read(made.data)).mappings[1:]] == ["/usr/bin/shop"]


def test_profiles_of_two_processes_are_two_batches_and_one_that_comes_again_is_one() -> None:
    def batch_id(pid: int, profile_id: bytes) -> str:
        made = Otlp()
        made.resource_attributes({"service.name": "shop", "process.pid": str(pid)})
        made.profile.profile_id = profile_id
        made.profile.samples.add(stack_index=made.stack(made.location("jvm", [("run", "A.java", 3)])), values=[4])
        return raw(read(made.data)).id.collector

    for profile_id in (b"", bytes(15) + b"1"):
        assert batch_id(7, profile_id) == batch_id(7, profile_id)
        assert batch_id(7, profile_id) != batch_id(8, profile_id)


def test_profiles_do_not_hold_the_dictionary() -> None:
    made = Otlp()
    made.profile.profile_id = b""
    made.string("x" * 100_000)
    made.profile.samples.add(stack_index=made.stack(made.location("jvm", [("run", "A.java", 3)])), values=[4])
    assert len(read(made.data).identity) < 1000


@pytest.mark.parametrize("name", ["duration_nano", "time_unix_nano"])
def test_times_that_no_message_may_hold_refuse_their_profile_only(name: str) -> None:
    made = host()
    bad = made.add_profile(("samples", "count"), ("cpu", "nanoseconds"), PERIOD_NS)
    bad.samples.add(stack_index=1, values=[1])
    setattr(bad, name, 2**64 - 1)
    found = read_otlp(made.data, 100)
    assert (len(found.profiles), len(found.refused)) == (1, 1)
    assert "times" in found.refused[0]


def test_off_cpu_is_the_profile_type_of_collectors() -> None:
    made = Otlp()
    made.resource_attributes({"service.name": "waits"})
    del made.scope.profiles[:]
    profile = made.add_profile(("off_cpu", "nanoseconds"), ("events", "count"), 1)
    profile.samples.add(
        stack_index=made.stack(made.location("jvm", [("park", "A.java", 3)])),
        values=[700], timestamps_unix_nano=[START_UNIX_NANO + 1],
    )  # fmt: skip
    batch = raw(read(made.data))
    assert (batch.profile_type, batch.sample_value.tolist()) == (OFF_CPU_PROFILE_TYPE, [700])


def test_json_has_ids_in_hex() -> None:
    data = host().data
    as_json = json_format.MessageToDict(data)
    for link in as_json["dictionary"]["linkTable"]:
        for name in link:
            link[name] = base64.b64decode(link[name]).hex()
    profile = as_json["resourceProfiles"][0]["scopeProfiles"][0]["profiles"][0]
    profile["profileId"] = base64.b64decode(profile["profileId"]).hex()
    profile["fieldOfANewerVersion"] = 1
    assert otlp_json.parse_profiles(json.dumps(as_json).encode()) == data


@pytest.mark.parametrize("profile_id", [bytes(16), b"?"])
def test_profiles_without_a_valid_id_are_told_apart_by_what_their_indices_refer_to(profile_id: bytes) -> None:
    identities = set()
    for name in ("handle", "render"):
        made = Otlp()
        made.profile.profile_id = profile_id
        made.profile.samples.add(stack_index=made.stack(made.location("cpython", [(name, "", 1)])), values=[1])
        (sent,) = read_otlp(parse_profiles(made.data.SerializeToString()), 100).profiles
        identities.add(sent.identity)
    assert len(identities) == 2


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"a"', b'{"resourceProfiles": 5}', b"[" * 100_000, b"\xff"])
def test_json_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        otlp_json.parse_profiles(body)


SAMPLE_1_9 = varint(1 << 3) + varint(1) + packed(2, [1])  # stack_index, values
OLDER = {
    "1.9": of_samples([SAMPLE_1_9 + packed(3, [1, 2]) + field_of(5, START_UNIX_NANO.to_bytes(8, "little"))]),
    "1.9 without attributes": of_samples([SAMPLE_1_9]),
    "1.9 with links": of_samples([SAMPLE_1_9 + varint(4 << 3) + varint(1)]),
    "1.8": of_samples([SAMPLE_1_9], profile=field_of(8, bytes(16))),
    "1.7": of_samples([], profile=packed(3, [1]), dictionary=field_of(6, field_of(1, b"thread.name"))),
    "1.6": field_of(1, field_of(2, field_of(2, field_of(2, packed(3, [1]))))),
}


@pytest.mark.parametrize("version", OLDER)
def test_older_versions_are_refused_with_their_number(version: str) -> None:
    with pytest.raises(Refused, match=rf"opentelemetry-proto {version[:3]}") as refused:
        read_otlp(parse_profiles(OLDER[version]), 100)
    assert refused.value.status == 415


def test_a_faulty_sample_refuses_its_profile_only_where_others_show_the_version() -> None:
    made = host()
    for number in range(3):
        profile = made.add_profile(("samples", "count"), ("cpu", "nanoseconds"), PERIOD_NS)
        profile.samples.add(stack_index=1, attribute_indices=[1], values=[1])
        if number == 0:
            profile.samples.add(stack_index=1, attribute_indices=[1, 1], values=[1])
        if number == 1:
            profile.samples.add(stack_index=1, attribute_indices=[1])
    found = read_otlp(parse_profiles(made.data.SerializeToString()), 100)
    assert len(found.profiles) == 2
    assert sorted(found.refused) == [
        "samples.attribute_indices: expected each index once",
        "samples.values: expected none, or as many as there are timestamps (0), got 0",
    ]


def test_what_is_no_text_or_beyond_the_limits_is_counted_once() -> None:
    made = host()
    made.resource.attributes.add(key="host.ip").value.array_value.values.add(string_value="10.0.0.1")
    made.resource.attributes.add(key="process.command_args").value.array_value.values.add(string_value="-x")
    made.resource.attributes.add(key="note").value.string_value = "n" * 201
    lines = [("f" * 1025 if line == 0 else f"f{line}", "", line) for line in range(40)]
    made.profile.samples.add(stack_index=made.stack(made.location("native", lines)), values=[1])
    made.add_profile(("samples", "count"), ("cpu", "nanoseconds"), PERIOD_NS)
    found = read_otlp(parse_profiles(made.data.SerializeToString()), 100)
    assert found.profiles[0].dropped == {"attributes": 1, "label_values": 2, "names": 1, "lines": 8}
    assert found.profiles[1].dropped == {"label_values": 1}


def test_older_versions_are_refused_in_json_too() -> None:
    body = {"resourceProfiles": [{"scopeProfiles": [{"profiles": [{"sample": [{"value": [1]}]}]}]}]}
    with pytest.raises(Refused, match=r"1\.8"):
        otlp_json.parse_profiles(json.dumps(body).encode())


def test_fields_of_newer_versions_are_left_out() -> None:
    data = host().data.SerializeToString() + field_of(99, b"new")
    assert len(read_otlp(parse_profiles(data), 100).profiles) == 1


@pytest.mark.parametrize(
    "change",
    ["stack", "link", "attribute", "location", "mapping", "function", "string", "values", "many values", "empty"],
)
def test_a_profile_that_contradicts_itself_is_refused_and_others_are_read(change: str) -> None:
    made = host()
    dictionary, sample = made.data.dictionary, made.profile.samples[0]
    bad = made.add_profile(("samples", "count"), ("cpu", "nanoseconds"), PERIOD_NS).samples.add(stack_index=1)
    bad.CopyFrom(sample)
    if change == "stack":
        bad.stack_index = 99
    elif change == "link":
        bad.link_index = -1
    elif change == "attribute":
        made.scope.profiles[1].attribute_indices.append(99)
    elif change == "values":
        bad.values.append(1)
    elif change == "many values":
        bad.ClearField("timestamps_unix_nano")
        bad.values.extend([1, 2])
    elif change == "empty":
        made.scope.profiles[1].sample_type.type_strindex = 10**6
    else:
        location = dictionary.location_table.add()
        if change == "location":
            bad.stack_index = made.stack(99)
        elif change == "mapping":
            location.mapping_index = 99
        elif change == "function":
            location.lines.add(function_index=99)
        elif change == "string":
            dictionary.function_table.add(name_strindex=-5)
            location.lines.add(function_index=len(dictionary.function_table) - 1)
        if change != "location":
            bad.stack_index = made.stack(len(dictionary.location_table) - 1)
    found = read_otlp(made.data, 100)
    assert (len(found.profiles), len(found.refused)) == (1, 1)
