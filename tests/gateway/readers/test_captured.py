"""What Pyroscope's SDKs sent, byte by byte: requests of tests/gateway/gosdk with the Go SDK, and of its Java agent with
PYROSCOPE_FORMAT=otlp."""

import base64
import gzip
import json
from urllib.parse import parse_qsl

from gateway.encode import encode
from gateway.http.multipart import split_parts
from gateway.readers.ingested import Parts, read_ingested
from gateway.readers.otlp import parse_profiles, read_otlp
from gateway.sent_profile import SentProfile
from icestream.messages.plausible import ANY_TIME
from icestream.messages.raw import RawColumns, decode_raw
from icestream.pprof.profile_pb2 import Profile
from tests.prose import ROOT

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
TRACE, SPAN = "336a5e484a0d3d393d6c5cf8df4e7355", "e91e7bc3552cde26"
TYPES = {
    CPU: "main.burn",
    "goroutines:goroutine:count:goroutine:count": "main.wait",
    "memory:alloc_objects:count:space:bytes": "main.allocate",
    "memory:alloc_space:bytes:space:bytes": "main.allocate",
    "memory:inuse_objects:count:space:bytes": "main.allocate",
    "memory:inuse_space:bytes:space:bytes": "main.allocate",
    "mutex:contentions:count:contentions:count": "main.contend.func1",
    "mutex:delay:nanoseconds:contentions:count": "main.contend.func1",
    "block:contentions:count:contentions:count": "main.contend.func1",
    "block:delay:nanoseconds:contentions:count": "main.contend.func1",
}


def captured(name: str) -> list[dict[str, str]]:
    requests: list[dict[str, str]] = json.loads((ROOT / f"tests/gateway/captured/{name}.json").read_text())
    return requests


def batches(sent: SentProfile) -> dict[str, RawColumns]:
    """By profile type."""
    return {batch.profile_type: batch for batch in map(decode_raw, encode(sent, ANY_TIME).messages)}


def of_go_sdk() -> dict[str, tuple[RawColumns, int]]:
    """The batches by profile type, each with the sum that the profile has."""
    found = {}
    for request in captured("pyroscope_go_1.4.3"):
        files = split_parts(request["content_type"], base64.b64decode(request["body"]))
        files["profile"] = gzip.decompress(files["profile"])
        given = dict(parse_qsl(request["query"])) | {"format": "pprof"}
        profile = Profile.FromString(files["profile"])
        kinds = [profile.string_table[kind.type] for kind in profile.sample_type]
        for profile_type, batch in batches(read_ingested(Parts(files), given, 1000)).items():
            column = kinds.index(profile_type.split(":")[1])
            found[profile_type] = batch, sum(sample.value[column] for sample in profile.sample)
    return found


def test_the_go_sdk_sends_all_its_profile_types() -> None:
    found = of_go_sdk()
    assert set(found) == set(TYPES)
    for profile_type, (batch, total) in found.items():
        assert batch.sample_value.sum() == total
        assert TYPES[profile_type] in batch.strings
        assert all({("service", "checkout"), ("region", "eu"), ("host", "shop-1")} <= set(one) for one in batch.series)
        assert not any(name.startswith("_") for name, _ in batch.series[0])


def test_work_in_a_span_has_the_labels_trace_and_span_that_the_go_sdk_gave_it() -> None:
    cpu, total = of_go_sdk()[CPU]
    assert [context.tobytes().hex() for context in cpu.contexts] == [TRACE + SPAN]
    in_span = cpu.sample_context == 1
    assert 0 < cpu.sample_value[in_span].sum() < total
    labels = [set(cpu.series[row]) for row in cpu.sample_series.tolist()]
    of_span = {("endpoint", "/pay"), ("span_name", "GET /pay")}
    assert [of_span <= own for own in labels] == [bool(own & of_span) for own in labels] == in_span.tolist()


def test_what_the_java_agent_calls_by_its_engine_is_cpu_time() -> None:
    (request,) = captured("pyroscope_java_2.9.2")
    (sent,) = read_otlp(parse_profiles(gzip.decompress(base64.b64decode(request["body"]))), 1000).profiles
    batch = batches(sent)[CPU]
    assert batch.period == 10_000_000
    assert batch.sample_value.sum() > 0
    assert "java/lang/Thread.run" in batch.strings
