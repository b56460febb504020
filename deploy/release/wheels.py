"""Builds the sdists and wheels of both distributions: python deploy/release/wheels.py FOLDER

Takes the files that git knows, as they are in the work tree. The same files give the same bytes, whatever the folder,
the user, the umask and the day: times are SOURCE_DATE_EPOCH, or that of the last commit. The wheels are built from the
sdists.
"""

import functools
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("icestream/tracing", ".")
_BUILD = "import setuptools.build_meta as backend, sys; print(backend.build_{}(sys.argv[1]))"


def build(out: Path) -> list[Path]:
    """Builds them into the folder `out`; returns the wheels."""
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch())
    with tempfile.TemporaryDirectory() as folder:
        source = export(Path(folder) / "source")
        return [_wheel(_sdist(source / name, out), out) for name in SOURCES]


@functools.cache
def epoch() -> int:
    """The time of all files of a release, in Unix seconds."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT))


def export(folder: Path) -> Path:
    """Copies the files that git knows into a new folder, and returns it."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    for path in filter(None, listed.split("\0")):
        if (ROOT / path).is_file():  # not one that the work tree lacks
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, folder / path)
    return folder


def repack(archive: Path) -> None:
    """Packs a `.tar.gz` anew, with the time of the release, no owners, and files in order. setuptools and Helm pack
    what the file system says."""
    with tempfile.TemporaryDirectory() as folder:
        _unpack(archive, Path(folder))
        _pack(Path(folder), archive)


def _sdist(source: Path, out: Path) -> Path:
    sdist = out / _run("sdist", source, out)
    repack(sdist)
    return sdist


def _wheel(sdist: Path, out: Path) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        _unpack(sdist, Path(folder))
        (source,) = Path(folder).iterdir()
        return out / _run("wheel", source, out)


def _run(kind: str, source: Path, out: Path) -> str:
    """Returns the name of the file that setuptools makes."""
    argv = [sys.executable, "-c", _BUILD.format(kind), str(out.resolve())]
    done = subprocess.run(argv, cwd=source, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    return done.stdout.splitlines()[-1]


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")


def _pack(folder: Path, archive: Path) -> None:
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as out,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            member.size, member.mtime, member.mode = path.stat().st_size, epoch(), 0o644
            with path.open("rb") as file:
                out.addfile(member, file)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for wheel in build(target):
        print(wheel)
