"""Makes frames as the CPU saw them into distinct locations and stacks, the same for all processes and hosts."""

from dataclasses import dataclass, field

import numpy as np

from collector.batches.moments import split
from collector.bpf.samples import ENDS, FOUND_WITHOUT_RULE, DrainedSamples
from collector.kernel import GENERATED, Kernel
from collector.processes.mapped_files import JIT, TRUNCATED, UNKNOWN, MappedFile
from collector.processes.mapped_history import Located
from collector.processes.mappings import ProcessMappings
from collector.processes.perfmap import JitName
from collector.runtimes.merge import ManagedFrames, managed_frames, merge, replaced
from collector.runtimes.processes import Runtimes
from icestream import ids
from icestream.columns import index_ranges
from icestream.messages.raw_encoder import Stacks
from icestream.topics import RUN_QUEUE

_NO_NAME = JitName("", "")
_RUN_QUEUE = JitName(RUN_QUEUE, "")
_NULL_PAGE_BYTES = np.uint64(4096)
_WITHOUT_RULE = JitName("[without unwinding rule]", TRUNCATED.file)


@dataclass(frozen=True)
class LocatedStacks(Stacks):
    """The distinct locations and stacks of a window; `row` is the stack of each sample."""

    row: np.ndarray = field(kw_only=True)  # int64 (samples,)


def locate(
    samples: DrainedSamples, mappings: ProcessMappings, kernel: Kernel, runtimes: Runtimes | None = None
) -> LocatedStacks:
    """Locates every frame by what its process had mapped when the sample was taken. Return addresses are moved back
    by one, into the call.

    A stack ends with the first user frame that no mapping covers: the walk went wrong there, and what follows is no
    caller, but for what called a null pointer. It goes on where the walk knew the frame as a managed one: its code may
    lie where nothing was mapped before. A stack whose outermost frame was not reached gets one more frame, whose
    name says why.
    collector/runtimes/merge.py says where managed frames stand.
    """
    samples, times = split(samples, mappings, kernel)
    depth = samples.stack_depth.astype(np.int64)
    stack = index_ranges.owners(depth)
    position = index_ranges.positions(depth)
    kernel_depth = samples.stack_kernel_depth.astype(np.int64)[stack]
    is_return = (position != 0) & (position < kernel_depth)
    addresses = samples.frames - is_return.astype(np.uint64)
    rows = _Rows(len(addresses))
    rows.add_kernel(np.flatnonzero(position < kernel_depth), addresses, times[stack], kernel)
    marks = (position >= kernel_depth) & (addresses == FOUND_WITHOUT_RULE)
    of_process = np.flatnonzero((position >= kernel_depth) & ~marks)
    rows.add_processes(of_process, addresses, samples.stack_pid[stack], times[stack], mappings)
    rows.add_named(np.flatnonzero(marks), TRUNCATED, _WITHOUT_RULE)

    lost = (position >= kernel_depth) & (rows.mapping == 0) & (addresses >= _NULL_PAGE_BYTES)
    managed = managed_frames(
        samples.stack_kernel_depth.astype(np.int64), samples.stack_managed.astype(np.int64), samples.managed_words
    )
    if len(managed.stack):
        lost &= ~replaced(stack, position, managed)
    end = np.full(len(depth), np.iinfo(np.int64).max)
    np.minimum.at(end, stack[lost], position[lost])
    keep = position <= end[stack]
    rows.keep(keep)
    stack = stack[keep]
    if runtimes is not None and len(samples.managed_words):
        stack = _add_managed(samples, runtimes, managed, rows, stack, position[keep])
    depth = np.bincount(stack, minlength=len(depth))
    stack, depth = _add_reasons(samples.stack_end, rows, stack, depth)
    if samples.stack_queued is not None:
        stack, depth = _add_run_queue(samples.stack_queued, rows, stack, depth)
    position = index_ranges.positions(depth)

    key = ids.combine(
        rows.mapping.astype(np.uint64), np.where(rows.name > 0, rows.name.astype(np.uint64), rows.address)
    )
    _, first, location = np.unique(key, return_index=True, return_inverse=True)
    distinct, of_stack = _distinct_stacks(location, position, depth)
    return LocatedStacks(
        mapping=rows.mapping[first],
        address=rows.address[first],
        name=rows.name[first],
        depth=depth[distinct],
        frames=location[index_ranges.rows_of(distinct, depth)],
        row=of_stack[samples.stack],
        mappings=list(rows.mappings),
        names=list(rows.names),
    )


