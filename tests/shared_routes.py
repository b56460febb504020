"""Applications of tests share their routes: FastAPI builds those of one at its first requests, in 0.2 CPU seconds."""

from collections.abc import Hashable

from fastapi import FastAPI

_built: dict[Hashable, FastAPI] = {}


def with_built_routes(new: FastAPI, settings: Hashable) -> FastAPI:
    """Returns an application that answers as the new one does: the first one with these settings, with the state of the
    new one. So no two of them with the same settings answer at the same time."""
    built = _built.setdefault(settings, new)
    built.state.shared = new.state.shared
    return built
