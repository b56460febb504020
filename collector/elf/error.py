"""Errors of malformed ELF files."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager


class ElfError(ValueError):
    """Not a valid ELF file, or its DWARF is not valid, or it is of a kind that is not supported; the message says
    why."""


class ElfTooLarge(ElfError):
    """Reading the file takes more memory or time than the caller allows."""


@contextmanager
def reading() -> Iterator[None]:
    """Raises ElfError in place of what reading a damaged file or something that is not a regular file raises."""
    try:
        yield
    except (OSError, OverflowError, struct.error) as error:
        raise ElfError(f"the ELF file cannot be read: {error}") from error
