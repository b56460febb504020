"""Columns as Arrow arrays."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from icestream.columns.message_columns import Texts
from sinks.clickhouse.stored_batches import Batch


def binary(rows: np.ndarray) -> pa.Array:
    """Returns uint8 (n, width) as fixed_size_binary(width)."""
    buffer = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, buffer])


def strings(texts: Texts) -> pa.Array:
    """Returns texts as strings."""
    first = texts.offsets[0]
    data = np.ascontiguousarray(texts.data[first : texts.offsets[-1]])
    return pa.StringArray.from_buffers(len(texts.offsets) - 1, pa.py_buffer(texts.offsets - first), pa.py_buffer(data))


def texts(rows: np.ndarray, values: Sequence[str]) -> pa.DictionaryArray:
    """Returns values[rows] as a dictionary; equal values are one entry."""
    entries = {value: i for i, value in enumerate(dict.fromkeys(values))}
    entry_of_row = np.array([entries[value] for value in values], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(entry_of_row[rows]), list(entries) or [""])


def with_batches(rows: pa.Table, counts: Sequence[int], batches: Sequence[Batch]) -> pa.Table:
    """Returns rows with the columns that name their batches. `counts`: rows of each batch, which follow each other."""
    sequences = np.array([batch.sequence for batch in batches], np.uint64)
    rows = rows.append_column("batch_run", repeated([batch.run for batch in batches], counts))
    return rows.append_column("batch_sequence", pa.array(np.repeat(sequences, counts)))


def repeated(values: Sequence[str], counts: Sequence[int]) -> pa.DictionaryArray:
    """Returns each text as often as its count says."""
    return texts(np.repeat(np.arange(len(values)), counts), values)


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
