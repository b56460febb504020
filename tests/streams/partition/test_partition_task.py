"""A partition task, with a real broker to send to."""

import asyncio

import pytest

from icestream.kafka.dead_letters import Rate
from icestream.messages.raw import RawColumns
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from streams.partition import partition_task
from streams.partition.process import Operators
from streams.partition.recovery import InputMessage, Recovery, RecoveryPlan
from tests.data.handwritten import START, Interval, Raw, Sample, activity
from tests.data.messages import context
from tests.data.windows import window
from tests.streams.bench import Bench, expected, run, traced
from tests.streams.outputs import rows


def test_messages_are_acknowledged_in_order_good_and_bad(in_process_broker: KafkaSettings) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker)
        for offset in range(10):
            good = Raw([Sample(1)], sequence=offset + 1).bytes()
            bench.put(RAW, offset, b"\xff" if offset % 3 == 0 else good)
        await bench.until(10)
        assert bench.acknowledged == [(RAW, offset) for offset in range(10)]
        assert bench.letters == [(offset, "decode") for offset in (0, 3, 6, 9)]
        assert len(bench.sent) == 6
        await bench.close()

    run(scenario)


def test_raw_waits_for_promised_activity_that_kafka_has_and_activity_does_not_wait(
    in_process_broker: KafkaSettings,
) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker)
        promised = activity([Interval(1, 0, 100, context(1))])
        bench.log(ACTIVITY, [promised])
        bench.put(RAW, 0, Raw([Sample(5)], activity_sequence=1).bytes())
        await asyncio.sleep(0.2)  # raw that did not wait would be sent without a context
        bench.put(ACTIVITY, 0, promised)
        await bench.until(2)
        assert {row[-1] for row in rows(bench.sent)} == {context(1)}
        assert len(bench.sent) == 1
        await bench.close()

    run(scenario)


def test_while_raw_waits_what_is_done_of_activity_is_work_for_it(in_process_broker: KafkaSettings) -> None:
    """As the watchdog sees it: raw that waits for a long backlog of activity does not stand still."""

    async def scenario() -> None:
        bench = Bench(in_process_broker)
        promised = [activity([Interval(1, 0, 100, context(1))], sequence=number) for number in (1, 2, 3)]
        bench.log(ACTIVITY, promised)
        bench.put(RAW, 0, Raw([Sample(5)], activity_sequence=3).bytes())
        await bench.until_true(lambda: bench.task.feeds[RAW].waits)
        works = [bench.task.work(RAW)]
        for number in (0, 1):
            bench.put(ACTIVITY, number, promised[number])
            await bench.until(number + 1)
            works.append(bench.task.work(RAW))
        assert works[0] < works[1] < works[2]
        assert bench.task.work(ACTIVITY) == 0
        assert bench.sent == []
        await bench.close()

    run(scenario)


def test_activity_that_kafka_does_not_have_holds_up_nobody_and_is_a_correction_later(
    in_process_broker: KafkaSettings,
) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker)
        for host in range(20):
            bench.put(RAW, host, Raw([Sample(5)], host=f"h{host}", activity_sequence=3).bytes())
        await bench.until(20)
        assert not traced(bench.sent)
        late = activity([Interval(1, 0, 100, context(1))], sequence=3, host="h7")
        bench.log(ACTIVITY, [late])
        bench.put(ACTIVITY, 0, late)
        await bench.until(21)
        assert rows(bench.sent).total() == 200
        assert sum(value for row, value in rows(bench.sent).items() if row[-1] == context(1)) == 10
        await bench.close()

    run(scenario)


def test_raw_does_not_wait_forever_for_activity_that_kafka_does_not_deliver_and_says_so_once(
    in_process_broker: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker, wait_s=0.2)
        bench.log(ACTIVITY, [activity([])])  # never handed over
        for offset in range(3):
            bench.put(RAW, offset, Raw([Sample(5)], sequence=offset + 1, activity_sequence=offset + 1).bytes())
        await bench.until(3)
        assert rows(bench.sent).total() == 30
        await bench.close()

    run(scenario)
    told = [record.message for record in caplog.records if record.name == partition_task.__name__]
    assert told == ["partition 0: raw batches go ahead of activity that Kafka does not deliver"]


