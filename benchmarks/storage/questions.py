"""Asks the API of this process, and prints one JSON object: see benchmarks/storage/__main__.py."""

import json
import resource
import statistics
import sys
import threading
import time

from fastapi.testclient import TestClient

from api.http.app import create_app
from api.settings import ApiSettings
from benchmarks.storage.inserting import inserting
from benchmarks.storage.load import DAY_S, START_S
from icestream.clickhouse.client import Clients
from icestream.http.server import build_routes

Questions = dict[str, tuple[str, dict[str, str]]]
_BESIDE_INSERTS = ("merge_service", "merge_all", "merge_service_hour", "top_all", "timeline", "labels", "trace")


def main() -> None:
    dsn, days, runs, trace_id = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    clients = Clients(dsn)
    clients.get()  # keeps the engine open between requests
    app = create_app(ApiSettings(), clients)
    build_routes(app)
    with TestClient(app, base_url="http://localhost") as http:
        asked = questions(days, trace_id)
        idle = measure(http, asked, runs)
        print(json.dumps(idle | measure_beside_inserts(http, asked, runs, dsn, (START_S + days * DAY_S) * 1000)))


def measure_beside_inserts(http: TestClient, asked: Questions, runs: int, dsn: str, start_ms: int) -> dict[str, object]:
    """Milliseconds of some questions while samples are stored, and how many of these a second had."""
    result: dict[str, object] = {}
    with inserting(dsn, start_ms) as stored:
        began = time.monotonic()
        for name in _BESIDE_INSERTS:
            elapsed_ms = [ask(http, *asked[name])[0] for _ in range(max(runs, 7))]
            result[f"{name}_beside_inserts_ms"] = statistics.median(elapsed_ms)
        result["inserted_per_second"] = round(sum(stored) / (time.monotonic() - began))
    return result


def measure(http: TestClient, asked: Questions, runs: int) -> dict[str, object]:
    """Milliseconds and megabytes."""
    first_ms, first_cpu_ms = ask(http, *asked["merge_service"])
    result: dict[str, object] = {"first_merge_ms": first_ms, "first_merge_cpu_ms": first_cpu_ms}
    for name, question in asked.items():
        ask(http, *question)
        elapsed_ms, cpu_ms = zip(*(ask(http, *question) for _ in range(runs)), strict=True)
        result[f"{name}_ms"], result[f"{name}_cpu_ms"] = statistics.median(elapsed_ms), statistics.median(cpu_ms)
    two = [threading.Thread(target=ask, args=(http, *asked[name])) for name in ("merge_all", "timeline_by_service")]
    for thread in two:
        thread.start()
    for thread in two:
        thread.join()
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return result


def questions(days: int, trace_id: str) -> Questions:
    """Paths and parameters. Ranges end 17 minutes before the last midnight, and so on no round time."""
    end_s = START_S + days * DAY_S - 1020

    def last(seconds: int, **more: str) -> dict[str, str]:
        return {"start": str(max(end_s - seconds, START_S - 30 * DAY_S)), "end": str(end_s)} | more

    everything, week = days * DAY_S, min(7, days) * DAY_S
    service, version = '{service="service-7"}', '{service="service-7", version="1.2"}'
    merge, labels = "/api/v1/merge", "/api/v1/labels"
    return {
        "merge_service": (merge, last(everything, selector=service)),
        "merge_all": (merge, last(everything)),
        "merge_all_month": (merge, last(30 * DAY_S)),
        "merge_version": (merge, last(everything, selector=version)),
        "merge_host": (merge, last(everything, selector='{host="host-28"}')),
        "merge_service_hour": (merge, last(3600, selector=service)),
        "merge_service_5_minutes": (merge, last(300, selector=service)),
        "merge_all_hour": (merge, last(3600)),
        "merge_service_pprof": (merge, last(everything, selector=service, format="pprof")),
        "diff_service": ("/api/v1/diff", last(week, selector=service, baseline_selector='{service="service-8"}')),
        "diff_all_weeks": (
            "/api/v1/diff",
            last(week, baseline_start=str(end_s - 2 * week), baseline_end=str(end_s - week)),
        ),
        "top_service": ("/api/v1/top", last(everything, selector=service)),
        "top_all": ("/api/v1/top", last(everything)),
        "timeline": ("/api/v1/timeline", last(everything)),
        "timeline_by_service": ("/api/v1/timeline", last(everything, sum_by="service")),
        "timeline_by_host": ("/api/v1/timeline", last(everything, sum_by="host")),
        "timeline_service_hour": ("/api/v1/timeline", last(3600, selector=service)),
        "labels": (labels, last(everything)),
        "values": (f"{labels}/version/values", last(everything)),
        "values_of_pods": (f"{labels}/pod/values", last(everything, selector=service)),
        "merge_pod": (merge, last(everything, selector='{service="service-7", pod="pod-0"}')),
        "values_selected": (f"{labels}/host/values", last(everything, selector=version)),
        "trace": (f"/api/v1/traces/{trace_id}/cpu", {}),
        "traces_hour": ("/api/v1/traces", last(3600)),
    }


def ask(http: TestClient, path: str, parameters: dict[str, str]) -> tuple[float, float]:
    """Milliseconds from the request to the complete answer, and of CPU of this process, ClickHouse's included."""
    started, cpu = time.perf_counter(), time.process_time()
    answer = http.get(path, params=parameters)
    elapsed_ms = round((time.perf_counter() - started) * 1000, 1)
    assert answer.status_code == 200, answer.text
    return elapsed_ms, round((time.process_time() - cpu) * 1000, 1)


if __name__ == "__main__":
    main()
