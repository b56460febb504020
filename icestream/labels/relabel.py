"""Relabeling: rules that rename, add, keep and drop labels, with the meaning of Prometheus's relabel_config.

Regular expressions are RE2's: they match the whole value, and take time linear in its length, whatever a program calls
itself. Labels whose names begin with two underscores exist only for rules, and are removed after the last rule.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from icestream.labels.excess_labels import without_excess

MAX_VALUE = 1000
MAX_LABELS = 64
_MAX_INPUT = 16 << 10
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_REFERENCE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<plain>\w+)|(?P<dollar>\$))", re.ASCII)


class Match(Protocol):
    def group(self, group: int | str, /) -> str | None: ...


class Pattern(Protocol):
    """A compiled expression of RE2's, or one with the same methods."""

    def __hash__(self) -> int: ...

    def fullmatch(self, text: str, /) -> Match | None: ...

    @property
    def groups(self) -> int: ...

    @property
    def groupindex(self) -> dict[str, int]: ...


@dataclass(frozen=True)
class Rule:
    """One step. icestream/labels/relabel_config.py says which values its fields may have."""

    action: str
    source_labels: tuple[str, ...]
    separator: str
    regex: Pattern
    modulus: int
    target_label: str
    replacement: str


def relabel(labels: dict[str, str], rules: Iterable[Rule]) -> dict[str, str] | None:
    """Returns the labels after all rules, without those that exist only for rules; None if a rule drops what has the
    labels."""
    labels = dict(labels)
    return lasting(labels) if apply_rules(labels, rules) else None


def apply_rules(labels: dict[str, str], rules: Iterable[Rule]) -> bool:
    """Applies all rules to the labels. Returns False if one of them drops what has the labels."""
    return all(_apply(rule, labels) for rule in rules)


def lasting(labels: dict[str, str]) -> dict[str, str]:
    """Returns the labels that do not exist only for rules."""
    names = [name for name, value in labels.items() if value and not name.startswith("__")]
    return {name: labels[name][:MAX_VALUE] for name in without_excess(names, MAX_LABELS)}


def _apply(rule: Rule, labels: dict[str, str]) -> bool:
    """Applies a rule to the labels. Returns False if it drops what has them."""
    value = rule.separator.join([labels.get(name, "") for name in rule.source_labels])[:_MAX_INPUT]
    match rule.action:
        case "keep":
            return rule.regex.fullmatch(value) is not None
        case "drop":
            return rule.regex.fullmatch(value) is None
        case "keepequal":
            return labels.get(rule.target_label, "") == value
        case "dropequal":
            return labels.get(rule.target_label, "") != value
        case "replace":
            _replace(rule, labels, value)
        case "lowercase":
            _set(labels, rule.target_label, value.lower())
        case "uppercase":
            _set(labels, rule.target_label, value.upper())
        case "hashmod":
            digest = hashlib.md5(value.encode("utf-8", "replace"), usedforsecurity=False).digest()
            _set(labels, rule.target_label, str(int.from_bytes(digest[8:], "big") % rule.modulus))
        case "labelmap":
            for name, label_value in sorted(labels.items()):
                if (new_name := _renamed(rule.regex, rule.replacement, name)) is not None:
                    _set(labels, new_name, label_value)
        case "labeldrop" | "labelkeep":
            for name in list(labels):
                if (_renamed(rule.regex, "", name) is not None) == (rule.action == "labeldrop"):
                    del labels[name]
    return True


def _replace(rule: Rule, labels: dict[str, str], value: str) -> None:
    match = rule.regex.fullmatch(value)
    if match is not None:
        _set(labels, expand(rule.target_label, rule.regex, match), expand(rule.replacement, rule.regex, match))


@lru_cache(4096)
def _renamed(regex: Pattern, replacement: str, name: str) -> str | None:
    """Returns None if the expression does not match. Cached, because the same few names come for every thread."""
    match = regex.fullmatch(name)
    return None if match is None else expand(replacement, regex, match)


def _set(labels: dict[str, str], name: str, value: str) -> None:
    """Sets a label. An empty value removes it; an invalid name changes nothing."""
    if is_name(name):
        labels[name] = value[:_MAX_INPUT]
        if not value:
            del labels[name]


def is_name(text: str) -> bool:
    """Whether this can be the name of a label."""
    return len(text) <= 200 and _NAME.fullmatch(text) is not None


def expand(template: str, regex: Pattern, match: Match) -> str:
    """Replaces $1, ${1}, $name and ${name} by what the groups matched, as Go's regexp.Expand does. A group that does
    not exist or did not match is ""; $$ is a dollar sign."""

    def text(reference: re.Match[str]) -> str:
        if reference["dollar"]:
            return "$"
        name = reference["braced"] or reference["plain"]
        group = int(name) if name.isdigit() and len(name) < 9 else regex.groupindex.get(name, -1)
        return (match.group(group) or "") if 0 <= group <= regex.groups else ""

    return _REFERENCE.sub(text, template)