def _add_managed(
    samples: DrainedSamples, runtimes: Runtimes, frames: ManagedFrames, rows: "_Rows",
    stack: np.ndarray, position: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Puts managed frames between the native frames, whose `stack` and `position` are given. Returns the stack of each
    frame."""
    functions = runtimes.functions(samples.stack_pid[frames.stack], samples.managed_words, samples.managed_info)
    rows.append(functions.files, functions.file, functions.names, functions.name)
    frames = frames.repeated(functions.counts)
    generated = rows.mapping[: len(stack)] == rows.mappings.get(JIT, -1)
    order, stack = merge(stack, position, generated, frames)
    rows.keep(order)
    return stack


def _add_reasons(
    ends: np.ndarray, rows: "_Rows", stack: np.ndarray, depth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Adds an outermost frame to each stack that was cut, whose name says why."""
    cut = np.flatnonzero(ends)
    if not len(cut):
        return stack, depth
    at = np.cumsum(depth)[cut]
    rows.insert(at, TRUNCATED, [_reason(end) for end in ENDS], ends[cut])
    return np.insert(stack, at, cut), depth + (ends != 0)


def _add_run_queue(
    queued: np.ndarray, rows: "_Rows", stack: np.ndarray, depth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Adds an innermost frame to each stack of a thread that was on the run queue."""
    of = np.flatnonzero(queued)
    at = (np.cumsum(depth) - depth)[of]
    rows.insert(at, GENERATED, [_RUN_QUEUE], np.zeros(len(of), np.int64))
    return np.insert(stack, at, of), depth + queued


def _reason(end: str) -> JitName:
    return JitName(f"[truncated: {end}]", TRUNCATED.file)


def _distinct_stacks(location: np.ndarray, position: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the distinct stacks, and for each stack its position in these. Compares 64-bit hashes, as our IDs
    do."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(ids.combine(position, location), dtype=np.uint64)])
    ends = np.cumsum(depth)
    key = ids.combine(depth, sums[ends] - sums[ends - depth])
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    return first, row


class _Rows:
    """Mapping, address and name of every frame, and the tables they refer to."""

    def __init__(self, frames: int) -> None:
        self.mapping = np.zeros(frames, np.int64)
        self.address = np.zeros(frames, np.uint64)
        self.name = np.zeros(frames, np.int64)
        self.mappings: dict[MappedFile, int] = {UNKNOWN: 0}
        self.names: dict[JitName, int] = {_NO_NAME: 0}

    def add_kernel(self, at: np.ndarray, addresses: np.ndarray, times: np.ndarray, kernel: Kernel) -> None:
        if len(at):
            self._add(at, kernel.locate(addresses[at], times[at]))

    def add_processes(
        self, at: np.ndarray, addresses: np.ndarray, pid: np.ndarray, times: np.ndarray, mappings: ProcessMappings
    ) -> None:
        """Locates process by process, because addresses mean something else in each."""
        order = at[np.argsort(pid[at], kind="stable")]
        pids, first = np.unique(pid[order], return_index=True)
        for process, part in zip(pids.tolist(), np.split(order, first[1:]), strict=False):
            self._add(part, mappings.locate(process, addresses[part], times[part]))

    def add_named(self, at: np.ndarray, mapping: MappedFile, name: JitName) -> None:
        if len(at):
            self.mapping[at] = self.mappings.setdefault(mapping, len(self.mappings))
            self.name[at] = self.names.setdefault(name, len(self.names))

    def insert(self, at: np.ndarray, mapping: MappedFile, names: list[JitName], name: np.ndarray) -> None:
        """Inserts frames before these, each with one of `names`."""
        self.mapping = np.insert(self.mapping, at, self.mappings.setdefault(mapping, len(self.mappings)))
        self.address = np.insert(self.address, at, 0)
        self.name = np.insert(self.name, at, self._name_rows(names, name.astype(np.int64)))

    def append(self, files: list[MappedFile], file: np.ndarray, names: list[JitName], name: np.ndarray) -> None:
        """Appends frames with names."""
        if len(name):
            self.mapping = np.concatenate([self.mapping, self._mapping_rows(files, file)])
            self.address = np.concatenate([self.address, np.zeros(len(name), np.uint64)])
            self.name = np.concatenate([self.name, self._name_rows(names, name)])

    def keep(self, frames: np.ndarray) -> None:
        """Keeps only these frames, in this order."""
        self.mapping, self.address, self.name = self.mapping[frames], self.address[frames], self.name[frames]

    def _add(self, at: np.ndarray, located: Located) -> None:
        self.mapping[at] = self._mapping_rows(located.files, located.file)
        self.address[at] = located.address
        named = at[located.name >= 0]
        if len(named):
            self.name[named] = self._name_rows(located.names, located.name[located.name >= 0])

    def _mapping_rows(self, files: list[MappedFile], rows: np.ndarray) -> np.ndarray:
        used, inverse = np.unique(rows, return_inverse=True)
        return np.array([self.mappings.setdefault(files[r], len(self.mappings)) for r in used.tolist()])[inverse]

    def _name_rows(self, names: list[JitName], rows: np.ndarray) -> np.ndarray:
        used, inverse = np.unique(rows, return_inverse=True)
        return np.array([self.names.setdefault(names[r], len(self.names)) for r in used.tolist()])[inverse]
