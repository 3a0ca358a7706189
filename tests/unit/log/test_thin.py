"""A few entries that are needed do not keep whole segments on disk."""

from __future__ import annotations

import json
import os
import threading
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from tests.effort import times
from tests.unit.disk.filling import largest_file
from tests.unit.log.rows import SCHEMA, part

from penstock.errors import PenstockError
from penstock.log import Entry, Log, Part
from penstock.log import log as log_module

SEGMENT = 256 << 10
WIDTH = 10_000


def on_disk(folder: Path) -> int:
    """The space that all segments but the last take; that one has space in reserve."""
    return sum(p.stat().st_blocks * 512 for p in sorted((folder / "log").glob("*.seg"))[:-1])


def older(log: Log) -> int:
    return sum(k.disk_bytes for k in log.kept()[:-1])


def keys(log: Log, object_id: int) -> list[int]:
    return [k for e in log.entries(object_id) for k in log.read(e, SCHEMA)["k"].to_pylist()]


def bytes_at(entry: Entry) -> bytes:
    """What a task of Spark reads: the file is opened by its name, at the offset that it was told before."""
    with open(entry.path, "rb") as file:
        file.seek(entry.offset)
        return file.read(entry.length)


def busy(log: Log, commits: int, start: int = 0) -> None:
    """Commits of a source, and now and then one of a table beside it."""
    for k in range(start, start + commits):
        log.append([part(1, k, watermark=k, width=WIDTH), *([part(2, k)] if k % 40 == 0 else [])])


def trim(log: Log, floor: int) -> int:
    """Twice, because what is let go of between two trims is left for the next one."""
    return log.trim({1: floor}) + log.trim({1: floor})


