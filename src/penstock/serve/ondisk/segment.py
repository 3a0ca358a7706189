"""An immutable file of rows, sorted by key.

It has blocks of a few thousand rows, each an Arrow record-batch message; the filter of the keys; the index with offset, length, rows, checksum and first key of each block; and a footer with the offset of the index.
Every read is verified with a CRC32C. Until the first row is read, only the footer is, so opening a file takes the same time for any size.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import numpy as np
import pyarrow as pa

from penstock.disk import write_durably
from penstock.errors import PenstockError, fail
from penstock.serve.layout import WEIGHT
from penstock.serve.ondisk.bloom import Bloom
from penstock.serve.ondisk.form import Form, Kind
from penstock.serve.ondisk.keys import Hashes, Ints, Keys, Place, blocks_of, find, hashes, place_of

_MAGIC = b"PSKc"
_FORMAT = 1
# offset of the index, length, crc32c of the index, format, magic
_END = struct.Struct("<QQIH2x4s")
_ROWS, _LEAST_ROWS = 4096, 64
# Reading a single row reads and verifies a whole block.
_BLOCK_BYTES = 1 << 18
# A scan reads this much at once.
_READ_BYTES = 1 << 22
_INDEX = (("offset", pa.int64()), ("length", pa.int64()), ("rows", pa.int64()), ("crc", pa.int64()))


@dataclass(frozen=True)
class Facts:
    """A file in the manifest. `last`: its greatest key if that is a number; `count`: the object's rows with this file and all older ones, if known."""

    name: str
    size: int
    rows: int
    check: int
    last: int | None
    count: int | None = None


class _Index:
    """The index of a file's blocks."""

    def __init__(self, table: pa.Table, facts: dict[str, int]) -> None:
        self.offsets, self.lengths, self.rows, self.checks = (table[n].to_numpy() for n, _ in _INDEX)
        self.first: Keys = table["first"].combine_chunks() if "first" in table.column_names else None
        if "last" in table.column_names:
            self.lowest, self.highest = place_of(table["first"][0]), place_of(table["last"][0])
        self.weighted = bool(facts["weighted"])
        self.bloom = (facts["bloom"], facts["bloom_length"], facts["bloom_crc"])
        self.bloom_rounds = int(facts.get("bloom_rounds", 1))


