"""What the sinks say that they did with the messages of their topics, compared with these messages."""

from collections import Counter
from collections.abc import Mapping, Sequence

from prometheus_client.samples import Sample

from icestream.messages.checks import BadMessage
from icestream.messages.plausible import TimeLimits
from icestream.messages.symbols import decode_symbol_file
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, SAMPLES, STACKS, SYMBOLS
from sinks.lake.sink import in_delta_types
from sinks.runner.ranges import message_id
from sinks.settings import SinkSettings
from sinks.tables.decode import decode
from tests.chaos.cluster import STORE, Cluster
from tests.pipeline.reading import messages

_SINKS = {
    "clickhouse": (STORE, (SAMPLES, STACKS, ACTIVITY)),
    "lake": ("lake-1", (SAMPLES, STACKS, ACTIVITY)),
    "resolve": (STORE, (SYMBOLS,)),
}
"""The process of each sink, and its topics."""
_Metrics = Mapping[str, Sequence[Sample]]


def sink_differences(cluster: Cluster) -> list[str]:
    """Returns a line for each topic of which a sink did not read all, or whose dead letters are not the bad messages.

    A message of samples or activity is a row of `batches` that was stored, is counted as repeated, or is a dead letter.
    """
    sent, bad = _in_topics(cluster.settings)
    found = []
    for sink, (process, topics) in _SINKS.items():
        metrics = cluster.metrics(process)
        for topic in topics:
            read, letters = (_sum(metrics, name, sink, topic=topic) for name in ("messages", "dead_letters"))
            if read < sent[topic]:  # it may read some again, which it tells apart
                found.append(f"{sink}: {topic}: {sent[topic]} messages were sent, {read} were read")
            if letters != bad[topic]:
                found.append(f"{sink}: {topic}: {bad[topic]} messages are bad, {letters} are dead letters")
        if sink != "resolve":
            stored = _sum(metrics, "rows", sink, table="batches")
            batches = (SAMPLES, ACTIVITY)
            others = sum(_sum(metrics, n, sink, topic=t) for n in ("duplicates", "dead_letters") for t in batches)
            wanted = sum(sent[topic] for topic in batches)
            if stored + others != wanted:
                found.append(
                    f"{sink}: {wanted} messages of {batches} were sent, {stored} were stored,"
                    f" {others} were repeated or are dead letters"
                )
    return found


def _in_topics(settings: KafkaSettings) -> tuple[Counter[str], Counter[str]]:
    """Returns how many messages each topic has, and how many of them cannot be decoded."""
    limits = TimeLimits.from_settings(SinkSettings())
    sent: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    for topic in (SAMPLES, STACKS, ACTIVITY, SYMBOLS):
        for message in messages(settings, topic):
            sent[topic] += 1
            try:
                if topic == SYMBOLS:
                    decode_symbol_file(message.value())
                else:
                    in_delta_types(decode(message.value(), message_id(message, ""), limits, message.timestamp()[1]))
            except (BadMessage, ValueError):
                bad[topic] += 1
    return sent, bad


def _sum(metrics: _Metrics, name: str, sink: str, **labels: str) -> int:
    """Returns the value of a counter of a sink, over all labels that are not given."""
    wanted = {"sink": sink} | labels
    return round(sum(
        sample.value
        for sample in metrics.get(f"icestream_sinks_{name}_total", [])
        if wanted.items() <= sample.labels.items()
    ))  # fmt: skip
