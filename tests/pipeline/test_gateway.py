"""Profiles of other tools through the running pipeline."""

import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from collector.elf import identity
from icestream.pprof.profile_pb2 import Profile
from tests.gateway.otlp import Otlp
from tests.gateway.profiles import maker, simple
from tests.pipeline.running import ICESTREAM, Pipeline, between
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.pipeline


SOURCE = """
static __attribute__((noinline)) int scan(volatile int *x) { return *x * 7; }
__attribute__((noinline)) int parse(volatile int *x) { return scan(x) * 3 + 1; }
int main() { volatile int x = 4; return parse(&x) + 1; }
"""
LOADED_AT = 0x5555_5555_4000
VALUE_NS = 30_000_000


def test_a_pushed_profile_is_found_and_named_and_the_gateway_ends_when_told(
    embedded_pipeline: Pipeline,
) -> None:
    pipeline = embedded_pipeline
    pipeline.start("gateway")
    ready = f"http://{pipeline.gateway}/readyz"
    pipeline.wait(lambda: urllib.request.urlopen(ready, timeout=PATIENCE_S).status, lambda status: status == 200)
    start = time.time_ns() - 60 * 10**9
    profile = simple({("main", "work"): (3, 30_000_000), ("main",): (1, 10_000_000)}, labels={"region": "eu"})
    profile.time_nanos = start
    url = f"http://{pipeline.gateway}/api/v1/ingest/pprof?service=pushed"
    for _ in range(2):  # a sender that did not see the answer sends it again
        urllib.request.urlopen(urllib.request.Request(url, profile.SerializeToString()), timeout=PATIENCE_S)
    end, of_region = time.time_ns(), '{service="pushed", region="eu"}'
    pipeline.wait(lambda: pipeline.total(start, end, of_region), lambda total: total == 40_000_000)
    profile.time_nanos = start + 1
    urllib.request.urlopen(urllib.request.Request(url, profile.SerializeToString()), timeout=PATIENCE_S)
    pipeline.wait(lambda: pipeline.total(start, end, '{service="pushed"}'), lambda total: total >= 80_000_000)
    assert pipeline.total(start, end, '{service="pushed"}') == 80_000_000
    assert pipeline.get("/api/v1/completeness", start="now-1h", end="now")["holes"] == []
    names_come_from_an_upload(pipeline)
    assert pipeline.stop("gateway") == 0


def names_come_from_an_upload(pipeline: Pipeline) -> None:
    """Frames without names, of a program that was moved when it was loaded: pushed as pprof and as OTLP. Then
    its symbols are uploaded; those of local functions were stripped."""
    program = pipeline.data / "program"
    source = pipeline.data / "program.c"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-pie", "-fPIE", "-Wl,--build-id", source, "-o", program], check=True)
    build_id = identity.read_bytes(program.read_bytes()).build_id.removeprefix("gnu:")
    lines = [line.split() for line in subprocess.check_output(["nm", program], text=True).splitlines()]
    address = {line[-1]: int(line[0], 16) for line in lines if len(line) == 3}
    subprocess.run(["strip", "--discard-all", program], check=True)
    leaf_first = [address["scan"] + 2, address["parse"] + 8, address["main"] + 8]
    start = time.time_ns() - 30 * 10**9
    profiles = {
        "/api/v1/ingest/pprof?service=native": native_pprof(program, build_id, leaf_first, start).SerializeToString(),
        "/v1development/profiles": native_otlp(program, build_id, leaf_first, start).data.SerializeToString(),
    }

    def graph(service: str) -> str:
        query = between(start, time.time_ns())
        selector = f'{{service="{service}"}}'
        return str(pipeline.get("/api/v1/merge", format="collapsed", selector=selector, **query)).strip()

    for path, body in profiles.items():
        headers = {"content-type": "application/x-protobuf"}
        request = urllib.request.Request(f"http://{pipeline.gateway}{path}", body, headers)
        urllib.request.urlopen(request, timeout=PATIENCE_S)
    unnamed = {f"[program];[program];[program] {VALUE_NS}"}
    services = ("native", "native-otlp")
    pipeline.wait(lambda: [graph(service) for service in services], lambda texts: set(texts) == unnamed)
    upload = [*ICESTREAM, "symbols", "upload", "--kafka", pipeline.settings.kafka, str(program)]
    subprocess.run(upload, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    named = {f"main;parse;program+{address['scan']:#x} {VALUE_NS}"}  # where it begins is known
    pipeline.wait(lambda: [graph(service) for service in services], lambda texts: set(texts) == named)


def native_pprof(program: Path, build_id: str, leaf_first: list[int], start: int) -> Profile:
    made = maker([("cpu", "nanoseconds")], ("cpu", "nanoseconds"))
    made.profile.time_nanos = start
    made.profile.mapping.add(
        id=1, memory_start=LOADED_AT + 0x1000, memory_limit=LOADED_AT + 0x2000, file_offset=0x1000,
        filename=made.string(str(program)), build_id=made.string(build_id),
    )  # fmt: skip
    for number, at in enumerate(leaf_first, 1):
        made.profile.location.add(id=number, mapping_id=1, address=LOADED_AT + at)
    made.profile.sample.add(location_id=range(1, len(leaf_first) + 1), value=[VALUE_NS])
    return made.done()


def native_otlp(program: Path, build_id: str, leaf_first: list[int], start: int) -> Otlp:
    made = Otlp()
    made.resource_attributes({"service.name": "native-otlp"})
    made.profile.time_unix_nano, made.profile.period = start, VALUE_NS
    mapping = made.mapping(str(program), {"gnu": build_id}, memory_start=LOADED_AT)
    locations = [made.location("native", mapping=mapping, address=LOADED_AT + at) for at in leaf_first]
    made.profile.samples.add(stack_index=made.stack(*locations), values=[1])
    return made
