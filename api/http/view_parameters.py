"""Parameters of routes that answer with functions: which stacks, and which of their frames."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from fastapi import Query

from api.array_types import Ids
from api.http.app_state import ApiState
from api.tree.granularity import Granularity
from api.tree.stack_cache import FunctionStacks
from api.views.coarse import coarse
from api.views.focus import has_function
from api.views.hide import hide
from api.views.join import join_copies
from api.views.patterns import check_pattern
from api.views.plumbing import FrameChoice, fold
from api.views.used_part import used_part

_MAX_PATTERN = 1000
_PATTERN = "regular expression (RE2, unanchored, regardless of case) matches a frame's function, module or source file."
FocusParam = Annotated[
    str | None, Query(max_length=_MAX_PATTERN, description=f"Keep only stacks where this {_PATTERN}")
]
IgnoreParam = Annotated[
    str | None, Query(max_length=_MAX_PATTERN, description=f"Leave out stacks where this {_PATTERN}")
]
HideParam = Annotated[
    str | None, Query(max_length=_MAX_PATTERN, description=f"Take frames out of stacks where this {_PATTERN}")
]
ByParam = Annotated[Granularity, Query(description="What a frame stands for.")]
GroupByParam = Annotated[
    str | None,
    Query(max_length=200, description="A label, whose values become the first frames.", examples=["service"]),
]
FramesParam = Annotated[
    FrameChoice, Query(description="own: without an interpreter's plumbing; user: also without the kernel's frames.")
]


@dataclass(frozen=True)
class View:
    """Which stacks an answer is about, and what their frames are."""

    focus: str | None
    ignore: str | None
    hide: str | None
    frames: FrameChoice
    by: Granularity

    def keeps(self, state: ApiState, stack_ids: Ids) -> npt.NDArray[np.bool_] | None:
        """Whether a stack is kept (n,); None if all are. Raises ApiError."""
        if not self.focus and not self.ignore:
            return None
        stacks = used_part(state.stacks.functions_of(stack_ids))
        keep = np.ones(len(stack_ids), bool)
        if self.focus:
            keep &= has_function(stacks, self.focus)
        if self.ignore:
            keep &= ~has_function(stacks, self.ignore)
        return keep

    def stacks(self, state: ApiState, stack_ids: Ids) -> FunctionStacks:
        """The frames of stacks. Raises ApiError."""
        stacks = state.stacks.functions_of(stack_ids, self.by)
        if self.hide:
            stacks = hide(stacks, self.hide)
        return join_copies(coarse(fold(stacks, self.frames), self.by))

    @property
    def changes_frames(self) -> bool:
        """Whether frames are others than the functions of the stacks."""
        return bool(self.hide) or self.frames is not FrameChoice.ALL or self.by is not Granularity.FUNCTION


def view(
    focus: FocusParam = None,
    ignore: IgnoreParam = None,
    hide: HideParam = None,
    frames: FramesParam = FrameChoice.ALL,
    by: ByParam = Granularity.FUNCTION,
) -> View:
    """For routes, as a dependency. Raises ApiError."""
    for name, pattern in (("focus", focus), ("ignore", ignore), ("hide", hide)):
        if pattern:
            check_pattern(pattern, name, ignore_case=True)
    return View(focus, ignore, hide, frames, by)
