"""perf_event_open(2), and running a BPF program on a clock of every CPU with software cpu-clock events."""

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import struct
from pathlib import Path

ONLINE = Path("/sys/devices/system/cpu/online")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")

_SYSCALL = {"x86_64": 298, "aarch64": 241}
TYPE_SOFTWARE = 1
ATTRIBUTES_SIZE = 128
_CPU_CLOCK = 0
_DISABLED, _EXCLUDE_IDLE = 1 << 0, 1 << 7
_CLOSE_ON_EXEC = 8
_ENABLE, _SET_PROGRAM = 0x2400, 0x40042408


class PerfEvents:
    """One event for each online CPU. Each runs the program every `period_ns`. Follows CPUs that come and go."""

    def __init__(self, program_fd: int, period_ns: int) -> None:
        self._program_fd, self._period_ns = program_fd, period_ns
        self._events: dict[int, int] = {}  # CPU -> file descriptor
        self._paused = False

    def set_period(self, period_ns: int) -> None:
        """Raises OSError; then no event has the new period."""
        before, self._period_ns = self._period_ns, period_ns
        self.close()
        try:
            self.follow_cpus()
        except OSError:
            self._period_ns = before
            self.close()
            with contextlib.suppress(OSError):
                self.follow_cpus()
            raise

    def pause(self) -> None:
        """No event costs anything until `resume`."""
        self._paused = True
        self.close()

    def resume(self) -> None:
        """Raises OSError."""
        self._paused = False
        self.follow_cpus()

    def follow_cpus(self) -> None:
        """Opens events on CPUs that came online and closes those of CPUs that went. Raises OSError."""
        if self._paused:
            return
        online = online_cpus()
        for cpu in self._events.keys() - online:
            os.close(self._events.pop(cpu))
        for cpu in sorted(online - self._events.keys()):
            try:
                self._events[cpu] = open_clock(self._program_fd, self._period_ns, cpu)
            except OSError as error:
                if error.errno != errno.ENODEV:  # went offline meanwhile
                    raise

    def close(self) -> None:
        while self._events:
            os.close(self._events.popitem()[1])


def open_clock(program_fd: int, period_ns: int, cpu: int, pid: int = -1) -> int:
    """An event, by file descriptor, that runs the program every `period_ns` of a CPU or of a thread. Raises OSError."""
    # A fixed period, not a frequency that the kernel approximates: CPU time is exactly count x period.
    head = struct.pack(
        "=IIQQQQQ", TYPE_SOFTWARE, ATTRIBUTES_SIZE, _CPU_CLOCK, period_ns, 0, 0, _DISABLED | _EXCLUDE_IDLE
    )
    fd = open_event(head, cpu, pid)
    try:
        fcntl.ioctl(fd, _SET_PROGRAM, program_fd)
        fcntl.ioctl(fd, _ENABLE, 0)
    except OSError:
        os.close(fd)
        raise
    return fd


def open_event(attributes: bytes, cpu: int, pid: int = -1) -> int:
    """A file descriptor. `attributes`: the head of a struct perf_event_attr; `pid`: a thread (0: the calling one), on
    any CPU where `cpu` is -1; or -1: whatever runs on the CPU. Raises OSError."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open on {platform.machine()} is not known here")
    structure = ctypes.create_string_buffer(attributes, ATTRIBUTES_SIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(number, structure, pid, cpu, -1, ctypes.c_ulong(_CLOSE_ON_EXEC))
    if fd < 0:
        where = f"on CPU {cpu}" if cpu >= 0 else f"of thread {pid}"
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"perf_event_open {where}")
    return fd


def online_cpus() -> set[int]:
    return parse_cpus(ONLINE.read_text())


def parse_cpus(text: str) -> set[int]:
    """The kernel's way of writing a set of CPUs, such as `0-3,6`."""
    ranges = (part.partition("-") for part in text.strip().split(","))
    return {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)}
