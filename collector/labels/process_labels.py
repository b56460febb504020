"""Makes everything that is known of a process into its labels, without those of its threads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from collector.labels import service_name
from collector.labels.container import Container
from collector.labels.environment import resource_attributes
from collector.labels.process_facts import Facts
from collector.labels.text import clean, label_name

if TYPE_CHECKING:
    from collector.labels.kubernetes import Pod

RESOURCE_LABELS = {
    "service_version": ("service.version",),
    "service_namespace": ("service.namespace",),
    "service_instance_id": ("service.instance.id",),
    "deployment_environment": ("deployment.environment.name", "deployment.environment"),
}
LABELS = frozenset(
    (
        "cgroup", "comm", "container", "container_id", "container_runtime", "executable", "host", "namespace", "node",
        "pod", "pod_uid", "service", "thread_name", "unit", *RESOURCE_LABELS,
    )
)  # fmt: skip
_MAX_CGROUP = 1000


@dataclass(frozen=True)
class Known:
    """What is known of a process; "" and empty where nothing is known."""

    pid: int
    kernel: bool = False
    facts: Facts = field(default_factory=Facts)
    context: Mapping[str, str] = field(default_factory=dict)  # attributes of its process context
    activity: str = ""  # the service in its activity
    container: Container = field(default_factory=Container)
    pod: Pod | None = None


def process_labels(known: Known, environment: Mapping[str, str]) -> dict[str, str]:
    """The labels of a process, some of them "". `environment` has the labels of variables."""
    facts, group = known.facts, known.facts.group
    declared = resource_attributes(facts.environment)
    resource = declared | {name: value for name, value in known.context.items() if value}
    container, runtime = known.container.name, group.runtime
    if known.pod and group.container_id in known.pod.containers:
        container, runtime = known.pod.containers[group.container_id]
    named = service_name.service_name(
        context=known.context.get("service.name", ""),
        activity=known.activity,
        environment=declared.get("service.name", ""),
        container=service_name.of_container(known.container, known.pod, container),
        unit=service_name.of_unit(group),
        executable=clean(facts.executable, 4096),
        comm=facts.comm,
    )
    labels = {
        "cgroup": clean(group.path, _MAX_CGROUP),
        "comm": facts.comm,
        "container": container,
        "container_id": clean(group.container_id),
        "container_runtime": group.runtime or runtime,
        "executable": clean(os.path.basename(facts.executable)),
        "namespace": known.pod.namespace if known.pod else known.container.namespace,
        "node": known.pod.node if known.pod else "",
        "pod": known.pod.name if known.pod else known.container.pod,
        "pod_uid": group.pod_uid or known.container.pod_uid,
        "service": service_name.KERNEL if known.kernel else named,
        "unit": clean(group.unit),
    }
    for label, names in RESOURCE_LABELS.items():
        labels[label] = next((resource[name] for name in names if name in resource), "")
    for variable, label in environment.items():
        labels[label] = clean(facts.environment.get(variable, ""))
    return labels


def meta_labels(known: Known) -> dict[str, str]:
    """The labels that exist only for relabeling rules."""
    facts = known.facts
    resource = resource_attributes(facts.environment) | dict(known.context)
    return {
        "__meta_pid": str(known.pid),
        "__meta_executable_path": clean(facts.executable, 1000),
        "__meta_command_line": facts.command_line,
        "__meta_systemd_slice": clean(facts.group.slice),
        "__meta_container_image": known.container.image,
        **{f"__meta_environment_{label_name(n)}": clean(value, 1000) for n, value in facts.environment.items()},
        **{f"__meta_otel_{label_name(name)}": value for name, value in resource.items()},
        **{
            f"__meta_kubernetes_pod_label_{label_name(name)}": value
            for name, value in (known.pod.labels if known.pod else {}).items()
        },
    }
