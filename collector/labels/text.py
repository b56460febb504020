"""Makes text of programs, files and servers safe to pass on."""

from icestream.process.printable import printable


def clean(text: str, limit: int = 200) -> str:
    """Returns at most `limit` characters. Replaces unprintable ones, which anybody may put into names, by "?"."""
    cut = text[: 2 * limit].strip()[:limit]
    return printable(cut)


def label_name(text: str) -> str:
    """Returns a label name as Prometheus allows it: letters, digits and underscores, no digit first; "" for ""."""
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text[:200])
    return f"_{name}" if name[:1].isdigit() else name
