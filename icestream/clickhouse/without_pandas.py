"""Keeps pandas out of a process."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType


@contextmanager
def without_pandas() -> Iterator[None]:
    """Inside, pandas cannot be imported. pyarrow would do so for its first array wherever pandas is installed, and the
    embedded ClickHouse installs it: 50 MB and half a second of CPU, for nothing that icestream uses."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)


def allow_pandas() -> None:
    """For code of users: from now on, pandas can be imported in this process."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _NoPandas)]


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("icestream does without pandas", name=fullname)
