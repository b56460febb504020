"""Starts and stops tracing in this process."""

import atexit
import logging
import mmap
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from icestream.tracing import asyncio_hook, threads
from icestream.tracing.endings import at_end
from icestream.tracing.sender import Sender, why_unheard
from icestream.tracing.span import forked as new_span_ids
from icestream.tracing.threads import registry

if TYPE_CHECKING:
    from icestream.tracing.opentelemetry_hook import Hook

DEFAULT_SOCKET = "/run/icestream/activity.sock"
_LOG = logging.getLogger("icestream.tracing")


class Status(NamedTuple):
    """What tracing does right now."""

    started: bool
    service: str
    socket: str
    collector: str
    """"listens" on the socket, or the reason why nobody hears us there."""
    thread_context: str
    """"published", or the reason why threads cannot publish their context here (activity is still sent)."""
    process_context: bool
    opentelemetry: bool
    sent_intervals: int
    dropped_intervals: int
    dropped_spans: int


class _Tracing:
    """The state of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sender: Sender | None = None
        self.slots: object = None
        self.thread_context = "not started"
        self.process_context: mmap.mmap | None = None
        self.hook: Hook | None = None
        self.service_given = False
        self.at_fork = False
        self.at_uwsgi_fork = False
        self.pid = 0


_tracing = _Tracing()


def start(service: str | None = None, socket: str | None = None) -> None:
    """Starts to publish which request each thread works for. Does nothing if tracing has started.

    `service` is by default OTEL_SERVICE_NAME, service.name in OTEL_RESOURCE_ATTRIBUTES or of OpenTelemetry's tracer
    provider, or the program's name. `socket` is the collector's, by default ICESTREAM_ACTIVITY_SOCKET, or
    /run/icestream/activity.sock; there need not be a collector yet.
    """
    with _tracing.lock:
        if _tracing.sender is not None:
            return
        configured = service or _service_from_environment()
        _tracing.service_given = bool(configured)
        path = socket or os.environ.get("ICESTREAM_ACTIVITY_SOCKET") or DEFAULT_SOCKET
        sender = _tracing.sender = Sender(path, configured or program())
        _load_slots()
        registry.adding, registry.added, registry.wake = _prepare_thread, sender.run, sender.wake
        _tracing.pid = os.getpid()
        registry.set_limits(True)
        asyncio_hook.install()
        _hook_opentelemetry()
        _publish_process()
        if not _tracing.at_fork:
            _tracing.at_fork = True
            os.register_at_fork(after_in_child=_forked)
            atexit.register(stop)
        at_end(stop)
        sender.run()


def stop() -> None:
    """Sends the remaining activity and removes all hooks. Threads leave their contexts when their spans end."""
    with _tracing.lock:
        sender, _tracing.sender = _tracing.sender, None
        if sender is None:
            return
        asyncio_hook.uninstall()
        sender.close()
        registry.set_limits(False)
        registry.adding = registry.added = registry.wake = _nothing
        if _tracing.process_context is not None:
            _tracing.process_context.close()
            _tracing.process_context = None


def status() -> Status:
    """What tracing does right now."""
    with _tracing.lock:
        sender = _tracing.sender
        return Status(
            started=sender is not None,
            service=sender.service if sender else "",
            socket=sender.path if sender else "",
            collector=why_unheard(sender.path) or "listens" if sender else "not started",
            thread_context=_tracing.thread_context if sender else "not started",
            process_context=_tracing.process_context is not None,
            opentelemetry=_tracing.hook is not None,
            sent_intervals=sender.sent if sender else 0,
            dropped_intervals=sender.dropped if sender else 0,
            dropped_spans=sender.dropped_spans if sender else 0,
        )


def _load_slots() -> None:
    if _tracing.slots is not None:
        return
    try:
        from icestream.tracing.record import Slots, Unsupported
    except ImportError as error:  # a Python without ctypes
        _no_thread_context(str(error))
        return
    try:
        slots = _tracing.slots = Slots()
    except Unsupported as error:
        _no_thread_context(str(error))
        return
    registry.slot = slots.of_this_thread
    _tracing.thread_context = "published"


def _no_thread_context(reason: str) -> None:
    if _tracing.thread_context != reason:
        _tracing.thread_context = reason
        _LOG.warning("threads cannot show their context to a profiler: %s; activity is still sent", reason)


def _hook_opentelemetry() -> None:
    try:
        from icestream.tracing.opentelemetry_hook import Hook

        hook = _tracing.hook = _tracing.hook or Hook(_named)
    except ImportError:  # OpenTelemetry is not installed
        return
    hook.equip()
    hook.tell_service()


def _named(service: str) -> None:
    """Takes over the service's name from OpenTelemetry's tracer provider, unless `start` was given one."""
    sender = _tracing.sender
    if sender is not None and not _tracing.service_given and sender.service != service:
        sender.service = service
        _publish_process()


def _publish_process() -> None:
    if _tracing.process_context is not None:
        _tracing.process_context.close()
        _tracing.process_context = None
    if _tracing.sender is not None:
        try:
            from icestream.tracing import process_context
        except ImportError:  # a Python without ctypes
            return
        _tracing.process_context = process_context.publish(_tracing.sender.service, _tracing.slots is not None)


def _prepare_thread() -> None:
    """Runs before a thread is in a context for the first time. Makes up for forks in C, which Python does not know of.

    uWSGI calls its hook in each worker, which may go on with a thread that its master had in a context.
    """
    _notice_fork()
    uwsgi: Any = sys.modules.get("uwsgi")  # the program itself: it has the module once it loads an application
    if uwsgi is not None and not _tracing.at_uwsgi_fork:
        _tracing.at_uwsgi_fork = True
        others = getattr(uwsgi, "post_fork_hook", _nothing)

        def hook() -> None:
            _notice_fork()
            others()

        uwsgi.post_fork_hook = hook


def _notice_fork() -> None:
    if os.getpid() != _tracing.pid:
        _forked()


def _forked() -> None:
    """Runs in the child of a fork."""
    _tracing.lock = threading.RLock()
    _tracing.pid = os.getpid()
    if _tracing.sender is None:
        return
    at_end(stop)
    if _tracing.process_context is not None:
        from icestream.tracing.process_context import abandon

        abandon(_tracing.process_context)
        _tracing.process_context = None
    _publish_process()
    _tracing.sender.forked()
    new_span_ids()
    threads.forked()


def _service_from_environment() -> str:
    if name := os.environ.get("OTEL_SERVICE_NAME"):
        return name
    for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        key, _, value = pair.partition("=")
        if key.strip() == "service.name" and value.strip():
            return value.strip()
    return ""


def program() -> str:
    """Returns the name of the program, or of the module that runs as one."""
    name = os.path.basename(sys.argv[0] if sys.argv else "")
    if name == "-m":  # Python has not found the module yet
        name = sys.orig_argv[sys.orig_argv.index("-m") + 1] if "-m" in sys.orig_argv[:-1] else ""
    if name in ("", "-c", "-m"):  # a child that multiprocessing starts, for example
        return os.environ.get("ICESTREAM_TRACE_PROGRAM") or "python"
    return name.removesuffix(".py")


def _nothing() -> None:
    """Takes the place of a function that is not there: the sender's while tracing is off, or a hook."""
