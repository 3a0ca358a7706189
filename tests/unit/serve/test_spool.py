from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import PenstockError, fail
from penstock.serve.spool import spooled
from penstock.serve.store import ViewStore

SCHEMA = pa.schema([("k", pa.int64())])


def pieces(count: int) -> Iterator[pa.Table]:
    return (pa.table({"k": range(i * 100, i * 100 + 100)}) for i in range(count))


def test_what_does_not_fit_in_memory_is_a_file_that_goes_with_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    small = spooled(pieces(2), SCHEMA, folder, 10_000)
    assert small["k"].to_pylist() == list(range(200)) and not folder.exists()
    before = pa.total_allocated_bytes()
    large = spooled(pieces(500), SCHEMA, folder, 10_000)
    assert large["k"].to_pylist() == list(range(50_000)) and pa.total_allocated_bytes() - before < 100_000
    assert not list(folder.iterdir())
    assert spooled(iter([]), SCHEMA, folder, 0).schema == SCHEMA


def test_an_error_in_the_middle_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.Table]:
        yield from pieces(3)
        raise fail("PSK-6001", "a block is damaged")

    with pytest.raises(PenstockError, match="PSK-6001"):
        spooled(broken(), SCHEMA, tmp_path, 1)
    assert not list(tmp_path.iterdir())


def test_a_result_beyond_the_memory_limit_may_be_mapped(tmp_path: Path) -> None:
    store = ViewStore(memory_limit="8mb", spill=tmp_path / "spill", folder=tmp_path / "views", object_bytes=1_000_000)
    store.create(1, SCHEMA, keys=("k",), append_only=False)
    count = 1_200_000
    for i in range(3):
        store.apply(1, pa.table({"k": pa.array(range(i, count, 3), pa.int64())}), epoch=i + 1, lsn=i + 1)
    with pytest.raises(PenstockError, match="PSK-7009"):
        store.query("SELECT k FROM t", {"t": 1})
    assert store.query("SELECT k FROM t", {"t": 1}, mapped=True).num_rows == count
    table, epoch, _ = store.snapshot(1)
    assert (table.num_rows, epoch) == (count, 3)
    store.close()