class Segment:
    """One file. Readers may continue after it has been removed. Thread-safe.

    Raises PSK-6001 when something in it is damaged.
    """

    def __init__(self, path: Path, form: Form, facts: Facts) -> None:
        self.path = path
        self.form = form
        self.facts = facts
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as why:
            raise fail("PSK-6001", f"{path} cannot be read: {why.strerror}.") from why
        try:
            size = os.fstat(self._fd).st_size
            if size != facts.size:
                raise self.damaged(f"it has {size} bytes, and {facts.size} were written")
        except BaseException:
            self.__del__()
            raise
        self._lock = threading.Lock()

    def __del__(self) -> None:
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    @cached_property
    def index(self) -> _Index:
        place, length, crc, version, magic = _END.unpack(self._pread(self.facts.size - _END.size, _END.size))
        if magic != _MAGIC or crc != self.facts.check:
            raise self.damaged("its end is not the one that was written")
        if version > _FORMAT:
            raise fail("PSK-6002", f"{self.path} has format {version}; this version reads up to {_FORMAT}.")
        data = self._checked(place, length, crc)
        try:
            table = pa.ipc.open_stream(data).read_all()
            facts = json.loads(table.schema.metadata[b"facts"])
            schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(facts.pop("schema"))))
        except (pa.ArrowException, KeyError, TypeError, ValueError) as why:
            raise self.damaged(str(why)) from why
        if schema.types != self.form.schema.types or schema.names != self.form.schema.names:
            raise self.damaged("it has other columns than its object")
        return _Index(table, facts)

    @cached_property
    def _bloom(self) -> Bloom | None:
        place, length, crc = self.index.bloom
        if not length:
            return None
        return Bloom.from_bytes(self._checked(place, length, crc).to_pybytes(), self.index.bloom_rounds)

    @property
    def blocks(self) -> int:
        return len(self.index.offsets)

    @cached_property
    def _stored(self) -> pa.Schema:
        return self.form.weighted if self.index.weighted else self.form.schema

    def one(self, wanted: Keys, place: Place, hashed: int) -> pa.RecordBatch | None:
        """The row of one key, given its value in the order and its hash; it may be a retraction. None if the key is missing."""
        index = self.index
        if not index.lowest <= place <= index.highest or (bloom := self._bloom) is None:
            return None
        if not bloom.may_have_one(hashed):
            return None
        rows = self.block(int(blocks_of(index.first, wanted)[0]))
        at = int(find(self.form.keys_of(rows), wanted)[0])
        return rows.slice(at, 1) if at >= 0 else None

    def find(self, wanted: Keys, hashed: Hashes) -> list[tuple[Ints, pa.Table]]:
        """The rows of wanted keys, given their hashes, with weights: indices into the wanted keys, and their rows."""
        index = self.index
        candidates = np.arange(len(wanted))
        if self._bloom is not None:
            candidates = candidates[self._bloom.may_have(hashed)]
        if not len(candidates):
            return []
        blocks = blocks_of(index.first, wanted.take(pa.array(candidates)))
        found: list[tuple[Ints, pa.Table]] = []
        for block in np.unique(blocks):
            if block < 0:
                continue
            asked = candidates[blocks == block]
            rows = self.block(int(block))
            at = find(self.form.keys_of(rows), wanted.take(pa.array(asked)))
            there = at >= 0
            if there.any():
                taken = pa.Table.from_batches([rows]).take(pa.array(at[there]))
                found.append((asked[there], self._with_weights(taken)))
        return found

    def block(self, number: int) -> pa.RecordBatch:
        index = self.index
        data = self._checked(int(index.offsets[number]), int(index.lengths[number]), int(index.checks[number]))
        return self._decoded(data, int(index.rows[number]))

    def scan(self) -> Iterator[pa.Table]:
        """All rows with weights, in order, in large pieces."""
        at = 0
        while at < self.blocks:
            end = at + 1
            while end < self.blocks and self._extent(at, end + 1) <= _READ_BYTES:
                end += 1
            yield self._with_weights(pa.Table.from_batches(self._some(at, end), self._stored))
            at = end

    def verify(self, at: int, budget: int) -> tuple[int, int]:
        """Verifies blocks from `at`, of about `budget` bytes; returns the next block, and the bytes read."""
        done = 0
        while at < self.blocks and done < budget:
            self.block(at)
            done += int(self.index.lengths[at])
            at += 1
        return at, done

    def damaged(self, why: str) -> PenstockError:
        return fail("PSK-6001", f"{self.path} is damaged: {why}.")

    def _extent(self, first: int, end: int) -> int:
        index = self.index
        return int(index.offsets[end - 1] + index.lengths[end - 1] - index.offsets[first])

    def _some(self, first: int, end: int) -> list[pa.RecordBatch]:
        index = self.index
        start = int(index.offsets[first])
        data = self._pread(start, self._extent(first, end))
        found = []
        for i in range(first, end):
            part = data.slice(int(index.offsets[i]) - start, int(index.lengths[i]))
            if google_crc32c.value(part) != index.checks[i]:
                raise self.damaged(f"the checksum of block {i} does not match")
            found.append(self._decoded(part, int(index.rows[i])))
        return found

    def _decoded(self, data: pa.Buffer, rows: int) -> pa.RecordBatch:
        batch = pa.ipc.read_record_batch(data, self._stored)
        if batch.num_rows != rows:
            raise self.damaged("a block has another number of rows than the index says")
        return batch

    def _with_weights(self, rows: pa.Table) -> pa.Table:
        if self.index.weighted or self.form.kind is Kind.APPENDED:
            return rows
        return rows.append_column(pa.field(WEIGHT, pa.int64()), pa.array(np.ones(rows.num_rows, np.int64)))

    def _checked(self, place: int, length: int, crc: int) -> pa.Buffer:
        data = self._pread(place, length)
        if google_crc32c.value(data) != crc:
            raise self.damaged(f"the checksum of {length} bytes at {place} does not match")
        return data

    def _pread(self, place: int, length: int) -> pa.Buffer:
        try:
            data = os.pread(self._fd, length, place)
        except (OSError, OverflowError) as why:
            raise self.damaged(str(why)) from why
        if len(data) != length:
            raise self.damaged("it ends too early")
        return pa.py_buffer(data)


