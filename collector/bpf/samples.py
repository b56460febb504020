"""The samples of one drain of the kernel's buffers, as columns."""

from dataclasses import dataclass, field, replace

import numpy as np

from icestream.columns import index_ranges

COMPILERS = ("HotSpot", "OpenJ9", "Ruby", "PHP", "LuaJIT", "BEAM")
"""Those whose code keeps no frame pointers, by their number."""

TOO_DEEP = 7
ENDS = (
    "",
    "process not known yet",
    "no mapping",
    "no unwinding table",
    "no unwinding rule",
    "stack not readable",
    "unwinding tables replaced",
    "too deep",
    "frames of a virtual thread in the heap",
    *(f"code of {name}" for name in COMPILERS),
)
"""`enum end` of bpf/walk.h in words; "" means complete."""

FOUND_WITHOUT_RULE = 1 << 63
"""An address in `DrainedSamples.frames` that is none: the frames behind it were found without an unwinding rule."""


@dataclass(frozen=True)
class DrainedSamples:
    """The n samples of one drain, with their s distinct stacks and c distinct contexts.

    User frames that are return addresses are moved back by one, into the call. Kernel frames are as the CPU had them:
    those after the first are return addresses.
    """

    time_monotonic_ns: np.ndarray  # uint64 (n,)
    pid: np.ndarray  # uint32 (n,), process ID (tgid) in the host's namespace
    tid: np.ndarray  # uint32 (n,)
    stack: np.ndarray  # uint32 (n,), row of the stacks
    context: np.ndarray  # uint32 (n,), 0: none, else row + 1 of the contexts
    stack_pid: np.ndarray  # uint32 (s,), the process a stack's user addresses belong to
    stack_kernel_depth: np.ndarray  # uint32 (s,), kernel frames; they come first
    stack_depth: np.ndarray  # uint32 (s,), kernel and user frames
    frames: np.ndarray  # uint64 (sum of stack_depth,), leaf first, stack after stack
    stack_end: np.ndarray  # uint8 (s,), why the user part ends: row of ENDS
    stack_managed: np.ndarray  # uint32 (s,), managed frames of each
    managed_words: np.ndarray  # uint64 (sum of stack_managed,), first words of these: see bpf/managed.h
    managed_info: np.ndarray  # uint64, their second words
    trace_ids: bytes = b""  # 16 * c
    span_ids: bytes = b""  # 8 * c
    lost: int = 0  # observations the kernel could not keep since the last drain
    comms: dict[int, str] = field(default_factory=dict)  # tid -> thread name, where the program saw one
    value: np.ndarray | None = None  # int64 (n,), nanoseconds; None: each is worth the period
    followed_of: int = 1  # with `value`: one of so many waits was followed
    stack_queued: np.ndarray | None = None  # bool (s,), whether its samples are time on the run queue; None: no stack
    span_name: np.ndarray | None = None  # uint32 (n,), 0: none, else row + 1 of span_names; None: no sample has one
    span_names: tuple[str, ...] = ()  # by the labels of programs, see bpf/labels.h
    off_cpu: "DrainedSamples | None" = None  # waits that ended in the same window; None: waits are not followed

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        columns = sum(column.nbytes for column in vars(self).values() if isinstance(column, np.ndarray))
        return columns + (self.off_cpu.nbytes if self.off_cpu else 0)

    def with_stacks(self, rows: np.ndarray, stack: np.ndarray) -> "DrainedSamples":
        """The samples with these rows (int64) of the stacks; `stack` is the one of each sample, among them."""
        managed = index_ranges.rows_of(rows, self.stack_managed)
        return replace(
            self,
            stack=stack.astype(np.uint32),
            stack_pid=self.stack_pid[rows],
            stack_kernel_depth=self.stack_kernel_depth[rows],
            stack_depth=self.stack_depth[rows],
            frames=self.frames[index_ranges.rows_of(rows, self.stack_depth)],
            stack_end=self.stack_end[rows],
            stack_managed=self.stack_managed[rows],
            managed_words=self.managed_words[managed],
            managed_info=self.managed_info[managed],
            stack_queued=None if self.stack_queued is None else self.stack_queued[rows],
        )
