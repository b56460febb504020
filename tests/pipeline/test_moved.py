"""One file by two paths, releases in folders of their own and scripts of one name, from a sender to the gate for CI."""

import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from icestream.pprof.profile_pb2 import Profile
from tests.gateway.profiles import maker
from tests.pipeline.running import ICESTREAM, Pipeline, between
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.pipeline

VALUE_NS = 10**9


def test_what_moved_passes_the_gate_and_each_graph_has_the_paths_of_its_processes(embedded_pipeline: Pipeline) -> None:
    pipeline = embedded_pipeline
    pipeline.start("gateway")
    ready = f"http://{pipeline.gateway}/readyz"
    pipeline.wait(lambda: urllib.request.urlopen(ready, timeout=PATIENCE_S).status, lambda status: status == 200)
    start = time.time_ns() - 60 * 10**9
    for version in ("1", "2"):
        program, script = f"/releases/{version}/app", f"/releases/{version}/lib/app.py"
        push(pipeline, "shop", version, profile(start, program, ["/build/app.c", script]))
        for service in ("a", "b"):
            push(pipeline, service, version, profile(start, "/usr/bin/python3", [f"/srv/{service}/{version}/main.py"]))
    span = between(start, time.time_ns())
    pipeline.wait(lambda: pipeline.get("/api/v1/merge", **span)["total"], lambda total: total == 6 * VALUE_NS)

    def rows(selector: str) -> list[tuple[str, str]]:
        top = pipeline.get("/api/v1/top", selector=selector, **span)["top"]
        return sorted((row["module"], row["file"]) for row in top)

    assert rows('{service="shop", version="1"}') == [
        ("/releases/1/app", "/build/app.c"), ("/releases/1/app", "/releases/1/lib/app.py"),
    ]  # fmt: skip
    assert [module for module, _ in rows('{service="shop", version="2"}')] == ["/releases/2/app"] * 2
    # One file by two paths: its function is one, and those of two programs are two.
    assert len(rows('{service="shop"}')) == 3
    assert rows('{service=~"a|b", version="1"}') == [
        ("/usr/bin/python3", "/srv/a/1/main.py"), ("/usr/bin/python3", "/srv/b/1/main.py"),
    ]  # fmt: skip
    for selector in ('service="shop"', 'service=~"a|b"', 'service="a"'):
        assert gate(pipeline, span, f'{{{selector}, version="2"}}', f'{{{selector}, version="1"}}') == 0
    assert gate(pipeline, span, '{service="a"}', '{service="shop"}') == 3


def profile(start_unix_nano: int, program: str, sources: list[str]) -> Profile:
    """One stack of functions `main`, one in each source, of a program that has the same build ID by each path."""
    made = maker([("samples", "count"), ("cpu", "nanoseconds")], ("cpu", "nanoseconds"))
    made.profile.time_nanos = start_unix_nano
    made.profile.mapping.add(
        id=1, memory_start=0x1000, memory_limit=0x9000, filename=made.string(program),
        build_id=made.string(Path(program).name.encode().hex() * 4),
    )  # fmt: skip
    for number, source in enumerate(sources, 1):
        made.profile.function.add(id=number, name=made.string("main"), filename=made.string(source))
        location = made.profile.location.add(id=number, mapping_id=1, address=0x1000 + number)
        location.line.add(function_id=number, line=7)
    made.profile.sample.add(location_id=range(1, len(sources) + 1), value=[100, VALUE_NS])
    return made.done()


def push(pipeline: Pipeline, service: str, version: str, pushed: Profile) -> None:
    labels = urllib.parse.urlencode({"service": service, "version": version})
    url = f"http://{pipeline.gateway}/api/v1/ingest/pprof?{labels}"
    urllib.request.urlopen(urllib.request.Request(url, pushed.SerializeToString()), timeout=PATIENCE_S)


def gate(pipeline: Pipeline, span: dict[str, str], selector: str, baseline: str) -> int:
    """The exit code of `icestream query diff --fail-over`."""
    command = [
        *ICESTREAM, "query", "diff", "--url", pipeline.url, "--selector", selector, "--baseline-selector", baseline,
        "--start", span["start"], "--end", span["end"], "--fail-over", "5%",
    ]  # fmt: skip
    return subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True).returncode
