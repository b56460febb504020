"""Packages of Debian's suites, from the mirror that apt uses here."""

import lzma
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import NamedTuple

CACHE = Path.home() / ".cache" / "icestream" / "kernels"


class Package(NamedTuple):
    name: str
    version: str
    file: str  # in the mirror


def mirror() -> str:
    """Raises LookupError if apt has none of Debian."""
    said = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True, check=True
    )
    for site in said.stdout.split():
        if site.rstrip("/").endswith("/debian"):
            return site.rstrip("/")
    raise LookupError("apt has no mirror of Debian")


def index(suite: str, architecture: str) -> list[Package]:
    """All packages of a suite."""
    stored = CACHE / f"{suite}-{architecture}.Packages"
    if not stored.exists():
        url = f"{mirror()}/dists/{suite}/main/binary-{architecture}/Packages.xz"
        with urllib.request.urlopen(url, timeout=60) as answer:
            _store(stored, lzma.decompress(answer.read()))
    text = stored.read_text(errors="replace")
    fields = re.compile(r"^(Package|Version|Filename): (.*)$", re.MULTILINE)
    return [
        Package(of["Package"], of["Version"], of["Filename"])
        for of in (dict(fields.findall(paragraph)) for paragraph in text.split("\n\n"))
        if len(of) == 3
    ]


def unpacked(suite: str, architecture: str, pattern: str) -> Path:
    """The files of the newest package whose name matches, in a folder."""
    matching = [package for package in index(suite, architecture) if re.fullmatch(pattern, package.name)]
    if not matching:
        raise LookupError(f"{suite} has no package {pattern} for {architecture}")
    newest = max(matching, key=lambda package: [int(part) for part in re.findall(r"\d+", package.name)])
    folder = CACHE / f"{newest.name}_{newest.version}_{architecture}".replace(":", "%")
    if not folder.exists():
        deb = CACHE / Path(newest.file).name
        with urllib.request.urlopen(f"{mirror()}/{newest.file}", timeout=60) as answer:
            _store(deb, answer.read())
        part = folder.with_suffix(".part")
        subprocess.run(["dpkg-deb", "-x", deb, part], check=True)
        part.rename(folder)
        deb.unlink()
    return folder


def _store(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.rename(path)
