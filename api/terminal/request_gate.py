"""The gate for CI by requests: whether an operation uses more CPU a request than in a baseline (docs/ci.md)."""

from dataclasses import dataclass
from typing import Any

from api.terminal.draw_comparison import draw_comparison
from icestream.cli import CommandError


@dataclass(frozen=True)
class RequestGate:
    """The outcome of a comparison of operations."""

    limit_percent: float
    over: list[dict[str, Any]]
    """Operations that grew by more than the limit, as the API has them."""
    untold: list[dict[str, Any]]
    """Operations of both sides with too few requests or samples to tell."""
    answer: dict[str, Any]

    @property
    def failed(self) -> bool:
        return bool(self.over)

    def as_json(self) -> dict[str, Any]:
        names = [each["operation"] for each in self.over]
        head = {"failed": self.failed, "compare": "request", "limit_percent": self.limit_percent, "over": names}
        return head | {"untold": [each["operation"] for each in self.untold]} | self.answer


def check_operations(answer: dict[str, Any], limit_percent: float) -> RequestGate:
    """Checks the API's answer to a comparison of operations. Raises CommandError if none could be compared."""
    both = [each for each in answer["operations"] if each["status"] not in ("new", "gone")]
    told = [each for each in both if each["cpu"]["change"] is not None]
    if not told:
        raise CommandError(f"no operation could be compared: {answer['sentence']}")
    over = [each for each in told if 100 * each["cpu"]["change_low"] > limit_percent]
    return RequestGate(limit_percent, over, [each for each in both if each not in told], answer)


def draw_request_gate(gate: RequestGate) -> str:
    """The verdict, and the comparison."""
    limit = f"{gate.limit_percent:g} %"
    if gate.failed:
        verdict = f"FAILED: {len(gate.over)} operations use more CPU a request, by more than {limit}"
    else:
        verdict = f"passed: no operation uses more CPU a request by more than {limit}, as far as can be told"
    if gate.untold:
        verdict += f"; of {len(gate.untold)} it cannot be told: they have too few requests"
    return "\n".join([verdict, draw_comparison(gate.answer)])
