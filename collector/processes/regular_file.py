"""Opens files of others: regular ones only."""

import os
import stat


def open_regular(path: str, flags: int = 0) -> int:
    """Opens a regular file for reading; the caller closes the descriptor. `flags`: O_NOFOLLOW, if any.

    Looks before it opens, because opening something else has effects: of a device, whatever its driver does; of a
    FIFO, that a writer goes on. Raises OSError, and FileNotFoundError if the path leads to no regular file.
    """
    looked = os.open(path, os.O_PATH | os.O_CLOEXEC | flags)
    try:
        if not stat.S_ISREG(os.fstat(looked).st_mode):
            raise FileNotFoundError(f"{path} is no regular file")
        return os.open(f"/proc/self/fd/{looked}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(looked)
