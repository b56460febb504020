"""Tells samples with the same stack of addresses apart where these meant something else from one to the other.

The eBPF program sends a stack once a window, however often a process maps other code at the same addresses meanwhile.
"""

from dataclasses import replace

import numpy as np

from collector.bpf.samples import Samples
from collector.processes import changes
from collector.processes.mappings import Mappings
from icestream import index_ranges


def split(samples: Samples, mappings: Mappings) -> tuple[Samples, np.ndarray]:
    """Returns the samples with a stack for each time at which it may have meant something else, and a time (uint64)
    at which each stack was seen. Stacks that no sample refers to may be missing."""
    of_sample = samples.stack.astype(np.int64)
    first, stack = changes.group(of_sample, samples.stack_pid[of_sample], samples.time_monotonic_ns, mappings.changes)
    rows, times = samples.stack[first], samples.time_monotonic_ns[first]
    if (np.diff(rows.astype(np.int64)) > 0).all():  # each stack once
        all_times = np.zeros(len(samples.stack_pid), np.uint64)
        all_times[rows] = times
        return samples, all_times
    frames = index_ranges.rows_of(rows, samples.stack_depth)
    python = index_ranges.rows_of(rows, samples.stack_python)
    return replace(
        samples,
        stack=stack.astype(np.uint32),
        stack_pid=samples.stack_pid[rows],
        stack_kernel_depth=samples.stack_kernel_depth[rows],
        stack_depth=samples.stack_depth[rows],
        frames=samples.frames[frames],
        stack_end=samples.stack_end[rows],
        stack_python=samples.stack_python[rows],
        python_code=samples.python_code[python],
        python_info=samples.python_info[python],
    ), times
