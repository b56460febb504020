"""Tells samples with the same stack of addresses apart where these meant something else from one to the other.

The eBPF program sends a stack once a window, however often a process, or the kernel, puts other code at the same
addresses meanwhile.
"""

import numpy as np

from collector.bpf.samples import DrainedSamples
from collector.kernel import Kernel
from collector.processes import changes
from collector.processes.mappings import ProcessMappings
from icestream.columns import index_ranges


def split(samples: DrainedSamples, mappings: ProcessMappings, kernel: Kernel) -> tuple[DrainedSamples, np.ndarray]:
    """Returns the samples with a stack for each time at which it may have meant something else, and a time (uint64)
    at which each stack was seen. Stacks that no sample refers to may be missing."""
    of_sample = samples.stack.astype(np.int64)
    same = _by_kernel_code(samples, of_sample, kernel)
    first, stack = changes.group(same, samples.stack_pid[of_sample], samples.time_monotonic_ns, mappings.changes)
    rows, times = samples.stack[first], samples.time_monotonic_ns[first]
    if (np.diff(rows.astype(np.int64)) > 0).all():  # each stack once
        all_times = np.zeros(len(samples.stack_pid), np.uint64)
        all_times[rows] = times
        return samples, all_times
    return samples.with_stacks(rows, stack), times


def _by_kernel_code(samples: DrainedSamples, of_sample: np.ndarray, kernel: Kernel) -> np.ndarray:
    """Returns a number for each sample (int64), in the order of their stacks: another one after code went that the
    kernel had generated, for stacks with such code."""
    went = kernel.changes()
    if not len(went):
        return of_sample
    stack = index_ranges.owners(samples.stack_depth.astype(np.int64))
    position = index_ranges.positions(samples.stack_depth.astype(np.int64))
    of_kernel = np.flatnonzero(position < samples.stack_kernel_depth[stack])
    generated = np.zeros(len(samples.stack_depth), bool)
    generated[stack[of_kernel[kernel.is_generated(samples.frames[of_kernel])]]] = True
    moment = np.searchsorted(went, samples.time_monotonic_ns, side="right")
    return of_sample * (len(went) + 1) + np.where(generated[of_sample], moment, 0)
