"""What `icestream up` runs, and how."""

from pathlib import Path

import pytest

from gateway.settings import GatewaySettings
from icestream.settings import KafkaSettings, SettingError
from standalone.settings import UpSettings
from standalone.supervisor.local_pipeline import LocalPipeline


@pytest.mark.parametrize(("ack_s", "more_than"), [("", 10.0), ("60", 60.0), ("absurd", 0.0)])
def test_the_gateway_has_time_to_end_for_what_waits_for_kafka(tmp_path: Path, ack_s: str, more_than: float) -> None:
    any_port = "127.0.0.1:0"
    settings = UpSettings(
        data=tmp_path, collector=False, listen=any_port, metrics_listen=any_port, gateway_listen=any_port,
        gateway_grpc_listen=any_port,
    )  # fmt: skip
    with LocalPipeline(settings) as pipeline:
        stop_s = {part.name: part.stop_s for part in pipeline._parts({"ICESTREAM_GATEWAY_ACK_S": ack_s})}
    assert stop_s["gateway"] > more_than
    assert stop_s["store"] < 10


def test_the_gateway_scrapes_what_the_file_of_up_says(tmp_path: Path) -> None:
    settings = UpSettings(data=tmp_path, gateway_scrape="scrape.yaml")
    environ = LocalPipeline(settings)._environ(KafkaSettings())
    assert GatewaySettings.load(environ).gateway_scrape == "scrape.yaml"


@pytest.mark.parametrize(
    ("text", "told"), [(None, "No such file"), ("scrape_config: []", "no field 'scrape_config'")], ids=["none", "typo"]
)
def test_a_mistake_in_the_file_of_scrape_jobs_is_told_before_anything_runs(
    tmp_path: Path, text: str | None, told: str
) -> None:
    file = tmp_path / "scrape.yaml"
    if text:
        file.write_text(text)
    settings = UpSettings(data=tmp_path / "data", gateway_scrape=str(file))
    with pytest.raises(SettingError, match=told), LocalPipeline(settings):
        raise AssertionError("it runs")
    assert not settings.folder.exists()
