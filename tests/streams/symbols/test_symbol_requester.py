from icestream.v1.symbols_pb2 import SymbolRequest
from streams.symbols.symbol_requester import HOSTS, MAX_ATTEMPTS, REST_S, TIMEOUT_S, WANTED_BYTES, SymbolRequester


def asked(requests: SymbolRequester, until_s: float, start_s: float = 0.0) -> list[tuple[float, str, int]]:
    """(when, host, attempt) of all requests in a time, looked at every second."""
    found = []
    now = start_s
    while now < until_s:
        found += [(now, request.host_id, request.attempt) for request in requests.due(now, int(now * 1e9))]
        now += 1
    return found


def test_one_host_is_asked_then_the_next_after_a_timeout_and_rounds_become_rarer() -> None:
    requests = SymbolRequester()
    for host in ("a", "b"):
        requests.want("gnu:1", host, f"/{host}")
    assert asked(requests, 100) == [(0, "a", 1), (10, "b", 2), (20, "a", 3), (40, "b", 4), (60, "a", 5)]


def test_a_lost_request_to_the_only_host_is_repeated_after_the_same_time_as_with_several() -> None:
    requests = SymbolRequester()
    requests.want("gnu:1", "a", "/p")
    assert asked(requests, 100) == [(0, "a", 1), (10, "a", 2), (30, "a", 3), (70, "a", 4)]


def test_an_error_answer_hurries_the_next_host_but_not_the_next_round() -> None:
    requests = SymbolRequester()
    for host in ("a", "b"):
        requests.want("gnu:1", host, "/p")
    assert asked(requests, 1) == [(0, "a", 1)]
    requests.failed("gnu:1", "nobody", 2)
    requests.failed("gnu:1", "a", 2)
    assert asked(requests, 5, 2) == [(2, "b", 2)]
    requests.failed("gnu:1", "b", 5)
    assert asked(requests, 9, 5) == []


def test_hosts_that_have_no_names_of_a_file_are_asked_once_each() -> None:
    requests = SymbolRequester()
    for host in ("a", "b"):
        requests.want("gnu:1", host, "/p")
    assert asked(requests, 1) == [(0, "a", 1)]
    requests.has_no_names("gnu:1", "a", 2)
    assert asked(requests, 5, 2) == [(2, "b", 2)]
    requests.has_no_names("gnu:1", "b", 5)
    assert asked(requests, 1000, 5) == []


def test_nobody_is_asked_once_the_symbols_are_there() -> None:
    requests = SymbolRequester()
    requests.want("gnu:1", "a", "/p")
    requests.answered("gnu:1")
    requests.answered("gnu:never")
    assert asked(requests, 60) == []


def test_attempts_hosts_and_build_ids_are_bounded() -> None:
    requests = SymbolRequester()
    for i in range(100):
        requests.want("gnu:1", f"host-{i}", "/p")
    [(_, wanted)] = requests.wanted.items()
    assert len(wanted.hosts) == HOSTS
    found: list[SymbolRequest] = []
    hours = round(REST_S / 3600)
    for hour in range(MAX_ATTEMPTS + hours - 1):
        found += requests.due(hour * 3600.0, 0)
    assert len(found) == MAX_ATTEMPTS
    for i in range(WANTED_BYTES // 5000):
        requests.want(f"gnu:{i}", "a", "/p" * 2500)
        requests.want("gnu:1", "a", "/p")  # it is still missing
    assert requests.wanted.bytes <= WANTED_BYTES
    assert requests.wanted.get("gnu:1") is wanted
    assert requests.wanted.get("gnu:2") is None


def test_after_many_requests_in_vain_and_a_rest_it_begins_anew_with_hosts_that_have_the_file_now() -> None:
    requests = SymbolRequester()
    for i in range(HOSTS):
        requests.want("gnu:1", f"gone-{i}", "/p")
    *_, (last_s, last_host, attempt) = asked(requests, 3600)
    assert attempt == MAX_ATTEMPTS
    requests.failed("gnu:1", last_host, last_s + 1)
    for i in range(HOSTS):
        requests.want("gnu:1", f"new-{i}", "/p")
    [(_, wanted)] = requests.wanted.items()
    assert len(wanted.hosts) == HOSTS
    again_s = last_s + REST_S
    assert asked(requests, again_s, last_s + 1) == []
    assert asked(requests, again_s + 15, again_s) == [(again_s, "new-0", 1), (again_s + 10, "new-1", 2)]
    requests.has_no_names("gnu:1", "new-1", again_s + 15)
    assert asked(requests, again_s + 16, again_s + 15) == [(again_s + 15, "new-2", 3)]


def test_hosts_are_asked_again_after_a_rest_if_no_other_has_the_file() -> None:
    requests = SymbolRequester()
    requests.want("gnu:1", "a", "/p")
    found = asked(requests, 2 * 86400)
    assert found[MAX_ATTEMPTS] == (found[MAX_ATTEMPTS - 1][0] + REST_S, "a", 1)


def test_a_request_says_which_file_the_host_knows_it_by() -> None:
    requests = SymbolRequester()
    requests.want("gnu:1", "a", "/bin/p")
    [request] = requests.due(TIMEOUT_S, 55)
    assert (request.build_id, request.host_id, request.file, request.requested_unix_nano) == (
        "gnu:1", "a", "/bin/p", 55,
    )  # fmt: skip
