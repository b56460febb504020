"""`icestream scrape`, and `icestream gateway` with a file of scrape jobs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from icestream.messages.raw import decode_raw
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from tests.gateway.profiles import simple
from tests.gateway.scrape.servers import Request, serving
from tests.pipeline.reading import messages
from tests.waiting import PATIENCE_S, wait_until

ICESTREAM = [sys.executable, "-m", "icestream.cli"]
SCRAPE = ["scrape", "--metrics-listen", "127.0.0.1:0", "--config"]
GATEWAY = ["gateway", "--gateway-listen", "127.0.0.1:0", "--gateway-grpc-listen", "127.0.0.1:0", "--gateway-scrape"]
JOB = """
scrape_configs:
  - job_name: shop
    scrape_interval: 200ms
    scrape_timeout: 1m
    static_configs: [{targets: ["TARGET"]}]
"""


@pytest.mark.parametrize("command", [SCRAPE, GATEWAY], ids=["scrape", "gateway"])
def test_the_targets_of_a_file_are_scraped_until_it_is_told_to_end(
    in_process_broker: KafkaSettings, tmp_path: Path, command: list[str]
) -> None:
    def answer(request: Request) -> None:
        made = simple({("main", "work"): (3, 30_000_000)})
        made.time_nanos = time.time_ns()
        request.answer(made.SerializeToString())

    with serving(answer) as served:
        (tmp_path / "scrape.yaml").write_text(JOB.replace("TARGET", served.address))
        program = subprocess.Popen(
            [*ICESTREAM, *command, tmp_path / "scrape.yaml"],
            env={**os.environ, **in_process_broker.environ()},
        )
        try:
            wait_until(lambda: any(True for _ in messages(in_process_broker, RAW)))
            program.send_signal(signal.SIGTERM)
            assert program.wait(PATIENCE_S) == 0
        finally:
            program.kill()
            program.wait()
    assert {dict(decode_raw(one.value()).series[0])["service"] for one in messages(in_process_broker, RAW)} == {"shop"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "listen", "told", "code"),
    [
        ("scrape_configs: 5", "127.0.0.1:0", "expected a list", 2),
        (None, "127.0.0.1:0", "No such file", 1),  # it may come
        ("{}", "127.0.0.1:x", "cannot listen on --metrics", 1),
    ],
)
def test_what_it_cannot_do_is_one_line(tmp_path: Path, text: str | None, listen: str, told: str, code: int) -> None:
    if text is not None:
        (tmp_path / "scrape.yaml").write_text(text)
    ended = subprocess.run(
        [*ICESTREAM, "scrape", "--config", tmp_path / "scrape.yaml", "--metrics-listen", listen],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.returncode == code
    assert told in ended.stderr.splitlines()[-1]
