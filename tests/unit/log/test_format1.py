"""A log of format 1, written by an earlier version, continues in the current format.

`format1/` holds nine commits over four segments: row by row what the test below expects, and an object that was forgotten.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.log.rows import SCHEMA, part

from penstock.log import Log


@pytest.fixture
def old(tmp_path: Path) -> Path:
    shutil.copytree(Path(__file__).parent / "format1", tmp_path, dirs_exist_ok=True)
    return tmp_path


def rows(log: Log, object_id: int) -> list[tuple[int, int, int, int, list[int]]]:
    return [
        (e.lsn, e.input_lsn, e.epoch, e.column_count, log.read(e, SCHEMA)["k"].to_pylist())
        for e in log.entries(object_id)
    ]


def test_everything_is_read(old: Path) -> None:
    log = Log.open(old, segment_bytes=1000)
    assert log.head == 9
    assert rows(log, 1) == [(1, 1, 1, 0, [10]), (3, 3, 3, 0, []), (4, 4, 4, 2, [11, 12]), (8, 8, 5, 0, [13])]
    assert rows(log, 2) == [(1, 1, 1, 0, [20, 21]), (7, 7, 2, 0, [22])]
    assert rows(log, 3) == [(5, 5, 1, 0, [70, 71])]
    assert (log.object_ids(), rows(log, 4)) == ([1, 2, 3, 5], [])
    assert [(log.watermark(i), log.epoch(i), log.job_epoch(i)) for i in (1, 2, 3)] == [
        (9, 5, -1),
        (5, 2, 4),
        (None, 1, 0),
    ]
    assert all(log.reaches_back(i, 0) for i in (1, 2, 3))
    log.close()


def test_opening_alone_changes_nothing(old: Path) -> None:
    before = {p: p.read_bytes() for p in (old / "log").iterdir()}
    Log.open(old, segment_bytes=1000).close()
    assert {p: p.read_bytes() for p in before} == before


def test_commits_go_on_in_a_new_segment(old: Path) -> None:
    log = Log.open(old)
    assert log.append([part(1, 14, input_lsn=7), part(2, watermark=8)]).lsn == 10
    assert len(log.kept()) == 5
    for _ in range(2):
        assert rows(log, 1)[-2:] == [(8, 8, 5, 0, [13]), (10, 7, 6, 0, [14])]
        assert rows(log, 2)[-1] == (10, 10, 3, 0, [])
        assert (log.watermark(2), log.job_epoch(2)) == (8, 4)
        assert all(log.reaches_back(i, 0) for i in (1, 2, 3))
        log.close()
        log = Log.open(old)
    log.close()


def test_old_segments_are_deleted_and_thinned_out(old: Path) -> None:
    log = Log.open(old)
    log.append([part(2, 1)])
    path = old / "log" / "00000002.seg"
    log.trim({1: 4, 2: 1})
    assert rows(log, 3) == [(5, 5, 1, 0, [70, 71])]
    log.close()
    assert not (old / "log" / "00000001.seg").exists() and path.exists()
    log = Log.open(old)
    # They are smaller than a block of the disk, so there is nothing to gain, and nothing is rewritten.
    before = path.read_bytes()
    log.trim({})
    log.trim({})
    assert path.read_bytes() == before
    log.close()


def test_an_old_segment_that_was_thinned_out(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.log._BLOCK", 8)
    monkeypatch.setattr("penstock.log.log.disk_bytes", lambda path: 100)
    log = Log.open(old)
    log.append([part(2, 1)])
    for _ in range(2):
        log.trim({1: 4})
    kept = [k.disk_bytes for k in log.kept()]
    assert kept[1] == 100
    for _ in range(2):
        assert rows(log, 3) == [(5, 5, 1, 0, [70, 71])]
        assert rows(log, 2) == [(1, 1, 1, 0, [20, 21]), (7, 7, 2, 0, [22]), (10, 10, 3, 0, [1])]
        log.close()
        log = Log.open(old)
    log.close()
