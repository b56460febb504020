"""Reads the stacks of the last hour after a start, so that the first questions are answered as fast as later ones."""

import logging
import threading
import time

from api.errors import ApiError
from api.http.app_state import ApiState
from api.queries.selection.selection import Selection
from api.queries.selection.time_range import TimeRange
from api.queries.stacks.stack_values import read_selected_stacks
from icestream.settings import SettingError
from icestream.times import HOUR_NS
from icestream.topics import DEFAULT_PROFILE_TYPE

_MOST_STACKS = 200_000
"""If there are more stacks, none is read ahead: the first question reads what it needs."""

MOST_WARM_UP_S = 10.0
"""How long to wait for the thread at the end of a process: the embedded engine crashes in the middle of a query."""

_log = logging.getLogger(__name__)


def start_warming_up(state: ApiState) -> threading.Thread:
    """Reads in a thread of its own; what cannot be read is left to the questions."""
    thread = threading.Thread(target=warm_up, args=(state,), name="warm-up", daemon=True)
    thread.start()
    return thread


def warm_up(state: ApiState) -> None:
    """Brings the stacks of CPU samples of the last hour into the caches."""
    now = time.time_ns()
    selection = Selection(DEFAULT_PROFILE_TYPE, (), TimeRange(now - HOUR_NS, now))
    try:
        stacks = read_selected_stacks(state.database, selection, _MOST_STACKS)
        state.stacks.functions_of(stacks.stack_ids)
    except (ApiError, SettingError) as error:
        _log.info("the stacks of the last hour are not read ahead: %s", error)
