"""Parameters of routes that answer with functions: which stacks, and which of their frames."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt
from fastapi import Query

from api.array_types import Ids, Values
from api.http.app_state import ApiState
from api.tree.functions import Function
from api.tree.granularity import Granularity
from api.tree.stack_cache import FunctionStacks
from api.views.coarse import coarse, coarse_function
from api.views.focus import has_function
from api.views.hide import hide
from api.views.join import join_copies
from api.views.own_code import OwnCode
from api.views.own_frames import FrameChoice, is_mostly_interpreted, own_frames
from api.views.patterns import check_pattern
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
    FrameChoice,
    Query(
        description="own: the time of libraries, interpreters and the kernel goes to the own code that called them;"
        " auto: as own if interpreters run most of what is selected."
    ),
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

    def decided(self, state: ApiState, stack_ids: Ids, values: Values) -> "View":
        """This view, where `auto` is decided by the stacks' values (sides, n). Raises ApiError."""
        if self.frames is not FrameChoice.AUTO:
            return self
        interpreted = is_mostly_interpreted(state.stacks.functions_of(stack_ids), values)
        return replace(self, frames=FrameChoice.OWN if interpreted else FrameChoice.ALL)

    def stacks(self, state: ApiState, stack_ids: Ids, also: Callable[[Function], bool] | None = None) -> FunctionStacks:
        """The frames of stacks; functions for which `also` is true are shown even if they are not own code. Call it of
        a view that is `decided`. Raises ApiError."""
        stacks = state.stacks.functions_of(stack_ids, self.by)
        if self.hide:
            stacks = hide(stacks, self.hide)
        if self.frames is FrameChoice.OWN:
            rules = OwnCode(state.settings.api_own_code, state.settings.api_library_code)
            stacks = own_frames(stacks, rules, also and (lambda function: also(coarse_function(function, self.by))))
        return join_copies(coarse(stacks, self.by))

    @property
    def changes_frames(self) -> bool:
        """Whether frames are others than the functions of the stacks."""
        return bool(self.hide) or self.frames is FrameChoice.OWN or self.by is not Granularity.FUNCTION


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