@pytest.mark.parametrize("first", [RAW, ACTIVITY])
def test_a_backlog_loses_no_trace_whichever_side_is_read_first(in_process_broker: KafkaSettings, first: str) -> None:
    """60 windows of 8 hosts: five minutes, and Kafka delivers one side before the other."""

    async def scenario() -> None:
        made = [window(START, sequence, host, samples=40) for sequence in range(1, 61) for host in range(8)]
        messages = {RAW: [one.raw for one in made], ACTIVITY: [one.activity for one in made]}
        bench = Bench(in_process_broker)
        for topic, values in messages.items():
            bench.log(topic, values)
        for topic in sorted(messages, key=lambda topic: topic != first):
            for offset, value in enumerate(messages[topic]):
                bench.put(topic, offset, value)
            await asyncio.sleep(0.1)
        await bench.until(2 * len(made))
        assert traced(bench.sent) == expected(made)
        assert len(bench.sent) == len(made)  # no corrections
        await bench.close()

    run(scenario)


def test_a_backlog_loses_no_trace_if_kafka_does_not_deliver_activity_for_longer_than_raw_waits(
    in_process_broker: KafkaSettings,
) -> None:
    async def scenario() -> None:
        made = [window(START, sequence, host, samples=40) for sequence in range(1, 61) for host in range(8)]
        bench = Bench(in_process_broker, wait_s=0.01)
        bench.log(ACTIVITY, [one.activity for one in made])
        for offset, one in enumerate(made):
            bench.put(RAW, offset, one.raw)
        await bench.until(len(made))
        assert traced(bench.sent) == {}
        for offset, one in enumerate(made):
            bench.put(ACTIVITY, offset, one.activity)
        await bench.until(2 * len(made))
        assert traced(bench.sent) == expected(made)
        await bench.close()

    run(scenario)


def test_a_flood_of_dead_letters_is_acknowledged_and_mostly_counted_and_holds_up_no_good_message(
    in_process_broker: KafkaSettings,
) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker, rate=Rate(0))
        for offset in range(1000):
            bench.put(RAW, offset, b"\xff")
        bench.put(RAW, 1000, Raw([Sample(5)]).bytes())
        bench.put(ACTIVITY, 0, activity([]))
        await bench.until(1002)
        assert [offset for topic, offset in bench.acknowledged if topic == RAW] == list(range(1001))
        assert bench.letters == []
        assert rows(bench.sent).total() == 10
        await bench.close()

    run(scenario)


def test_a_mistake_in_an_operator_makes_a_dead_letter_and_stops_nothing(in_process_broker: KafkaSettings) -> None:
    def change(raw: RawColumns) -> RawColumns:
        if raw.id.sequence == 2:
            raise IndexError("a mistake")
        return raw

    async def scenario() -> None:
        bench = Bench(in_process_broker, Operators(change=change))
        for offset in range(3):
            bench.put(RAW, offset, Raw([Sample(1)], sequence=offset + 1).bytes())
        await bench.until(3)
        assert bench.letters == [(1, "process")]
        assert len(bench.sent) == 2
        await bench.close()

    run(scenario)


@pytest.mark.parametrize("topics_known", [False, True])
def test_nothing_is_acknowledged_after_something_was_not_taken(
    in_process_broker: KafkaSettings, topics_known: bool
) -> None:
    """The producer says so later, by a report, or at once where it knows the topics already."""

    async def scenario() -> None:
        bench = Bench(in_process_broker)
        if topics_known:
            bench.put(RAW, 0, Raw([Sample(1)]).bytes())
            await bench.until(1)
        before = list(bench.acknowledged)
        bench.outbox._partition = 99  # which Kafka does not have
        bench.put(RAW, 1, Raw([Sample(1)], sequence=2).bytes())
        bench.put(RAW, 2, Raw([Sample(1)], sequence=3).bytes())
        await bench.until(len(before) + 1)
        assert bench.acknowledged == before
        assert "did not take" in str(bench.failed[0])
        await bench.close()

    run(scenario)


