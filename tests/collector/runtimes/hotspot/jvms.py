"""The Java virtual machines of this machine, and programs for them."""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent
_made: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def homes() -> list[Path]:
    """Those of the distribution, and others that JAVA_HOMES names, with colons between them."""
    found = [*Path("/usr/lib/jvm").glob("*"), *map(Path, filter(None, os.environ.get("JAVA_HOMES", "").split(":")))]
    return sorted({home.resolve() for home in found if (home / "lib/server/libjvm.so").exists()})


def version(home: Path) -> int:
    release = dict(line.split("=", 1) for line in (home / "release").read_text().splitlines() if "=" in line)
    return int(release["JAVA_VERSION"].strip('"').split(".")[0])


EACH = pytest.mark.parametrize("home", homes(), ids=lambda home: home.name)
NEEDS_JAVA = pytest.mark.skipif(not homes() or not shutil.which("javac"), reason="needs a JDK")


@functools.cache
def classes() -> str:
    """A folder with the programs, compiled for every version."""
    _made.append(tempfile.TemporaryDirectory(prefix="icestream-java-"))
    compiler = [str(max(homes(), key=version) / "bin/javac"), "--release", "11", "-nowarn", "-d", _made[-1].name]
    subprocess.run([*compiler, *map(str, SOURCES.glob("*.java"))], check=True, capture_output=True)
    return _made[-1].name


@contextmanager
def started(home: Path, *options: str, program: tuple[str, ...] = ("Known",)) -> Iterator[subprocess.Popen[bytes]]:
    """A JVM that has written that it is ready."""
    command = [str(home / "bin/java"), "-Xshare:auto", *options, "-cp", classes(), *program]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()
