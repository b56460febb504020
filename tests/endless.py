"""Programs that run until a test ends them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def endless(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs Python code that never ends. It is killed also when the test fails; Popen itself would wait for it."""
    program = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield program
    finally:
        program.kill()
        program.wait()
