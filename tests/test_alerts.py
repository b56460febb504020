"""The alert rules name metrics and labels that exist, and the documentation says what to do about each hole."""

import importlib
import re
from typing import Any

import pytest
from prometheus_client import REGISTRY
from ruamel.yaml import YAML

from tests.prose import ROOT

RULES: list[dict[str, Any]] = [
    rule
    for group in YAML(typ="safe").load((ROOT / "deploy/prometheus/icestream.rules.yaml").read_text())["groups"]
    for rule in group["rules"]
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


def test_every_kind_of_hole_has_an_alert_and_an_advice() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", OPERATIONS, re.MULTILINE)
    source = (ROOT / "api/queries/holes.py").read_text()
    kinds = {kind for kind in re.findall(r'"([a-z]+_[a-z]+|silent)"', source) if kind != "host_id"}
    page = (ROOT / "api/page/holes.js").read_text()
    assert set(documented) == {rule["labels"]["hole"] for rule in RULES if "hole" in rule["labels"]}
    assert set(documented) <= kinds
    assert set(documented) == set(re.findall(r"^  (\w+): \"", page, re.MULTILINE))
    assert all(rule["alert"] in OPERATIONS for rule in RULES)
