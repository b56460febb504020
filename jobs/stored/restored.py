"""What a replay has compared and restored in a store, by kind."""

from collections import Counter
from dataclasses import dataclass, field

from jobs.stored.compare import Compared
from jobs.time_range import HostMinute

ROWS = ("spans", "series", "nodes", "locations", "batches")


@dataclass
class Restored:
    """Samples and activity are counted in minutes of hosts, the others in rows."""

    compared: "Counter[str]" = field(default_factory=Counter)
    restored: "Counter[str]" = field(default_factory=Counter)
    unknown: set[HostMinute] = field(default_factory=set)
    """Minutes of hosts that were left alone: their samples have traces that the source knows nothing of."""

    def minutes_to_restore(self, name: str, compared: Compared, alone: set[HostMinute]) -> set[HostMinute]:
        """Returns the minutes to replace, and counts them. `alone`: minutes to leave alone, to which it adds some."""
        self.unknown |= compared.unknown - alone
        alone |= compared.unknown
        wrong = compared.wrong - alone
        self.compared[name] += len(compared.minutes)
        self.restored[name] += len(wrong)
        return wrong

    def line(self, store: str, dry_run: bool) -> str:
        """Returns for people what was restored in this store."""
        minutes = (f"{name} of {self.restored[name]} of {self.compared[name]} minutes of hosts"
                   for name in ("samples", "activity"))  # fmt: skip
        rows = [f"{self.restored[name]} {name}" for name in ROWS]
        did = "would be" if dry_run else "were"
        return f"{store}: {', '.join([*minutes, *rows[:-1]])} and {rows[-1]} {did} restored"
