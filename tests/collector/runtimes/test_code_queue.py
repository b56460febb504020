"""Which code objects are read next."""

from collector.runtimes.code_queue import AT_ONCE, MOST, CodeQueue


def test_a_process_that_asks_for_many_holds_up_no_other_and_takes_a_bounded_number_of_places() -> None:
    queue = CodeQueue()
    for address in range(2 * MOST):
        queue.put(1, address)
    queue.put(2, 7)
    queue.put(3, 8)
    assert [queue.pop() for _ in range(4)] == [
        (1, list(range(AT_ONCE))), (2, [7]), (3, [8]), (1, list(range(AT_ONCE, 2 * AT_ONCE))),
    ]  # fmt: skip
    left = []
    while len(left) < MOST - 2 * AT_ONCE:
        pid, addresses = queue.pop() or (0, [])
        assert (pid, len(addresses) <= AT_ONCE) == (1, True)
        left += addresses
    assert left == list(range(2 * AT_ONCE, MOST))
    queue.end()
    assert queue.pop() is None
