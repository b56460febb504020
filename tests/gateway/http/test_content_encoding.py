"""Content-Encodings of bodies, as the OpenTelemetry Collector's exporters send them."""

import base64
import random
import resource
import zlib

import cramjam
import pytest

from gateway.errors import Refused
from gateway.http.content_encoding import decode
from gateway.readers.otlp_spans import parse_spans
from tests.gateway.http.test_otlp_profiles import PATH, PROTOBUF
from tests.gateway.served import Gateway

NOISE = random.Random(1).randbytes(20_000)
LIMIT = 100_000

SENT = {
    "gzip": (
        "H4sIAAAAAAAA/+KaxCjkKuRYxeDI8DDNa77vBAlLBoZCFxBDi9fdNURBPzkjNTk7v7REiUGIg+FD+irulUzbuQS8f+qblm/2Xbb4"
        "3KS5fHzuZlwMXJ5cUkJcXBww9Vw8xalFZZnJqXp5ibmpXNpCclwyMDldTIYhF2dGfnEJWDEgAAD//zAwsJOVAAAA"
    ),
    "zstd": (
        "KLUv/QQARQQAtAcKkgESRRJBegBBAOFmSp9NkBg5AABxRJ9NkBgqDUdFVCAvY2hlY2tvdXQiABIIAPBnqgupArcKEEv5LzV3s02m"
        "o86SnQ4ORzYKAApJChoSCgoIY2hlY2tvdXQKDHNlcnZpY2UubmFtZQorEh4KHC0xCglob3N0Lm5hbWUDACwbkJJzHyKcAZBUGJM="
    ),
    "snappy": (
        "lQFYCpIBEkUSQXoAQQDhZkqfTZAYOQAAcUQBCdgqDUdFVCAvY2hlY2tvdXQiABIIAPBnqgupArcKEEv5LzV3s02mo86SnQ4ORzYK"
        "AApJChoSCgoIETBMCgxzZXJ2aWNlLm5hbWUKKxIeChwRHAAtRgkALDEKCWhvc3QubmFtZQ=="
    ),
    "x-snappy-framed": (
        "/wYAAHNOYVBwWQCDAACEO2QilQFYCpIBEkUSQXoAQQDhZkqfTZAYOQAAcUQBCdgqDUdFVCAvY2hlY2tvdXQiABIIAPBnqgupArcK"
        "EEv5LzV3s02mo86SnQ4ORzYKAApJChoSCgoIETBMCgxzZXJ2aWNlLm5hbWUKKxIeChwRHAAtRgkALDEKCWhvc3QubmFtZQ=="
    ),
    "lz4": (
        "BCJNGGRwuYYAAAD0QwqSARJFEkF6AEEA4WZKn02QGDkAAHFEn02QGCoNR0VUIC9jaGVja291dCIAEggA8GeqC6kCtwoQS/kvNXez"
        "TaajzpKdDg5HNgoACkkKGhIKCggwAPQFCgxzZXJ2aWNlLm5hbWUKKxIeChwcABgtCQDwA2Nrb3V0LTEKCWhvc3QubmFtZQAAAABt"
        "Ienx"
    ),
    "deflate": (
        "eJzimsQo5CrkWMXgyPAwzWu+7wQJSwaGQhcQQ4vX3TVEQT85IzU5O7+0RIlBiIPhQ/oq7pVM27kEvH/qm5Zv9l22+NykuXx87mZc"
        "DFyeXFJCXFwcMPVcPMWpRWWZyal6eYm5qVzaQnJcMjA5XUyGIRdnRn5xCVgxIAAA//81/S7o"
    ),
}
"""One span, as the exporter `otlp_http` of the Collector 0.155.0 sent it with each `compression`."""

PACK = {
    "zstd": cramjam.zstd.compress,
    "snappy": cramjam.snappy.compress_raw,
    "x-snappy-framed": cramjam.snappy.compress,
    "lz4": cramjam.lz4.compress,
    "deflate": zlib.compress,
    "zlib": zlib.compress,
}


@pytest.mark.parametrize("encoding", SENT)
def test_what_a_collector_packed_is_read(encoding: str) -> None:
    data = parse_spans(decode(base64.b64decode(SENT[encoding]), encoding, LIMIT))
    (resource,) = data.resource_spans
    assert [pair.value.string_value for pair in resource.resource.attributes] == [
        "checkout", "checkout-checkout-checkout-1",
    ]  # fmt: skip
    assert resource.scope_spans[0].spans[0].name == "GET /checkout"


@pytest.mark.parametrize("encoding", PACK)
def test_content_up_to_the_limit_is_read(encoding: str) -> None:
    packed = bytes(PACK[encoding](NOISE + bytes(LIMIT - len(NOISE))))
    assert decode(packed, encoding, LIMIT) == NOISE + bytes(LIMIT - len(NOISE))
    with pytest.raises(Refused) as refused:
        decode(packed, encoding, LIMIT - 1)
    assert (refused.value.status, refused.value.code) == (413, "too_large")


@pytest.mark.parametrize("encoding", PACK)
def test_what_is_cut_off_or_none_is_refused(encoding: str) -> None:
    for broken in (bytes(PACK[encoding](NOISE))[:-7], b"\x05none of them"):
        with pytest.raises(Refused) as refused:
            decode(broken, encoding, LIMIT)
        assert (refused.value.status, refused.value.code) == (400, "bad_body")


def test_a_small_body_takes_little_memory_whatever_the_limit() -> None:
    packed, before = zlib.compress(NOISE), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert decode(packed, "deflate", 1 << 29) == NOISE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # KiB: half of the limit


def test_bodies_are_read_with_the_encodings_that_are_known(gateway: Gateway) -> None:
    def status(body: bytes, encoding: str) -> int:
        headers = PROTOBUF | {"content-encoding": encoding}
        return gateway.http.post(PATH, content=body, headers=headers).status_code

    assert status(bytes(cramjam.zstd.compress(b"")), "zstd") == 200
    assert status(bytes(cramjam.zstd.compress(bytes(2_000_001))), "zstd") == 413
    assert status(b"", "identity") == 200
    assert status(b"", "br") == 415
