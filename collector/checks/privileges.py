"""What this process may do, and where it runs."""

import os
import re
from pathlib import Path

from collector.checks.row import CheckRow, limited, missing, ok
from collector.guest.capabilities import Capabilities, Capability, permitted

LACKS = {
    Capability.PERFMON: "no CPU can be sampled",
    Capability.BPF: "the eBPF program cannot be loaded",
    Capability.SYS_PTRACE: "other users' processes have no names, labels or Python frames",
    Capability.DAC_READ_SEARCH: "programs that this user may not read stay unnamed",
    Capability.SYSLOG: "the kernel's functions stay unnamed",
    Capability.CHECKPOINT_RESTORE: "deleted files and files of containers may stay unnamed",
}
"""What does not work without a capability."""

NEEDED = frozenset({Capability.PERFMON, Capability.BPF})
_BY_ADMIN = NEEDED | {Capability.SYSLOG, Capability.CHECKPOINT_RESTORE}
"""What CAP_SYS_ADMIN permits as well."""

_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO


def capabilities(held: Capabilities | None = None) -> list[CheckRow]:
    """A row for each capability."""
    held = permitted() if held is None else held
    return [_capability(capability, held) for capability in LACKS]


def _capability(capability: Capability, held: Capabilities) -> CheckRow:
    thing = f"CAP_{capability.name}"
    if capability in held:
        return ok(thing, "held")
    if capability in _BY_ADMIN and Capability.SYS_ADMIN in held:
        return ok(thing, "not held, but CAP_SYS_ADMIN is, which permits the same")
    advice = f"run as root, or with AmbientCapabilities={thing} in the unit"
    if capability in NEEDED:
        return missing(thing, f"not held: {LACKS[capability]}", advice, needed=True)
    return limited(thing, f"not held: {LACKS[capability]}", advice)


def seccomp(status: Path = Path("/proc/self/status")) -> CheckRow:
    match = re.search(r"^Seccomp:\s+(\d)", status.read_text(), re.MULTILINE)
    if match is None or match[1] == "0":
        return ok("seccomp", "no filter of system calls")
    return limited(
        "seccomp", "a filter is active; filters of container runtimes often refuse bpf and perf_event_open",
        "if loading fails below, run the container privileged, or with a seccomp profile that permits both",
    )  # fmt: skip


def user_namespace(uid_map: Path = Path("/proc/self/uid_map")) -> CheckRow:
    if uid_map.read_text().split()[:3] == ["0", "0", "4294967295"]:
        return ok("user namespace", "the host's: capabilities have their full effect")
    return missing(
        "user namespace", "not the host's: capabilities have no effect outside it, and profiling needs them there",
        "run it in the host's: no rootless container, no userns-remap", needed=True,
    )  # fmt: skip


def pid_namespace(own: Path = Path("/proc/self/ns/pid")) -> CheckRow:
    if os.stat(own).st_ino == _FIRST_PID_NAMESPACE:
        return ok("PID namespace", "the host's: every process can be seen")
    return missing(
        "PID namespace", "a container's: process IDs in samples are the host's, and mean other processes here",
        "run it in the host's: docker run --pid=host, or hostPID: true in Kubernetes", needed=True,
    )  # fmt: skip
