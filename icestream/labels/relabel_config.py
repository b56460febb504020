"""The file of relabeling rules: YAML (or JSON, which is YAML), a list of rules as in Prometheus's relabel_configs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icestream.files.yaml_file import load_yaml, shown
from icestream.labels.relabel import Pattern, Rule, is_name
from icestream.settings import SettingError

_MAX_RULES = 1000
_ACTIONS = (
    "replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase", "keepequal",
    "dropequal",
)  # fmt: skip
_FIELDS = ("source_labels", "separator", "regex", "modulus", "target_label", "replacement", "action")
_TEMPLATE = re.compile(r"(?:[a-zA-Z_]|\$(?:\{\w+\}|\w++))(?:\w|\$(?:\{\w+\}|\w++))*", re.ASCII)
_NEED_TARGET = {"replace", "hashmod", "lowercase", "uppercase", "keepequal", "dropequal"}
_ONLY = {
    "labeldrop": {"regex"},
    "labelkeep": {"regex"},
    "keepequal": {"source_labels", "target_label"},
    "dropequal": {"source_labels", "target_label"},
}


def load_rules(path: Path) -> tuple[Rule, ...]:
    """The rules in their order. Raises SettingError, which names the file and the rule."""
    loaded = load_yaml(path, "relabeling rules")
    if isinstance(loaded, dict) and set(loaded) == {"relabel_configs"}:
        loaded = loaded["relabel_configs"]
    return parse_rules(loaded, str(path))


def parse_rules(loaded: Any, where: str) -> tuple[Rule, ...]:
    """Makes the content of a YAML file into rules: None, or a list of mappings. Raises SettingError, whose message
    begins with `where`."""
    if not isinstance(loaded, list | None):
        raise SettingError(f"{where}: expected a list of rules, each beginning with '- ', got {shown(loaded)}")
    if len(loaded or []) > _MAX_RULES:
        raise SettingError(f"{where}: more than {_MAX_RULES} rules")
    rules = []
    for number, entry in enumerate(loaded or [], 1):
        try:
            rules.append(_rule(entry))
        except ValueError as error:
            raise SettingError(f"{where}: rule {number}: {error}") from None
    return tuple(rules)


def _rule(entry: Any) -> Rule:
    """Raises ValueError."""
    if not isinstance(entry, dict):
        raise ValueError(f"expected fields such as 'action: drop', got {shown(entry)}")
    if unknown := [str(field) for field in entry if field not in _FIELDS]:
        raise ValueError(f"there is no field {unknown[0]!r}; there are {', '.join(_FIELDS)}")
    action = _text(entry, "action", "replace").lower()
    if action not in _ACTIONS:
        raise ValueError(f"there is no action {action!r}; there are {', '.join(_ACTIONS)}")
    if odd := [str(field) for field in entry if field not in _ONLY.get(action, entry.keys()) | {"action"}]:
        raise ValueError(f"{action} takes {' and '.join(sorted(_ONLY[action]))} only, not {odd[0]}")
    rule = Rule(
        action=action,
        source_labels=tuple(_source_labels(entry)),
        separator=_text(entry, "separator", ";"),
        regex=_compiled(_text(entry, "regex", "(.*)")),
        modulus=_modulus(entry, action),
        target_label=_text(entry, "target_label", ""),
        replacement=_text(entry, "replacement", "$1"),
    )
    _check_names(rule, entry)
    return rule


def _check_names(rule: Rule, entry: dict[str, Any]) -> None:
    """Raises ValueError."""
    if rule.action in _NEED_TARGET and not rule.target_label:
        raise ValueError(f"{rule.action} needs a target_label")
    template = rule.action == "replace" and "$" in rule.target_label
    if rule.target_label and not (_TEMPLATE.fullmatch if template else is_name)(rule.target_label):
        raise ValueError(f"target_label {rule.target_label!r} is no label name")
    if rule.action == "labelmap" and not _TEMPLATE.fullmatch(rule.replacement):
        raise ValueError(f"replacement {rule.replacement!r} is no label name")
    if rule.action in ("lowercase", "uppercase") and "replacement" in entry:
        raise ValueError(f"{rule.action} takes no replacement")


def _source_labels(entry: dict[str, Any]) -> Iterator[str]:
    names = entry.get("source_labels")
    if not isinstance(names, list | None):
        raise ValueError(f"source_labels: expected a list such as [service, unit], got {shown(names)}")
    for name in names or []:
        if not isinstance(name, str) or not is_name(name):
            raise ValueError(f"source_labels: {name!r} is no label name")
        yield name


def _modulus(entry: dict[str, Any], action: str) -> int:
    modulus = entry.get("modulus", 0)
    if not isinstance(modulus, int) or isinstance(modulus, bool) or not 0 <= modulus < 1 << 64:
        raise ValueError(f"modulus: expected a whole number, got {shown(modulus)}")
    if action == "hashmod" and not modulus:
        raise ValueError("hashmod needs a modulus of 1 or more")
    return modulus


def _text(entry: dict[str, Any], field: str, default: str) -> str:
    """Numbers are taken as they are written, as YAML makes them of what looks like one."""
    value = entry.get(field, default)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"{field}: expected text, got {shown(value)}; put it in quotes")
    return value


def _compiled(expression: str) -> Pattern:
    import re2

    options = re2.Options()
    options.dot_nl = True  # as in Prometheus 3
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        compiled: Pattern = re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
        raise ValueError(f"regex {expression!r}: {reason}") from None
    return compiled


def uses(rules: tuple[Rule, ...], label: str) -> bool:
    """Whether the rules may look at a label."""
    return any(
        label == rule.target_label
        or label in rule.source_labels
        or (rule.action == "labelmap" and rule.regex.fullmatch(label) is not None)
        for rule in rules
    )


def sources(rules: tuple[Rule, ...], prefix: str) -> list[str]:
    """The labels that rules use as sources and whose names begin with `prefix`, without the prefix."""
    names = (name for rule in rules for name in (*rule.source_labels, rule.target_label) if name.startswith(prefix))
    return list(dict.fromkeys(name.removeprefix(prefix) for name in names))
