"""Builds the packages of Debian and Ubuntu: python deploy/release/deb.py FOLDER PYTHON_VERSION ARCHITECTURE

FOLDER has the wheels of icestream (deploy/release/wheels.py). With --fetch in place of FOLDER, it only downloads the
wheels that those require, into build/inputs/; else it downloads nothing.

A package has a Python environment of its own in /usr/lib/icestream, with the distribution's Python, so PYTHON_VERSION
is that one: 3.11 for Debian 12, 3.12 for Ubuntu 24.04, 3.13 for Debian 13.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sbom import sbom
from wheels import ROOT, epoch

PLATFORMS = {"amd64": "x86_64", "arm64": "aarch64"}
"""Debian's name of an architecture -> the one of Python's wheels."""
GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
PREFIX = Path("usr/lib/icestream")
SETTINGS = ROOT / "deploy/debian/settings"
SCRIPT = f"""#!/{PREFIX}/bin/python3
import sys

from icestream.cli import main

sys.exit(main())
"""


@dataclass(frozen=True)
class Package:
    name: str
    other: str
    """The package that it cannot be beside: both have /usr/bin/icestream."""
    extras: str
    units: tuple[str, ...]
    settings: tuple[str, ...]
    about: str


PACKAGES = (
    Package(
        "icestream-collector", "icestream", "collector", ("icestream-collector.service",), ("icestream.env",),
        "profiles this host with eBPF, and publishes to Kafka",
    ),
    Package(
        "icestream", "icestream-collector", "collector,streams,sinks,api,gateway,jobs",
        ("icestream-collector.service", "icestream@.service"), ("icestream.env", "sink.env"),
        "all parts: collector, stream processors, sinks, query API, gateway",
    ),
)  # fmt: skip


def pip_target(python: str, architecture: str) -> list[str]:
    """The arguments of pip that choose wheels for another Python than this one."""
    platforms = [f"--platform={glibc}_{PLATFORMS[architecture]}" for glibc in GLIBC]
    return ["--only-binary=:all:", f"--python-version={python}", *platforms]


def inputs(python: str, architecture: str) -> Path:
    """The folder of the wheels that are required."""
    return ROOT / "build/inputs" / f"{python}-{architecture}"


def fetch(python: str, architecture: str) -> None:
    """Downloads the files that have the hashes in deploy/docker/requirements.txt."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
    ]
    where = ["--dest", str(inputs(python, architecture)), "-r", str(ROOT / "deploy/docker/requirements.txt")]
    subprocess.run([*pip, *where, *pip_target(python, architecture)], check=True)


def build(package: Package, out: Path, python: str, architecture: str) -> Path:
    """Builds one package and its SBOM into the folder `out`; returns the package."""
    version = (ROOT / "icestream/tracing/VERSION").read_text().strip()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        packages = root / PREFIX / "lib" / f"python{python}" / "site-packages"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-index",
            "--no-compile",
        ]
        found = ["--find-links", str(out), "--find-links", str(inputs(python, architecture)), "--target", str(packages)]
        required = f"icestream[{package.extras}]=={version}"
        subprocess.run([*pip, *found, *pip_target(python, architecture), required], check=True)
        _remove_commands(packages)
        _write(
            root / PREFIX / "pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n"
        )
        _write(root / PREFIX / "bin/icestream", SCRIPT, mode=0o755)
        for link, target in (
            (PREFIX / "bin/python3", f"/usr/bin/python{python}"),
            (Path("usr/bin/icestream"), f"/{PREFIX}/bin/icestream"),
        ):
            (root / link).parent.mkdir(parents=True, exist_ok=True)
            (root / link).symlink_to(target)
        for unit in package.units:
            _write(root / "usr/lib/systemd/system" / unit, (ROOT / "deploy/systemd" / unit).read_text())
        for name in package.settings:
            _write(root / "etc/icestream" / name, (SETTINGS / name).read_text(), mode=0o600)
        bill = json.dumps(sbom(package.name, version, packages), indent=1) + "\n"
        documents = root / "usr/share/doc" / package.name
        _write(documents / "sbom.cdx.json", bill)
        _write(documents / "changelog", (ROOT / "CHANGELOG.md").read_text())
        licenses = "Apache-2.0, and GPL-2.0-only for the eBPF programs (bpf). Packages of others: sbom.cdx.json."
        _write(
            documents / "copyright",
            f"{licenses}\n\n{(ROOT / 'LICENSE').read_text()}\n{(ROOT / 'bpf/LICENSE').read_text()}",
        )
        _control(package, root, f"{version}+py{python}", python, architecture)
        for path in (root, *root.rglob("*")):
            os.utime(path, (epoch(), epoch()), follow_symlinks=False)
        name = f"{package.name}_{version}+py{python}_{architecture}"
        (out / f"{name}.cdx.json").write_text(bill)
        deb = out / f"{name}.deb"
        command = [
            "dpkg-deb",
            "--root-owner-group",
            "--threads-max=1",
            "-Zzstd",
            "-z6",
            "--build",
            str(root),
            str(deb),
        ]
        subprocess.run(
            command, env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch())}, check=True, stdout=subprocess.DEVNULL
        )
        return deb


def _remove_commands(packages: Path) -> None:
    """They name this machine's Python, and so do their hashes."""
    shutil.rmtree(packages / "bin")
    for record in packages.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not line.startswith("../../bin/")))


def _control(package: Package, root: Path, version: str, python: str, architecture: str) -> None:
    size = sum(path.lstat().st_size for path in root.rglob("*")) // 1024
    fields = {
        "Package": package.name, "Version": version, "Architecture": architecture,
        "Maintainer": "icestream <dev@icestream.invalid>", "Section": "admin", "Priority": "optional",
        "Depends": f"python{python}, libbpf1", "Suggests": "python3-bpfcc", "Conflicts": package.other,
        "Replaces": package.other, "Installed-Size": str(size),
        "Description": f"continuous profiling as a Kafka stream: {package.about}",
    }  # fmt: skip
    _write(root / "DEBIAN/control", "".join(f"{name}: {value}\n" for name, value in fields.items()))
    _write(root / "DEBIAN/conffiles", "".join(f"/etc/icestream/{name}\n" for name in package.settings))
    for script in ("postinst", "prerm", "postrm"):
        _write(root / "DEBIAN" / script, (ROOT / "deploy/debian" / script).read_text(), mode=0o755)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


if __name__ == "__main__":
    os.umask(0o022)
    if sys.argv[1] == "--fetch":
        fetch(*sys.argv[2:4])
    else:
        for one in PACKAGES:
            print(build(one, Path(sys.argv[1]), *sys.argv[2:4]))
