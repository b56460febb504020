"""Processes of users without privileges whose memory does not answer (programs/hanging_memory.c). Needs root."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent / "programs" / "hanging_memory.c"
USER = 4242


class Hanging(NamedTuple):
    pid: int
    page: int
    """The address in it that nobody can read."""
    program: str
    """The path of the file that it executes."""
    answer: Callable[[], None]
    """From now on its memory answers, for good."""


@contextmanager
def hanging_memory(mode: str, user: int = USER) -> Iterator[Hanging]:
    """`mode`: "page", or "lock". Whoever still waits at the end goes on."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program, file = f"{folder}/hanging_memory", Path(folder, "file")
        subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-pthread", SOURCE, "-o", program], check=True)
        file.touch()
        command = [program, file, str(user), mode]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin
            assert process.stdout
            try:
                yield Hanging(process.pid, int(process.stdout.readline()), program, process.stdin.close)
            finally:
                process.stdin.close()
                process.kill()
