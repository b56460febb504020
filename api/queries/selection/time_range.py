"""The time range of a query."""

from dataclasses import dataclass

from icestream.times import format_unix_nano


@dataclass(frozen=True)
class TimeRange:
    """[start, end)."""

    start_unix_nano: int
    end_unix_nano: int

    def overlaps(self, other: "TimeRange") -> bool:
        return self.start_unix_nano < other.end_unix_nano and other.start_unix_nano < self.end_unix_nano

    def as_json(self, prefix: str = "") -> dict[str, str]:
        return {
            f"{prefix}start": format_unix_nano(self.start_unix_nano),
            f"{prefix}end": format_unix_nano(self.end_unix_nano),
        }
