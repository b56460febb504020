"""Operators that take their time: they say when they are in the middle of a job."""

import os
import time
from itertools import count
from pathlib import Path

from icestream.messages.raw import RawColumns
from streams.partition.process import Operators

_calls = count(1)


def _change(raw: RawColumns) -> RawColumns:
    """Touches the file SLOW at its 10th call, and then waits to be interrupted."""
    path = os.environ.get("SLOW")
    if path and next(_calls) == 10:
        Path(path).touch()
        time.sleep(3600)
    return raw


OPERATORS = Operators(change=_change)
