"""Columns as Arrow arrays."""

import numpy as np
import pyarrow as pa


def binary(rows: np.ndarray) -> pa.Array:
    """Returns uint8 (n, width) as fixed_size_binary(width)."""
    buffer = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, buffer])


def texts(rows: np.ndarray, values: list[str]) -> pa.DictionaryArray:
    """Returns values[rows] as a dictionary; equal values are one entry."""
    entries = {value: i for i, value in enumerate(dict.fromkeys(values))}
    entry_of_row = np.array([entries[value] for value in values], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(entry_of_row[rows]), list(entries) or [""])


def constant(value: str, rows: int) -> pa.DictionaryArray:
    """Returns one text, `rows` times."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [value])


def with_batch(rows: pa.Table, run: str, sequence: int) -> pa.Table:
    """Returns rows with the columns that name their batch."""
    rows = rows.append_column("batch_run", constant(run, rows.num_rows))
    return rows.append_column("batch_sequence", pa.array(np.full(rows.num_rows, sequence, np.uint64)))


def milliseconds(values: np.ndarray) -> pa.Array:
    """Returns int64 milliseconds since 1970 as timestamps."""
    return pa.array(values.astype(np.int64), pa.timestamp("ms", "UTC"))


def last_seen(unix_nano: int, rows: int) -> pa.Array:
    """Returns one time, `rows` times, in seconds."""
    return pa.array(np.full(rows, unix_nano // 10**9, np.int64), pa.timestamp("s", "UTC"))


def concat(tables: list[pa.Table]) -> pa.Table:
    """Returns tables of one schema as one table in one chunk, with joined dictionaries; needs at least one table."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def blocks_of_days(rows: pa.Table, most: int) -> list[pa.Table]:
    """Returns rows in blocks of at most `most` days each; the same rows give the same blocks.

    Each day is a partition of a table. It is that of the column `time` or `start_time`; without either, there is one
    block.
    """
    names = [name for name in ("time", "start_time") if name in rows.column_names]
    if not names:
        return [rows]
    row_days = rows.column(names[0]).to_numpy().astype("datetime64[D]").astype(np.int64)
    days, day_index = np.unique(row_days, return_inverse=True)
    return [
        rows.filter(pa.array(day_index // most == block)) if len(days) > most else rows
        for block in range(-(-len(days) // most))
    ]
