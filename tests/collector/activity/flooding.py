"""Activity of a victim, and floods of it by users without any right."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from icestream.tracing.datagram import IntervalColumns, datagrams
from icestream.tracing.threads import Context
from tests.waiting import PATIENCE_S

ATTACKER, OTHER = 65_533, 65_532
FLOOD = """
import socket, sys
sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sending.connect(sys.argv[1])
content = bytes.fromhex(sys.argv[2])
print(flush=True)
while True:
    sending.send(content)
"""


@contextmanager
def flooding(path: Path, user: int = ATTACKER, processes: int = 2) -> Iterator[list[int]]:
    """Processes of that user that send as much as they can; yields their IDs."""
    # The system's interpreter: that user may not be permitted to read the one of the tests.
    command = [shutil.which("python3", path="/usr/bin") or sys.executable, "-c", FLOOD, str(path), datagram(900).hex()]
    children = [
        subprocess.Popen(command, user=user, group=user, extra_groups=[], cwd="/", stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    try:
        for child in children:
            assert child.stdout
            assert child.stdout.readline() == b"\n"
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait(PATIENCE_S)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder which every user can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="icestream-test-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def datagram(rows: int) -> bytes:
    """A datagram of this process."""
    end = time.monotonic_ns() - 1_000_000
    context = Context(bytes(range(1, 29)))
    ends = [end - 1000 * row for row in range(rows)]
    columns = IntervalColumns(
        [context] * rows, [end - 1000 for end in ends], [0] * rows, ends, [500] * rows, [os.getpid()] * rows
    )
    (only,) = datagrams(b"victim", os.getpid(), columns, [], 0)
    return only.content


def send(path: Path, content: bytes) -> bool:
    """Sends as icestream.tracing does: without blocking, trying again for 10 s."""
    end = time.monotonic() + 10
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sending:
        while time.monotonic() < end:
            try:
                sending.sendto(content, str(path))
                return True
            except BlockingIOError:
                time.sleep(0.002)
    return False
