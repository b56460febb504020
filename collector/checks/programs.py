"""Loads what the collector loads, and unloads it."""

import ctypes
import importlib.util
import os
import platform
import time
from pathlib import Path

from collector.bpf.loaders.libbpf import BTF
from collector.checks.row import CheckRow, limited, missing, ok

_DEBIAN_BCC = Path("/usr/lib/python3/dist-packages/bcc")


def libbpf() -> CheckRow:
    try:
        library = ctypes.CDLL("libbpf.so.1")
        library.libbpf_version_string.restype = ctypes.c_char_p
        version = library.libbpf_version_string().decode()
    except (OSError, AttributeError) as error:
        advice = "Debian, Ubuntu: apt install libbpf1; Fedora, RHEL: dnf install libbpf"
        return missing("libbpf", f"libbpf 1.0 or newer cannot be loaded: {error}", advice, needed=True)
    return ok("libbpf", version)


def bcc(loader: str) -> CheckRow:
    """Whether BCC is installed, and whether it is needed here."""
    wanted = loader == "bcc" or (loader == "auto" and not BTF.exists())
    unused = "" if wanted else "; not used, as the kernel has BTF, except with --loader bcc"
    if importlib.util.find_spec("bcc") is None and not _DEBIAN_BCC.exists():
        if wanted:
            return missing("bcc", "the package bcc is not installed", "Debian, Ubuntu: apt install python3-bpfcc", True)
        return ok("bcc", f"not installed{unused}")
    headers = Path(f"/lib/modules/{os.uname().release}/build").exists()
    return ok(
        "bcc", f"installed, {'with headers of the kernel' if headers else 'without headers of the kernel'}{unused}"
    )


def program(loader: str) -> CheckRow:
    from collector.bpf.perf_event import online_cpus
    from collector.bpf.sampler import check

    began = time.perf_counter()
    if (reason := check(loader)) is not None:
        advice = "see the rows above for what is missing"
        return missing("profiling", reason.replace("cannot profile here: ", ""), advice, needed=True)
    took = time.perf_counter() - began
    return ok("profiling", f"the program was loaded and ran on {len(online_cpus())} CPUs ({1000 * took:.0f} ms)")


def unwinding(machine: str = "") -> CheckRow:
    machine = machine or platform.machine()
    if machine == "x86_64":
        return ok("unwinding", "stacks of programs without frame pointers are complete")
    says = f"on {machine}, frames of Java and Node, and labels of Go programs, are not read"
    return limited("unwinding", says, "none is needed for native code and CPython, which have complete stacks")


def process_events() -> CheckRow:
    """The kernel's events about processes and the files that they map."""
    from collector.processes.perf_ring import Rings

    thing = "process events"
    rings = Rings()
    try:
        rings.follow_cpus(lambda descriptor: None)
    except (OSError, ValueError) as error:
        advice = "give CAP_PERFMON, and CAP_IPC_LOCK where kernel.perf_event_mlock_kb is low"
        return missing(thing, f"the kernel does not report which files programs map: {error}", advice, needed=True)
    finally:
        rings.close()
    return ok(thing, "the kernel reports which files programs map: short-lived processes have names")


def off_cpu(loader: str) -> CheckRow:
    """Whether the profile of waits would work; it is off by default."""
    from collector.bpf.off_cpu import check

    if (reason := check(loader)) is not None:
        return limited(
            "off-CPU profile",
            f"waits of threads cannot be followed: {reason}",
            "nothing to do unless you use --off-cpu",
        )
    return ok("off-CPU profile", "waits of threads and run queues can be followed; on with --off-cpu")
