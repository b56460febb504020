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
    context: str, activity: str, environment: str, container: str, unit: str, script: str, executable: str, comm: str
) -> str:
    """Returns the first of these that is not "": the name in the process context, in the activity that the process
    reports, in OpenTelemetry's variables (which children inherit), then the container, the unit, what an interpreter
    runs, the program, `comm`. A program that is executed from memory may have another name each time, so `comm` names
    it.
    """
    given = (name for name in (context, activity, environment) if not name.startswith(UNKNOWN))
    program = "" if executable.startswith("/memfd:") else os.path.basename(executable)
    return next(filter(None, given), "") or container or unit or script or program or comm


def of_container(container: Container, pod: Pod | None, name: str) -> str:
    """Returns the service of a container. `name` is the container's; without one, the pod's application counts."""
    return container.service or name or (pod.app if pod else "")


def of_unit(group: Cgroup) -> str:
    """Returns the name of a systemd service. A scope is a session or an application, and user@.service is all that a
    user runs: these name no service."""
    if not group.unit.endswith(".service") or group.unit.startswith("user@"):
        return ""
    return group.unit.removesuffix(".service")
