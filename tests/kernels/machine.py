"""Virtual machines that QEMU emulates: without KVM, network, or loop devices.

Debian's second stage of installing would take long under emulation, so packages are only unpacked. The disk is made
from a folder, and results come by the console.
"""

import gzip
import lzma
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.kernels import packages
from tests.kernels.packages import CACHE, mirror

_SUITE = "bookworm"  # of programs: the same for all kernels
_PROGRAMS = [
    "python3",
    "procps",
    "kmod",
    "util-linux",
    "gcc",
    "g++",
    "libc6-dev",
    "binutils",
    "libbpf1",
    "libelf1",
    "zlib1g",
    "python3-bpfcc",
    "passwd",
]
_DRIVERS = ("virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk")
_MEMORY_MB, _DISK = 3072, "6G"
_BEGIN = "== begin"


class Kernel(NamedTuple):
    suite: str
    architecture: str  # as Debian calls it
    package: str = r"linux-image-[0-9].*-cloud-(amd64|arm64)"
    modules: str = ""  # where these are a package of their own


KERNELS = {
    "5.10": Kernel("bullseye", "amd64"),
    "6.1": Kernel("bookworm", "amd64"),
    "6.12": Kernel("trixie", "amd64"),
    "7": Kernel("sid", "amd64", r"linux-binary-[0-9].*-cloud-amd64", r"linux-modules-[0-9].*-cloud-amd64"),
    "6.1-arm64": Kernel("bookworm", "arm64"),
    "6.12-arm64": Kernel("trixie", "arm64"),
}

_QEMU = {
    "amd64": ["qemu-system-x86_64", "-M", "q35", "-cpu", "max"],
    "arm64": ["qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on"],
}
_CONSOLE = {"amd64": "ttyS0", "arm64": "ttyAMA0"}
_PLATFORM = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}

_INIT = """#!/busybox sh
/busybox mkdir -p /proc /sys /dev /root
/busybox mount -t proc proc /proc
/busybox mount -t devtmpfs dev /dev
for module in {modules}; do /busybox insmod /modules/$module; done
while ! /busybox mount -t ext4 /dev/vda /root; do /busybox sleep 0.2; done
exec /busybox switch_root /root /bin/sh /start
"""

