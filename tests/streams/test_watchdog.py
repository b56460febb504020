from streams.watchdog import Look, Standstill


def look(committed: int, lag: int) -> Look:
    return Look(committed, lag, {})


def barks(looks: list[tuple[int, int]], busy: bool = False) -> list[bool]:
    """Of looks every 5 seconds, with a limit of 12 seconds."""
    judge = Standstill(12)
    return [judge.seen(look(*one), busy, 5.0 * i) for i, one in enumerate(looks)]


def test_no_progress_while_lag_grows_is_a_standstill() -> None:
    assert barks([(5, 1), (5, 2), (5, 3), (5, 4), (5, 5)]) == [False, False, False, True, True]


def test_progress_an_empty_topic_or_an_unchanged_lag_is_none() -> None:
    assert not any(barks([(5, 1), (6, 2), (7, 9), (8, 20), (9, 50)]))
    assert not any(barks([(5, 0)] * 9))
    assert not any(barks([(5, 3)] * 9))


def test_who_waits_for_others_is_excused() -> None:
    assert not any(barks([(5, 1), (5, 2), (5, 3), (5, 4), (5, 5)], busy=True))
