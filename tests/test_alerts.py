"""The alert rules name metrics and labels that exist, fire when they must, and the documentation says what to do."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from ruamel.yaml import YAML

from icestream import topics
from tests.prose import ROOT

RULES_FILE = "deploy/prometheus/icestream.rules.yaml"
RULES: list[dict[str, Any]] = [
    rule for group in YAML(typ="safe").load((ROOT / RULES_FILE).read_text())["groups"] for rule in group["rules"]
]
OF_PROMETHEUS = {"process_start_time_seconds"}
OPERATIONS = (ROOT / "docs/operations.md").read_text().partition("## Holes")[2].partition("\n## ")[0]


def metrics() -> dict[str, set[str]]:
    """The names that a scrape may have, each with its labels."""
    for part in ("api", "collector", "sinks", "standalone", "streams", "streams.flatten"):
        importlib.import_module(f"{part}.metrics")
    labels: dict[str, set[str]] = {}
    for collector, names in REGISTRY._collector_to_names.items():
        for name in names:
            labels[name] = set(getattr(collector, "_labelnames", ()))
    return labels


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_names_metrics_and_labels_that_exist(rule: dict[str, Any]) -> None:
    known = metrics()
    used = set(re.findall(r"\b(?:icestream|process)_\w+", rule["expr"]))
    assert used
    assert used - OF_PROMETHEUS <= set(known)
    labels = {"instance"}.union(*(known[name] for name in used - OF_PROMETHEUS))
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels
    for by in re.findall(r"by \(([\w, ]+)\)", rule["expr"]):
        assert set(by.split(", ")) <= labels
    assert rule["expr"].count("(") == rule["expr"].count(")")


def test_counters_of_known_topics_begin_at_0_so_that_their_first_event_is_an_increase() -> None:
    metrics()
    for topic in (topics.RAW, topics.ACTIVITY):
        assert REGISTRY.get_sample_value("icestream_streams_gaps_total", {"topic": topic}) is not None


def test_every_kind_of_hole_has_an_alert_and_an_advice() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", OPERATIONS, re.MULTILINE)
    source = (ROOT / "api/queries/holes.py").read_text()
    kinds = {kind for kind in re.findall(r'"([a-z]+_[a-z]+|silent)"', source) if kind != "host_id"}
    page = (ROOT / "api/page/holes.js").read_text()
    assert set(documented) == {rule["labels"]["hole"] for rule in RULES if "hole" in rule["labels"]}
    assert set(documented) <= kinds
    assert set(documented) == set(re.findall(r"^  (\w+): \"", page, re.MULTILINE))
    assert all(rule["alert"] in OPERATIONS for rule in RULES)


MINUTES = 45
RAW = 'topic="icestream.raw"'


def counts(per_minute: int, first: int = 0, minutes: int = MINUTES) -> str:
    """A counter that begins with `first`, in the notation of promtool: as many values as minutes, and then none."""
    return f"{first}+{per_minute}x{minutes - 1} stale"


HEALTHY = {
    **{f'icestream_collector_frequency_hertz{{instance="{host}"}}': counts(0, 19) for host in "ab"},
    **{f'icestream_collector_batches_total{{instance="{host}", {RAW}}}': counts(12) for host in "ab"},
    **{f'icestream_collector_sent_bytes_total{{instance="{host}", {RAW}}}': counts(9000) for host in "ab"},
    'icestream_streams_partitions{instance="s"}': counts(0, 4),
    f'icestream_streams_gaps_total{{instance="s", {RAW}}}': counts(0),
    f'icestream_sinks_gaps_total{{instance="k", sink="clickhouse", {RAW}}}': counts(0),
}
"""What parts without trouble say: two collectors, a stream worker, a sink."""


def those(name: str, values: str) -> dict[str, str]:
    """The healthy series of which the name begins so, with other values."""
    return dict.fromkeys([series for series in HEALTHY if series.startswith(name)], values)


def letters(part: str, sink: str = "") -> dict[str, str]:
    """The first dead letter with its reason, after 20 minutes."""
    labels = f'{{instance="x", {sink}{RAW}, reason="stack"}}'
    return {f"icestream_{part}_dead_letters_total{labels}": f"_x20 1+0x{MINUTES - 20}"}


def lag(worker: str, messages: int) -> dict[str, str]:
    """What a stream worker says of a partition, whoever has it."""
    return {f'icestream_streams_lag_messages{{instance="{worker}", {RAW}, partition="0"}}': counts(0, messages)}


GONE = counts(0, 19, minutes=20)
CASES: dict[str, tuple[dict[str, str], int, list[str]]] = {
    "nothing is wrong": ({}, 40, []),
    "a host went down": (
        those('icestream_collector_frequency_hertz{instance="b"', GONE)
        | those('icestream_collector_batches_total{instance="b"', GONE)
        | those('icestream_collector_sent_bytes_total{instance="b"', GONE),
        40,
        ['{alertname="IcestreamCollectorAway", instance="b"}'],
    ),
    "a collector runs and makes nothing": (
        those('icestream_collector_batches_total{instance="b"', counts(0, 60)), 40,
        ['{alertname="IcestreamCollectorSilent", instance="b"}'],
    ),
    "a collector never made anything": (
        those('icestream_collector_batches_total{instance="b"', "_x40"), 40,
        ['{alertname="IcestreamCollectorSilent", instance="b"}'],
    ),
    "a process does not answer a collector": (
        {'icestream_collector_hanging_processes{instance="b"}': counts(0, 1)}, 40,
        ['{alertname="IcestreamCollectorHeldUp", instance="b"}'],
    ),
    "a mount of a host does not answer": (
        {'icestream_collector_hanging_mounts{instance="b"}': counts(0, 1)}, 40,
        ['{alertname="IcestreamCollectorHeldUp", instance="b"}'],
    ),
    "another guest of the host samples": (
        those('icestream_collector_batches_total{instance="b"', counts(0, 60))
        | those('icestream_collector_frequency_hertz{instance="b"', counts(0, 0)),
        40,
        [],
    ),
    "all stream workers are down": (
        those("icestream_streams", GONE), 40, ['{alertname="IcestreamStreamsAway"}'],
    ),
    "no stream worker has a partition": (
        those("icestream_streams_partitions", counts(0)), 40, ['{alertname="IcestreamStreamsAway"}'],
    ),
    "the ClickHouse sink is down, and the archive runs": (
        those("icestream_sinks", GONE) | {f'icestream_sinks_gaps_total{{sink="archive", {RAW}}}': counts(0)}, 40,
        ['{alertname="IcestreamSinksAway", sink="clickhouse"}'],
    ),
    "the ClickHouse sink never ran": (
        those("icestream_sinks", "_x40"), 40, ['{alertname="IcestreamSinksAway", sink="clickhouse"}'],
    ),
    "the archive is down, and the ClickHouse sink runs": (
        {f'icestream_sinks_gaps_total{{sink="archive", {RAW}}}': GONE}, 40,
        ['{alertname="IcestreamSinksAway", sink="archive"}'],
    ),
    "Kafka is away": (
        those("icestream_collector_sent_bytes_total", counts(0, 9000)), 40, ['{alertname="IcestreamKafkaAway"}'],
    ),
    "Kafka is away for one host": (
        those('icestream_collector_sent_bytes_total{instance="b"', counts(0, 9000)), 40, [],
    ),
    "the first dead letter of a stream worker": (
        letters("streams"), 25, [f'{{alertname="IcestreamDeadLetters", {RAW}}}'],
    ),
    "the first dead letter of a sink": (
        letters("sinks", 'sink="clickhouse", '), 25, [f'{{alertname="IcestreamDeadLetters", {RAW}}}'],
    ),
    "a dead letter a while ago": (letters("streams"), 40, []),
    "the first messages that a sink missed": (
        those("icestream_sinks_gaps_total", f"0+0x20 7+0x{MINUTES - 20}"), 25,
        [f'{{alertname="IcestreamMessagesDeletedUnread", instance="k", sink="clickhouse", {RAW}}}'],
    ),
    "messages wait": (lag("s", 12_000), 40, [f'{{alertname="IcestreamLag", {RAW}}}']),
    "few messages wait, and each stream worker says so": (lag("s", 4_000) | lag("t", 4_000) | lag("u", 4_000), 40, []),
    "the first batch that is missing in a sequence": (
        those("icestream_streams_gaps_total", f"0+0x20 1+0x{MINUTES - 20}"), 25,
        [f'{{alertname="IcestreamBatchesMissing", {RAW}}}'],
    ),
}  # fmt: skip
"""What happens: the series that differ from HEALTHY, the minute of a look, and the alerts that fire then."""


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        reason = "promtool is not installed (deploy/setup.sh test)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.mark.slow
def test_alerts_fire_when_they_must_and_only_then(promtool: str, tmp_path: Path) -> None:
    firing = "sum without (alertstate, severity, hole) (ALERTS{alertstate='firing'})"
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in (HEALTHY | differ).items()],
            "promql_expr_test": [
                {
                    "expr": firing,
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": labels, "value": 1} for labels in alerts],
                }
            ],
        }
        for name, (differ, minute, alerts) in CASES.items()
    ]
    document = {"rule_files": [str(ROOT / RULES_FILE)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "alerts.json").write_text(json.dumps(document))
    done = subprocess.run([promtool, "test", "rules", tmp_path / "alerts.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
