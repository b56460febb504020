"""What the collector's settings say about labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from collector.labels.text import label_name
from collector.settings import CollectorSettings, host_name
from icestream.labels.excess_labels import DESCRIBED
from icestream.labels.relabel import Rule
from icestream.settings import SettingError

if TYPE_CHECKING:
    from collector.labels.kubernetes import Pods

_VARIABLE = "__meta_environment_"
MAX_VARIABLES = 32


@dataclass(frozen=True)
class LabelConfig:
    environment: Mapping[str, str] = field(default_factory=dict)  # variable -> its label
    rules: tuple[Rule, ...] = ()
    pods: Pods | None = None
    variables: tuple[bytes, ...] = ()  # needed for labels or rules
    with_command_line: bool = False  # rules need it


def label_config(settings: CollectorSettings) -> LabelConfig:
    """Reads the settings and the file of rules. Raises SettingError if one of them is wrong."""
    environment = _environment(settings.environment_labels)
    rules: tuple[Rule, ...] = ()
    of_rules: list[str] = []
    with_command_line = False
    if settings.relabel:
        from icestream.labels.relabel_config import load_rules, sources, uses

        rules = load_rules(Path(settings.relabel))
        of_rules = sources(rules, _VARIABLE)
        with_command_line = uses(rules, "__meta_command_line")
    return LabelConfig(
        environment=environment,
        rules=rules,
        pods=_pods(settings),
        variables=tuple(name.encode() for name in dict.fromkeys([*environment, *of_rules])),
        with_command_line=with_command_line,
    )


def _environment(text: str) -> dict[str, str]:
    names = [name for part in text.split(",") if (name := part.strip())]
    if len(names) > MAX_VARIABLES:
        raise SettingError(f"environment_labels: more than {MAX_VARIABLES} variables")
    labels: dict[str, str] = {}
    for name in names:
        label = label_name(name.lower())
        if "=" in name or "\0" in name or label.startswith("__"):
            raise SettingError(f"environment_labels: expected names of variables, NAME,NAME..., got {name!r}")
        if label in DESCRIBED or label in labels.values():
            raise SettingError(
                f"environment_labels: {name} would become the label {label}, which already exists; "
                f"a relabeling rule can take it from {_VARIABLE}{name}"
            )
        labels[name] = label
    return labels


def _pods(settings: CollectorSettings) -> Pods | None:
    if settings.kubernetes == "off":
        return None
    if settings.kubernetes not in ("kubelet", "api"):
        raise SettingError(f"kubernetes: expected off, kubelet or api, got {settings.kubernetes!r}")
    from collector.labels.kubernetes import KubernetesError, Pods, api_server, kubelet

    token, ca = (Path(file) if file else None for file in (settings.kubernetes_token, settings.kubernetes_ca))
    try:
        if settings.kubernetes == "kubelet":
            return Pods(kubelet(settings.kubernetes_url, token, ca, settings.kubernetes_verify))
        node = settings.kubernetes_node or host_name(settings)
        return Pods(api_server(settings.kubernetes_url, node, token, ca, settings.kubernetes_verify))
    except KubernetesError as error:
        raise SettingError(f"kubernetes: {error}") from None
