"""Requests that the backend of Grafana's Pyroscope data source sends, as it sent them.

captured/grafana_pyroscope_datasource.json has what its Go code (github.com/grafana/grafana-pyroscope-datasource, commit
19733d9) sent to the API for a health check, resources and queries; of spans, also what it sent before. The code read
the answers, too. A query of the type `both` sends what `metrics` and `profile` send.
"""

import base64
import json
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client

from icestream.pyroscope import querier_pb2 as messages
from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame
from tests.api.http.querier.calls import CPU, post
from tests.api.http.querier.test_profiles import lines

REQUESTS = json.loads((Path(__file__).parent / "captured/grafana_pyroscope_datasource.json").read_text())
INUSE, ALLOCATED = "memory:inuse_space:bytes:space:bytes", "memory:alloc_objects:count:space:bytes"
MAIN, HOT, COLD, DEEP = frame("main"), frame("hot"), frame("cold"), frame("deep")
NAMES, TYPES = ["host", "k8s.pod", "service_name", "version"], [ALLOCATED, INUSE, CPU]
ALL = {"main;hot": 30, "main;cold": 10, "main;cold;deep": 5}
CART = {"main;cold;deep": 5}
SERIES = {"": 45}

ANSWERS: dict[str, Any] = {
    "health": TYPES,
    "profile types": TYPES,
    "label names": NAMES,
    "label names of a service": ["host", "service_name", "version"],
    "label names, toggle pyroscopeUTF8LabelNames": NAMES,
    "label names of an empty range": [],
    "label values": ["cart", "checkout"],
    "label values without a query": ["cart", "checkout"],
    "label values with a query": ["1.4", "1.5"],
    "label values by a quoted name": ["p-1"],
    "label values for ad hoc filters": ["1.5"],
    "label values of a profile type, for a variable": ["1.4", "1.5"],
    "metrics": SERIES,
    "metrics of nothing": {},
    "metrics of an empty range": {},
    "metrics of another type": {},
    "metrics of a gauge": {"": 1000},
    "metrics of a counter": {"": 3},
    "metrics of a malformed type": "invalid_argument",
    "metrics of a year": SERIES,
    "metrics with a comma at the end": {"": 40},
    "metrics by a quoted name": {"": 5},
    "metrics with a frame filter": "unimplemented",
    "metrics with an empty frame filter": SERIES,
    "metrics, toggle profilesExemplars": SERIES,
    "metrics as a heatmap, toggle profilesHeatmap": "unimplemented",
    "metrics, toggle pyroscopeUTF8LabelNames": {"": 40, "p-1": 5},
    "metrics by service_name+version": {"checkout 1.4": 30, "checkout 1.5": 10, "cart": 5},
    "metrics by __profile_type__": {CPU: 45},
    "metrics, limit 1": {"checkout": 40},
    "metrics in steps of 17.3 s": SERIES,
    "profile": ALL,
    "profile of nothing": None,
    "profile of an empty range": None,
    "profile of a gauge": {"main;deep": 1000},
    "profile by a quoted name": CART,
    "profile with a frame filter": {"main;hot": 30},
    "profile, maxNodes -1": ALL,
    "profile, maxNodes 2": {"main;other": 45},
    "profile of a span": {"main;hot": 30},
    "profile of an unknown span": None,
    "profile of a malformed span": "invalid_argument",
    "profile of a span with a frame filter": None,
    "profile of a span, as older versions ask": {"main;hot": 30},
    "profile by its ID": "unimplemented",
    "profile below a call site": {"main;cold": 10, "main;cold;deep": 5},
}


def test_the_data_source_is_answered(api: Api, client: Client) -> None:
    of_span = {"trace_id": b"a" * 16, "span_id": b"1" * 8}
    fill(
        client,
        [
            Sample((MAIN, HOT), 30, labels={"service": "checkout", "version": "1.4", "host": "a"}, **of_span),
            Sample((MAIN, COLD), 10, labels={"service": "checkout", "version": "1.5", "host": "b"}),
            Sample((MAIN, COLD, DEEP), 5, labels={"service": "cart", "k8s.pod": "p-1"}, time_s=START_S + 61),
            Sample((MAIN, DEEP), 1000, labels={"service": "cart"}, profile_type=INUSE),
            Sample((MAIN, DEEP), 3, labels={"service": "cart"}, profile_type=ALLOCATED),
        ],
    )
    assert {request["asks"]: answer(api, request) for request in REQUESTS} == ANSWERS


def answer(api: Api, request: dict[str, str]) -> Any:
    headers = {"connect-protocol-version": "1"} | ({"accept": request["accept"]} if request["accept"] else {})
    response = post(api, request["path"], base64.b64decode(request["body"]), **headers)
    if response.status_code != 200:
        return response.json()["code"]
    return READ[request["path"].rpartition("/")[2]](response.content)


def profile_types(body: bytes) -> list[str]:
    return [each.ID for each in messages.ProfileTypesResponse.FromString(body).profile_types]


def label_names(body: bytes) -> list[str]:
    """Without those that Grafana does not show."""
    return [name for name in messages.LabelNamesResponse.FromString(body).names if not name.startswith("__")]


def label_values(body: bytes) -> list[str]:
    return list(messages.LabelValuesResponse.FromString(body).names)


def sums(body: bytes) -> dict[str, float]:
    """The sum of each series, by the values of its labels."""
    return {
        " ".join(pair.value for pair in each.labels): sum(point.value for point in each.points)
        for each in messages.SelectSeriesResponse.FromString(body).series
    }


def stacks(body: bytes) -> dict[str, int] | None:
    """A flame graph as collapsed text. None is what Grafana shows as no data."""
    answer = messages.SelectMergeStacktracesResponse.FromString(body)
    return lines(answer.flamegraph) if answer.HasField("flamegraph") else None


def span_stacks(body: bytes) -> dict[str, int] | None:
    answer = messages.SelectMergeSpanProfileResponse.FromString(body)
    return lines(answer.flamegraph) if answer.HasField("flamegraph") else None


READ = {
    "ProfileTypes": profile_types,
    "LabelNames": label_names,
    "LabelValues": label_values,
    "SelectSeries": sums,
    "SelectMergeStacktraces": stacks,
    "SelectMergeSpanProfile": span_stacks,
}
