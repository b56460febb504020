"""Refuses parameters that a route does not have: it would answer another question than the one that was asked."""

import difflib
from typing import Any

from fastapi import Request

from api.errors import bad_request


def known_parameters(request: Request) -> None:
    """For routes, as a dependency: raises ApiError if the query has a parameter that the description of the route in
    /openapi.json does not have, or twice one that is no list."""
    schemas = _declared(request)
    given: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in schemas:
            raise bad_request("unknown_parameter", f"unknown parameter: {name[:100]!r}", _hint(name, sorted(schemas)))
        if name in given and not _is_list(schemas[name]):
            raise bad_request("bad_parameter", f"{name}: given twice", f"give {name} once")
        given.add(name)


def _declared(request: Request) -> dict[str, dict[str, Any]]:
    """The schemas of the query parameters of the request's route, by name."""
    operation = request.app.openapi()["paths"][request.scope["route"].path_format][request.method.lower()]
    return {each["name"]: each["schema"] for each in operation.get("parameters", []) if each["in"] == "query"}


def _is_list(schema: dict[str, Any]) -> bool:
    return any(each.get("type") == "array" for each in (schema, *schema.get("anyOf", [])))


def _hint(name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name.lower().replace("-", "_")[:100], known, n=1)
    meant = [f"did you mean {nearest[0]}?"] if nearest else []
    listed = f"The parameters here are {', '.join(known)}." if known else "There are no parameters here."
    return " ".join([*meant, listed])
