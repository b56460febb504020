"""Makes the labels of a process of everything that is known about it. Labels of its threads come later."""

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
_MAX_CGROUP = 1000


@dataclass(frozen=True)
class ProcessDescription:
    """Everything that labels are made of; "" and empty where nothing is known."""

    pid: int
    kernel: bool = False
    facts: Facts = field(default_factory=Facts)
    context: Mapping[str, str] = field(default_factory=dict)  # attributes of its process context
    activity: str = ""  # the service in its activity
    container: Container = field(default_factory=Container)
    pod: Pod | None = None


def process_labels(described: ProcessDescription, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the labels of a process, some of them "". `environment` maps variables to their labels."""
    facts, group = described.facts, described.facts.group
    declared = resource_attributes(facts.environment)
    resource = declared | {name: value for name, value in described.context.items() if value}
    container, runtime = described.container.name, group.runtime
    if described.pod and group.container_id in described.pod.containers:
        container, runtime = described.pod.containers[group.container_id]
    named = service_name.service_name(
        context=described.context.get("service.name", ""),
        activity=described.activity,
        environment=declared.get("service.name", ""),
        container=service_name.of_container(described.container, described.pod, container),
        unit=service_name.of_unit(group),
        script=facts.script,
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
        "namespace": described.pod.namespace if described.pod else described.container.namespace,
        "node": described.pod.node if described.pod else "",
        "pod": described.pod.name if described.pod else described.container.pod,
        "pod_uid": group.pod_uid or described.container.pod_uid,
        "service": service_name.KERNEL if described.kernel else named,
        "unit": clean(group.unit),
        "workload": described.pod.workload if described.pod else "",
    }
    for label, names in RESOURCE_LABELS.items():
        labels[label] = next((resource[name] for name in names if name in resource), "")
    for variable, label in environment.items():
        labels[label] = clean(facts.environment.get(variable, ""))
    return labels


def meta_labels(described: ProcessDescription) -> dict[str, str]:
    """Returns the labels that exist only for relabeling rules."""
    facts = described.facts
    resource = resource_attributes(facts.environment) | dict(described.context)
    return {
        "__meta_pid": str(described.pid),
        "__meta_executable_path": clean(facts.executable, 1000),
        "__meta_command_line": facts.command_line,
        "__meta_systemd_slice": clean(facts.group.slice),
        "__meta_container_image": described.container.image,
        **{f"__meta_environment_{label_name(n)}": clean(value, 1000) for n, value in facts.environment.items()},
        **{f"__meta_otel_{label_name(name)}": value for name, value in resource.items()},
        **{
            f"__meta_kubernetes_pod_label_{label_name(name)}": value
            for name, value in (described.pod.labels if described.pod else {}).items()
        },
    }
