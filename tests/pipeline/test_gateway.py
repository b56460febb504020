"""Profiles of other tools through the running pipeline."""

import time
import urllib.request

import pytest

from tests.gateway.profiles import simple
from tests.pipeline.running import Pipeline
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.pipeline


def test_a_pushed_profile_is_found_and_the_gateway_ends_when_told(embedded_pipeline: Pipeline) -> None:
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
    assert pipeline.stop("gateway") == 0
