"""Whose files make room in the kernel's maps for those of others."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping


def users_of_files(processes: Iterable[tuple[int | None, set[str]]]) -> dict[str, int | None]:
    """The user whose processes map a file, by key; None if they are of several. Takes the user and the files of
    each process."""
    users: dict[str, int | None] = {}
    for user, file_keys in processes:
        for file_key in file_keys:
            users[file_key] = user if users.get(file_key, user) == user else None
    return users


def file_to_evict(
    users: Mapping[str, int | None], share_of: Callable[[str], float], file_key: str, share: float
) -> str | None:
    """Returns the largest file of the user whose files take the most, if those of the user of `file_key` will take less
    with its `share`; else None.

    `users`: as `users_of_files` returns them; what several map, they keep. Shares are parts of the maps.
    """
    shares = {file: share_of(file) for file, user in users.items() if user is not None}
    taken: dict[int | None, float] = defaultdict(float)
    for file, part in shares.items():
        taken[users[file]] += part
    most = max(taken, key=lambda user: taken[user], default=None)
    if most is None or taken[most] <= taken.get(users.get(file_key), 0.0) + share:
        return None
    return max((file for file in shares if users[file] == most), key=lambda file: shares[file])
