from streams.deduplicate import DAYS, Announced

DAY_NS = 86_400 * 10**9


def test_only_a_few_days_are_remembered() -> None:
    announced = Announced()
    first = announced.day(0)
    assert announced.day(DAY_NS - 1) is first
    for day in range(1, DAYS + 1):
        announced.day(day * DAY_NS)
    assert len(announced.days) == DAYS
    assert announced.day(0) is not first
