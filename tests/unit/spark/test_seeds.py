from __future__ import annotations

from pathlib import Path

import google_crc32c
import pyarrow as pa

from penstock.spark.seeds import write_seed

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def test_contents_are_written_in_pieces_each_message_with_its_checksum(tmp_path: Path) -> None:
    pieces = [pa.table([range(i, i + 40_000), ["x"] * 40_000], schema=SCHEMA) for i in (0, 40_000)]
    seed = write_seed(tmp_path / "seed", 3, 17, SCHEMA, iter([*pieces, SCHEMA.empty_table()]), changelog=True)
    assert (seed.object_id, seed.lsn, seed.columns) == (3, 17, 3)
    data = (tmp_path / "seed").read_bytes()
    weighted = SCHEMA.append(pa.field("__weight", pa.int64()))
    found = []
    for (offset, length, rows), check in zip(seed.batches, seed.checks, strict=True):
        message = data[offset : offset + length]
        assert google_crc32c.value(message) == check
        found.append(pa.ipc.read_record_batch(pa.py_buffer(message), weighted))
        assert found[-1].num_rows == rows
    table = pa.Table.from_batches(found)
    assert table["k"].to_pylist() == list(range(80_000)) and set(table["__weight"].to_pylist()) == {1}


def test_an_object_without_rows_or_weights(tmp_path: Path) -> None:
    seed = write_seed(tmp_path / "seed", 3, 17, SCHEMA, iter([]), changelog=False)
    assert (seed.columns, seed.batches, seed.checks) == (2, (), ())
