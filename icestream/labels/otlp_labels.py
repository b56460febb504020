"""Labels and the attributes of OpenTelemetry that they stand for (opentelemetry.io/docs/specs/semconv)."""

LABELS = {
    "service.name": "service",
    "service.namespace": "service_namespace",
    "service.version": "service_version",
    "service.instance.id": "service_instance_id",
    "deployment.environment": "deployment_environment",
    "deployment.environment.name": "deployment_environment",
    "host.name": "host",
    "container.id": "container_id",
    "container.name": "container",
    "container.runtime": "container_runtime",
    "container.runtime.name": "container_runtime",
    "k8s.container.name": "container",
    "k8s.pod.name": "pod",
    "k8s.pod.uid": "pod_uid",
    "k8s.namespace.name": "namespace",
    "k8s.node.name": "node",
    "process.executable.name": "executable",
    "thread.name": "thread_name",
}
"""The labels of docs/labels.md; other attributes become labels with their own names."""

ATTRIBUTES = {label: attribute for attribute, label in LABELS.items()}
"""The attribute of each label; of several, the last above, which is the one of today's conventions."""
