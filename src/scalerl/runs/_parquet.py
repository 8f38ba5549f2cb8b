"""The part of `rollouts.py` that imports pyarrow: rows to the bytes of a Parquet file, and back."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scalerl.core.errors import CorruptLogError

_ROWS_AT_ONCE = 64
SCHEMA = pa.schema(
    [
        ("group", pa.int64()),
        ("attempt", pa.int32()),
        ("prompt_id", pa.string()),
        ("task", pa.string()),
        ("epoch", pa.int32()),
        ("index", pa.int32()),
        ("prompt", pa.string()),
        ("answer", pa.string()),
        ("text", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("log_probs", pa.list_(pa.float32())),
        ("trainable", pa.list_(pa.bool_())),
        ("versions", pa.list_(pa.int32())),
        ("version_tokens", pa.list_(pa.int32())),
        ("finished", pa.bool_()),
        ("value", pa.float64()),
        ("passed", pa.bool_()),
        ("outcome", pa.string()),
        ("parts", pa.map_(pa.string(), pa.float64())),
    ]
)


def encoded(rows: Sequence[dict[str, Any]]) -> bytes:
    """The rows as a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), buffer, compression="zstd")
    return buffer.getvalue()


def decoded(path: Path, *, groups: Collection[int], equal: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a file that are of `groups` and whose columns `equal` the values given, a few in memory at a time.

    Raises:
        CorruptLogError: the file is damaged or of another version.
    """
    wanted = pa.array(groups, pa.int64())
    with _opened(path) as file:
        for rows in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            mask = pc.is_in(rows["group"], value_set=wanted)
            for column, value in equal.items():
                mask = pc.and_kleene(mask, pc.equal(rows[column], pa.scalar(value, SCHEMA.field(column).type)))
            yield from rows.filter(mask).to_pylist()


def groups_in(path: Path) -> set[int]:
    """The groups that a file holds.

    Raises:
        CorruptLogError: the file is damaged or of another version.
    """
    with _opened(path) as file:
        return set(file.read(columns=["group"])["group"].unique().to_pylist())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with pq.ParquetFile(path) as file:
            if not file.schema_arrow.equals(SCHEMA):
                raise pa.ArrowInvalid("its columns are others")
            yield file
    except (pa.ArrowException, OSError) as error:
        raise CorruptLogError(
            f"these rollouts cannot be read ({error})", where=str(path), remedy="remove the file: its groups then count as not kept"
        ) from None
