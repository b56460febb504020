"""What a comparison of operations looks like as JSON."""

from typing import Any

from pydantic import Field

from api.comparison.functions import Spread
from api.comparison.operations import ChangeStatus, CostChange, OperationChange
from api.comparison.sentence import describe
from api.http.answer_model import Answer, RollupPart, SelectionAnswer
from api.statistics.estimates import Estimate


class ComparedCost(Answer):
    status: ChangeStatus
    mean_ns: int | None
    baseline_mean_ns: int | None
    change: float | None = Field(description="By which share it grew; null if that cannot be told")
    change_low: float | None
    change_high: float | None


class ComparedErrors(Answer):
    status: ChangeStatus
    rate: float | None
    baseline_rate: float | None
    change: float | None = Field(description="By how much the rate grew")
    change_low: float | None
    change_high: float | None


class ComparedFunction(Answer):
    name: str
    module: str
    file: str
    cpu_ns: int = Field(description="CPU of the function itself in one request")
    baseline_cpu_ns: int
    change_ns: int
    change_low_ns: int
    change_high_ns: int
    is_sure: bool


class ComparedFunctions(Answer):
    """Which functions a change went to."""

    samples: int
    baseline_samples: int
    functions: list[ComparedFunction]
    others: int
    others_change_ns: int


class ComparedOperation(Answer):
    service: str | None
    baseline_service: str | None
    operation: str
    status: ChangeStatus
    sentence: str
    requests: int
    baseline_requests: int
    requests_per_second: float
    baseline_requests_per_second: float
    cpu_by: str = Field(description="clock: the threads' CPU clocks; samples: no clock measured it on both sides")
    cpu: ComparedCost
    duration: ComparedCost
    errors: ComparedErrors
    went_to: ComparedFunctions | None


class ComparedOperations(SelectionAnswer):
    baseline_selector: str
    baseline_start: str
    baseline_end: str
    baseline_rollups: list[RollupPart]
    skipped_labels: list[str] = Field(description="Labels of the given selectors that skip_labels has left out of them")
    sentence: str
    confidence: float
    comparisons: int
    operations: list[ComparedOperation]
    count: int


COMPARISON_EXAMPLE = {
    "profile_type": "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "unit": "nanoseconds", "aggregation": "sum",
    "selector": '{service="shop"}', "start": "2026-01-31T12:15:00.000Z", "end": "2026-01-31T12:30:00.000Z",
    "rollups": [],
    "baseline_selector": '{service="shop"}', "baseline_start": "2026-01-31T12:00:00.000Z",
    "baseline_end": "2026-01-31T12:15:00.000Z", "baseline_rollups": [], "skipped_labels": [],
    "sentence": "GET /checkout: +19 % CPU a request (26.2 to 31.1 ms, +17 to +21 %), nearly all in price_rules.",
    "confidence": 0.95, "comparisons": 1,
    "operations": [
        {
            "service": "shop", "baseline_service": "shop", "operation": "GET /checkout", "status": "changed",
            "sentence": "GET /checkout: +19 % CPU a request (26.2 to 31.1 ms, +17 to +21 %), nearly all in price_rules",
            "requests": 2000, "baseline_requests": 2010,
            "requests_per_second": 2.222, "baseline_requests_per_second": 2.233,
            "cpu_by": "clock",
            "cpu": {
                "status": "changed", "mean_ns": 31100000, "baseline_mean_ns": 26200000, "change": 0.187,
                "change_low": 0.167, "change_high": 0.207,
            },
            "duration": {
                "status": "unsure", "mean_ns": 51000000, "baseline_mean_ns": 49000000, "change": 0.041,
                "change_low": -0.02, "change_high": 0.106,
            },
            "errors": {
                "status": "same", "rate": 0.001, "baseline_rate": 0.001, "change": 0.0, "change_low": -0.003,
                "change_high": 0.003,
            },
            "went_to": {
                "samples": 1180, "baseline_samples": 1001,
                "functions": [
                    {
                        "name": "price_rules", "module": "[python]", "file": "/app/shop/prices.py", "cpu_ns": 20900000,
                        "baseline_cpu_ns": 16100000, "change_ns": 4800000, "change_low_ns": 3300000,
                        "change_high_ns": 6300000, "is_sure": True,
                    }
                ],
                "others": 14, "others_change_ns": 100000,
            },
        }
    ],
    "count": 1,
}  # fmt: skip


def operation_json(change: OperationChange, spread: Spread | None) -> dict[str, Any]:
    """A ComparedOperation."""
    now, before = ((row or {}) for row in (change.now, change.before))
    answer: dict[str, Any] = {
        "operation": change.operation, "status": change.status, "sentence": describe(change, spread),
        "cpu_by": "clock" if change.by_clock else "samples",
        "cpu": cost_json(change.cpu), "duration": cost_json(change.duration), "errors": errors_json(change),
        "went_to": spread and _went_to(spread),
    }  # fmt: skip
    for row, prefix in ((now, ""), (before, "baseline_")):
        answer[f"{prefix}service"] = row.get("service")
        for name in ("requests", "requests_per_second"):
            answer[f"{prefix}{name}"] = row.get(name, 0)
    return answer


def cost_json(cost: CostChange) -> dict[str, Any]:
    """A ComparedCost."""
    means = (each and round(each.value) for each in (cost.now, cost.before))
    return {
        "status": cost.status,
        **dict(zip(("mean_ns", "baseline_mean_ns"), means, strict=True)),
        **_change(cost.growth),
    }


def errors_json(change: OperationChange) -> dict[str, Any]:
    """A ComparedErrors."""
    rates = {
        name: row and round(row["errors"] / row["requests"], 6)
        for name, row in (("rate", change.now), ("baseline_rate", change.before))
    }
    return {"status": change.errors.status, **rates, **_change(change.errors.growth)}


def _change(growth: Estimate | None) -> dict[str, float | None]:
    names = ("change", "change_low", "change_high")
    values = (growth.value, growth.low, growth.high) if growth else (None,) * 3
    return {name: value and round(value, 6) for name, value in zip(names, values, strict=True)}


def _went_to(spread: Spread) -> dict[str, Any]:
    functions = [
        {
            "name": each.function.name, "module": each.function.module, "file": each.function.file,
            "cpu_ns": round(each.now), "baseline_cpu_ns": round(each.before), "change_ns": round(each.growth.value),
            "change_low_ns": round(each.growth.low), "change_high_ns": round(each.growth.high), "is_sure": each.is_sure,
        }
        for each in spread.functions
    ]  # fmt: skip
    return {
        "samples": spread.samples[0], "baseline_samples": spread.samples[1], "functions": functions,
        "others": spread.others, "others_change_ns": round(spread.rest),
    }  # fmt: skip
