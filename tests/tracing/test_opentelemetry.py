"""OpenTelemetry's own API, with its real SDK."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest
from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from icestream import tracing
from icestream.tracing.threads import local
from tests.tracing.traced import TRACE, Listener, burn


@pytest.fixture(scope="module")
def tracer() -> trace.Tracer:
    """The tracer of the global provider: a process can set it once only."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider(resource=Resource.create({"service.name": "by-opentelemetry"})))
    return trace.get_tracer("tests")


def _hex(span: trace.Span) -> tuple[str, str]:
    context = span.get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def _current() -> tuple[str, str] | None:
    """What this thread's record says."""
    record = local.thread.slot.value if local.thread else None
    if record is None:
        return None
    context = local.thread.context
    assert context is not None
    full = context.record
    assert full.startswith(record)  # up to the first zero byte
    return full[:16].hex(), full[16:24].hex()


def test_the_thread_is_in_the_current_span_and_back_in_the_parent(started: Listener, tracer: trace.Tracer) -> None:
    with tracer.start_as_current_span("outer") as outer:
        assert _current() == _hex(outer)
        with tracer.start_as_current_span("inner") as inner:
            assert _current() == _hex(inner)
        assert _current() == _hex(outer)
    assert _current() is None


def test_names_parents_and_ends_are_reported(started: Listener, tracer: trace.Tracer) -> None:
    before = time.monotonic_ns()
    with tracer.start_as_current_span("GET /outer") as outer, tracer.start_as_current_span("SELECT") as inner:
        pass
    after = time.monotonic_ns()
    tracing.stop()
    spans = {span.name: span for span in started.take().spans}
    assert spans["GET /outer"].span_id.hex() == _hex(outer)[1]
    assert spans["GET /outer"].parent_span_id == b""
    assert spans["SELECT"].parent_span_id == spans["GET /outer"].span_id
    assert spans["SELECT"].trace_id.hex() == _hex(inner)[0]
    for span in spans.values():
        assert before - 10**6 <= span.start_unix_nano <= span.end_unix_nano <= after + 10**6


def test_times_that_are_floats_or_beyond_all_clocks_lose_no_activity(started: Listener, tracer: trace.Tracer) -> None:
    for start in (time.time() * 1e9, 2**80):
        tracer.start_span("odd", start_time=start).end()  # type: ignore[arg-type]
        with tracing.span(TRACE, name="even"):
            pass
        time.sleep(0.3)  # sent apart
    tracing.stop()
    heard = started.take()
    assert [span.name for span in heard.spans if span.name == "even"] == ["even"] * 2
    assert heard.dropped == 0


def test_the_application_sets_its_provider_after_the_start() -> None:
    """The environment names one that the API makes when it is first asked for one."""
    script = (
        "from icestream import tracing; tracing.start(service='s', socket='/nowhere')\n"
        "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider\n"
        "own = TracerProvider(); trace.set_tracer_provider(own); print(trace.get_tracer_provider() is own)"
    )
    environ = os.environ | {"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}
    run = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert run.stdout == "True\n", run.stderr


def test_a_span_that_failed_has_an_error(started: Listener, tracer: trace.Tracer) -> None:
    with tracer.start_as_current_span("fine") as fine:
        fine.set_status(trace.StatusCode.OK)
    with contextlib.suppress(ValueError), tracer.start_as_current_span("failed"):
        with tracer.start_as_current_span("within"):
            pass
        raise ValueError("no stock")
    tracing.stop()
    assert {span.name: span.status for span in started.take().spans} == {"fine": 0, "failed": 2, "within": 0}


def test_threads_and_tasks_have_their_own_spans(started: Listener, tracer: trace.Tracer) -> None:
    burned: dict[str, int] = {}

    async def task(name: str) -> None:
        with tracer.start_as_current_span(name) as span:
            mine = 0
            for _ in range(8):
                assert _current() == _hex(span)
                mine += burn(2)
                await asyncio.sleep(0)
            burned[_hex(span)[0]] = mine + await asyncio.to_thread(burn, 5)

    async def tasks(names: list[str]) -> None:
        await asyncio.gather(*(task(name) for name in names))

    workers = [threading.Thread(target=asyncio.run, args=(tasks(["a", "b"]),)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    tracing.stop()
    heard = started.take()
    heard.assert_no_overlap()
    assert len(burned) == 4
    for trace_id, cpu in burned.items():
        assert cpu <= heard.thread_cpu_ns(trace_id) <= cpu + 10e6


def test_a_context_that_came_from_another_process_counts(started: Listener) -> None:
    token = otel_context.attach(propagate.extract({"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}))
    assert _current() == (TRACE, "b7ad6b7169203331")
    otel_context.detach(token)
    assert _current() is None


def test_spans_that_are_not_sampled_have_cpu_all_the_same(started: Listener) -> None:
    tracer = TracerProvider(sampler=ALWAYS_OFF).get_tracer("off")
    with tracer.start_as_current_span("unsampled") as span:
        assert _current() == _hex(span)
        burned = burn(5)
    tracing.stop()
    assert started.take().thread_cpu_ns(_hex(span)[0]) >= burned


def test_spans_by_hand_and_by_opentelemetry_nest(started: Listener, tracer: trace.Tracer) -> None:
    with tracing.span(TRACE, "b7ad6b7169203331"), tracer.start_as_current_span("outer") as outer:
        with tracing.span(TRACE, "b7ad6b7169203332"):
            with tracer.start_as_current_span("inner") as inner:
                assert _current() == _hex(inner)
            assert _current() == (TRACE, "b7ad6b7169203332")
        assert _current() == _hex(outer)
    assert _current() is None


def test_contexts_attached_before_start_or_over_stop_are_detached(listener: Listener, tracer: trace.Tracer) -> None:
    early = otel_context.attach(otel_context.get_current())
    tracing.start(service="tested", socket=listener.path)
    otel_context.detach(early)
    token = otel_context.attach(trace.set_span_in_context(tracer.start_span("open")))
    assert _current() is not None
    tracing.stop()
    otel_context.detach(token)
    assert _current() is None
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_context_detached_elsewhere_is_opentelemetrys_error_not_ours(
    started: Listener, tracer: trace.Tracer, caplog: pytest.LogCaptureFixture
) -> None:
    async def attach() -> object:
        return otel_context.attach(trace.set_span_in_context(tracer.start_span("lost")))

    async def main() -> None:
        otel_context.detach(await asyncio.create_task(attach()))

    asyncio.run(main())
    assert "Failed to detach context" in caplog.text
    assert _current() is None


def test_the_services_name_is_the_tracer_providers_where_none_was_given(
    listener: Listener, tracer: trace.Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = trace.get_tracer_provider()
    name = str(provider.resource.attributes["service.name"])  # type: ignore[attr-defined]
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    tracing.start(socket=listener.path)
    with tracer.start_as_current_span("any"):
        service = tracing.status().service
    tracing.stop()
    assert service == name
