"""Switches a thread to the context of each asyncio callback, and of each function that `to_thread` passes to it.

A callback (a step of a task is one) belongs to the context that its `contextvars.Context` holds, unless that has ended:
a connection keeps the `contextvars.Context` of the request that opened it, and serves others later. Before and after it
the thread is in the context in which the loop was started. This is mostly none, because the loop's own work belongs to
no request.

uvloop calls back in machine code, but is handed every step of a task by `call_soon`, which is followed; its timers and
protocols are not. Under other event loops, coroutines are in no context, rather than in one that may be another's.
"""

import contextvars
import functools
import sys
from collections.abc import Callable
from typing import Any

from icestream.tracing.threads import Context, context_of_task, enter, local, this_thread, unless_ended


def _no_loop() -> object:
    return None


running_loop: Callable[[], object] = _no_loop
_followed_loops: tuple[type, ...] = (object,)
_undo: list[Callable[[], None]] = []
_modules = sys.modules


def install() -> None:
    """Patches asyncio's `Handle._run` and the loops' `run_in_executor`, from 3.12 on `create_task` as well; the work
    items of thread pools; and, where they are installed, uvloop's `call_soon` and `call_soon_threadsafe`, and anyio's
    `to_thread.run_sync`.
    """
    global running_loop, _followed_loops
    import asyncio
    import asyncio.base_events
    import asyncio.events
    import concurrent.futures.thread

    if _undo:
        return
    running_loop, _followed_loops = asyncio._get_running_loop, (asyncio.base_events.BaseEventLoop,)
    _patch(asyncio.events.Handle, "_run", _run_in_context)
    _patch(concurrent.futures.thread._WorkItem, "run", _leave_ended)
    try:
        import uvloop
    except ImportError:
        pass
    else:
        _followed_loops += (uvloop.Loop,)
        _patch(uvloop.Loop, "call_soon", _call_in_context)
        _patch(uvloop.Loop, "call_soon_threadsafe", _call_in_context)
    try:
        import anyio.to_thread
    except ImportError:
        pass
    else:
        _patch(anyio.to_thread, "run_sync", _carry_to_worker)
    for loop in _followed_loops:
        _patch(loop, "run_in_executor", _carry_to_executor)
        if sys.version_info >= (3, 12):
            _patch(loop, "create_task", _return_from_eager_task)


def uninstall() -> None:
    """Removes the patches, except where other code has patched over them."""
    while _undo:
        _undo.pop()()


def followed() -> bool:
    """Returns False if the calling thread runs an event loop that is not followed: trio's, or one of asyncio's kind."""
    loop = running_loop()
    if loop is not None:
        return isinstance(loop, _followed_loops)
    trio = _modules.get("trio.lowlevel")
    return trio is None or not getattr(trio, "in_trio_run", _no_loop)()


def _patch(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    replacement = functools.update_wrapper(wrap(original), original)
    setattr(owner, name, replacement)

    def undo() -> None:
        if getattr(owner, name) is replacement:
            setattr(owner, name, original)

    _undo.append(undo)


def _run_in_context(original: Callable[[Any], None]) -> Callable[[Any], None]:
    get = context_of_task

    def _run(self: Any) -> None:
        thread = local.thread
        context = self._context.get(get)
        if context is not None and context.ended:
            context = None
        if thread is None:
            if context is None:
                original(self)
                if local.thread is not None:
                    local.thread.switch(None)
                return
            thread = this_thread()
        outer = thread.context
        if context is not outer:
            thread.switch(context)
        try:
            original(self)
        finally:
            thread = local.thread  # another one where the callback forked
            if thread is not None and thread.context is not outer:
                thread.switch(unless_ended(outer))

    return _run


def _call_in_context(original: Callable[..., Any]) -> Callable[..., Any]:
    def call_soon(
        self: Any, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        return original(self, _called, callback, *args, context=context)

    return call_soon


def _called(callback: Callable[..., Any], *args: Any) -> None:
    """Runs a callback of uvloop, which has already set the callback's `contextvars.Context`."""
    _run_carried(context_of_task.get(), callback, *args)


def _leave_ended(original: Callable[..., None]) -> Callable[..., None]:
    def run(self: Any, *args: Any) -> None:
        thread = local.thread  # an earlier item may have entered a span that was left on another thread
        if thread is not None and thread.context is not None and thread.context.ended:
            thread.switch(None)
        original(self, *args)

    return run


def _carry_to_executor(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_in_executor(self: Any, executor: Any, func: Any, *args: Any) -> Any:
        if isinstance(func, functools.partial):
            context = getattr(func.func, "__self__", None)  # to_thread hands over partial(context.run, function, ...)
            if isinstance(context, contextvars.Context):
                func = functools.partial(_run_carried, context.get(context_of_task), func)
        return original(self, executor, func, *args)

    return run_in_executor


def _carry_to_worker(original: Callable[..., Any]) -> Callable[..., Any]:
    async def run_sync(func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return await original(functools.partial(_run_carried, context_of_task.get(), func), *args, **options)

    return run_sync


def _run_carried(context: Context | None, func: Callable[..., Any], *args: Any) -> Any:
    """Also carries no context: `func` may leave the thread in one, as the step of a generator does."""
    context = unless_ended(context)
    outer = local.thread.context if local.thread is not None else None
    if context is not outer:
        enter(context)
    try:
        return func(*args)
    finally:
        if local.thread is not None and local.thread.context is not outer:
            local.thread.switch(unless_ended(outer))


def _return_from_eager_task(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_task(self: Any, *args: Any, **kwargs: Any) -> Any:
        task = original(self, *args, **kwargs)
        thread = local.thread  # an eager task has run its first step, maybe into a span of its own
        context = unless_ended(context_of_task.get())
        if thread is not None and thread.context is not context and followed():
            thread.switch(context)
        return task

    return create_task
