"""Which processes lose activity when there is no room for all."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collector.activity.activity_datagram import ActivityDatagram, decode
from collector.activity.datagram_buffer import DatagramBuffer, ReceivedDatagram
from icestream.tracing.datagram import IntervalColumns, datagrams

ROOM = 100_000


def _datagram() -> ActivityDatagram:
    (only,) = datagrams(b"shop", 1, IntervalColumns([], [], [], [], [], []), [], 0)
    return decode(only.content, 10**13)


DATAGRAM = _datagram()


def _sent(pid: int, uid: int, size: int = 0) -> ReceivedDatagram:
    return ReceivedDatagram(pid, uid, np.zeros(1, np.uint32), DATAGRAM, size)


def _kept(senders: list[ReceivedDatagram]) -> tuple[list[ReceivedDatagram], list[ReceivedDatagram]]:
    buffer = DatagramBuffer(ROOM)
    dropped = [each for sender in senders for each in buffer.add(sender)]
    return buffer.drain(), dropped


def test_a_process_that_sends_much_takes_nothing_from_others_of_its_user() -> None:
    kept, dropped = _kept([_sent(1, 500), *[_sent(2, 500) for _ in range(1000)], _sent(1, 500)])
    assert Counter(datagram.pid for datagram in kept)[1] == 2
    assert {datagram.pid for datagram in dropped} == {2}
    assert len(kept) + len(dropped) == 1002


def test_a_user_with_many_processes_takes_nothing_from_another_user() -> None:
    of_victim = [_sent(1, 501) for _ in range(20)]
    of_attacker = [_sent(2 + number, 500) for number in range(2000)]
    kept, dropped = _kept([*of_attacker[:1000], *of_victim, *of_attacker[1000:]])
    assert [datagram for datagram in kept if datagram.uid == 501] == of_victim
    assert {datagram.uid for datagram in dropped} == {500}


@given(
    st.lists(st.builds(_sent, pid=st.integers(1, 5), uid=st.integers(0, 2), size=st.integers(0, 40_000)), max_size=60)
)
def test_what_is_kept_has_room_and_a_fair_share_is_never_dropped(senders: list[ReceivedDatagram]) -> None:
    kept, dropped = _kept(senders)
    assert sum(datagram.bytes for datagram in kept) <= ROOM
    assert Counter(map(id, kept)) + Counter(map(id, dropped)) == Counter(map(id, senders))
    assert [id(datagram) for datagram in senders if datagram in kept] == [id(datagram) for datagram in kept]
    sent: Counter[int] = Counter()
    for datagram in senders:
        sent[datagram.uid] += datagram.bytes
    fair = (ROOM - ROOM // 8) // 3
    assert not [datagram for datagram in dropped if sent[datagram.uid] < fair - 42_000]


def test_a_buffer_is_empty_after_everything_was_taken() -> None:
    buffer = DatagramBuffer(ROOM)
    buffer.add(_sent(1, 1))
    assert len(buffer.drain()) == 1
    assert buffer.drain() == []
