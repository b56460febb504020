"""Whose files make room in the kernel's maps for those of others."""

from collections import Counter
from collections.abc import Callable, Mapping


def file_to_evict(
    users: Mapping[str, int | None], rows_of: Callable[[str], int], build_id: str, rows: int
) -> str | None:
    """Returns the largest file of the user whose files take the most, if those of the user of `build_id` will take less
    with its `rows`; else None.

    `users`: by build ID, the user whose processes map a file; None if they are of several, who keep it.
    """
    taken: Counter[int] = Counter()
    for file, user in users.items():
        if user is not None:
            taken[user] += rows_of(file)
    [(most, most_rows)] = taken.most_common(1) or [(-1, 0)]
    own = users.get(build_id)
    if most_rows <= (taken[own] if own is not None else 0) + rows:
        return None
    return max((file for file, user in users.items() if user == most), key=rows_of)
