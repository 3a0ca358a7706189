"""Files of contents on disk are merged while others are written, and what they contradict is noticed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.serve.layout import WEIGHT
from penstock.serve.ondisk.contents import DiskContents
from penstock.serve.ondisk.segment import Facts, Segment
from penstock.serve.ondisk.tiers import is_large, spans
from penstock.serve.store import ViewStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
PART = 1 << 14


def store(folder: Path, damaged: list[PenstockError] | None = None) -> ViewStore:
    found = damaged if damaged is not None else []
    made = ViewStore(folder=folder, object_bytes=4 * PART, on_damage=lambda _, why: found.append(why))
    made.create(1, SCHEMA, keys=("k",), append_only=False)
    return made


def change(first: int, count: int = 500, weight: int = 1) -> pa.Table:
    keys = range(first, first + count)
    return pa.table({"k": keys, "v": [f"value {k}" for k in keys], WEIGHT: pa.array([weight] * count, pa.int64())})


def files(*sizes: int) -> list[Facts]:
    return [Facts(str(i), size, size, 0, None) for i, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        ((1, 1, 1), 3, []),
        ((1, 1, 1, 1), 4, [(0, 4)]),
        ((4, 1, 1, 1, 1), 8, [(1, 5)]),
        # A large file is not written again for a few small ones.
        ((16, 1, 1, 1), 19, []),
        ((16, 4, 4, 4, 1, 1, 1, 1), 32, [(4, 8)]),
        ((16, 4, 4, 4, 4, 1, 1), 34, [(1, 5)]),
        ((1, 4, 4, 4, 4, 1), 18, [(0, 5)]),
        # Most rows were replaced.
        ((16, 16), 8, [(0, 2)]),
        ((16, 16), None, []),
    ],
)
def test_which_files_are_merged(sizes: tuple[int, ...], count: int | None, expected: list[tuple[int, int]]) -> None:
    assert list(spans(files(*sizes), 1, count)) == expected
    assert is_large(files(*sizes), 1) == (sum(sizes) > 16)


def test_small_merges_do_not_wait_for_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, on = threading.Event(), threading.Event()
    merge = DiskContents._merge_files

    def slow(self: DiskContents, old: tuple[Segment, ...], **rest: Any) -> None:
        if is_large([s.facts for s in old], PART):
            begun.set()
            assert on.wait(60)
        merge(self, old, **rest)

    monkeypatch.setattr(DiskContents, "_merge_files", slow)
    s = store(tmp_path)
    epoch = most = 0
    while not begun.is_set():
        epoch += 1
        s.apply(1, change(epoch * 500), epoch=epoch, lsn=epoch)
        assert epoch < 2_000
    for _ in range(80):
        epoch += 1
        s.apply(1, change(epoch * 500), epoch=epoch, lsn=epoch)
        s._objects.workers.writing.run(lambda: None)
        s._objects.workers.merging[False].run(lambda: None)
        most = max(most, len(s.on_disk()[1].segments))
    # Without small merges there would be forty more, one for two changes.
    assert most < 30
    on.set()
    s.settle()
    assert len(s.on_disk()[1].segments) < 8
    rows, _, _ = s.snapshot(1)
    assert sorted(rows["k"].to_pylist()) == list(range(500, (epoch + 1) * 500))
    s.close()


@pytest.mark.parametrize("wrong", ["a row that is not there is retracted", "a row comes twice"])
def test_a_contradiction_under_a_key_is_noticed_when_all_files_are_merged(tmp_path: Path, wrong: str) -> None:
    found: list[PenstockError] = []
    s = store(tmp_path, found)
    epoch = 0
    # Which files are merged with the oldest depends on how many there are when the thread comes to it; at the latest when they are four times as many.
    while not found and epoch < 400:
        epoch += 1
        rows = change(epoch * 500)
        if epoch == 20:
            other = change(7, 1, -1) if "not there" in wrong else change(3 * 500, 1)
            rows = pa.concat_tables([rows, other])
        s.apply(1, rows, epoch=epoch, lsn=epoch)
        if epoch % 20 == 0:
            s.settle()
    assert [why.code for why in found] == ["PSK-8001"]
    with pytest.raises(PenstockError, match="PSK-8001"):
        s.snapshot(1)
    s.close()


def test_rows_that_are_replaced_and_deleted_contradict_nothing(tmp_path: Path) -> None:
    found: list[PenstockError] = []
    s = store(tmp_path, found)
    for epoch in range(1, 61):
        first = (epoch - 1) // 3 * 500
        rows = {1: [change(first)], 2: [change(first, weight=-1), change(first)], 0: [change(first, 100, -1)]}[
            epoch % 3
        ]
        s.apply(1, pa.concat_tables(rows), epoch=epoch, lsn=epoch)
    s.settle()
    assert found == [] and s.snapshot(1)[0].num_rows == s.count(1) == 20 * 400
    s.close()


def test_a_write_of_new_keys_reads_hardly_any_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is asked for each key: a block must not be read for every 50th of them."""
    read: list[int] = []
    block = Segment.block
    monkeypatch.setattr(Segment, "block", lambda self, number: read.append(number) or block(self, number))
    monkeypatch.setattr("penstock.serve.ondisk.segment._ROWS", 64)
    s = store(tmp_path)
    for epoch in range(1, 21):
        keys = pa.array(range(epoch, 80_000, 40), pa.int64())
        s.apply(1, pa.table({"k": keys, "v": [str(k) for k in keys.to_pylist()]}), epoch=epoch, lsn=epoch)
    s.settle()
    assert sum(segment.blocks for segment in s.on_disk()[1].segments) > 500 and not read
    assert s.lookup(1, pa.table({"k": pa.array(range(30, 80_000, 40), pa.int64())})).num_rows == 0
    assert len(read) <= 10
    assert s.lookup(1, pa.table({"k": pa.array([5, 30, 79_980], pa.int64())})).num_rows == 2
    s.close()
