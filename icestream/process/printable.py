"""Text for terminals: names come from whatever runs on the hosts, and terminals obey control characters."""

import logging


def printable(text: str) -> str:
    """Returns the text with "?" for each character that cannot be printed, line breaks included."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


class PrintableFormatter(logging.Formatter):
    """Keeps line breaks, but indents what follows one: it may look like another line of the log."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n  ".join(map(printable, super().format(record).split("\n")))
