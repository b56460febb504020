"""One line of a location."""

from typing import NamedTuple


class Line(NamedTuple):
    function: str
    file: str
    line: int  # 0 if it is not known
    start_line: int  # of the function's first instruction; 0 if it is not known
