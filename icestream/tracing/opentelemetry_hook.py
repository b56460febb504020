"""Switches threads to the span of the attached OpenTelemetry context, and reports spans that ended.

The hook sits on the runtime context, which every `attach` and `detach` goes through whatever name it was imported by.
It stays once it is installed, and passes everything on unchanged while tracing is off.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from icestream.tracing.asyncio_hook import followed
from icestream.tracing.threads import (
    ENTRY,
    ERROR,
    Context,
    Thread,
    context_of_task,
    limits,
    name_of,
    this_thread,
    unless_ended,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context as OtelContext

_DEFAULT_SERVICE = "unknown_service"
_MOST_NS = 2**63 - 1
_ENTRY = "_icestream_entry"
"""Attribute of a span: the entry span of its request in this process."""


class _SpanContext(Context):
    """Frameworks rename the entry span when they have found the route. A span may be attached in many places."""

    __slots__ = ("entry_span", "span")

    def __init__(self, record: bytes, span: Any) -> None:
        super().__init__(record)
        self.span = span
        self.entry_span = _entry_of(span)
        """None: not known, because the request is not sampled here."""

    @property
    def ended(self) -> bool:
        if self.entry_span is None:
            return super().ended
        return not (self.entry_span.is_recording() or self.span.is_recording())

    @property
    def entry_span_id(self) -> bytes:
        return b"" if self.entry_span is None else self.entry_span.context.span_id.to_bytes(8, "big")

    @property
    def operation(self) -> str:
        return "" if self.entry_span is None else name_of(self.entry_span.name)


class AttachToken:
    """What `attach` returns: OpenTelemetry's own token, and ours.

    `context`: the one that `detach` ends. `outer`: the thread and the context that it was in, if that is not the one
    above: `contextvars.Context.run` changes that alone.
    """

    __slots__ = ("context", "ours", "outer", "theirs")

    def __init__(
        self, theirs: Any, ours: Any, context: Context | None, outer: tuple[Thread, Context | None] | None
    ) -> None:
        self.theirs = theirs
        self.ours = ours
        self.context = context
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
        if not limits.rows:
            return theirs
        self.equip()
        thread, above = this_thread(), context_of_task.get()
        ours = self._context_of_span(context, above)
        outer = None if thread.context is above else (thread, thread.context)
        token = context_of_task.set(ours)
        thread.switch(ours if followed() else None)
        return AttachToken(theirs, token, None if ours is above else ours, outer)

    def detach(self, token: Any) -> None:
        """In place of the runtime context's own."""
        if not isinstance(token, AttachToken):
            self._detach(token)
            return
        if token.context is not None:
            token.context.open = False
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

    def _context_of_span(self, context: "OtelContext", above: Context | None) -> Context | None:
        """Returns our context for the span in OpenTelemetry's, or None if it has no valid span."""
        current = self._trace.get_current_span(context)
        span = current.get_span_context()
        if not span.is_valid:
            return None
        identifiers = span.trace_id << 64 | span.span_id
        record = identifiers.to_bytes(24, "big") + bytes((1, span.trace_flags & 0xFF, 0, 0))
        if above is not None and above.record == record and not above.ended:  # only baggage changes, for example
            return above
        ours = _SpanContext(record, current)
        if above is not None and above.record[:16] == record[:16] and not above.ended:
            ours.outermost = above.outermost or above
        return ours


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
            if not limits.rows or context is None or span.start_time is None or span.end_time is None:
                return
            since = time.time_ns() - time.monotonic_ns()
            # Floats are given, too, and any number.
            start, end = (min(max(0, int(at) - since), _MOST_NS) for at in (span.start_time, span.end_time))
            parent = span.parent.span_id.to_bytes(8, "big") if span.parent is not None else b""
            this_thread().end_span(
                (
                    (context.trace_id << 64 | context.span_id).to_bytes(24, "big"),
                    parent,
                    name_of(span.name),
                    start,
                    end,
                    (ENTRY if _entry_of(span) is span else 0) | (0 if span.status.is_ok else ERROR),
                )
            )

    return Followed()
