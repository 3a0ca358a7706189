"""Serialises parts, on the appending thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import google_crc32c
import pyarrow as pa

from penstock.errors import fail
from penstock.log.part import Part

MAX_BATCH_ROWS = 32_768
"""Larger batches are split, so that readers can process one commit in parallel."""


class Payload(NamedTuple):
    """A serialised part: the messages, and their metadata for the frame header."""

    part: Part
    messages: tuple[bytes | pa.Buffer, ...]
    batches: tuple[tuple[int, int, int], ...]
    before: tuple[int, ...]
    rows: int
    length: int
    checks: tuple[int, ...]


def prepare(parts: Sequence[Part]) -> list[Payload]:
    """Serialises the parts of one commit."""
    if not parts:
        raise fail("PSK-0009", "A commit needs at least one part.")
    if len({part.object_id for part in parts}) != len(parts):
        raise fail("PSK-0009", "A commit can contain only one part of each object.")
    for part in parts:
        _check_numbers(part)
    return [_serialise(part) for part in parts]


def _check_numbers(part: Part) -> None:
    """Rejects values that do not fit in the header here, so that they fail this commit and not its whole group."""
    if not 0 <= part.object_id < 2**32 or not 0 <= part.column_count < 2**28:
        raise fail("PSK-0009", f"Object {part.object_id} with {part.column_count} columns is out of range.")
    if part.watermark is not None and not -(2**63) < part.watermark < 2**63:
        raise fail("PSK-0009", f"Watermark {part.watermark} is out of range.")
    if not -1 <= part.job_epoch < 2**63:
        raise fail("PSK-0009", f"Job epoch {part.job_epoch} is out of range.")
    if part.covers is not None and not all(-(2**63) <= n < 2**63 for n in part.covers):
        raise fail("PSK-0009", f"The range {part.covers} is out of range.")
    if part.input_lsn is not None and not 0 <= part.input_lsn < 2**63:
        raise fail("PSK-0009", f"Input LSN {part.input_lsn} is out of range.")
    if part.before:
        if any(not -(2**63) <= watermark < 2**63 for watermark in part.before):
            raise fail("PSK-0009", f"One of the watermarks {part.before} is out of range.")
        if len(part.before) != len(part.batches):
            raise fail("PSK-0009", f"There are {len(part.before)} watermarks for {len(part.batches)} batches.")


def _serialise(part: Part) -> Payload:
    messages: list[bytes | pa.Buffer] = []
    batches: list[tuple[int, int, int]] = []
    before: list[int] = []
    checks: list[int] = []
    rows = offset = 0
    for i, batch in enumerate(part.batches):
        _refuse_dictionaries(batch.schema)
        for piece in _pieces(batch):
            message = piece.serialize()
            length = message.size
            messages.append(message)
            checks.append(google_crc32c.value(message))
            if length % 8:
                messages.append(bytes(-length % 8))
            batches.append((offset, length, piece.num_rows))
            offset += length + -length % 8
            rows += piece.num_rows
            if part.before:
                before.append(part.before[i])
    return Payload(part, tuple(messages), tuple(batches), tuple(before), rows, offset, tuple(checks))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if 0 < batch.num_rows <= MAX_BATCH_ROWS:
        yield batch
        return
    for start in range(0, batch.num_rows, MAX_BATCH_ROWS):
        yield batch.slice(start, MAX_BATCH_ROWS)


def _refuse_dictionaries(schema: pa.Schema) -> None:
    for i, kind in enumerate(schema.types):
        if _has_dictionary(kind):
            raise fail(
                "PSK-0009", f"Column {schema.names[i]} is dictionary-encoded; the log accepts only plain arrays."
            )


def _has_dictionary(kind: pa.DataType) -> bool:
    if kind.num_fields:
        return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_dictionary(kind))
