"""Print what passes through a topic, decoded.

  icestream tail icestream.samples
  icestream tail icestream.activity --from now-10m --max 100
  icestream tail icestream.dead-letters --from now-14d --json

Without --from, only messages that arrive from now on are printed. It joins no consumer group and commits nothing, so it
disturbs nobody. For samples it also reads two days of icestream.stacks, to name the functions that ran.
"""

import argparse
import json
import time
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from icestream.cli import CommandError, positive
from icestream.kafka.clients import consumer, is_in_process
from icestream.messages.checks import BadMessage
from icestream.messages.message_rows import DECODERS, Row
from icestream.messages.stack_names import StackNames
from icestream.messages.stacks import decode_stacks
from icestream.process.printable import printable
from icestream.settings import KafkaSettings
from icestream.times import TimeError, format_unix_nano, parse_unix_nano
from icestream.topics import SAMPLES, STACKS, TAIL_GROUP

_TIMEOUT_S = 15.0
_NAMES_TIMEOUT_S = 10.0
_ANNOUNCED_MS = 2 * 24 * 60 * 60 * 1000
_WIDTHS = {"time": 24, "service": 20, "host_id": 12, "pid": 8, "tid": 8, "trace_id": 32, "span_id": 16, "value": 11}
_NOT_SHOWN = ("stack_id", "profile_type")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", choices=sorted(DECODERS), metavar="TOPIC", help=", ".join(sorted(DECODERS)))
    parser.add_argument(
        "--from", dest="start", metavar="TIME", help="start at this time: RFC 3339, Unix seconds, or now-15m"
    )
    parser.add_argument("--max", type=positive, metavar="N", help="end after N lines")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, with every field")
    KafkaSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = KafkaSettings.from_args(args)
    try:
        start_ms = parse_unix_nano(args.start) // 10**6 if args.start else None
        for number, row in enumerate(_rows(settings, args.topic, start_ms), 1):
            print(json.dumps(row) if args.json else _line(row), flush=True)
            if number == args.max:
                break
    except TimeError as error:
        raise CommandError(str(error)) from None
    except KafkaException as error:
        raise CommandError(f"Kafka at {settings.kafka}: {error.args[0].str()}") from None
    return 0


def _rows(settings: KafkaSettings, topic: str, start_ms: int | None) -> Iterator[Row]:
    names = StackNames()
    client = consumer(settings, TAIL_GROUP, **{"enable.partition.eof": True})
    try:
        positions = _start(client, topic, start_ms)
        if topic == SAMPLES:
            positions += _read_names(client, names)
        client.assign(positions)
        for message in _messages(client):
            if message.topic() != topic:
                _learn(names, message)
            elif start_ms is None or message.timestamp()[1] >= start_ms:
                yield from _decode(topic, message, names)
    finally:
        client.close()


def _messages(client: Consumer) -> Iterator[Message]:
    """Yields messages for ever. Raises KafkaException when no broker can be reached."""
    while True:
        message = client.poll(0.5)
        if message is None:
            continue
        if (error := message.error()) is None:
            yield message
        elif error.code() == KafkaError._ALL_BROKERS_DOWN or error.fatal():
            raise KafkaException(error)


def _read_names(client: Consumer, names: StackNames) -> list[TopicPartition]:
    """Reads what was announced in the last two days, for at most 10 s; returns where to go on."""
    positions = {p.partition: p for p in _start(client, STACKS, time.time_ns() // 10**6 - _ANNOUNCED_MS)}
    client.assign(list(positions.values()))
    unfinished = set(positions)
    deadline = time.monotonic() + _NAMES_TIMEOUT_S
    while unfinished and time.monotonic() < deadline:
        message = client.poll(0.2)
        if message is None:
            continue
        partition, offset, error = message.partition() or 0, message.offset() or 0, message.error()
        if error is None:
            _learn(names, message)
            positions[partition] = TopicPartition(STACKS, partition, offset + 1)
        elif error.code() == KafkaError._PARTITION_EOF:
            unfinished.discard(partition)
            positions[partition] = TopicPartition(STACKS, partition, offset)
    return list(positions.values())


def _start(client: Consumer, topic: str, start_ms: int | None) -> list[TopicPartition]:
    """Where to begin in each partition. Messages older than `start_ms` may come too."""
    partitions = _partitions(client, topic)
    if start_ms is None:
        return [TopicPartition(topic, partition, OFFSET_END) for partition in partitions]
    if is_in_process(client, _TIMEOUT_S):  # it answers "no message" to every question about a time
        return [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
    times = [TopicPartition(topic, partition, start_ms) for partition in partitions]
    return client.offsets_for_times(times, timeout=_TIMEOUT_S)


def _partitions(client: Consumer, topic: str) -> list[int]:
    metadata = client.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise CommandError(f"expected the topic {topic}, but Kafka does not have it: run `icestream topics create`")
    return list(metadata.partitions)


def _learn(names: StackNames, message: Message) -> None:
    try:
        names.learn(decode_stacks(message.value()))
    except BadMessage:  # `icestream tail icestream.stacks` shows it; samples are still printed
        return


def _decode(topic: str, message: Message, names: StackNames) -> Iterator[Row]:
    data = message.value() or b""
    headers = _headers(message)
    try:
        for row in DECODERS[topic](data, names):
            yield {"time": format_unix_nano(message.timestamp()[1] * 10**6), **row, **headers}
    except BadMessage as error:
        yield {
            "time": format_unix_nano(message.timestamp()[1] * 10**6),
            "undecodable": f"partition {message.partition()} offset {message.offset()}, {len(data)} bytes: {error}",
        }


def _headers(message: Message) -> Row:
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return {str(name): v.decode(errors="replace") if isinstance(v, bytes) else str(v or "") for name, v in pairs}


def _line(row: Row) -> str:
    cells = []
    for name, value in row.items():
        if name in _WIDTHS:
            width = _WIDTHS[name]
            cells.append(f"{_printable(value) or '-':{'>' if isinstance(value, int) else '<'}{width}}")
        elif name not in _NOT_SHOWN and value != "":
            shown = _printable(value)
            cells.append(shown if name in ("function", "labels") else f"{_printable(name)}={shown}")
    return "  ".join(cells)


def _printable(value: str | int | float) -> str:
    return printable(f"{value:g}" if isinstance(value, float) else str(value))