def test_a_table_that_changes_rarely_does_not_keep_segments(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    busy(log, 400)
    before = log.entries(2)
    content = [bytes_at(e) for e in before]
    full = on_disk(tmp_path)
    assert full > 3_500_000
    assert trim(log, log.head) > full * 9 // 10
    assert on_disk(tmp_path) < full // 10
    assert on_disk(tmp_path) == older(log)
    # Nobody has to be told: the entries are where they were.
    assert (log.entries(2), [bytes_at(e) for e in before]) == (before, content)
    assert keys(log, 2) == list(range(0, 400, 40))
    log.close()
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    assert (log.head, log.entries(2), log.entries(1)) == (400, before, [])
    assert keys(log, 2) == list(range(0, 400, 40))
    assert (log.watermark(1), log.epoch(1), log.epoch(2)) == (399, 400, 10)
    assert on_disk(tmp_path) == older(log)
    busy(log, 40, 400)
    assert trim(log, log.head) > 0
    assert log.trim({2: 441}) > 0
    assert [k.needed for k in log.kept()] == [{}]
    assert log.entries(2) == []
    log.close()


def test_a_thinned_out_segment_is_thinned_out_again(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=1 << 20)
    for k in range(150):
        log.append([part(1, k, width=WIDTH), *([part(2, k, width=WIDTH)] if k < 16 else [])])
    sizes = []
    for floor in (0, 8, 14):
        for _ in range(2):
            log.trim({1: 150, 2: floor})
        sizes.append(log.kept()[0].disk_bytes)
        assert keys(log, 2) == list(range(floor, 16))
    assert sizes[0] < 300_000 and all(b * 2 <= a for a, b in pairwise(sizes))
    log.close()
    log = Log.open(tmp_path, segment_bytes=1 << 20)
    assert (keys(log, 2), log.head) == ([14, 15], 150)
    log.close()


def test_what_is_let_go_bit_by_bit_is_not_rewritten(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    busy(log, 100)
    files = {p: p.stat().st_ino for p in (tmp_path / "log").glob("*.seg")}
    for floor in range(1, log.head):
        log.trim({1: floor, 2: floor})
        left = {p: p.stat().st_ino for p in (tmp_path / "log").glob("*.seg")}
        assert left.items() <= files.items()
    assert len(left) == 1
    log.close()


def test_readers_go_on_while_segments_are_thinned_out(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    busy(log, 100)
    entries = log.entries(2)
    expected = [bytes_at(e) for e in entries]
    tables = [log.read(e, SCHEMA) for e in entries]
    copies = [pa.Table.from_pylist(t.to_pylist(), SCHEMA) for t in tables]
    done = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not done.is_set():
            found = [bytes_at(e) for e in entries]
            again = [log.read(e, SCHEMA) for e in entries]
            if found != expected or again != copies:
                wrong.append((found, again))
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for r in readers:
        r.start()
    for start in range(100, 100 + times(50), 50):
        busy(log, 50, start)
        trim(log, log.head)
    done.set()
    for r in readers:
        r.join()
    assert not wrong
    assert tables == copies
    log.close()


def test_reading_what_was_trimmed_out_of_a_segment(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    busy(log, 100)
    first, *later = log.entries(1)[:20]
    kept = log.entries(2)[0]
    assert {e.path for e in (first, *later)} == {kept.path}
    table = log.read(first, SCHEMA)
    trim(log, 90)
    assert table["k"].to_pylist() == [0]
    assert log.read(kept, SCHEMA)["k"].to_pylist() == [0]
    # Where the first was is a hole, and the file ends before the others.
    for gone in (first, *later):
        with pytest.raises(PenstockError, match=f"Commit {gone.lsn} of object 1 was removed") as error:
            log.read(gone, SCHEMA)
        assert error.value.code == "PSK-5011"
    log.close()


def test_an_entry_that_is_needed_and_cut_off_is_damage(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    (entry,) = log.append([part(1, 1)]).entries
    log.close()
    for length in (entry.offset + 8, entry.offset - 8):
        os.truncate(entry.path, length)
        with pytest.raises(PenstockError) as error:
            log.read(entry, SCHEMA)
        assert error.value.code == "PSK-6001"


def test_an_entry_that_is_zero_though_it_is_needed_is_damage(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    (entry,) = log.append([part(1, 1)]).entries
    log.close()
    with open(entry.path, "r+b") as file:
        file.seek(entry.offset)
        file.write(bytes(entry.length))
    with pytest.raises(PenstockError) as error:
        log.read(entry, SCHEMA)
    assert error.value.code == "PSK-6001"


@pytest.fixture
def thinned(tmp_path: Path) -> Path:
    """A log whose first segment was thinned out."""
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    busy(log, 60)
    trim(log, log.head)
    assert keys(log, 2) == [0, 40]
    log.close()
    return tmp_path


def live(path: Path) -> list[int]:
    """The offsets that are not zero."""
    return [i for i, b in enumerate(path.read_bytes()) if b]


def test_damage_at_any_byte_that_is_left_is_reported(thinned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    path = thinned / "log" / "00000001.seg"
    log = Log.open(thinned)
    entry = log.entries(2)[0]
    log.close()
    data = bytearray(path.read_bytes())
    payload = range(entry.offset, entry.offset + entry.length)
    places = [at for at in live(path) if at not in payload]
    assert len(places) > 50
    for at in places:
        data[at] ^= 4
        path.write_bytes(data)
        with pytest.raises(PenstockError, match=r"00000001\.seg") as error:
            Log.open(thinned)
        assert error.value.code in ("PSK-6001", "PSK-6002")
        data[at] ^= 4


def test_a_shortened_segment_is_reported(thinned: Path) -> None:
    path = thinned / "log" / "00000001.seg"
    data = path.read_bytes()
    for length in (10, 40, 2000, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(PenstockError, match=r"00000001\.seg is damaged") as error:
            Log.open(thinned)
        assert error.value.code == "PSK-6001"


def test_a_thinned_out_segment_cannot_be_the_last(thinned: Path) -> None:
    for path in sorted((thinned / "log").glob("*.seg"))[1:]:
        path.unlink()
    with pytest.raises(PenstockError, match=r"00000001\.seg was thinned out") as error:
        Log.open(thinned)
    assert error.value.code == "PSK-6001"


def test_a_copy_without_holes_is_the_same_log(thinned: Path) -> None:
    path = thinned / "log" / "00000001.seg"
    path.write_bytes(path.read_bytes())
    log = Log.open(thinned)
    assert keys(log, 2) == [0, 40]
    log.close()


def test_what_a_crash_left_beside_is_removed(thinned: Path) -> None:
    beside = thinned / "log" / "00000001.seg.tmp"
    beside.write_bytes(b"half a file")
    log = Log.open(thinned)
    assert (keys(log, 2), beside.exists()) == ([0, 40], False)
    log.close()


def test_without_room_a_segment_stays_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    busy(log, 60)
    log.trim({1: log.head})
    before = older(log)
    with largest_file(10_000):
        assert log.trim({1: log.head}) == 0
    assert "could not be thinned out: PSK-7004" in caplog.text
    assert (older(log), keys(log, 2)) == (before, [0, 40])
    assert list((tmp_path / "log").glob("*.tmp")) == []
    assert log.trim({}) > before // 2
    assert keys(log, 2) == [0, 40]
    log.close()


def test_a_file_system_without_holes_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    busy(log, 60)
    monkeypatch.setattr(log_module, "disk_bytes", lambda path: SEGMENT)
    log.trim({1: 30})
    log.trim({1: 30})
    busy(log, 60, 60)
    files = {p: p.stat().st_ino for p in (tmp_path / "log").glob("*.seg")}
    trim(log, log.head)
    assert {p: i for p, i in files.items() if p.exists()} == {p: p.stat().st_ino for p in files if p.exists()}
    assert keys(log, 2) == [0, 40, 80]
    log.close()


def test_who_keeps_what(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    log.append([part(3, 1), part(2, 1)])
    busy(log, 60, 1)
    by_object = {h.object_id: h for h in log.holdings()}
    assert [(h.object_id, h.first_lsn) for h in by_object.values()] == [(1, 2), (2, 1), (3, 1)]
    assert by_object[1].bytes == log.retained(1)[0] > 600_000
    first, *middle, last = log.kept()
    assert sorted(first.needed) == [1, 2, 3] and (first.number, first.first_lsn) == (1, 1)
    assert by_object[1].alone_bytes == sum(k.disk_bytes for k in (*middle, last) if list(k.needed) == [1])
    assert log.size == sum(k.disk_bytes for k in log.kept())
    log.trim({1: log.head, 2: 1})
    assert [k.needed.keys() for k in log.kept()] == [{3}, {2}, set()]
    assert [h.object_id for h in log.holdings()] == [2, 3]
    log.close()


@pytest.mark.parametrize("open_again", [False, True])
def test_a_marker_does_not_keep_a_segment(tmp_path: Path, open_again: bool) -> None:
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    log.append([Part(0)])
    busy(log, 60, 1)
    log.trim({1: log.head, 2: log.head})
    log.trim({})
    assert on_disk(tmp_path) < 30_000
    if open_again:
        log.close()
        log = Log.open(tmp_path, segment_bytes=SEGMENT)
    assert [(e.lsn, e.epoch) for e in log.entries(0)] == [(1, 1)]
    log.close()


def test_heartbeats_do_not_pile_up(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=4096)
    for second in range(500):
        log.append([part(1, watermark=second)])
    assert [(e.lsn, e.epoch, e.watermark) for e in log.entries(1)] == [(500, 500, 499)]
    assert log.trim({}) > 50_000
    assert len(log.kept()) <= 2
    log.close()
    log = Log.open(tmp_path, segment_bytes=4096)
    assert [(e.lsn, e.epoch, e.watermark) for e in log.entries(1)] == [(500, 500, 499)]
    assert log.reaches_back(1, 0)
    log.close()


def test_dropped_objects_are_forgotten_for_good(tmp_path: Path) -> None:
    """Each query of a subscription is an object of its own, and there may be millions of them."""

    def floors() -> set[int]:
        return {int(i) for i in json.loads((tmp_path / "log" / "floors.json").read_text())["content"]["floors"]}

    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    log.append([part(2, 1)])
    for object_id in range(100, 200):
        log.append([part(object_id, 1, width=WIDTH)])
        log.forget(object_id)
        log.trim({})
        log.trim({})
    # Those of the last segment are still needed, and the first one is thinned out.
    assert len(floors()) < 30
    assert [k.needed for k in log.kept()] == [{2: log.retained(2)[0]}, {}]
    last = max(floors())
    log.close()
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    assert log.object_ids() == [2]
    with pytest.raises(PenstockError, match=f"Object {last} was dropped"):
        log.append([part(last, 1)])
    busy(log, 30)
    for _ in range(2):
        log.trim({1: log.head, 2: log.head})
    log.forget(1)
    log.close()
    log = Log.open(tmp_path, segment_bytes=SEGMENT)
    assert (log.object_ids(), floors()) == ([2], {1, 2})
    assert keys(log, 2) == []
    log.close()
