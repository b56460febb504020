"""Text that programs, files and servers say -> text that is safe to pass on."""


def clean(text: str, limit: int = 200) -> str:
    """At most `limit` characters, without control characters and broken ones, which anybody may put into names."""
    cut = text[: 2 * limit].strip()[:limit]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)


def label_name(text: str) -> str:
    """A label name in Prometheus's alphabet: letters, digits and underscores, not beginning with a digit; "" for ""."""
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text[:200])
    return f"_{name}" if name[:1].isdigit() else name
