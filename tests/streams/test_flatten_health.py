"""/metrics and /readyz of `icestream flatten`."""

import urllib.request

import pytest

from icestream.cli import main
from icestream.http.metrics import parse_metrics
from icestream.settings import KafkaSettings
from icestream.topics import SAMPLES, STACKS
from tests.icestream.test_tail import send, stack_batch
from tests.ports import free_port
from tests.streams.test_flatten import running, sample_batch
from tests.waiting import PATIENCE_S, wait_until


def test_metrics_say_what_was_published_and_what_it_lacks(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.flatten.flattener._NAMES_WAIT_S", 0.1)
    listen = f"127.0.0.1:{free_port()}"

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://{listen}{path}", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def ready() -> bool:
        try:
            return get("/readyz") == '{"status": "ready"}'
        except OSError:  # not yet, or 503
            return False

    def metric(name: str) -> float:
        return sum(sample.value for sample in parse_metrics(get("/metrics")).get(f"icestream_flatten_{name}", []))

    expected = {
        "messages": 1, "records": 3, "unresolved_records": 2, "unknown_contexts": 1, "repeated": 1, "refused": 1
    }  # fmt: skip

    def counts() -> dict[str, float]:
        return {name: metric(f"{name}_total") for name in expected}

    with running(in_process_broker, 200, metrics_listen=listen):
        wait_until(ready)
        before = counts()
        # Stack 2, which is in two of three records, is not announced yet.
        send(in_process_broker, (SAMPLES, sample_batch(1)), (SAMPLES, sample_batch(1)), (SAMPLES, b"\xff"))
        wait_until(lambda: {name: now - before[name] for name, now in counts().items()} == expected, counts)
        send(in_process_broker, (STACKS, stack_batch().SerializeToString()))
        wait_until(lambda: "icestream_flatten_lag_messages{" in get("/metrics") and metric("lag_messages") == 0)
        assert "icestream_streams_" not in get("/metrics")


def test_an_address_that_is_taken_is_told(in_process_broker: KafkaSettings, capsys: pytest.CaptureFixture[str]) -> None:
    taken = in_process_broker.kafka
    assert main(["flatten", "--kafka", in_process_broker.kafka, "--metrics-listen", taken]) == 1
    assert f"cannot listen on {taken}" in capsys.readouterr().err
