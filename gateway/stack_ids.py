"""Computes the IDs of a profile's stacks, so that streams need not look at the names in stacks that they know."""

import numpy as np

from icestream.messages import identify
from icestream.messages.raw import StackFrames
from icestream.messages.raw_encoder import SentLines, Stacks, to_mapping

_NO_ROWS = np.empty(0, np.int64)


def stack_ids(stacks: Stacks) -> np.ndarray:
    """Returns the IDs that streams would compute of the messages: uint64 (s,), 0 where a stack is empty."""
    lines = stacks.lines or SentLines(
        np.zeros(len(stacks.mapping), np.int64), _NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS, []
    )
    names = len(stacks.names)
    return identify.stack_ids(
        StackFrames(
            strings=[
                *(name.function for name in stacks.names),
                *(name.file for name in stacks.names),
                *lines.texts,
            ],
            mappings=list(map(to_mapping, stacks.mappings)),
            location_mapping=stacks.mapping,
            location_address=stacks.address,
            location_function=stacks.name,
            location_file=stacks.name + names,
            location_line=np.array([name.line for name in stacks.names], np.int64)[stacks.name],
            location_line_count=lines.count,
            line_function=lines.function + 2 * names,
            line_file=lines.file + 2 * names,
            line_number=lines.number,
            line_start_line=lines.start_line,
            stack_depth=stacks.depth,
            stack_frames=stacks.frames,
            stack_id=np.zeros(len(stacks.depth), np.uint64),
        )
    )
