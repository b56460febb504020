"""The packages of Debian, in a fresh Debian 12: installed, profiling, upgraded, replaced and purged."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream.version import VERSION
from tests.standalone.supervisor.up import Up
from tests.waiting import PATIENCE_S, wait_until
from tests.wheels import ROOT, build_wheels

pytestmark = pytest.mark.soak  # a Debian is made, and packages are downloaded and built, for minutes

DEB = [sys.executable, str(ROOT / "deploy/release/deb.py")]
TARGET = ("3.11", "amd64")
SETTINGS = "etc/icestream/icestream.env"
SPOOLED = "var/lib/icestream/spool/of-before"
OF_OTHERS = "var/lib/icestream/clickhouse"
"""The data of an `icestream up` of another installation."""


class Debian:
    """A Debian 12 in a folder. Its processes see those of this machine, as a collector must."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *command: str, **environ: str) -> str:
        done = subprocess.run(
            ["chroot", self.root, *command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", **environ}, timeout=10 * PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def install(self, package: Path) -> None:
        """Without a network: what it depends on is there."""
        shutil.copy(package, self.root / "tmp")
        self.run("dpkg", "--install", f"/tmp/{package.name}")
        (self.root / "tmp" / package.name).unlink()

    def files(self) -> set[str]:
        """All files and links with icestream in their path."""
        folders = [self.root / name for name in ("etc", "opt", "run", "usr", "var")]
        found = subprocess.check_output(["find", *folders, "-xdev", "-path", "*icestream*"], text=True)
        return {line.removeprefix(f"{self.root}/") for line in found.splitlines()}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap (make containers)")
    out = tmp_path_factory.mktemp("packages")
    build_wheels(out)
    if not (ROOT / "build/inputs" / "-".join(TARGET)).exists():
        subprocess.run([*DEB, "--fetch", *TARGET], check=True)
    subprocess.run([*DEB, out, *TARGET], check=True)
    return out


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    root = tmp_path_factory.mktemp("debian")
    bootstrap = ["debootstrap", "--variant=minbase", "--include=python3,libbpf1", "bookworm", root]
    subprocess.run(bootstrap, check=True, stdout=subprocess.DEVNULL)
    mounts = [root / name for name in ("proc", "sys", "dev")]
    for mount in mounts:
        subprocess.run(["mount", "--rbind", "--make-rslave", f"/{mount.name}", mount], check=True)
    yield Debian(root)
    for mount in mounts:
        subprocess.run(["umount", "--recursive", mount], check=True)
    shutil.rmtree(root)


def test_from_a_package_to_a_flame_graph_and_back(packages: Path, debian: Debian, tmp_path: Path) -> None:
    before = debian.files()
    debian.install(next(packages.glob("icestream-collector_*.deb")))
    assert debian.run("icestream", "--version") == f"icestream {VERSION}\n"
    assert json.loads(debian.run("icestream", "collect", "--check", "--json"))["works"] is True
    assert "messages" in debian.run("icestream", "record", "/tmp/recording", "--seconds", "2")

    settings = debian.root / SETTINGS
    assert settings.stat().st_mode & 0o777 == 0o600
    settings.write_text(changed := settings.read_text() + "ICESTREAM_KAFKA=broker:9092\n")
    (debian.root / SPOOLED).parent.mkdir(parents=True)
    (debian.root / SPOOLED).write_text("a batch")
    debian.install(newer(next(packages.glob("icestream-collector_*.deb")), tmp_path))
    assert "Version: 99" in debian.run("dpkg", "--status", "icestream-collector")
    debian.install(next(packages.glob("icestream_[0-9]*.deb")))
    assert settings.read_text() == changed
    assert (debian.root / SPOOLED).read_text() == "a batch"
    assert "icestream" in debian.run("getent", "passwd", "icestream")
    for command in ("streams", "sink", "migrate", "api", "gateway", "scrape", "flatten", "replay"):
        debian.run("icestream", command, "--help")

    flame_graph_of(debian, tmp_path)
    debian.run("dpkg", "--purge", "icestream-collector")
    assert settings.read_text() == changed
    debian.run("dpkg", "--remove", "icestream")
    assert {SETTINGS, SPOOLED} <= debian.files()
    (debian.root / OF_OTHERS).mkdir()
    debian.run("gpasswd", "--add", "www-data", "icestream")
    debian.run("dpkg", "--purge", "icestream")
    assert debian.files() == before | {OF_OTHERS, str(Path(OF_OTHERS).parent)}
    assert "icestream" in debian.run("getent", "passwd", "icestream")  # whose data they may be


def test_packages_that_another_python_builds_have_the_same_bytes(packages: Path, tmp_path: Path) -> None:
    """In another folder, with another umask: pip writes the path of its Python into commands and their hashes."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    for wheel in packages.glob("*.whl"):
        shutil.copy(wheel, tmp_path)
    subprocess.run([tmp_path / "venv/bin/python", *DEB[1:], tmp_path, *TARGET], check=True, umask=0o077)
    built = {path.name: path.read_bytes() for path in packages.glob("*.deb")}
    assert built
    assert all((tmp_path / name).read_bytes() == content for name, content in built.items())


def test_a_package_is_installed_where_the_group_exists_and_systemd_does_not_answer(
    packages: Path, debian: Debian
) -> None:
    debian.run("groupadd", "--force", "icestream")
    debian.run("sh", "-c", "userdel icestream; rm -rf /var/lib/icestream; mkdir -p /run/systemd/system")
    (package,) = packages.glob("icestream_[0-9]*.deb")
    debian.install(package)
    debian.install(package)
    assert "icestream" in debian.run("getent", "passwd", "icestream")
    debian.run("dpkg", "--purge", "icestream")
    assert "icestream" not in (debian.root / "etc/passwd").read_text()
    assert not [path for path in debian.files() if not path.startswith("var/lib/dpkg")]


def newer(package: Path, folder: Path) -> Path:
    """The same package as a later version."""
    subprocess.run(["dpkg-deb", "--raw-extract", package, folder / "raw"], check=True)
    control = folder / "raw/DEBIAN/control"
    control.write_text(control.read_text().replace("\nVersion: ", "\nVersion: 99"))
    subprocess.run(["dpkg-deb", "-Zzstd", "-z1", "--build", folder / "raw", folder / package.name], check=True)
    shutil.rmtree(folder / "raw")
    return folder / package.name


def flame_graph_of(debian: Debian, folder: Path) -> None:
    """The collector of the package publishes, and the command of the package asks for the graph."""
    (folder / "data").mkdir()
    up = Up(folder / "data", "--no-local-kafka")
    command = ["chroot", str(debian.root), "/usr/bin/icestream", "collect", "--metrics-listen", ""]
    try:
        up.wait_ready()
        with subprocess.Popen(command, env=up.kafka.environ() | {"PATH": "/usr/sbin:/usr/bin"}) as collector:
            try:
                wait_until(up.total, up.log)
            finally:
                collector.terminate()
        url = f"http://{up.api}"
        graph = debian.run("icestream", "query", "merge", "--format", "collapsed", "--url", url)
        assert re.search(r"^[^;]+;.* \d+$", graph, re.MULTILINE), graph
    finally:
        up.process.terminate()
        up.process.wait(PATIENCE_S)
