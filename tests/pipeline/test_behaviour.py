"""What the pipeline does with messages, on Apache Kafka.

`make soak` runs the first test on the in-process broker, too: test_gateway.py shows in CI that the pipeline works
there. And it runs the second test: in CI, tests/fuzz sends more kinds of bad messages to all processes.
"""

import pytest

from icestream.topics import ACTIVITY, DEAD_LETTERS, RAW
from tests.data.windows import WINDOW_NS, Window, window
from tests.pipeline.reading import messages
from tests.pipeline.running import Pipeline, between

pytestmark = pytest.mark.pipeline


@pytest.mark.parametrize(
    "broker", ["apache_kafka", pytest.param("in_process_broker", marks=pytest.mark.soak)], indirect=True
)
def test_what_is_published_is_found_by_service_and_by_trace_and_counts_once_when_it_is_sent_again(
    pipeline: Pipeline, start_unix_nano: int
) -> None:
    made = [window(start_unix_nano, sequence, host) for host in range(3) for sequence in range(1, 5)]
    for index, one in enumerate(made):
        pipeline.publish(one, host=index // 4)
    start, end = start_unix_nano, start_unix_nano + 4 * WINDOW_NS

    pipeline.wait(lambda: pipeline.total(start, end), lambda total: total == sum(m.value for m in made))
    pipeline.settle()  # activity is stored by itself
    for service in made[0].by_service:
        assert pipeline.total(start, end, f'{{service="{service}"}}') == sum(m.by_service[service] for m in made)
    for trace, value in expected_traces(made).items():
        cpu = pipeline.get(f"/api/v1/traces/{trace}/cpu")
        assert (cpu["sampled_cpu_ns"], cpu["thread_cpu_ns"]) == (value, value)
        assert [(s["name"], s["sampled_cpu_ns"]) for s in cpu["spans"]] == [("GET /checkout", value)]
    heaviest = pipeline.get("/api/v1/traces", **between(start, end))["traces"]
    assert [t["sampled_cpu_ns"] for t in heaviest] == sorted((v for v in expected_traces(made).values()), reverse=True)

    fifth, sixth, last = (window(start_unix_nano, sequence) for sequence in (5, 6, 7))
    for one in (fifth, fifth, sixth, made[0], fifth, sixth, last):
        pipeline.publish(one)
    end, expected = start_unix_nano + 7 * WINDOW_NS, sum(m.value for m in (*made, fifth, sixth, last))
    recent = start_unix_nano + 6 * WINDOW_NS, end
    # Once the last window is in, all before it were processed: they are of one host.
    pipeline.wait(
        lambda: (pipeline.total(*recent), pipeline.total(start, end)),
        lambda totals: totals[0] >= last.value and totals[1] >= expected,
    )
    assert pipeline.total(start, end) == expected
    assert pipeline.total(*recent) == last.value


@pytest.mark.soak
@pytest.mark.parametrize("broker", ["apache_kafka"], indirect=True)
def test_bad_messages_become_dead_letters_and_stop_nothing(pipeline: Pipeline, start_unix_nano: int) -> None:
    good = [window(start_unix_nano, sequence) for sequence in range(1, 4)]
    bad = [b"\xff" * 100, good[0].raw[:-7], good[0].raw[: len(good[0].raw) // 2], b"\x00" * 800_000, b"not protobuf"]
    bad.append(window(start_unix_nano - 40 * 86_400 * 10**9, 1).raw)
    for one, spoiled in zip([*good, *good], bad, strict=True):
        pipeline.produce(RAW, spoiled)
        pipeline.produce(ACTIVITY, spoiled)
        pipeline.publish(one)
    start, end = start_unix_nano, start_unix_nano + 3 * WINDOW_NS
    pipeline.wait(lambda: pipeline.total(start, end), lambda total: total == sum(m.value for m in good))
    pipeline.settle()  # also the last bad messages are processed then, and every table is filled
    for trace, value in expected_traces(good).items():
        assert pipeline.get(f"/api/v1/traces/{trace}/cpu")["sampled_cpu_ns"] == value
    letters = dead_letters(pipeline)
    by_streams = [value for value, headers in letters if headers["icestream.stage"].startswith("streams")]
    assert sorted(by_streams) == sorted(bad * 2)

    def told() -> int:
        holes = pipeline.get("/api/v1/completeness", start="now-1h", end="now+1m")["holes"]
        return sum(hole["count"] for hole in holes if hole["kind"] == "dead_letters" and hole["host_id"] == "host-0")

    pipeline.wait(told, lambda count: count == 2 * len(bad))  # those of streams and sinks count once


def expected_traces(made: list[Window]) -> dict[str, int]:
    """CPU of each trace that got any."""
    return {trace: value for one in made for trace, value in one.by_trace.items() if value}


def dead_letters(pipeline: Pipeline) -> list[tuple[bytes, dict[str, str]]]:
    """All dead letters so far: the message, and its headers."""
    return [
        (message.value() or b"", {name: value.decode() for name, value in message.headers() or []})
        for message in messages(pipeline.settings, DEAD_LETTERS)
    ]
