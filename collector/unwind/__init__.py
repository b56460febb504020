"""Unwinding tables: from call frame information to the maps that the kernel walks stacks by."""
