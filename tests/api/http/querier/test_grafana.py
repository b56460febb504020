"""deploy/grafana: its queries are answered, its SQL runs, and the metrics and variables that it names exist."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client
from ruamel.yaml import YAML

from gateway.readers.otlp_attributes import labels_of
from icestream.pyroscope import querier_pb2 as messages
from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame
from tests.api.http.querier.calls import END_MS, START_MS, call
from tests.prose import ROOT
from tests.test_alerts import metrics

GRAFANA = ROOT / "deploy/grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))}
SOURCES = {
    each["uid"]: each["type"]
    for each in YAML(typ="safe").load(GRAFANA / "provisioning/datasources/icestream.yaml")["datasources"]
}
RULES = [
    rule
    for group in YAML(typ="safe").load(GRAFANA / "provisioning/alerting/icestream.yaml")["groups"]
    for rule in group["rules"]
]
PROFILES, TABLES, METRICS = "icestream-profiles", "icestream-tables", "icestream-metrics"


def targets(uid: str) -> list[Any]:
    return [
        pytest.param(target, id=f"{name}: {panel['title']} {target['refId']}")
        for name, dashboard in DASHBOARDS.items()
        for panel in dashboard["panels"]
        for target in panel["targets"]
        if target["datasource"]["uid"] == uid
    ]


def test_panels_have_data_sources_that_are_provisioned() -> None:
    assert set(DASHBOARDS) == {"fleet", "service", "icestream"}
    for dashboard in DASHBOARDS.values():
        sources = [panel["datasource"] for panel in dashboard["panels"]]
        sources += [each["datasource"] for each in dashboard["templating"]["list"]]
        assert all(SOURCES[source["uid"]] == source["type"] for source in sources)
        assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert {each["datasourceUid"] for rule in RULES for each in rule["data"]} == {TABLES, "__expr__"}


def test_panels_of_a_dashboard_do_not_overlap() -> None:
    for dashboard in DASHBOARDS.values():
        cells = [cell for panel in dashboard["panels"] for cell in cells_of(panel["gridPos"])]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) == 23


def cells_of(at: dict[str, int]) -> Iterator[tuple[int, int]]:
    return ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))


@pytest.fixture
def filled(client: Client) -> None:
    """With the labels that an OpenTelemetry resource becomes."""
    resource = {"service.name": "checkout", "service.version": "1.4", "host.name": "a", "thread.name": "main"}
    fill(client, [Sample((frame("main"), frame("hot")), 30, labels=dict(labels_of(resource)), trace_id=b"a" * 16)])


@pytest.mark.parametrize("target", targets(PROFILES))
@pytest.mark.usefixtures("filled")
def test_profiles_are_found(api: Api, target: dict[str, Any]) -> None:
    asked = {
        "profile_typeID": target["profileTypeId"],
        "label_selector": target["labelSelector"].replace("$service", "checkout"),
        "start": START_MS,
        "end": END_MS,
    }
    if target["queryType"] == "profile":
        request = messages.SelectMergeStacktracesRequest(**asked)
        answer = call(api, "SelectMergeStacktraces", request, messages.SelectMergeStacktracesResponse)
        assert answer.flamegraph.total == 30
        return
    series = messages.SelectSeriesRequest(**asked, step=15, group_by=target["groupBy"], limit=target["limit"])
    found = call(api, "SelectSeries", series, messages.SelectSeriesResponse).series
    assert [[pair.name for pair in each.labels] for each in found] == [target["groupBy"]]


@pytest.mark.parametrize("target", targets(TABLES))
@pytest.mark.usefixtures("filled")
def test_sql_of_dashboards_finds_rows(client: Client, target: dict[str, Any]) -> None:
    time_filter = f"\\1 >= toDateTime({START_S}) AND \\1 <= toDateTime({START_S + 3600})"
    sql = re.sub(r"\$__timeFilter\((\w+)\)", time_filter, target["rawSql"])
    sql = sql.replace("${service:sqlstring}", "'checkout'")
    assert "$" not in sql
    assert client.query(sql).result_rows


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["uid"]))
def test_alerts_run_and_name_what_their_query_has(client: Client, rule: dict[str, Any]) -> None:
    now, hour_ns = time.time(), 3600 * 10**9
    samples = [Sample((), 3 * hour_ns, time_s=now - 300), Sample((), hour_ns, time_s=now - 86_400 - 300)]
    fill(client, [*samples, Sample((), hour_ns, labels={"service": "new"}, time_s=now - 1)])
    asked, condition = rule["data"]
    answer = client.query(asked["model"]["rawSql"])
    ((label, value),) = answer.result_rows
    assert (label, round(value)) == ("checkout", 3) if "factor" in answer.column_names else ("host-1", round(value))
    assert condition["model"]["expression"] == asked["refId"]
    assert condition["refId"] == rule["condition"]
    summary = rule["annotations"]["summary"]
    assert set(re.findall(r"\$labels\.(\w+)", summary)) <= set(answer.column_names)
    assert set(re.findall(r"\$values\.(\w+)", summary)) <= {asked["refId"]}


@pytest.mark.parametrize("target", targets(METRICS))
def test_metrics_exist_with_their_labels(target: dict[str, Any]) -> None:
    known = metrics()
    used = set(re.findall(r"\bicestream_\w+", target["expr"]))
    assert used
    assert used <= set(known)
    labels = {"le"}.union(*(known[name] for name in used))
    by = {name for found in re.findall(r"by \(([\w, ]+)\)", target["expr"]) for name in found.split(", ")}
    assert by | set(re.findall(r"\{(\w+)[=!]", target["expr"])) <= labels
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels
    assert target["expr"].count("(") == target["expr"].count(")")


def test_the_services_to_choose_from_are_asked_for_by_their_label(api: Api) -> None:
    (variable,) = DASHBOARDS["service"]["templating"]["list"]
    assert variable["query"]["labelName"] == "service_name"