def test_activity_that_kafka_did_not_have_once_does_not_make_raw_go_ahead_of_other_activity_later(
    in_process_broker: KafkaSettings,
) -> None:
    async def scenario() -> None:
        bench = Bench(in_process_broker)
        bench.put(RAW, 0, Raw([Sample(5)], activity_sequence=1, host="whose-activity-got-lost").bytes())
        await bench.until(1)
        feed = bench.task.feeds[ACTIVITY]
        feed.deadline_s = feed.deadline_s and 0.0  # hours later
        promised = activity([Interval(1, 0, 100, context(1))])
        bench.log(ACTIVITY, [promised])
        bench.put(RAW, 1, Raw([Sample(5)], activity_sequence=1).bytes())
        await bench.until_true(lambda: bench.task.feeds[RAW].waits or len(bench.sent) > 1)
        bench.put(ACTIVITY, 0, promised)
        await bench.until(3)
        assert len(bench.sent) == 2  # no correction
        assert sum(traced(bench.sent).values()) == 10
        await bench.close()

    run(scenario)


def test_a_broken_connection_ends_no_task_that_took_over_after_a_bad_message(in_process_broker: KafkaSettings) -> None:
    """The last message that was committed is another one than the last one that was recovered."""

    async def scenario() -> None:
        values = [Raw([Sample(1)], sequence=1).bytes(), b"\xff", Raw([Sample(1)], sequence=2).bytes()]
        plan = RecoveryPlan(raw_next=1, raw_committed=2)
        bench = Bench(in_process_broker, recovery=Recovery(plan, iter([InputMessage(RAW, 0, values[0])])))
        bench.log(RAW, values)
        await bench.until_true(lambda: bench.task.recovered)
        bench.breaks += 1
        for offset in (1, 2):
            bench.put(RAW, offset, values[offset])
        await bench.until_true(lambda: bool(bench.sought))
        assert bench.sought == [(RAW, 0)]
        for offset, value in enumerate(values):
            bench.put(RAW, offset, value)
        await bench.until(3)
        assert bench.failed == []
        assert len(bench.sent) == 1
        await bench.close()

    run(scenario)


def test_a_bad_message_at_the_end_of_what_was_recovered_is_not_taken_for_a_changed_log(
    in_process_broker: KafkaSettings,
) -> None:
    async def scenario() -> None:
        values = [activity([], sequence=1), b"\xff", activity([], sequence=2)]
        recovered = (InputMessage(ACTIVITY, offset, value) for offset, value in enumerate(values[:2]))
        bench = Bench(in_process_broker, recovery=Recovery(RecoveryPlan(activity_next=2), recovered))
        bench.log(ACTIVITY, values)
        await bench.until_true(lambda: bench.task.recovered)
        bench.breaks += 1
        for offset in (1, 2):
            bench.put(ACTIVITY, offset, values[offset])
        await bench.until(1)
        assert bench.failed == []
        await bench.close()

    run(scenario)


@pytest.mark.parametrize("delivered", [True, False])
def test_messages_of_a_topic_that_was_made_anew_are_not_taken_for_old_ones_that_come_again(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch, delivered: bool
) -> None:
    """As if its deletion went unnoticed: offsets go back, and the log is shorter than what was processed. Faust may
    take the messages for old ones, too, and deliver none."""
    monkeypatch.setattr(partition_task, "_IDLE_S", 3600 if delivered else 0.1)

    async def scenario() -> None:
        bench = Bench(in_process_broker)
        anew = Raw([Sample(1)], sequence=6).bytes()
        bench.log(RAW, [anew])
        for offset in range(5):
            bench.put(RAW, offset, Raw([Sample(1)], sequence=offset + 1).bytes())
        if delivered:
            await bench.until(5)
            bench.put(RAW, 0, anew)
        await bench.until(6)
        assert "icestream.raw/0 ends at 1, but was processed up to" in str(bench.failed)
        assert bench.acknowledged.count((RAW, 0)) <= 1
        await bench.close()

    run(scenario)
