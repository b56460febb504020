"""The description of the API as a page of plain HTML, which loads nothing from other hosts."""

import base64
import hashlib
import json
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733 }
h2 { margin-top: 2.5rem; font: 600 1.1rem ui-monospace, monospace; border-top: 1px solid #d5dde5; padding-top: 1rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0 }
code, pre { font: 13px ui-monospace, monospace } pre { background: #f3f6f9; padding: .8rem; overflow: auto }
@media (prefers-color-scheme: dark) { body { background: #12181f; color: #d8e0e8 } pre { background: #1c2630 } }
"""

POLICY = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page: nothing but its own style."""


def openapi_page(openapi: dict[str, Any]) -> str:
    """HTML of an OpenAPI document."""
    info = openapi["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])}: API</title><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}: API</h1>{_paragraphs(info.get('description', ''))}",
        "<p>The same for machines: <a href=/openapi.json>/openapi.json</a>. <a href=/>The page</a>.</p>",
    ]
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(path, method, operation))
    return "".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(map(_parameter, operation.get("parameters", [])))
    table = f"<table><tr><th>Parameter<th>Default<th>{rows}</table>" if rows else ""
    examples = "".join(
        f"<pre>{escape(_json(content['example']))}</pre>"
        for content in operation["responses"].get("200", {}).get("content", {}).values()
        if "example" in content
    )
    return (
        f"<h2>{method.upper()} {escape(path)}</h2><p><b>{escape(operation.get('summary', ''))}.</b></p>"
        f"{_paragraphs(operation.get('description', ''))}{table}{examples}"
    )


def _parameter(parameter: dict[str, Any]) -> str:
    schema = parameter.get("schema", {})
    default = schema.get("default", "")
    choices: list[str] = schema.get("enum") or next((s["enum"] for s in schema.get("anyOf", []) if "enum" in s), [])
    examples = schema.get("examples") or []
    nested = [schema, *schema.get("anyOf", [])]
    text = parameter.get("description") or next((s["description"] for s in nested if "description" in s), "")
    more = [f"One of {', '.join(choices)}."] if choices else []
    more += [f"For example {example}" for example in examples]
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code><td><code>{escape(str(default))}</code>"
        f"<td>{escape(' '.join([text, *more]))}"
    )


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part.strip())


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2)
