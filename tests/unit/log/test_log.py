from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.effort import times
from tests.unit.log.rows import SCHEMA, batch, part

from penstock import disk
from penstock.disk import checked as checked_module
from penstock.errors import PenstockError
from penstock.log import Entry, Log, Part
from penstock.log import segment as segment_module


def keys(log: Log, object_id: int, after: int = 0) -> list[int]:
    return [k for e in log.entries(object_id, after) for k in log.read(e, SCHEMA)["k"].to_pylist()]


def code_of(error: pytest.ExceptionInfo[PenstockError]) -> str:
    return error.value.code


def test_a_new_log_is_empty(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    assert (log.head, log.entries(1), log.first_entry(1), log.last_entry(1)) == (0, [], None, None)
    assert (log.watermark(1), log.epoch(1), log.job_epoch(1), log.retained(1)) == (None, 0, -1, (0, 0, 0))
    log.close()


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="sync or async, not never") as error:
        Log.open(tmp_path, mode="never")  # type: ignore[arg-type]
    assert code_of(error) == "PSK-0002"


def test_commits_are_numbered_and_found(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    assert log.append([part(1, 10), part(2, 20, 21)]).lsn == 1
    assert log.append([part(2, 22, watermark=7)]).lsn == 2
    assert log.append([part(1, 11, job_epoch=4)]).lsn == 3
    assert log.head == 3
    assert [(e.lsn, e.epoch, e.rows) for e in log.entries(2)] == [(1, 1, 2), (2, 2, 1)]
    assert [e.lsn for e in log.entries(1, after=1)] == [3]
    assert [e.lsn for e in log.entries(1, up_to=2)] == [1]
    assert keys(log, 1) == [10, 11]
    assert keys(log, 2) == [20, 21, 22]
    first = log.first_entry(1)
    assert first is not None and (first.lsn, log.object_ids()) == (1, [1, 2])
    last = log.last_entry(1)
    assert last is not None and (last.lsn, last.job_epoch) == (3, 4)
    assert log.retained(2) == (sum(e.length for e in log.entries(2)), 3, log.entries(2)[0].time_ms)
    log.close()


def test_an_append_returns_its_entries_in_the_order_of_the_parts(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    futures = [log.append_future([part(2, k, watermark=k), part(1, k)]) for k in range(20)]
    for lsn, future in enumerate(futures, 1):
        commit = future.result()
        assert (commit.lsn, [e.object_id for e in commit.entries]) == (lsn, [2, 1])
        assert commit.entries == tuple(log.entries(2, lsn - 1, lsn) + log.entries(1, lsn - 1, lsn))
    log.close()


def test_idleness_and_the_watermarks_before_batches(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([Part(1, (batch(1),), 5, idle=True)])
    log.append([Part(1, (batch(2), batch(*range(40_000)), batch()), before=(7, -(2**63), 9)), part(2, 3)])
    log.append([Part(1, (batch(4),), before=(8,))])
    log.append([Part(1, idle=True)])
    for _ in range(2):
        found = [(e.lsn, e.watermark, e.idle, e.before, e.rows) for e in log.entries(1)]
        assert found == [
            (1, 5, True, (), 1),
            (2, 5, False, (7, -(2**63), -(2**63)), 40_001),
            (3, 5, False, (8,), 1),
            (4, 5, True, (), 0),
        ]
        assert keys(log, 1) == [1, 2, *range(40_000), 4]
        log.close()
        log = Log.open(tmp_path)
    log.close()


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([Part(1, (batch(1, 2),), 5, 0, 3), part(2)])
    log.append([part(1, 3, watermark=9, job_epoch=1, input_lsn=1)])
    assert [(e.lsn, e.input_lsn) for e in log.entries(1)] == [(1, 1), (2, 1)]
    before = [log.entries(i) for i in (1, 2)]
    log.close()
    log = Log.open(tmp_path)
    assert [log.entries(i) for i in (1, 2)] == before
    assert (log.head, log.watermark(1), log.epoch(1), log.job_epoch(1)) == (2, 9, 2, 1)
    assert log.append([part(1, 4)]).lsn == 3
    assert keys(log, 1) == [1, 2, 3, 4]
    log.close()


def test_a_watermark_never_falls(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    entries = []
    for watermark in (None, 5, 3, None, -2, 8):
        entries += log.append([part(1, watermark=watermark)]).entries
    assert [e.watermark for e in entries] == [None, 5, 5, 5, 5, 8]
    assert [e.rows for e in entries] == [0] * 6
    assert log.read(entries[0], SCHEMA) == SCHEMA.empty_table()
    log.close()


def test_a_part_outside_a_job_keeps_the_job_epoch(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([part(1, 1, job_epoch=6)])
    log.append([part(1, 2)])
    assert log.job_epoch(1) == 6
    log.close()
    log = Log.open(tmp_path)
    assert log.job_epoch(1) == 6
    log.close()


def test_large_batches_are_cut(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    data = batch(*range(70_000))
    log.append([Part(1, (data, data.slice(5, 10), data.slice(0, 0)))])
    (entry,) = log.entries(1)
    assert [rows for _, _, rows in entry.batches] == [32_768, 32_768, 4_464, 10]
    assert log.read(entry, SCHEMA) == pa.Table.from_batches([data, data.slice(5, 10)])
    log.close()


def test_each_message_can_be_decoded_alone(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([part(1, 1, 2), Part(2, (batch(3), batch(4, 5)))])
    for entry in log.entries(1) + log.entries(2):
        content = Path(entry.path).read_bytes()
        for offset, length, rows in entry.batches:
            assert offset % 8 == 0
            assert entry.offset <= offset and offset + length <= entry.offset + entry.length
            message = pa.ipc.read_message(content[offset : offset + length])
            assert message.type == "record batch"
            assert pa.ipc.read_record_batch(message, SCHEMA).num_rows == rows
    log.close()


def test_segments_roll(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=4096)
    for k in range(100):
        log.append([part(1, k)])
    segments = sorted((tmp_path / "log").glob("*.seg"))
    assert len(segments) > 5
    assert all(s.stat().st_size <= 4096 for s in segments[:-1])
    assert keys(log, 1) == list(range(100))
    log.close()
    log = Log.open(tmp_path, segment_bytes=4096)
    assert keys(log, 1) == list(range(100))
    log.close()


def test_a_commit_larger_than_a_segment(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=1024)
    for start in (0, 1000):
        log.append([part(1, *range(start, start + 1000))])
    assert keys(log, 1) == list(range(2000))
    log.close()


def test_reserved_space_is_given_back(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.append([part(1, 1)])
    log.close()
    assert (tmp_path / "log" / "00000001.seg").stat().st_size < 1024


def test_trim_deletes_segments_and_keeps_states(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=4096)
    log.append([part(2, 0, watermark=77, job_epoch=3)])
    for k in range(100):
        log.append([part(1, k, watermark=k)])
    files = len(list((tmp_path / "log").glob("*.seg")))
    assert log.trim({1: 90}) > 0
    # The first segment is still needed for object 2.
    assert 2 <= len(list((tmp_path / "log").glob("*.seg"))) < files
    assert keys(log, 2) == [0]
    assert (keys(log, 1), log.entries(1)[0].lsn) == (list(range(89, 100)), 91)
    assert log.trim({1: 1000, 2: 1000}) > 0
    assert len(list((tmp_path / "log").glob("*.seg"))) == 1
    log.close()
    log = Log.open(tmp_path, segment_bytes=4096)
    assert (log.head, log.watermark(1), log.epoch(1)) == (101, 99, 100)
    assert (log.watermark(2), log.epoch(2), log.job_epoch(2)) == (77, 1, 3)
    assert (log.entries(1), log.entries(2)) == ([], [])
    assert log.append([part(1, 100)]).lsn == 102
    assert [(e.lsn, e.epoch, e.watermark) for e in log.entries(1)] == [(102, 101, 99)]
    log.close()


def test_trimming_leaves_no_holes_after_reopening(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=2048)
    log.append([part(1, 0), part(2, 0)])
    for k in range(1, 50):
        log.append([part(1, k)])
    log.trim({1: 40})
    expected = keys(log, 1)
    log.close()
    log = Log.open(tmp_path, segment_bytes=2048)
    assert keys(log, 1) == expected == list(range(40, 50))
    assert keys(log, 2) == [0]
    log.close()


def test_reading_what_was_trimmed(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=1024)
    for k in range(20):
        log.append([part(1, k)])
    first = log.entries(1)[0]
    table = log.read(first, SCHEMA)
    log.trim({1: 10})
    assert table["k"].to_pylist() == [0]
    with pytest.raises(PenstockError) as error:
        log.read(first, SCHEMA)
    assert code_of(error) == "PSK-5011"
    log.close()


def test_forget(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=1024)
    for k in range(20):
        log.append([part(1, k, watermark=k)])
    log.append([part(2, 5)])
    log.forget(1)
    assert (log.entries(1), log.watermark(1), log.epoch(1)) == ([], None, 0)
    with pytest.raises(PenstockError) as error:
        log.append([part(1, 99)])
    assert code_of(error) == "PSK-0009"
    log.close()
    log = Log.open(tmp_path, segment_bytes=1024)
    assert (log.entries(1), log.epoch(1), keys(log, 2)) == ([], 0, [5])
    assert log.trim({}) > 0
    assert keys(log, 2) == [5]
    log.close()


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [part(1, 1), part(1, 2)],
        [Part(-1)],
        [Part(1, watermark=2**63)],
        [Part(1, job_epoch=-2)],
        [Part(1, input_lsn=-1)],
        [Part(1, (batch(1),), before=(1, 2))],
        [Part(1, before=(1,))],
        [Part(1, (batch(1),), before=(2**63,))],
        [Part(1, column_count=-1)],
        [Part(1, (pa.record_batch({"d": pa.array(["x"]).dictionary_encode()}),))],
        [Part(1, (pa.record_batch({"d": pa.array([["x"]], pa.list_(pa.dictionary(pa.int8(), pa.string())))}),))],
    ],
)
def test_bad_commits_are_refused(tmp_path: Path, parts: list[Part]) -> None:
    log = Log.open(tmp_path)
    with pytest.raises(PenstockError) as error:
        log.append(parts)
    assert code_of(error) == "PSK-0009"
    assert log.append([part(1, 1)]).lsn == 1
    log.close()


def test_a_failed_write_leaves_nothing_and_the_log_lives_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path)
    log.append([part(1, 1, watermark=1)])
    real = disk.write_all

    def full(fd: int, buffers: list[bytes], offset: int) -> int:
        real(fd, buffers[:1], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(segment_module, "write_all", full)
    with pytest.raises(PenstockError, match="No space left on device") as error:
        log.append([part(1, 2, watermark=2), part(2, 2)])
    assert code_of(error) == "PSK-7004"
    monkeypatch.setattr(segment_module, "write_all", real)
    assert (log.head, log.watermark(1), log.epoch(1), log.entries(2)) == (1, 1, 1, [])
    assert log.append([part(1, 3)]).lsn == 2
    log.close()
    log = Log.open(tmp_path)
    assert keys(log, 1) == [1, 3]
    log.close()


def test_a_failed_sync_withdraws_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path)
    real = disk.datasync

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(segment_module, "datasync", broken)
    with pytest.raises(PenstockError):
        log.append([part(1, 1)])
    monkeypatch.setattr(segment_module, "datasync", real)
    assert log.append([part(1, 2)]).lsn == 1
    log.close()
    log = Log.open(tmp_path)
    assert keys(log, 1) == [2]
    log.close()


def test_a_segment_that_cannot_be_made_fails_the_commit_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path, segment_bytes=300)
    log.append([part(1, 1)])
    real = disk.write_durably

    def full(path: Path, data: bytes) -> None:
        raise disk.unwritable(path, OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(segment_module, "write_durably", full)
    with pytest.raises(PenstockError):
        log.append([part(1, 2)])
    monkeypatch.setattr(segment_module, "write_durably", real)
    assert log.append([part(1, 3)]).lsn == 2
    log.close()
    log = Log.open(tmp_path)
    assert keys(log, 1) == [1, 3]
    log.close()


def test_trimming_makes_room_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path, segment_bytes=1024)
    for k in range(20):
        log.append([part(1, k)])
    real = disk.write_durably
    first = tmp_path / "log" / "00000001.seg"

    def full_while_the_first_segment_is_there(path: Path, data: bytes) -> None:
        if first.exists():
            raise disk.unwritable(path, OSError(errno.ENOSPC, "No space left on device"))
        real(path, data)

    monkeypatch.setattr(checked_module, "write_durably", full_while_the_first_segment_is_there)
    assert log.trim({1: 15}) > 0
    assert not first.exists()
    log.close()
    log = Log.open(tmp_path)
    assert keys(log, 1) == [15, 16, 17, 18, 19]
    log.close()


def test_an_asynchronous_log_that_cannot_sync_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.open(tmp_path, mode="async", async_interval_ms=60_000)

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(segment_module, "datasync", broken)
    assert log.append([part(1, 1)]).lsn == 1
    for action in (log.sync, lambda: log.append([part(1, 2)]), log.close):
        with pytest.raises(PenstockError) as error:
            action()
        assert code_of(error) == "PSK-7004"


def test_asynchronous_commits_are_synced_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = threading.Event()
    real = disk.datasync

    def note(fd: int) -> None:
        real(fd)
        synced.set()

    monkeypatch.setattr(segment_module, "datasync", note)
    log = Log.open(tmp_path, mode="async", async_interval_ms=5)
    log.append([part(1, 1)])
    assert synced.wait(30)
    log.append([part(1, 2)])
    log.close()
    log = Log.open(tmp_path)
    assert keys(log, 1) == [1, 2]
    log.close()


def test_the_listener_sees_entries_in_order_before_they_are_acknowledged(tmp_path: Path) -> None:
    seen: list[Entry] = []
    log = Log.open(tmp_path, on_durable=seen.extend)
    lsn = log.append([part(1, 1), part(2, 1)]).lsn
    assert [(e.lsn, e.object_id) for e in seen] == [(lsn, 1), (lsn, 2)]
    for future in [log.append_future([part(1, k)]) for k in range(50)]:
        future.result()
    assert [e.lsn for e in seen] == [1, *range(1, 52)]
    log.close()


def test_a_failing_listener_does_not_fail_the_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def listener(entries: list[Entry]) -> None:
        raise ValueError("no")

    log = Log.open(tmp_path, on_durable=listener)
    assert log.append([part(1, 1)]).lsn == 1
    assert keys(log, 1) == [1]
    assert "listener" in caplog.text
    log.close()


def test_a_closed_log(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    futures = [log.append_future([part(1, k)]) for k in range(10)]
    log.close()
    log.close()
    assert [f.result(0).lsn for f in futures] == list(range(1, 11))
    with pytest.raises(PenstockError) as error:
        log.append([part(1, 1)])
    assert code_of(error) == "PSK-0004"
    assert keys(log, 1) == list(range(10))


def test_many_threads(tmp_path: Path) -> None:
    each = times(80, quick=40)
    seen: list[int] = []
    log = Log.open(tmp_path, segment_bytes=64 << 10, on_durable=lambda entries: seen.extend(e.lsn for e in entries))

    def run(thread: int) -> list[int]:
        lsns = []
        for k in range(each):
            lsn = log.append([part(thread, k), part(100, thread * 1000 + k)]).lsn
            assert log.head >= lsn and log.entries(thread, lsn - 1, lsn)
            lsns.append(lsn)
        return lsns

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, range(8)))
    assert sorted(lsn for lsns in results for lsn in lsns) == list(range(1, 8 * each + 1))
    assert seen == sorted(seen) and len(seen) == 16 * each
    for _ in range(2):
        assert all(keys(log, t) == list(range(each)) for t in range(8))
        assert [e.epoch for e in log.entries(100)] == list(range(1, 8 * each + 1))
        assert sorted(keys(log, 100)) == sorted(t * 1000 + k for t in range(8) for k in range(each))
        log.close()
        log = Log.open(tmp_path)
    log.close()


def test_trimming_while_threads_append(tmp_path: Path) -> None:
    log = Log.open(tmp_path, segment_bytes=8 << 10)
    done = threading.Event()
    many = times(400, quick=150)

    def clean() -> None:
        while not done.is_set():
            log.trim({1: log.head - 20})

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: log.append([part(1, k)]), range(many)))
    done.set()
    cleaner.join()
    assert log.entries(1, many - 20) == log.entries(1)[-20:]
    assert len(log.entries(1, many - 20)) == 20
    log.close()
    log = Log.open(tmp_path)
    assert len(log.entries(1, many - 20)) == 20 and log.epoch(1) == many
    log.close()


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: real(fd, [buffers[0][:7]], offset))
    log = Log.open(tmp_path)
    log.append([part(1, 1, 2), part(2, 3)])
    assert (keys(log, 1), keys(log, 2)) == ([1, 2], [3])
    log.close()