_START = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run; mount -t tmpfs tmp /tmp
mount -t bpf bpf /sys/fs/bpf; mount -t tracefs tracing /sys/kernel/tracing
mkdir -p /sys/fs/cgroup; mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up 2>/dev/null
ldconfig
cd /icestream
export PYTHONPATH=/icestream
exec >/dev/console 2>&1
echo "{begin}"
( {command} )
echo "exit $?"
sleep 1
echo o >/proc/sysrq-trigger
sleep 60
"""


def run(name: str, project: Path, command: str, timeout_s: float) -> str:
    """Returns what a shell command prints in the project's folder, as root of a machine with this kernel, and its exit
    status in the last line. Meanwhile it is in the file `console` of the machine's folder, and remains there. Raises
    TimeoutExpired, CalledProcessError, LookupError."""
    kernel = KERNELS[name]
    files = packages.unpacked(kernel.suite, kernel.architecture, kernel.package)
    modules = packages.unpacked(kernel.suite, kernel.architecture, kernel.modules) if kernel.modules else files
    image = next(files.glob("**/vmlinuz*"))  # from 7 on, beside the modules
    work = CACHE / f"run-{name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    _initrd(work / "initrd", kernel.architecture, modules)
    _disk(work, kernel.architecture, project, command)
    arguments = [
        *_QEMU[kernel.architecture], "-accel", "tcg,thread=multi", "-smp", "2", "-m", str(_MEMORY_MB), "-nographic",
        "-no-reboot", "-nic", "none", "-kernel", str(image), "-initrd", str(work / "initrd"),
        "-drive", f"file={work / 'disk'},format=raw,if=none,id=disk", "-device", "virtio-blk-pci,drive=disk",
        "-append", f"console={_CONSOLE[kernel.architecture]} panic=-1 quiet nokaslr mitigations=off",
    ]  # fmt: skip
    with (work / "console").open("wb") as console:
        subprocess.run(
            arguments, stdin=subprocess.DEVNULL, stdout=console, stderr=console, timeout=timeout_s, check=True
        )
    (work / "disk").unlink()
    said = (work / "console").read_text(errors="replace").replace("\r\n", "\n")
    result = re.search(rf"{_BEGIN}\n(.*^exit \d+)$", said, re.DOTALL | re.MULTILINE)
    if not result:
        raise LookupError(f"the machine ended without a result: {said[-2000:]}")
    return result[1]


def _initrd(path: Path, architecture: str, kernel_files: Path) -> None:
    folder = path.with_suffix(".files")
    (folder / "modules").mkdir(parents=True)
    busybox = packages.unpacked(_SUITE, architecture, "busybox-static")
    shutil.copy(next(busybox.glob("**/bin/busybox")), folder / "busybox")
    names = []
    for driver in _DRIVERS:
        found = next((f for f in kernel_files.rglob(f"{driver}.ko*")), None)
        if found is not None:  # else it is built in
            (folder / "modules" / f"{driver}.ko").write_bytes(_decompressed(found))
            names.append(f"{driver}.ko")
    (folder / "init").write_text(_INIT.format(modules=" ".join(names)))
    (folder / "init").chmod(0o755)
    listed = "\n".join(str(each.relative_to(folder)) for each in sorted(folder.rglob("*")))
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"], input=listed.encode(), cwd=folder, capture_output=True, check=True
    )
    path.write_bytes(gzip.compress(packed.stdout, 1))


def _decompressed(module: Path) -> bytes:
    data = module.read_bytes()
    if module.suffix == ".xz":
        return lzma.decompress(data)
    if module.suffix == ".zst":
        return subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout
    return data


def _disk(work: Path, architecture: str, project: Path, command: str) -> None:
    """Makes the disk: the programs, the project, what to do."""
    root = work / "root"
    subprocess.run(["cp", "-al", _root(architecture, project), root], check=True)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=project, capture_output=True, check=True).stdout
    files += b"icestream.egg-info"  # it names the commands
    (root / "icestream").mkdir()
    unpack = subprocess.Popen(["tar", "x", "-C", root / "icestream"], stdin=subprocess.PIPE)
    subprocess.run(["tar", "c", "--null", "-T", "-"], input=files, cwd=project, stdout=unpack.stdin, check=True)
    unpack.communicate()
    _compile(root / "icestream", project)
    (root / "start").write_text(_START.format(command=command, begin=_BEGIN))
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root, work / "disk", _DISK], check=True)
    shutil.rmtree(root)


def _root(architecture: str, project: Path) -> Path:
    """The folder with the programs: Debian's, and the project's Python packages."""
    root = CACHE / f"root-{architecture}"
    if root.exists():
        return root
    part = root.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    include = f"--include={','.join(_PROGRAMS)}"
    subprocess.run(
        ["debootstrap", "--foreign", "--variant=minbase", f"--arch={architecture}", include, _SUITE, part, mirror()],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    if (part / "proc").is_symlink():
        (part / "proc").unlink()
    archives = part / "var/cache/apt/archives"
    for deb in sorted(archives.glob("*.deb")):
        tar = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
        subprocess.run(["tar", "x", "-C", part, "--keep-directory-symlink"], stdin=tar.stdout, check=True)
        if tar.wait():
            raise LookupError(f"{deb} cannot be unpacked")
        deb.unlink()
    for folder in ("proc", "sys", "dev", "run", "tmp", "root"):
        (part / folder).mkdir(exist_ok=True)
    (part / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    (part / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    _python_packages(part / "usr/lib/python3/dist-packages", architecture, project)
    _compile(part / "usr/lib", project)
    part.rename(root)
    return root


def _python_packages(folder: Path, architecture: str, project: Path) -> None:
    """What the collector and its tests need, of the versions that are tested."""
    uv = [project / ".venv/bin/python", "-m", "uv", "pip", "install", "-q", "--python-version", "3.11"]
    subprocess.run(
        [*uv, "--python-platform", _PLATFORM[architecture], "--only-binary", ":all:", "--target", folder,
         "-c", project / "constraints.txt", *_wanted(project)],
        check=True,
    )  # fmt: skip


def _compile(folder: Path, project: Path) -> None:
    """Python's modules, which every process would else compile slowly in the machine. Its Python is 3.11, too."""
    options = ["-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([project / ".venv/bin/python", "-m", "compileall", *options, folder], check=False)


def _wanted(project: Path) -> Iterable[str]:
    extras = tomllib.loads((project / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [each for extra in ("kafka", "collector") for each in extras[extra]]
    return [*(each for each in named if not each.startswith("icestream")), "pytest", "hypothesis"]
