"""The unwinding table of the vDSO, which is mapped into every process but is not a file."""

import logging

from collector.elf import identity
from collector.elf.error import ElfError
from collector.processes.mapped_files import vdso_bytes
from collector.unwind.tables.table import UnwindTable, build_bytes

log = logging.getLogger(__name__)


def vdso_table() -> dict[str, UnwindTable | None]:
    """Returns the table by build ID; nothing if there is no vDSO, or no table of it."""
    data = vdso_bytes()
    try:
        return {identity.read_bytes(data).build_id: build_bytes(data)} if data else {}
    except ElfError as error:
        log.debug("no unwinding table for the vDSO: %s", error)
        return {}
