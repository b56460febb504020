"""A disk of its own that a test can fill up for real: a file system in memory, or ext4 in a file."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SIZE_MB = 200


@dataclass(frozen=True)
class SmallDisk:
    path: Path

    def fill(self, leave: int = 0) -> None:
        """Leaves so many bytes free, or a few less."""
        left = self.path / "left"
        left.write_bytes(b"\0" * leave)
        os.sync()
        for number, block in enumerate((1_000_000, 4096, 1024, 16)):
            with open(self.path / f"filling-{number}", "wb", buffering=0) as file:
                try:
                    while file.write(b"\0" * block):
                        pass
                except OSError:
                    pass
        os.sync()
        left.unlink()

    def free(self) -> None:
        for file in self.path.glob("filling-*"):
            file.unlink()


@contextmanager
def small_disk(kind: str, folder: Path) -> Iterator[SmallDisk]:
    """Mounts a disk in `folder`. Skips the test where that is impossible."""
    disk, image = folder / "disk", folder / "image"
    disk.mkdir()
    if kind == "tmpfs":
        commands = [["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(disk)]]
    else:
        with open(image, "wb") as file:
            file.truncate(SIZE_MB << 20)
        commands = [["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(disk)]]
    for command in commands:
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"cannot mount {kind} here: {getattr(error, 'stderr', None) or error}")
    try:
        yield SmallDisk(disk)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
        image.unlink(missing_ok=True)
