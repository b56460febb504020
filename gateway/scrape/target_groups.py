"""Groups of targets: those of a scrape job, and the lists of them that files and servers have."""

import re
from dataclasses import dataclass
from typing import Any

from gateway.scrape.fields import ConfigFields
from gateway.scrape.job import TargetGroup
from icestream.files.yaml_file import shown
from icestream.labels.relabel import is_name
from icestream.settings import SettingError

MAX_TARGETS = 100_000
"""The most targets in one list."""

_ADDRESS = re.compile(r"(?:[^\s/@?#:\[\]]+|\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\])(?::\d{1,5})?")


@dataclass(frozen=True)
class TargetList:
    """What a file or a server lists."""

    groups: tuple[TargetGroup, ...]
    invalid: frozenset[str] = frozenset()
    """Each address and group that is left out, with what is wrong with it."""


def take_group(fields: ConfigFields) -> TargetGroup:
    """Raises SettingError."""
    targets = fields.texts("targets", empty=True)
    for target in targets:
        if not is_address(target):
            raise SettingError(f"{fields.where}: {_no_address(target)}")
    group = TargetGroup(tuple(targets), take_labels(fields.group("labels")))
    fields.end()
    return group


def take_labels(given: ConfigFields) -> tuple[tuple[str, str], ...]:
    """Raises SettingError."""
    pairs = tuple((name, given.text(name)) for name in given.names())
    for name, _ in pairs:
        if not is_name(name):
            raise SettingError(f"{given.where}: {name!r} is no label name")
    return pairs


def parse_list(loaded: Any, where: str) -> TargetList:
    """Makes what YAML or JSON has of a list into groups. Leaves out invalid addresses, and groups that are invalid
    otherwise: what is wrong about one program must not hide the others. Raises SettingError, whose message begins with
    `where`, if it is no list, if it is too long, and if nothing in it is valid."""
    if not isinstance(loaded, list | None) or len(loaded or []) > MAX_TARGETS:
        raise SettingError(f"{where}: expected a list of at most {MAX_TARGETS} groups, got {shown(loaded)}")
    groups: list[TargetGroup] = []
    invalid: set[str] = set()
    for one in loaded or []:
        try:
            groups.append(
                take_group(ConfigFields(_with_valid_addresses(one, invalid, where), f"{where}: {_name(one)}"))
            )
        except SettingError as error:
            invalid.add(str(error))
    targets = sum(len(group.targets) for group in groups)
    if invalid and not targets:
        raise SettingError(min(invalid))
    if targets > MAX_TARGETS:
        raise SettingError(f"{where}: expected at most {MAX_TARGETS} targets, got {targets}")
    return TargetList(tuple(groups), frozenset(invalid))


def _with_valid_addresses(group: Any, invalid: set[str], where: str) -> Any:
    """Returns the group without its invalid addresses, which are added to `invalid`."""
    if not isinstance(group, dict) or not isinstance(targets := group.get("targets"), list):
        return group
    invalid.update(f"{where}: {_no_address(target)}" for target in targets if not is_address(target))
    return {**group, "targets": [target for target in targets if is_address(target)]}


def is_address(target: Any) -> bool:
    """Whether this is HOST:PORT or HOST."""
    return isinstance(target, str) and _ADDRESS.fullmatch(target) is not None


def _no_address(target: Any) -> str:
    return f"targets: expected HOST:PORT or HOST, got {shown(target)}"


def _name(group: Any) -> str:
    """Returns a name that does not depend on the place in the list: the same mistake is told once."""
    targets = group.get("targets") if isinstance(group, dict) else None
    return f"the group of {shown(targets[0])}" if isinstance(targets, list) and targets else "a group without targets"
