"""How many examples property tests try."""

from hypothesis import settings


def examples(times: float) -> int:
    """So many times the examples of other tests: more for tests that read any bytes, fewer where each takes long."""
    return max(1, round(settings.default.max_examples * times))
