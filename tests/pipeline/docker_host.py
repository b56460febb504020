"""A Docker engine of the tests' own, with an image like the official slim one of Debian, made of Debian's packages.

The engine has no bridge: containers have the host's network, or none.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ruamel.yaml import YAML

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
BASE = "debian:bookworm-slim"
"""The image that deploy/docker/Dockerfile begins with. This one has Python, for programs of the tests."""
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_NEEDED = ("dockerd", "docker", "debootstrap")
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
COMPOSE = YAML(typ="safe").load(ROOT / "docker-compose.yml")


def missing() -> list[str]:
    """Returns the programs that are not installed."""
    return [name for name in _NEEDED if shutil.which(name, path=_PATH) is None]


class Docker:
    """A running engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environ = dict(os.environ) | {"PATH": _PATH, "DOCKER_HOST": f"unix://{folder}/docker.sock"}

    def run(self, *arguments: str) -> str:
        """Runs a command of Docker's, and returns what it prints. Raises AssertionError with what it says."""
        return _run("/usr/bin/docker", *arguments, environ=self._environ).strip()

    def remove(self, name: str) -> None:
        """Ends a container, if there is one of this name."""
        with contextlib.suppress(AssertionError):
            self.run("rm", "--force", name)

    def logs(self, name: str) -> str:
        """What a container has printed."""
        command = ["/usr/bin/docker", "logs", name]
        return subprocess.run(
            command, env=self._environ, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ).stdout

    def build_images(self, out: Path, *options: str) -> dict[str, str]:
        """Runs deploy/docker/build_images.py. Returns the images' IDs by their tags, and leaves files in `out`."""
        command = [sys.executable, str(ROOT / "deploy/docker/build_images.py"), f"--out={out}", *options]
        lines = _run(*command, "--build-option=--network=host", environ=self._environ).splitlines()
        return {line.partition(": ")[0]: re.findall(r"sha256:[0-9a-f]{64}", line)[0] for line in lines}

    def start(self, name: str, image: str, *options: str, command: tuple[str, ...]) -> str:
        """Starts a container, and returns its ID."""
        return self.run("run", "--detach", "--name", name, *options, image, *command)

    def capabilities(self, wanted: Iterable[str]) -> set[str]:
        """Returns these capabilities, with CAP_SYS_ADMIN in place of those that Debian 12's Docker does not know."""
        try:
            self.run("rm", self.run("create", "--cap-add=BPF", BASE, "true"))
        except AssertionError as error:
            if "unknown capability" not in str(error):
                raise
            newer = {"BPF", "PERFMON", "CHECKPOINT_RESTORE"}
            return {"SYS_ADMIN" if name in newer else name for name in wanted}
        return set(wanted)

    def make_base(self) -> None:
        """Makes the image that the Dockerfile begins with, with the certificates that this machine trusts."""
        root = self.folder / "root"
        packages = "--include=python3,ca-certificates"
        _run("debootstrap", "--variant=minbase", packages, "bookworm", str(root), environ=self._environ)
        for folder in ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(root / folder)  # as in the official image
        (root / "usr/bin/python").symlink_to("python3")
        shutil.copyfile(f"/{_CERTIFICATES}", root / _CERTIFICATES)
        archive = self.folder / "root.tar"
        _run("tar", "-C", str(root), "-cf", str(archive), ".", environ=self._environ)
        self.run("import", "--change", f"ENV PIP_CERT=/{_CERTIFICATES}", str(archive), BASE)
        archive.unlink()
        shutil.rmtree(root)


@contextmanager
def running_docker(folder: Path) -> Iterator[Docker]:
    """An engine, which keeps its data in this folder, and ends with all its containers."""
    docker = Docker(folder)
    engine_file = shutil.which("dockerd", path=_PATH) or "dockerd"
    command = [
        engine_file, "--iptables=false", "--ip6tables=false", "--bridge=none", "--data-root", f"{folder}/data",
        "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid", "-H", f"unix://{folder}/docker.sock",
        "--config-file", f"{folder}/daemon.json",
    ]  # fmt: skip
    (folder / "daemon.json").write_text("{}")  # not the one of this machine
    log = folder / "dockerd.log"
    with open(log, "wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as engine:
        try:
            wait_until(lambda: engine.poll() is not None or _answers(docker))
            assert engine.poll() is None, log.read_text()[-2000:]
            yield docker
            for container in docker.run("ps", "--all", "--quiet").split():
                docker.remove(container)
        finally:
            engine.terminate()
            engine.wait()
            # It leaves this mount behind, and pytest could not remove the folder.
            subprocess.run(["umount", f"{folder}/exec/netns/default"], check=False, capture_output=True)


def _run(*command: str, environ: dict[str, str]) -> str:
    done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def _answers(docker: Docker) -> bool:
    try:
        docker.run("version")
    except AssertionError:
        return False
    return True


def options_of_service(docker: Docker, name: str, run_folder: Path) -> list[str]:
    """Returns options of `docker run` as a service of docker-compose.yml has them, all but its network.

    `run_folder`: in place of the host's /run/icestream, where another collector may listen.
    """
    service = COMPOSE["services"][name]
    options = [f"--pid={service['pid']}"] if "pid" in service else []
    options += [f"--cgroupns={service['cgroup']}"] if "cgroup" in service else []
    options += [f"--user={service['user']}"] if "user" in service else []
    options += ["--read-only"] if service["read_only"] else []
    options += [f"--cap-add={capability}" for capability in sorted(docker.capabilities(service.get("cap_add", [])))]
    for option, key in (("tmpfs", "tmpfs"), ("cap-drop", "cap_drop"), ("security-opt", "security_opt")):
        options += [f"--{option}={value}" for value in service.get(key, [])]
    if _may_raise_limits():
        options += [f"--ulimit={limit}={value}" for limit, value in service.get("ulimits", {}).items()]
    for volume in service.get("volumes", []):
        source, _, target = volume.partition(":")
        options += ["--volume", f"{run_folder if source == '/run/icestream' else source}:{target}"]
    for variable, value in service["environment"].items():
        options += ["--env", f"{variable}={value}"]
    return options


def _may_raise_limits() -> bool:
    """Whether this machine lets its engine hand on higher limits: it may itself be without CAP_SYS_RESOURCE."""
    (bounding,) = re.findall(r"^CapBnd:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bool(int(bounding, 16) >> 24 & 1)
