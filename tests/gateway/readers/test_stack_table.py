"""Labels of samples: their limits."""

from collections.abc import Callable

import pytest

from gateway.readers import stack_table
from gateway.readers.stack_table import StackTable
from icestream.messages.checks import Labels

PROFILE: Labels = (("service", "shop"),)


def own(number: int) -> Labels:
    return (("request", str(number)), *PROFILE)


def reader(read: list[int], number: int) -> Callable[[], Labels]:
    def labels() -> Labels:
        read.append(number)
        return own(number)

    return labels


def test_samples_beyond_the_limit_of_series_have_the_labels_of_the_profile_and_are_counted() -> None:
    table, read = StackTable(3), list[int]()
    rows = [table.series_of_sample(number, reader(read, number), PROFILE) for number in (0, 1, 2, 3, 3, 1, 4)]
    again = table.series_of_sample("the same labels by another key", lambda: own(2), PROFILE)
    assert (rows, again) == ([0, 1, 2, 3, 3, 1, 3], 2)
    assert table.dropped == {"labels": 3}
    assert read == [0, 1, 2, 3, 4]  # each once


def test_only_so_many_labels_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 samples with 250 labels each and one of their own took a minute and a gigabyte."""
    monkeypatch.setattr(stack_table, "_MOST_LABELS_READ", 10)
    table, read = StackTable(1), list[int]()
    for number in range(100):
        table.series_of_sample(number, reader(read, number), PROFILE)
    assert read == [0, 1, 2, 3, 4]  # two labels each
    assert table.dropped["labels"] == 99
