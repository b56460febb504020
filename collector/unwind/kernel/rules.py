"""The rules of all unwinding tables in the kernel's map: each once, while a file needs it."""

import numpy as np

from collector.unwind.kernel.maps import UnwindMaps

MAX_RULES_OF_FILE = 1 << 12
"""Further rules of a file count as unknown. The largest programs have 1,500; a file made to fill the map has more."""


class KernelRules:
    """Rows of the map of rules. Row 0 stands for code without a rule. For one thread at a time."""

    def __init__(self, maps: UnwindMaps) -> None:
        self._maps = maps
        self._rows: dict[int, int] = {0: 0}  # by the rule as a number
        self._users = np.zeros(len(maps.rules), np.int64)  # files, by row
        self._users[0] = 1
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rules: np.ndarray) -> np.ndarray | None:
        """Adds the rules of a file (RULE (n,)). Returns their rows, uint32 (n,); None, and adds none, if there is no
        room."""
        keys = rules.view("<u8").tolist()[:MAX_RULES_OF_FILE]
        new = [key for key in dict.fromkeys(keys) if key not in self._rows]
        if len(self._rows) + len(new) > len(self._maps.rules):
            return None
        for key in new:
            row = self._free.pop() if self._free else len(self._rows)
            self._rows[key] = row
            self._maps.rules[row : row + 1].view("<u8")[0] = key
        rows = np.zeros(len(rules), np.uint32)
        rows[: len(keys)] = [self._rows[key] for key in keys]
        self._users[np.unique(rows)] += 1
        return rows

    def share_of(self, rows: np.ndarray) -> float:
        """How many rows a file takes that got these rows. A row of several files counts for each in part."""
        distinct = np.unique(rows[:MAX_RULES_OF_FILE])
        return float(np.sum(1 / self._users[distinct[distinct > 0]]))

    def release(self, rows: np.ndarray) -> None:
        """A file that got these rows does not need them any more."""
        distinct = np.unique(rows[rows > 0])
        self._users[distinct] -= 1
        for row in distinct[self._users[distinct] == 0].tolist():
            del self._rows[int(self._maps.rules[row : row + 1].view("<u8")[0])]
            self._free.append(row)
