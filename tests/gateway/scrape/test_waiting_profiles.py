"""Scraped profiles wait in memory while Kafka is away, and not more of them than fit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import pytest
from prometheus_client import REGISTRY

from gateway.encode import Encoded
from gateway.errors import unavailable
from gateway.intake import Intake
from gateway.publisher import BatchPublisher
from gateway.scrape import waiting_profiles
from gateway.scrape.waiting_profiles import WaitingProfiles
from gateway.settings import GatewaySettings
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from tests.pipeline.reading import messages
from tests.ports import free_port
from tests.waiting import PATIENCE_S


def profile(number: int, size: int = 1000, key: bytes = b"host") -> Encoded:
    return Encoded(key, [number.to_bytes(2) + bytes(size - 2)], 1)


async def waits(size: int) -> None:
    """Until so many bytes wait."""
    while REGISTRY.get_sample_value("icestream_gateway_scrape_waiting_bytes") != size:
        await asyncio.sleep(0.01)


def dropped() -> float:
    return REGISTRY.get_sample_value("icestream_gateway_scrape_dropped_total") or 0


class Recording(Intake):
    """Publishes for real, and keeps what was tried. While `away` says so of a profile, Kafka does not take it."""

    def __init__(self, settings: GatewaySettings, publisher: BatchPublisher, away: Callable[[int], bool]) -> None:
        super().__init__(settings, publisher)
        self.away = away
        self.tried: list[Encoded] = []

    async def publish(self, encoded: Sequence[Encoded], format_name: str) -> None:
        self.tried += encoded
        if self.away(number_of(encoded[0].messages[0])):
            raise unavailable("away")
        await super().publish(encoded, format_name)


class Hanging(Recording):
    """Answers nothing to profiles of this key, as when its partition has no leader, until it is cancelled."""

    async def publish(self, encoded: Sequence[Encoded], format_name: str) -> None:
        if encoded[0].key == b"hanging":
            await asyncio.Event().wait()
        await super().publish(encoded, format_name)


def number_of(message: bytes) -> int:
    return int.from_bytes(message[:2])


def run(publisher: BatchPublisher, work: Callable[[], Awaitable[None]]) -> None:
    """Does the work, and waits for what the publisher was given."""

    async def limited() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work()

    asyncio.run(limited())
    publisher.close()


@pytest.fixture
def settings(in_process_broker: KafkaSettings) -> GatewaySettings:
    return GatewaySettings(kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S)


@pytest.fixture
def publisher(settings: GatewaySettings) -> BatchPublisher:
    return BatchPublisher(settings)


def published(settings: GatewaySettings) -> list[int]:
    """Numbers of the profiles that Kafka has, in ascending order."""
    return sorted(number_of(message.value() or b"") for message in messages(settings, RAW))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_profiles, "_AGAIN_S", 0.01)


def test_what_waited_is_published_when_kafka_is_back_and_the_oldest_beyond_the_limit_are_dropped(
    settings: GatewaySettings, publisher: BatchPublisher, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    before = dropped()

    async def work() -> None:
        is_away = True
        intake = Recording(settings, publisher, lambda _: is_away)
        waiting = WaitingProfiles(intake, 30_000)
        running = asyncio.create_task(waiting.run())
        for number in range(100):
            waiting.add(profile(number))
            assert (REGISTRY.get_sample_value("icestream_gateway_scrape_waiting_bytes") or 0) <= 30_000
            await asyncio.sleep(0)
        while len(intake.tried) < 100:
            await asyncio.sleep(0.01)
        is_away = False
        await waiting.close(PATIENCE_S)
        while "Kafka has all" not in caplog.text:
            await asyncio.sleep(0.01)
        running.cancel()

    run(publisher, work)
    kept = published(settings)
    assert len(set(kept)) == len(kept) == 30
    assert set(kept) > set(range(86, 100))  # the newest, but for those of 16 that were being published at some moment
    assert kept[0] >= 70 - 16
    assert dropped() - before == 70
    assert caplog.text.count("scraped profiles wait in memory") == 1
    assert "70 were dropped" in caplog.text


def test_a_profile_that_kafka_never_takes_holds_up_no_others(
    settings: GatewaySettings, publisher: BatchPublisher
) -> None:
    async def work() -> None:
        intake = Recording(settings, publisher, lambda number: number < 40)
        waiting = WaitingProfiles(intake, 10**6)
        for number in range(50):
            waiting.add(profile(number))
        running = asyncio.create_task(waiting.run())
        while not {number_of(one.messages[0]) for one in intake.tried} >= set(range(40, 50)):
            await asyncio.sleep(0.01)
        await waits(40_000)  # Kafka has taken what was tried
        await waiting.close(0.1)
        running.cancel()

    before = dropped()
    run(publisher, work)
    assert published(settings) == list(range(40, 50))
    assert dropped() - before == 40


def test_a_key_whose_messages_hang_holds_up_no_others(settings: GatewaySettings, publisher: BatchPublisher) -> None:
    async def work() -> None:
        intake = Hanging(settings, publisher, lambda _: False)
        waiting = WaitingProfiles(intake, 10**6)
        running = asyncio.create_task(waiting.run())
        for number in range(100):  # most hang: more than are published at once
            waiting.add(profile(number, key=b"host" if number % 5 == 0 else b"hanging"))
            await asyncio.sleep(0.001)
        while len(intake.tried) < 20:
            await asyncio.sleep(0.01)
        await waits(80_000)
        await waiting.close(0.1)
        running.cancel()

    before = dropped()
    run(publisher, work)
    kept = published(settings)
    assert kept == list(range(0, 100, 5))
    assert dropped() - before == 80


def test_a_fault_of_ours_does_not_end_the_publishing(
    settings: GatewaySettings,
    publisher: BatchPublisher,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        waiting = WaitingProfiles(Intake(settings, publisher), 10**6)
        rightly, faults = waiting._next, iter([True, True])

        def wrongly() -> list[int]:
            if next(faults, False):
                raise KeyError(7)
            return rightly()

        monkeypatch.setattr(waiting, "_next", wrongly)
        running = asyncio.create_task(waiting.run())
        waiting.add(profile(1))
        await waiting.close(PATIENCE_S)
        running.cancel()

    run(publisher, work)
    assert caplog.text.count("KeyError: 7") == 2
    assert published(settings) == [1]


def test_more_than_the_limit_in_the_turn_after_profiles_were_chosen_drops_none_of_those(
    settings: GatewaySettings, publisher: BatchPublisher
) -> None:
    before = dropped()

    async def work() -> None:
        waiting = WaitingProfiles(Intake(settings, publisher), 3_000)
        running = asyncio.create_task(waiting.run())
        for number in range(3):
            waiting.add(profile(number))
        await asyncio.sleep(0)  # they are chosen, and no task of theirs has started
        for number in range(3, 6):
            waiting.add(profile(number))
        await waiting.close(PATIENCE_S)
        waiting.add(profile(6))
        await waiting.close(PATIENCE_S)
        running.cancel()

    run(publisher, work)
    assert published(settings) == [0, 1, 2, 6]
    assert dropped() - before == 3


def test_it_ends_when_it_is_cancelled_as_the_last_profile_is_published(
    settings: GatewaySettings, publisher: BatchPublisher
) -> None:
    async def work() -> None:
        waiting = WaitingProfiles(Intake(settings, publisher), 30_000)
        running = asyncio.create_task(waiting.run())
        waiting.add(profile(1))
        await waiting.close(PATIENCE_S)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    run(publisher, work)


def test_a_profile_above_the_limit_is_dropped_alone(
    settings: GatewaySettings, publisher: BatchPublisher, caplog: pytest.LogCaptureFixture
) -> None:
    before = dropped()

    async def work() -> None:
        waiting = WaitingProfiles(Intake(settings, publisher), 30_000)
        for number in range(5):
            waiting.add(profile(number))
        waiting.add(profile(9, size=30_001))
        running = asyncio.create_task(waiting.run())
        await waiting.close(PATIENCE_S)
        running.cancel()

    run(publisher, work)
    assert published(settings) == list(range(5))
    assert dropped() - before == 1
    assert "a scraped profile of 30001 bytes is dropped: ICESTREAM_GATEWAY_SCRAPE_WAITING_MB" in caplog.text


def test_with_a_broker_that_is_away_memory_stays_bounded_and_it_ends_in_time() -> None:
    settings = GatewaySettings(kafka=f"127.0.0.1:{free_port()}", gateway_ack_s=0.2)
    publisher = BatchPublisher(settings)
    before = dropped()

    async def work() -> None:
        waiting = WaitingProfiles(Intake(settings, publisher), 50_000)
        running = asyncio.create_task(waiting.run())
        for number in range(200):
            waiting.add(profile(number))
            await asyncio.sleep(0.002)
        waiting.add(profile(0, size=60_000))  # more than may wait at all
        await waiting.close(0.2)
        running.cancel()

    run(publisher, work)
    assert dropped() - before == 201
