"""What names a thread's series."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from collector.labels import ThreadLabels, declared_service, parse_cgroup
from collector.process import Process, read_process

CONTAINER = "0123456789abcdef" * 4


@contextmanager
def python(**environ: str) -> Iterator[Process]:
    command = [sys.executable, "-c", "print('ready', flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=os.environ | environ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        process = read_process(run.pid)
        assert process is not None
        yield process


def labels(known: ThreadLabels, process: Process, name: str | None = None) -> dict[str, str]:
    return dict(known.of(process.pid, process.pid, name))


@pytest.mark.parametrize(
    ("environ", "service"),
    [
        (b"PATH=/bin\0OTEL_SERVICE_NAME=checkout\0OTEL_RESOURCE_ATTRIBUTES=service.name=other", "checkout"),
        (b"OTEL_RESOURCE_ATTRIBUTES=host.name=a, service.name=my%20shop ,x=y\0OTEL_SERVICE_NAME=", "my shop"),
        (b"OTEL_RESOURCE_ATTRIBUTES=service.name\0A", ""),
        (b"XOTEL_SERVICE_NAME=no\0\xff\xfe=\0", ""),
        (b"OTEL_SERVICE_NAME=a\nb\x1b[31m", "a?b?[31m"),
        (b"", ""),
    ],
)
def test_the_environment_names_the_service_as_opentelemetry_specifies(environ: bytes, service: str) -> None:
    assert declared_service(environ) == service


@pytest.mark.parametrize(
    ("cgroup", "container", "unit"),
    [
        ("0::/system.slice/nginx.service\n", "", "nginx.service"),
        (f"0::/system.slice/docker-{CONTAINER}.scope\n", CONTAINER, ""),
        (f"0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-{CONTAINER}.scope\n", CONTAINER, ""),
        (f"12:pids:/docker/{CONTAINER}\n1:name=systemd:/docker/{CONTAINER}\n", CONTAINER, ""),
        ("0::/user.slice/user-0.slice/session-3.scope\n", "", "session-3.scope"),
        ("0::/\n", "", ""),
        ("garbage\n:::\n", "", ""),
    ],
)
def test_the_cgroup_names_container_and_unit(cgroup: str, container: str, unit: str) -> None:
    assert parse_cgroup(cgroup) == (container, unit)


def test_a_process_is_named_by_its_environment_before_its_activity_before_its_executable() -> None:
    for environ, declared, service in (
        ({"OTEL_SERVICE_NAME": "env"}, "activity", "env"),
        ({}, "activity", "activity"),
        ({}, "", os.path.basename(os.path.realpath(sys.executable))),
    ):
        known = ThreadLabels("myhost")
        with python(**environ) as process:
            known.notice(process)
            assert labels(known, process)["host"] == "myhost"
            known.declare({process.pid: declared} if declared else {})
            assert labels(known, process)["service"] == service


def test_labels_are_sorted_by_name_and_none_is_empty() -> None:
    known = ThreadLabels("h")
    process = read_process(os.getpid())
    assert process is not None
    known.notice(process)
    pairs = known.of(process.pid, process.pid, "a thread")
    assert [name for name, _ in pairs] == sorted(name for name, _ in pairs)
    assert all(value for _, value in pairs)
    assert dict(pairs)["thread_name"] == "a thread"


def test_a_process_that_is_gone_is_named_by_what_the_kernel_saw() -> None:
    assert dict(ThreadLabels("h").of(2**22 + 1, 2**22 + 1, "cc1")) == {
        "comm": "cc1", "host": "h", "service": "cc1", "thread_name": "cc1",
    }  # fmt: skip


def test_threads_of_the_kernel_are_one_service() -> None:
    known = ThreadLabels("h")
    known.notice(Process(2, 1, (0, 0, 0), kernel=True))
    assert dict(known.of(2, 2, "kthreadd"))["service"] == "[kernel]"
    assert dict(known.of(0, 0, "swapper/0"))["service"] == "[kernel]"


def test_a_thread_that_changes_its_name_gets_another_series() -> None:
    known = ThreadLabels("h")
    assert known.of(2**22 + 1, 5, "one") != known.of(2**22 + 1, 5, "two")


def test_a_process_id_that_was_given_again_is_another_process() -> None:
    known = ThreadLabels("h")
    with python(OTEL_SERVICE_NAME="old") as process:
        known.notice(process)
        assert labels(known, process)["service"] == "old"
        known.declare({process.pid: "said"})
        known.notice(process._replace(pid=process.pid, start_ticks=1, kernel=True))
        assert labels(known, process)["service"] == "[kernel]"
        known.declare({})
        known.forget([process.pid])
        assert labels(known, process, "x")["service"] == "x"


def test_memory_is_bounded_however_many_processes_and_threads_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.labels.MAX_PROCESSES", 10)
    monkeypatch.setattr("collector.labels.MAX_THREADS", 10)
    known = ThreadLabels("h")
    for i in range(100):
        assert dict(known.of(2**22 + i, i, f"p{i}"))["service"] == f"p{i}"
        assert dict(known.of(2**22, i, f"t{i}"))["thread_name"] == f"t{i}"
    assert len(known._known) == 10
    assert max(len(process.threads) for process in known._known.values()) <= 10


def test_names_with_control_characters_or_broken_text_are_made_harmless() -> None:
    labels = dict(ThreadLabels("h").of(2**22 + 1, 5, "a\x1b[2J\udcff"))
    assert labels["thread_name"] == "a?[2J?"
