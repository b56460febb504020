"""What works on this host, and why not: `icestream collect --check`."""

import dataclasses
import json
import textwrap
from collections.abc import Callable, Iterator

from collector.checks import budget, containers, kernel, privileges, programs, publishers, resources
from collector.checks.row import CheckMark, CheckRow, limited
from collector.settings import CollectorSettings

Check = Callable[[CollectorSettings], CheckRow | list[CheckRow]]

CHECKS: dict[str, Check] = {
    "kernel": lambda settings: kernel.version(),
    "BTF": lambda settings: kernel.btf(settings.loader),
    "lockdown": lambda settings: kernel.lockdown(),
    "perf_event_paranoid": lambda settings: kernel.perf_event_paranoid(),
    "capabilities": lambda settings: privileges.capabilities(),
    "seccomp": lambda settings: privileges.seccomp(),
    "user namespace": lambda settings: privileges.user_namespace(),
    "PID namespace": lambda settings: privileges.pid_namespace(),
    "libbpf": lambda settings: programs.libbpf(),
    "bcc": lambda settings: programs.bcc(settings.loader),
    "profiling": lambda settings: programs.program(settings.loader),
    "CPU budget": budget.cpu_budget,
    "unwinding": lambda settings: programs.unwinding(),
    "process events": lambda settings: programs.process_events(),
    "off-CPU profile": lambda settings: programs.off_cpu(settings.loader),
    "kernel symbols": lambda settings: kernel.symbols(),
    "ptrace_scope": lambda settings: kernel.ptrace_scope(),
    "thread contexts": lambda settings: publishers.thread_contexts(),
    "cgroups": lambda settings: containers.cgroups(),
    "labels": containers.labels,
    "Kubernetes": containers.kubernetes,
    "spool": resources.spool,
    "unwinding tables": lambda settings: resources.folder(
        "unwinding tables", settings.unwind_cache, "tables are built anew at every start", "--unwind-cache"
    ),
    "activity socket": resources.activity_socket,
    "metrics": resources.metrics_listen,
    "Kafka": resources.kafka,
}
"""In the order in which they are shown."""

_WIDTH = 110


def rows(settings: CollectorSettings) -> Iterator[CheckRow]:
    """Yields each row as soon as it is known. A check that raises becomes a row that says so."""
    for thing, check in CHECKS.items():
        try:
            result = check(settings)
        except Exception as error:
            result = limited(thing, f"the check itself failed: {type(error).__name__}: {error}", "please report it")
        yield from [result] if isinstance(result, CheckRow) else result


def works(results: list[CheckRow]) -> bool:
    """Whether profiling would work."""
    return not any(row.needed and row.mark is CheckMark.MISSING for row in results)


def text(row: CheckRow) -> str:
    """The row as wrapped lines: the finding, then what to do."""
    head = f"{row.mark.value:<8} {row.thing:<22} "
    says = " ".join(row.says.split())
    lines = textwrap.wrap(says, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
    if row.advice:
        lines += textwrap.wrap(f"-> {row.advice}", _WIDTH, initial_indent=" " * 32, subsequent_indent=" " * 35)
    return "\n".join(lines)


def verdict(results: list[CheckRow]) -> str:
    if not works(results):
        things = [row.thing for row in results if row.needed and row.mark is CheckMark.MISSING]
        return f"this host cannot be profiled: {', '.join(things)}"
    left_out = [row.thing for row in results if row.mark is not CheckMark.OK]
    return f"this host can be profiled{'; limited: ' + ', '.join(left_out) if left_out else ''}"


def as_json(results: list[CheckRow]) -> str:
    """One object: `works`, and `checks`, a list of thing, mark, says, advice, needed."""
    checks = [dataclasses.asdict(row) | {"mark": row.mark.value} for row in results]
    return json.dumps({"works": works(results), "checks": checks}, indent=2)
