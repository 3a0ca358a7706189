from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.unit.runtime.storing import follow, in_contents, in_log, make, opened, part, read

from penstock.catalog.objects import Kind
from penstock.catalog.types import stored_schema
from penstock.errors import PenstockError, fail
from penstock.log import Part

ONE, TWO = (1, "one"), (2, "two")


def test_contents_are_rebuilt_from_the_snapshot_and_the_log_after_it(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table, view = make(storage, "t"), make(storage, "v", Kind.VIEW)
        storage.commit([part(table, (*ONE, 1)), part(view, (*ONE, 2))])
        last = storage.commit([part(table, (*TWO, 1))]).lsn
        storage.save_contents()
        storage.commit([part(table, (*ONE, -1), (1, "uno", 1)), part(view, (*ONE, -1))])
        storage.log.trim({table.id: last, view.id: last})
        want = {(1, "uno"): 1, TWO: 1}
        assert in_contents(storage, table) == want
    with opened(tmp_path) as storage:
        assert in_contents(storage, table) == want and in_contents(storage, view) == {ONE: 1}
        assert storage.store.position(table.id) == (3, 3)
        # Subscribers go on where the log is, and what comes next is told as the next epoch.
        told = follow(storage, table)
        lsn = storage.commit([part(table, (*TWO, -1))]).lsn
        assert lsn == 4 and read(told, lsn) == [(lsn, {TWO: -1})]
    with opened(tmp_path) as storage:
        assert in_contents(storage, table) == {(1, "uno"): 1}


@pytest.mark.parametrize(
    "error",
    [fail("PSK-7009", "no room"), duckdb.OutOfMemoryException("no room")],
    ids=lambda e: type(e).__name__,
)
def test_a_store_that_fails_after_the_append_damages_one_object_until_it_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with opened(tmp_path) as storage:
        one, other = make(storage, "t"), make(storage, "u")
        storage.commit([part(one, (*ONE, 1))])

        def broken(*_: Any) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(storage.store, "apply_many", broken)
            lsn = storage.commit([part(one, (*TWO, 1))]).lsn
        # The commit cannot be undone: it is in the log, and the contents are refused rather than served without it.
        assert lsn == storage.log.head
        with pytest.raises(PenstockError, match="The contents of t are damaged") as refused:
            storage.check_sound(one)
        assert refused.value.code == "PSK-6004" and "Drop t" in str(refused.value.hint)
        storage.commit([part(one, (3, "three", 1)), part(other, (*ONE, 1))])
        assert in_contents(storage, other) == {ONE: 1}
        storage.save_contents()
        assert not storage.layout.snapshot(one.id).exists()
    with opened(tmp_path) as storage:
        assert not storage.damage
        assert in_contents(storage, one) == in_log(storage, one) == {ONE: 1, TWO: 1, (3, "three"): 1}
        assert in_contents(storage, other) == {ONE: 1}


def test_one_part_of_a_commit_that_cannot_be_stored_damages_its_object_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as storage:
        one, other = make(storage, "v", Kind.VIEW), make(storage, "w", Kind.VIEW)
        told = follow(storage, other)
        bytes_ = pa.array([b"\xff"]).cast(pa.binary())
        text = pa.Array.from_buffers(pa.string(), 1, bytes_.buffers())
        batch = pa.RecordBatch.from_arrays([pa.array([1]), text, pa.array([1])], schema=stored_schema(one))
        unfit = Part(one.id, (batch,), column_count=3)
        lsn = storage.commit([part(other, (*ONE, 1)), unfit]).lsn
        assert in_contents(storage, other) == {ONE: 1} and read(told, lsn) == [(lsn, {ONE: 1})]
        with pytest.raises(PenstockError, match="The contents of v are damaged"):
            storage.check_sound(one)
        assert [r.levelname for r in caplog.records] == ["ERROR"]
    with opened(tmp_path) as storage:
        assert set(storage.damage) == {one.id} and in_contents(storage, other) == {ONE: 1}


def test_a_commit_beside_close_damages_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        storage.store.close()
        storage.commit([part(table, (*ONE, 1))])
        assert not storage.damage
    with opened(tmp_path) as storage:
        assert in_contents(storage, table) == {ONE: 1}
