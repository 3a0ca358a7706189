from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from tests.unit.log.rows import SCHEMA, batch, part

from penstock.log import Log, Part
from penstock.log.frame import Frame
from penstock.log.index import Index
from penstock.log.segment import Segment


def lsns(log: Log, object_id: int) -> list[int]:
    return [e.lsn for e in log.entries(object_id)]


def test_entries_without_rows_stand_for_those_before_them(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([part(1, watermark=1)])
    log.append([part(1, watermark=2), part(2, 5)])
    log.append([part(1, 10)])
    log.append([part(1)])
    log.append([part(2, 6)])
    log.append([part(1, watermark=3, job_epoch=7)])
    log.append([part(1, 11)])
    for _ in range(2):
        found = [(e.lsn, e.epoch, e.watermark, e.rows) for e in log.entries(1)]
        assert found == [(2, 2, 2, 0), (3, 3, 2, 1), (6, 5, 3, 0), (7, 6, 3, 1)]
        assert (log.epoch(1), log.watermark(1), log.job_epoch(1)) == (6, 3, 7)
        assert log.retained(1)[1] == 2
        log.close()
        log = Log.open(tmp_path)
    log.close()


def test_an_empty_batch(tmp_path: Path) -> None:
    """A batch without rows is no rows at all."""
    log = Log.open(tmp_path)
    log.append([Part(1, (batch(),))])
    log.append([Part(1, (batch(), batch()))])
    assert [(e.lsn, e.batches) for e in log.entries(1)] == [(2, ())]
    log.close()


def test_how_far_the_history_reaches_back(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    assert log.reaches_back(1, 0)
    for keys in ([], [1], [], [], [2], [], []):
        log.append([part(1, *keys)])
    for _ in range(2):
        assert [log.reaches_back(1, n) for n in range(8)] == [True] * 8
        log.trim({1: 1})
        assert [log.reaches_back(1, n) for n in range(8)] == [True] * 8
        log.trim({1: 2})
        assert [log.reaches_back(1, n) for n in range(8)] == [n >= 2 for n in range(8)]
        log.trim({1: 4})
        assert [log.reaches_back(1, n) for n in range(8)] == [n >= 2 for n in range(8)]
        log.close()
        # Nothing was deleted, so what was trimmed is there again.
        log = Log.open(tmp_path)
    log.trim({1: 7})
    assert [log.reaches_back(1, n) for n in range(8)] == [n >= 5 for n in range(8)]
    assert log.entries(1) == []
    log.append([part(1, 3)])
    assert [log.reaches_back(1, n) for n in range(8)] == [n >= 5 for n in range(8)]
    log.close()


def test_the_history_reaches_back_the_same_after_segments_are_gone(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=400)
    for n in range(60):
        log.append([part(1, *([n] if n == 20 else []))])
    log.trim({})
    for _ in range(2):
        assert lsns(log, 1) == [20, 21, 60]
        assert all(log.reaches_back(1, n) for n in range(61))
        log.close()
        log = Log.open(tmp_path, segment_bytes=400)
    log.trim({1: 21})
    log.close()
    log = Log.open(tmp_path, segment_bytes=400)
    assert (lsns(log, 1), [log.reaches_back(1, n) for n in (0, 20, 21)]) == ([60], [False, False, True])
    log.close()


@pytest.fixture
def ten(tmp_path: Path) -> Log:
    """Ten commits of two objects over several segments, each of object 1 as long as the next."""
    log = Log.open(tmp_path, segment_bytes=700)
    for k in range(10):
        log.append([part(1, k), *([part(2, k, k, watermark=k)] if k % 3 == 0 else [])])
    assert len(log.kept()) > 3
    return log


def test_slices_and_pages(ten: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [e.lsn for e in ten.entries(1, 3, 8)] == [4, 5, 6, 7, 8]
    assert [e.lsn for e in ten.entries(1, 3, limit=2)] == [4, 5]
    assert [e.lsn for e in ten.entries(1, limit=100)] == list(range(1, 11))
    assert ten.entries(1, 8, 3) == ten.entries(1, 10) == ten.entries(3) == []
    monkeypatch.setattr("penstock.log.log._PAGE", 3)
    pages = ten.iterate(1, 1)
    ten.append([part(1, 99)])
    assert [e.lsn for e in pages] == list(range(2, 11))
    assert [e.lsn for e in ten.iterate(2, up_to=7)] == [1, 4, 7]
    ten.close()


def test_one_entry(ten: Log) -> None:
    first, last = ten.first_entry(2), ten.last_entry(2)
    assert first is not None and last is not None
    assert (first.lsn, first.epoch, last.lsn, last.epoch) == (1, 1, 10, 4)
    found = [ten.last_entry(2, up_to=n) for n in range(11)]
    assert [e and e.lsn for e in found] == [None, 1, 1, 1, 4, 4, 4, 7, 7, 7, 10]
    assert [ten.lsn_at_epoch(2, n) for n in range(6)] == [0, 1, 4, 7, 10, 10]
    assert ten.lsn_at_epoch(9, 1) == 0
    ten.trim({2: 4})
    assert [ten.lsn_at_epoch(2, n) for n in range(6)] == [0, 0, 0, 7, 10, 10]
    ten.close()


def test_amounts(ten: Log) -> None:
    entries = ten.entries(2)
    for after in range(11):
        for up_to in range(11):
            some = [e for e in entries if after < e.lsn <= up_to]
            assert ten.amount(2, after, up_to) == (sum(e.length for e in some), sum(e.rows for e in some))
    assert ten.amount(2, 1) == (sum(e.length for e in entries[1:]), 6)
    ten.close()


def test_what_is_beyond_a_size(ten: Log) -> None:
    length = ten.entries(1)[0].length
    assert ten.retained(1)[0] == 10 * length
    for limit in range(0, 11 * length, length // 2):
        size, expected = 0, 0
        for entry in reversed(ten.entries(1)):
            size += entry.length
            if size > limit:
                expected = entry.lsn
                break
        assert ten.beyond_bytes(1, limit) == expected
    assert ten.beyond_bytes(9, 0) == 0
    ten.close()


def test_what_is_before_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path, segment_bytes=700)
    for k in range(10):
        monkeypatch.setattr("time.time_ns", lambda k=k: (1000 + k // 2) * 1_000_000)
        log.append([part(1, k)])
    assert [log.before_time(1, 1000 + n) for n in range(-1, 7)] == [0, 0, 2, 4, 6, 8, 10, 10]
    log.trim({1: 3})
    assert [log.before_time(1, 1000 + n) for n in range(-1, 7)] == [0, 0, 0, 4, 6, 8, 10, 10]
    assert log.before_time(9, 2000) == 0
    log.close()


def test_an_object_whose_entries_are_gone_is_known(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([part(1, 1, watermark=5), part(2, 1)])
    log.append([part(3, 1)])
    log.trim({1: 1})
    log.forget(3)
    for _ in range(2):
        assert log.object_ids() == [1, 2]
        log.close()
        log = Log.open(tmp_path)
    log.close()


def frame(lsn: int, batches: tuple[tuple[int, int, int], ...] = ((0, 240, 1),)) -> Frame:
    rows = sum(n for _, _, n in batches)
    return Frame(lsn, lsn, 1, True, rows, lsn, lsn, lsn, 1_700_000_000_000 + lsn, 4, lsn, lsn, 240, 0, batches)


def test_an_entry_of_one_row_takes_less_than_a_hundred_bytes(tmp_path: Path) -> None:
    index = Index()
    segments = [Segment(n, tmp_path / f"{n}", n * 500, 0) for n in range(10)]
    tracemalloc.start()
    try:
        for lsn in range(1, 5_000):
            index.add(lsn * 400, frame(lsn), segments[lsn // 500])
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / 5_000 < 100
    assert index.remove(1, 2_750) == 2_750
    (entry,) = index.entries(1, 2_750, 5_000, 1)
    assert (entry.lsn, entry.batches, entry.path) == (2_751, ((1_100_400, 240, 1),), str(tmp_path / "5"))
    assert [s.needed for s in segments] == [0] * 5 + [249] + [500] * 4
    last = index.last(1, 4_999)
    assert last is not None and (last.watermark, last.input_lsn, last.column_count) == (4_999, 4_999, 4)


def test_several_messages(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    rows = [batch(1), batch(2, 3)]
    (entry,) = log.append([Part(1, tuple(rows), column_count=2**28 - 1)]).entries
    for _ in range(2):
        assert log.entries(1) == [entry]
        assert log.read(entry, SCHEMA)["k"].to_pylist() == [1, 2, 3]
        log.close()
        log = Log.open(tmp_path)
    log.trim({1: 1})
    assert log.entries(1) == []
    log.close()