class _Writer:
    """Writes the blocks of one file."""

    def __init__(self, out: BinaryIO, form: Form, most_rows: int, *, weighted: bool) -> None:
        self._out = out
        self._form = form
        self._schema = form.weighted if weighted else form.schema
        self._weighted = weighted
        self._index: list[tuple[int, int, int, int]] = []
        self._first: list[Keys] = []
        self._last: pa.Scalar | None = None
        self._bloom = Bloom.for_keys(most_rows) if form.kind is Kind.KEYED else None
        self._offset = 0
        self.rows = 0

    def write(self, rows: pa.Table) -> None:
        rows = rows.select(self._schema.names).combine_chunks()
        if not rows.num_rows:
            return
        each = max(_LEAST_ROWS, min(_ROWS, _BLOCK_BYTES * rows.num_rows // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, each):
            part = rows.slice(start, each)
            if self._form.kind is not Kind.APPENDED:
                keys = self._form.keys_of(part)
                self._first.append(keys[:1])
                self._last = keys[-1]
                if self._bloom is not None:
                    self._bloom.add(hashes(keys))
            # A slice must not keep its whole table.
            [batch] = pa.Table.from_batches(part.to_batches()).cast(self._schema).combine_chunks().to_batches()
            self._put(batch.serialize(), batch.num_rows)

    def _put(self, data: pa.Buffer, rows: int) -> None:
        self._index.append((self._offset, data.size, rows, google_crc32c.value(data)))
        self._out.write(data)
        self._offset += data.size
        self.rows += rows

    def end(self) -> tuple[int, int | None]:
        """Writes everything after the blocks; returns the checksum of the index, and the last key if it is a number."""
        bloom = self._bloom.to_bytes() if self._bloom is not None and self.rows else b""
        facts = {
            "weighted": int(self._weighted),
            "bloom": self._offset,
            "bloom_length": len(bloom),
            "bloom_crc": google_crc32c.value(bloom),
            "bloom_rounds": self._bloom.rounds if self._bloom is not None else 0,
            "schema": self._form.schema.remove_metadata().serialize().to_pybytes().hex(),
        }
        columns = [pa.array([r[i] for r in self._index], kind) for i, (_, kind) in enumerate(_INDEX)]
        names = [n for n, _ in _INDEX]
        if self._first and self._last is not None:
            columns += [
                pa.concat_arrays(self._first),
                pa.array([self._last.as_py()] * len(self._first), self._last.type),
            ]
            names += ["first", "last"]
        index = pa.Table.from_arrays(columns, names=names).replace_schema_metadata({"facts": json.dumps(facts)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, index.schema) as stream:
            stream.write_table(index)
        data = sink.getvalue()
        crc = int(google_crc32c.value(data))
        self._out.write(bloom)
        self._out.write(data)
        self._out.write(_END.pack(self._offset + len(bloom), data.size, crc, _FORMAT, _MAGIC))
        number = self._last is not None and pa.types.is_int64(self._last.type)
        return crc, self._last.as_py() if number and self._last is not None else None


def write_segment(path: Path, form: Form, parts: Iterable[pa.Table], most_rows: int, *, weighted: bool) -> Facts:
    """Writes rows that are sorted by key, durably. Raises PSK-7004."""
    ended: list[tuple[int, int | None, int]] = []

    def write(out: BinaryIO) -> None:
        writer = _Writer(out, form, most_rows, weighted=weighted)
        for part in parts:
            writer.write(part)
        ended.append((*writer.end(), writer.rows))

    write_durably(path, write)
    [(check, last, rows)] = ended
    return Facts(path.name, path.stat().st_size, rows, check, last)


__all__ = ["Facts", "Segment", "write_segment"]
