"""Standard output of which errors are told from those of other files, pipes and sockets."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any


class OutputError(OSError):
    """Standard output cannot be written: nobody reads it any more, or the disk is full, for instance."""


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Inside, what cannot be written to standard output raises OutputError; at the end, all of it is written."""
    original = sys.__stdout__
    if original is None or sys.stdout is not original:  # it is closed, or somebody has replaced it
        yield
        return
    original.flush()
    file = _File(original.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        file if original.write_through else io.BufferedWriter(file), original.encoding, original.errors,
        line_buffering=original.line_buffering, write_through=original.write_through,
    )  # fmt: skip
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputError:
        # What is left in the buffer goes nowhere, else Python would complain of it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
        raise
    finally:
        sys.stdout = original


class _File(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None
