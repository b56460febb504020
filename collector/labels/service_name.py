"""The label `service`: from the first of the sources in docs/labels.md that names one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from collector.labels.cgroup import Cgroup
from collector.labels.container import Container

if TYPE_CHECKING:
    from collector.labels.kubernetes import Pod

KERNEL = "[kernel]"
UNKNOWN = "unknown_service"
"""The prefix of the name that OpenTelemetry's SDKs use if none is set."""


def service_name(
    context: str, activity: str, environment: str, container: str, unit: str, executable: str, comm: str
) -> str:
    """Each is "" where it does not say: `context` of the process context, `activity` of what the process reports,
    `environment` of OpenTelemetry's variables (which children inherit), then the container, the unit, the program.
    A program that is executed out of memory may have another name each time: then it is `comm`.
    """
    said = (name for name in (context, activity, environment) if not name.startswith(UNKNOWN))
    program = "" if executable.startswith("/memfd:") else os.path.basename(executable)
    return next(filter(None, said), "") or container or unit or program or comm


def of_container(container: Container, pod: Pod | None, name: str) -> str:
    """`name` is the container's; without one a pod is known by the application it says it is of."""
    return container.service or name or (pod.app if pod else "")


def of_unit(group: Cgroup) -> str:
    """A systemd service. Scopes are sessions and started applications, and user@.service is a user's everything."""
    if not group.unit.endswith(".service") or group.unit.startswith("user@"):
        return ""
    return group.unit.removesuffix(".service")
