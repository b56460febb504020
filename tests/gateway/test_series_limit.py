"""Floods of labels."""

import dataclasses
import gzip
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from gateway import series_limit
from gateway.encode import encode
from gateway.readers.pprof import Source, read_pprof
from gateway.sent_profile import SentProfile
from gateway.series_limit import OTHER_SERVICES, SeriesLimit
from gateway.settings import GatewaySettings
from icestream.messages.plausible import ANY_TIME
from icestream.messages.raw import decode_raw
from icestream.settings import KafkaSettings
from tests.gateway.profiles import simple
from tests.gateway.served import Gateway, serve
from tests.waiting import PATIENCE_S

ONLY_SERVICE = (("service", "shop"),)


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def sent(service: str = "shop", **labels: str) -> SentProfile:
    """Two samples."""
    profile = simple({("main",): (1, 10), ("main", "work"): (1, 20)}, labels=labels)
    return read_pprof(profile.SerializeToString(), Source((("service", service),)), 100)


def series(profile: SentProfile, limit: SeriesLimit) -> list[tuple[tuple[str, str], ...]]:
    (message,) = encode(profile, ANY_TIME, limit).messages
    batch = decode_raw(message)
    assert batch.sample_value.tolist() == [10, 20]
    return batch.series


def test_series_beyond_the_limit_of_a_service_keep_only_the_service() -> None:
    clock = Clock()
    limit = SeriesLimit(2, clock)
    first, second, third = (sent(request=f"r{number}") for number in range(3))
    assert series(first, limit) == [(("request", "r0"), ("service", "shop"))]
    assert series(second, limit) == [(("request", "r1"), ("service", "shop"))]
    assert series(third, limit) == [ONLY_SERVICE]
    assert (first.dropped, third.dropped) == ({}, {"series": 2})
    assert series(sent(request="r0"), limit) == [(("request", "r0"), ("service", "shop"))]  # it is known
    assert series(sent("cart", request="r9"), limit) == [(("request", "r9"), ("service", "cart"))]
    clock.seconds = 3601.0
    assert series(sent(request="r2"), limit) == [(("request", "r2"), ("service", "shop"))]


def test_a_profile_that_comes_again_is_the_same_batch_though_its_series_are_limited() -> None:
    limited, free = SeriesLimit(1), SeriesLimit(2)
    for one in (limited, free):
        series(sent(request="r0"), one)
    (first,), (again,) = (encode(sent(request="r1"), ANY_TIME, one).messages for one in (limited, free))
    assert decode_raw(first).series != decode_raw(again).series
    assert decode_raw(first).id == decode_raw(again).id


def large_labels() -> SentProfile:
    """40 samples, whose labels need several messages."""
    profile = simple({(f"f{number}",): (1, 10 + number) for number in range(40)})
    profile.string_table.extend(["v" * 200, *(f"label{number}" for number in range(200))])
    first = len(profile.string_table) - 200
    for number, sample in enumerate(profile.sample):
        for key in range(first, first + 199):
            sample.label.add(key=key, str=first - 1)
        profile.string_table.append(f"sample{number}")
        sample.label.add(key=first + 199, str=len(profile.string_table) - 1)
    return read_pprof(profile.SerializeToString(), Source((("service", "shop"),)), 100)


def test_a_profile_that_comes_again_has_the_same_samples_in_each_part_though_its_series_are_limited() -> None:
    first, again = (
        [decode_raw(message) for message in encode(large_labels(), ANY_TIME, limit).messages]
        for limit in (SeriesLimit(1), SeriesLimit(100))
    )
    assert len(again) > 1
    assert sum(len(part.series) for part in again) == 40 > sum(len(part.series) for part in first)
    assert [part.id for part in first] == [part.id for part in again]
    assert [part.sample_value.tolist() for part in first] == [part.sample_value.tolist() for part in again]


def test_services_beyond_the_limit_of_all_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_limit, "_MOST", 4)
    limit = SeriesLimit(100, Clock())
    for service in ("a", "b"):  # each counts as a service, and as a series
        assert series(sent(service, zone="x"), limit) == [(("service", service), ("zone", "x"))]
    assert series(sent("c", zone="x"), limit) == [(("service", OTHER_SERVICES),)]
    assert series(sent("a", zone="y"), limit) == [(("service", "a"),)]


def test_new_services_take_little_memory() -> None:
    window = sent().window
    limit = SeriesLimit(1, Clock())
    tracemalloc.start()
    for number in range(15_000):
        limit.apply(dataclasses.replace(window, labels=[(("service", f"{number:0200}"),)]))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 2 * 15_000 * 130  # a service and a series each


@pytest.fixture
def gateway(in_process_broker: KafkaSettings) -> Iterator[Gateway]:
    yield from serve(GatewaySettings(kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S, gateway_service_series=3))


def test_a_flood_is_told_to_its_sender(gateway: Gateway) -> None:
    answers = []
    for number in range(5):
        profile = simple({("main",): (1, 10)}, labels={"request": f"r{number}"})
        profile.time_nanos = time.time_ns()
        body = gzip.compress(profile.SerializeToString())
        answers.append(gateway.http.post("/api/v1/ingest/pprof", params={"service": "shop"}, content=body).json())
    assert [answer["dropped"] for answer in answers] == [{}, {}, {}, {"series": 1}, {"series": 1}]
    assert len({labels for batch in gateway.batches() for labels in batch.series}) == 4
