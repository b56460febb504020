"""What the files of runtimes say: each is read once, when a process is met that maps it."""

import os
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from collector.processes.patience import Patiently

Said = TypeVar("Said")


class FilesOnce(Generic[Said]):
    """For one thread. `open_file` returns a new descriptor of the file with a key (MappedRange.file_key), or None: it
    is FileCache.open, and `patiently` FileCache.patiently."""

    def __init__(
        self,
        open_file: Callable[[str], int | None],
        patiently: Patiently,
        read: Callable[[int], Said | None],
        most: int,
        wrong: tuple[type[Exception], ...] = (),
        refuse: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """`read` gets a descriptor, which is closed afterwards. If it raises one of `wrong`, that is given to `refuse`,
        and the file says None from then on."""
        self._open_file, self._patiently, self._read, self._most = open_file, patiently, read, most
        self._wrong, self._refuse = wrong, refuse
        self._known: dict[str, Said | None] = {}  # the oldest comes first

    def find(self, key: str) -> Said | None:
        """Raises FileNotFoundError if the file is gone, and TimeoutError if its file system does not answer: it is
        tried again, as after what `read` raises besides `wrong`."""
        if key not in self._known:
            said: Said | None = None
            try:
                said = self._patiently(key, partial(self._read_file, key))
            except (FileNotFoundError, TimeoutError):
                raise
            except self._wrong as error:
                self._refuse(error)
            while len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
            self._known[key] = said
        return self._known[key]

    def _read_file(self, key: str) -> Said | None:
        descriptor = self._open_file(key)
        if descriptor is None:  # another process may have it
            raise FileNotFoundError(key)
        try:
            return self._read(descriptor)
        finally:
            os.close(descriptor)
