"""The collector's own CPU time by thread."""

import threading
import time

from collector.guest.thread_time import thread_seconds
from tests.waiting import wait_until


def spin(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_each_thread_has_its_time_and_what_ended_is_kept() -> None:
    before = thread_seconds()
    release = threading.Event()
    done = threading.Event()

    def work() -> None:
        spin(0.2)
        done.set()
        release.wait()

    thread = threading.Thread(target=work, name="a-thread-of-a-test")
    thread.start()
    done.wait()
    during = thread_seconds()
    assert 0.2 <= during["a-thread-of-a-test"] < 0.4
    release.set()
    thread.join()
    wait_until(lambda: thread_seconds()["ended"] >= before.get("ended", 0.0) + 0.2)
    after = thread_seconds()
    assert "a-thread-of-a-test" not in after
    spin(0.1)
    assert sum(thread_seconds().values()) >= sum(after.values()) + 0.1


def test_threads_without_a_name_are_counted_together() -> None:
    release = threading.Event()
    threads = [threading.Thread(target=release.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    names = thread_seconds().keys()
    release.set()
    for thread in threads:
        thread.join()
    assert "other" in names
    assert not any(name.startswith("Thread-") for name in names)
