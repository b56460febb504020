"""Who loses activity when there is no room for all."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collector.activity.activity_datagram import ActivityDatagram, decode
from collector.activity.heard import Heard, HeardRoom
from icestream.tracing.datagram import Columns, datagrams

ROOM = 100_000


def _datagram() -> ActivityDatagram:
    (only,) = datagrams(b"shop", 1, Columns([], [], [], [], [], []), [], 0)
    return decode(only.content, 10**13)


DATAGRAM = _datagram()


def _heard(pid: int, uid: int, size: int = 0) -> Heard:
    return Heard(pid, uid, np.zeros(1, np.uint32), DATAGRAM, size)


def _kept(senders: list[Heard]) -> tuple[list[Heard], list[Heard]]:
    room = HeardRoom(ROOM)
    cut = [each for sender in senders for each in room.add(sender)]
    return room.take(), cut


def test_a_process_that_sends_much_takes_nothing_from_others_of_its_user() -> None:
    kept, cut = _kept([_heard(1, 500), *[_heard(2, 500) for _ in range(1000)], _heard(1, 500)])
    assert Counter(heard.pid for heard in kept)[1] == 2
    assert {heard.pid for heard in cut} == {2}
    assert len(kept) + len(cut) == 1002


def test_a_user_with_many_processes_takes_nothing_from_another_user() -> None:
    of_victim = [_heard(1, 501) for _ in range(20)]
    of_attacker = [_heard(2 + number, 500) for number in range(2000)]
    kept, cut = _kept([*of_attacker[:1000], *of_victim, *of_attacker[1000:]])
    assert [heard for heard in kept if heard.uid == 501] == of_victim
    assert {heard.uid for heard in cut} == {500}


@given(
    st.lists(st.builds(_heard, pid=st.integers(1, 5), uid=st.integers(0, 2), size=st.integers(0, 40_000)), max_size=60)
)
def test_what_is_kept_has_room_and_a_fair_share_is_never_cut(senders: list[Heard]) -> None:
    kept, cut = _kept(senders)
    assert sum(heard.bytes for heard in kept) <= ROOM
    assert Counter(map(id, kept)) + Counter(map(id, cut)) == Counter(map(id, senders))
    assert [id(heard) for heard in senders if heard in kept] == [id(heard) for heard in kept]
    sent: Counter[int] = Counter()
    for heard in senders:
        sent[heard.uid] += heard.bytes
    fair = (ROOM - ROOM // 8) // 3
    assert not [heard for heard in cut if sent[heard.uid] < fair - 42_000]


def test_a_room_is_empty_after_everything_was_taken() -> None:
    room = HeardRoom(ROOM)
    room.add(_heard(1, 1))
    assert len(room.take()) == 1
    assert room.take() == []
