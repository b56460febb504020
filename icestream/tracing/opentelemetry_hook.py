"""Switches threads to the span of the attached OpenTelemetry context, and reports spans that ended.

The hook sits on the runtime context, which every `attach` and `detach` goes through whatever name it was imported by.
It stays once it is installed, and passes everything on unchanged while tracing is off.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from icestream.tracing.asyncio_hook import followed
from icestream.tracing.span import MOST_NAME
from icestream.tracing.threads import ENTRY, ERROR, Context, Limits, Thread, context_of_task, this_thread, unless_ended

if TYPE_CHECKING:
    from opentelemetry.context import Context as OtelContext

_DEFAULT_SERVICE = "unknown_service"
_MOST_NS = 2**63 - 1
_ENTRY = "_icestream_entry"
"""Attribute of a span: the entry span of its request in this process."""


class _SpanContext(Context):
    """The record of a span. Frameworks rename the entry span when they have found the route."""

    span: Any = None
    entry: Any = None
    """None: not known, because the request is not sampled here."""

    @property
    def ended(self) -> bool:
        if self.entry is None:
            return super().ended
        return not (self.entry.is_recording() or self.span.is_recording())

    @property
    def operation(self) -> str:
        return "" if self.entry is None else str(self.entry.name)[:MOST_NAME]


class Token:
    """What `attach` returns: OpenTelemetry's own token, and ours. `outer`: the thread and the context that it was in,
    if that is not the one above: `contextvars.Context.run` changes that alone."""

    __slots__ = ("ours", "outer", "record", "theirs")

    def __init__(
        self, theirs: Any, ours: Any, record: "_SpanContext | None", outer: tuple[Thread, Context | None] | None
    ) -> None:
        self.theirs = theirs
        self.ours = ours
        self.record = record
        self.outer = outer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.theirs, name)


class Hook:
    """The installed hook. Raises ImportError where there is no OpenTelemetry.

    It calls `named` with the service's name in the tracer provider's resource.
    """

    def __init__(self, named: Callable[[str], None]) -> None:
        import opentelemetry.context
        import opentelemetry.trace

        self._trace = opentelemetry.trace
        self._named = named
        self._provider: object = None
        self._service = ""
        runtime = opentelemetry.context._RUNTIME_CONTEXT
        self._attach, self._detach = runtime.attach, runtime.detach
        runtime.attach, runtime.detach = self.attach, self.detach  # type: ignore[method-assign]

    def attach(self, context: "OtelContext") -> Any:
        """In place of the runtime context's own."""
        theirs = self._attach(context)
        if not Limits.rows:
            return theirs
        self.equip()
        record = self._record(context)
        thread, above = this_thread(), context_of_task.get()
        if record is not None and above is not None and above[:16] == record[:16] and not above.ended:
            record.outermost = above if above.outermost is None else above.outermost
        outer = None if thread.context is above else (thread, thread.context)
        ours = context_of_task.set(record)
        thread.switch(record if followed() else None)
        return Token(theirs, ours, record, outer)

    def detach(self, token: Any) -> None:
        """In place of the runtime context's own."""
        if not isinstance(token, Token):
            self._detach(token)
            return
        if token.record is not None:
            token.record.left = True
        try:
            self._detach(token.theirs)
            context_of_task.reset(token.ours)
        finally:  # ValueError: detached in another context than it was attached in
            thread = this_thread()
            above = context_of_task.get() if token.outer is None or token.outer[0] is not thread else token.outer[1]
            thread.switch(unless_ended(above) if followed() else None)

    def equip(self) -> None:
        """Adds our span processor to the global tracer provider, once there is one that takes it.

        `get_tracer_provider` itself would make and set one where none is set, and the application could set none.
        """
        provider = getattr(self._trace, "_TRACER_PROVIDER", None)
        if provider is not None and provider is not self._provider:
            self._provider = provider
            self._add_processor(provider)

    def tell_service(self) -> None:
        """Passes on the service's name, if a provider has one."""
        if self._service:
            self._named(self._service)

    def _add_processor(self, provider: object) -> None:
        add = getattr(provider, "add_span_processor", None)
        if add is not None:
            add(_processor())
            service = getattr(getattr(provider, "resource", None), "attributes", {}).get("service.name")
            if isinstance(service, str) and not service.startswith(_DEFAULT_SERVICE):
                self._service = service
                self.tell_service()

    def _record(self, context: "OtelContext") -> _SpanContext | None:
        """Returns the thread record of the span in the context, or None if it has no valid span."""
        current = self._trace.get_current_span(context)
        span = current.get_span_context()
        if not span.is_valid:
            return None
        identifiers = span.trace_id << 64 | span.span_id
        record = _SpanContext(identifiers.to_bytes(24, "big") + bytes((1, span.trace_flags & 0xFF, 0, 0)))
        entry = _entry_of(current)
        if entry is not None:
            record.entry_span_id = entry.context.span_id.to_bytes(8, "big")
            record.span, record.entry = current, entry
        return record


def _entry_of(span: Any) -> Any:
    """Returns the entry span of a span's request; None if that is not known: it has no name if it does not record."""
    entry = getattr(span, _ENTRY, None)
    if entry is None and hasattr(span, "name"):
        parent = getattr(span, "parent", None)  # before the processor was added
        entry = span if parent is None or parent.is_remote else None
    return entry


def _processor() -> Any:
    from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
    from opentelemetry.trace import get_current_span

    class Followed(SpanProcessor):
        """Notes the entry span of each span as it starts, and hands over each span as it ends."""

        def on_start(self, span: Span, parent_context: "OtelContext | None" = None) -> None:
            parent = get_current_span(parent_context)
            above = parent.get_span_context()
            setattr(span, _ENTRY, _entry_of(parent) if above.is_valid and not above.is_remote else span)

        def on_end(self, span: ReadableSpan) -> None:
            context = span.context
            if not Limits.rows or context is None or span.start_time is None or span.end_time is None:
                return
            since = time.time_ns() - time.monotonic_ns()
            # Floats are given, too, and any number.
            start, end = (min(max(0, int(at) - since), _MOST_NS) for at in (span.start_time, span.end_time))
            parent = span.parent.span_id.to_bytes(8, "big") if span.parent is not None else b""
            this_thread().end_span(
                (
                    context.trace_id.to_bytes(16, "big"),
                    context.span_id.to_bytes(8, "big"),
                    parent,
                    str(span.name)[:MOST_NAME],
                    start,
                    end,
                    (ENTRY if _entry_of(span) is span else 0) | (0 if span.status.is_ok else ERROR),
                )
            )

    return Followed()
