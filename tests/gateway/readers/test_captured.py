"""What others sent: byte by byte, requests of tests/gateway/gosdk with Pyroscope's Go SDK, and of its Java agent with
PYROSCOPE_FORMAT=otlp; a few samples of a request of the OpenTelemetry eBPF profiler (August 2026), with other paths."""

import base64
import gzip
import json
from urllib.parse import parse_qsl

from google.protobuf import json_format
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData

from gateway.encode import encode
from gateway.http.routes.pyroscope_ingest import split_parts
from gateway.readers.ingested import Parts, read_ingested
from gateway.readers.otlp import parse_profiles, read_otlp
from gateway.reading_memory import Reading, ReadingMemory
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
        for profile_type, batch in batches(
            read_ingested(Parts(files), given, 1000, Reading(ReadingMemory(2**30)))
        ).items():
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
    assert (batch.sample_count * 10_000_000).tolist() == batch.sample_value.tolist()
    assert batch.sample_count.max() > 1
    assert "java/lang/Thread.run" in batch.strings


def test_the_opentelemetry_ebpf_profiler_names_programs_by_their_executables() -> None:
    sent = json.loads((ROOT / "tests/gateway/captured/otel_ebpf_profiler.json").read_text())
    found = read_otlp(json_format.ParseDict(sent, ProfilesData()), 1000)
    assert found.refused == []
    native, perl, python = (batches(one)[CPU] for one in found.profiles)
    assert [batch.series for batch in (native, perl, python)] == [
        [
            (
                ("executable", executable),
                ("process_executable_path", path),
                ("service", executable),
                ("thread_name", thread),
            )
        ]
        for executable, path, thread in (
            ("knownprog", "/app/knownprog", "knownprog"),
            ("perl", "/usr/bin/perl", "perl"),
            ("python3.11", "/usr/bin/python3.11", "python3"),
        )
    ]
    assert native.sample_value.tolist() == [10_309_278] * 3  # at 97 Hz
    assert (native.time_unix_nano // 1000 - 1795427854783945).tolist() == [0, 20620, 92787]  # in microseconds
    assert (native.sample_pid.tolist(), native.sample_tid.tolist()) == ([21862] * 3, [21862] * 3)
    known, libc = "gnu:7323b0b11664422fc0d79543977176e7492c827f", "gnu:93ac61ec5a8eb1396f9fbd350e3169a558528a40"
    frames = [(known, 0x116E), (known, 0x11C7), (libc, 0x27249), (libc, 0x27304), (known, 0x1060)]
    assert unnamed(native, 0) == frames
    assert unnamed(native, 1) == [("[kernel]", 0)] * 2 + frames
    assert named(native)[:2] == ["irqentry_exit_to_user_mode", "asm_sysvec_apic_timer_interrupt"]
    assert named(perl)[0] == "<top-level>"
    assert named(python)[:4] == ["inner_loop", "light", "work", "<module>"]


def unnamed(batch: RawColumns, stack: int) -> list[tuple[str, int]]:
    """The build ID, or else the file, of each frame, and its address."""
    ends = batch.stack_depth.cumsum()
    rows = batch.stack_frames[ends[stack] - batch.stack_depth[stack] : ends[stack]].tolist()
    mappings = [batch.mappings[batch.location_mapping[row]] for row in rows]
    return [(m.build_id or m.file, int(batch.location_address[row])) for m, row in zip(mappings, rows, strict=True)]


def named(batch: RawColumns) -> list[str]:
    """The functions of all lines that were sent."""
    return [batch.strings[row] for row in batch.line_function.tolist()] + [
        batch.strings[row] for row in batch.location_function.tolist() if row
    ]
