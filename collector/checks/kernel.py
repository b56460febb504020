"""The kernel's version, and what it permits. `root` is another root of /proc and /sys for tests."""

import os
from pathlib import Path

from collector.checks.row import CheckRow, limited, missing, ok
from collector.guest.capabilities import Capability, kernel_version, permitted
from collector.kernel_code import kernel_build_id, stext

FLOOR = (6, 0) if os.uname().machine == "aarch64" else (5, 10)
"""Functions of eBPF programs that also continue with other programs."""

TESTED = (6, 18)
BUILD_IDS = (5, 12)
"""perf records of mappings with build IDs."""

_ROOT = Path("/")


def version(release: str = "") -> CheckRow:
    release = release or os.uname().release
    running = kernel_version(release)
    if running < FLOOR:
        return missing(
            "kernel", f"{release} is older than {_dotted(FLOOR)}, the first that can run the programs",
            "use a newer kernel; some distributions offer one", needed=True,
        )  # fmt: skip
    if running < BUILD_IDS:
        advice = f"from {_dotted(BUILD_IDS)} on, the kernel reports the build ID"
        return limited("kernel", f"{release}; a file that is gone before the collector opens it has no names", advice)
    return ok("kernel", f"{release}; {_dotted(FLOOR)} is the oldest, {_dotted(TESTED)} is what was tested")


def btf(loader: str, root: Path = _ROOT) -> CheckRow:
    if (root / "sys/kernel/btf/vmlinux").exists():
        return ok("BTF", "the kernel describes its types, so the shipped program can be fitted to it")
    if loader in ("auto", "bcc"):
        return ok("BTF", "the kernel does not describe its types; the loader bcc is used, which does not need that")
    return missing(
        "BTF", "the kernel does not describe its types (/sys/kernel/btf/vmlinux): the shipped program cannot be fitted",
        "use a kernel with CONFIG_DEBUG_INFO_BTF, or --loader auto", needed=True,
    )  # fmt: skip


def lockdown(root: Path = _ROOT) -> CheckRow:
    modes = _text(root / "sys/kernel/security/lockdown")
    mode = modes.partition("[")[2].partition("]")[0] or "none"
    if mode == "confidentiality":
        return missing(
            "lockdown", "the kernel is locked down for confidentiality: eBPF may not read its memory",
            "start the kernel with lockdown=integrity or without", needed=True,
        )  # fmt: skip
    return ok("lockdown", f"{mode}: eBPF may read the kernel's memory")


def perf_event_paranoid(root: Path = _ROOT) -> CheckRow:
    thing = "perf_event_paranoid"
    level = _text(root / "proc/sys/kernel/perf_event_paranoid").strip()
    if not level:
        advice = "use a kernel with CONFIG_PERF_EVENTS"
        return missing(thing, "the kernel has no perf events", advice, needed=True)
    if permitted() & {Capability.PERFMON, Capability.SYS_ADMIN}:
        return ok(thing, f"{level}; CAP_PERFMON is held, so it does not matter")
    if int(level) <= 0:
        return ok(thing, f"{level}: every user may sample whole CPUs")
    return missing(thing, f"{level}: sampling whole CPUs needs CAP_PERFMON", "give CAP_PERFMON", needed=True)


def symbols(root: Path = _ROOT) -> CheckRow:
    if stext(root) and kernel_build_id(root):
        return ok("kernel symbols", "functions of the kernel have names")
    restrict = _text(root / "proc/sys/kernel/kptr_restrict").strip() or "?"
    return limited(
        "kernel symbols", f"the kernel hides its addresses (kptr_restrict is {restrict}): its functions stay unnamed",
        "give CAP_SYSLOG, and set the sysctl kernel.kptr_restrict to 0 or 1",
    )  # fmt: skip


def ptrace_scope(root: Path = _ROOT) -> CheckRow:
    scope = _text(root / "proc/sys/kernel/yama/ptrace_scope").strip()
    if scope == "3":
        return limited(
            "ptrace_scope", "3: nobody may read another process's memory, so Python functions stay unnamed",
            "set kernel.yama.ptrace_scope to 2 or less; this needs a reboot",
        )  # fmt: skip
    return ok("ptrace_scope", f"{scope or 'none'}: the memory of processes can be read, for names of Python functions")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
