from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.effort import EFFORT
from tests.unit.log.rows import SCHEMA, part

from penstock.disk import Witness
from penstock.errors import PenstockError
from penstock.log import Log

# A log is opened for each byte that is tried. Odd, because even and odd bytes are treated differently.
EVERY = 3 if EFFORT == 1 else 1


def content(log: Log) -> dict[int, list[tuple[int, int, list[int]]]]:
    return {
        i: [(e.lsn, e.epoch, log.read(e, SCHEMA)["k"].to_pylist()) for e in log.entries(i)] for i in log.object_ids()
    }


def reopened(folder: Path) -> tuple[int, dict[int, list[tuple[int, int, list[int]]]]]:
    log = Log.open(folder)
    try:
        return log.head, content(log)
    finally:
        log.close()


def segment(folder: Path, number: int = 1) -> Path:
    return folder / "log" / f"{number:08d}.seg"


@pytest.fixture
def three(tmp_path: Path) -> tuple[Path, list[int]]:
    """A log of three commits, the last over two objects, and where each of them ends."""
    folder = tmp_path / "three"
    log = Log.open(folder)
    ends = []
    for parts in ([part(1, 1)], [part(2, 2, watermark=5)], [part(1, 3, 4), part(2, 5)]):
        log.append(parts)
        ends.append(max(e.offset + e.length for i in (1, 2) for e in log.entries(i)))
    log.close()
    assert segment(folder).stat().st_size == ends[-1]
    return folder, ends


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a log makes of the bytes it finds does not depend on how they got to the disk, and hundreds of syncs take their time."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def copies(folder: Path, data: bytes, acknowledged: int = 0) -> Path:
    """The log with `data` as its first segment, of which so many commits were acknowledged."""
    copy = folder.parent / "copy"
    if not copy.exists():
        shutil.copytree(folder, copy)
    segment(copy).write_bytes(data)
    Witness(copy / "log" / "head").attest(acknowledged)
    assert sorted(p.name for p in (copy / "log").iterdir()) == [segment(copy).name, "head"]
    return copy


def test_a_tail_torn_at_any_byte_is_cut_off(three: tuple[Path, list[int]]) -> None:
    folder, ends = three
    data = segment(folder).read_bytes()
    whole = {1: [(1, 1, [1]), (3, 2, [3, 4])], 2: [(2, 1, [2]), (3, 2, [5])]}
    without = {1: [(1, 1, [1])], 2: [(2, 1, [2])]}
    assert reopened(folder) == (3, whole)
    for cut in range(ends[1], ends[2], EVERY):
        # The lost bytes are missing or, in reserved space, zero; zeros that stand for zeros lose nothing.
        zeros = cut % 2 == 1 and data[cut:].strip(b"\0") != b""
        rest = data[:cut] + (bytes(len(data) - cut + 64) if zeros else b"")
        if not zeros:
            with pytest.raises(PenstockError, match="commits up to 3 were acknowledged") as error:
                Log.open(copies(folder, rest, acknowledged=3))
            assert error.value.code == "PSK-6001"
        copy = copies(folder, rest, acknowledged=2)
        assert reopened(copy) == (2, without)
        assert segment(copy).stat().st_size == ends[1]
    copy = copies(folder, data[: ends[1] + 50])
    log = Log.open(copy)
    assert log.append([part(1, 9)]).lsn == 3
    log.close()
    assert reopened(copy) == (3, {1: [(1, 1, [1]), (3, 2, [9])], 2: [(2, 1, [2])]})


def test_a_flipped_bit_in_the_last_commit_is_a_torn_tail(three: tuple[Path, list[int]]) -> None:
    folder, ends = three
    data = bytearray(segment(folder).read_bytes())
    for at in range(ends[1], ends[2], 5 * EVERY):
        data[at] ^= 16
        assert reopened(copies(folder, bytes(data)))[0] == 2
        data[at] ^= 16


def test_damage_to_a_durable_commit_is_reported(three: tuple[Path, list[int]]) -> None:
    folder, ends = three
    data = bytearray(segment(folder).read_bytes())
    for at in range(0, ends[1], 5):
        data[at] ^= 16
        with pytest.raises(PenstockError, match=r"00000001\.seg is damaged at offset \d+") as error:
            Log.open(copies(folder, bytes(data)))
        assert error.value.code == "PSK-6001"
        data[at] ^= 16


def test_a_group_of_which_only_later_commits_reached_the_disk_is_torn(tmp_path: Path) -> None:
    log = Log.open(tmp_path, mode="async", async_interval_ms=60_000)
    for k in range(3):
        log.append([part(1, k)])
    first = log.entries(1)[0]
    log.close()
    data = bytearray(segment(tmp_path).read_bytes())
    data[first.offset] ^= 1
    segment(tmp_path).write_bytes(data)
    with pytest.raises(PenstockError, match="commits up to 3 were acknowledged"):
        Log.open(tmp_path)
    (tmp_path / "log" / "head").unlink()
    assert reopened(tmp_path) == (0, {})


@pytest.fixture
def many(tmp_path: Path) -> Path:
    folder = tmp_path / "many"
    log = Log.open(folder, segment_bytes=1024)
    for k in range(20):
        log.append([part(1, k)])
    log.close()
    assert segment(folder, 3).exists()
    return folder


def test_damaged_headers_in_earlier_segments_are_reported(many: Path) -> None:
    path = segment(many)
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    with pytest.raises(PenstockError, match=r"00000001\.seg is damaged at offset"):
        Log.open(many)


@pytest.mark.parametrize("fill", [b"", bytes(600)])
def test_a_shortened_earlier_segment_is_reported(many: Path, fill: bytes) -> None:
    log = Log.open(many)
    first, second = log.entries(1)[:2]
    log.close()
    path = segment(many)
    assert second.path == str(path)
    cut = first.offset + first.length
    path.write_bytes(path.read_bytes()[:cut] + fill)
    with pytest.raises(PenstockError, match=rf"00000001\.seg is damaged at offset {cut}") as error:
        Log.open(many)
    assert error.value.code == "PSK-6001"


def test_reserved_space_at_the_end_of_an_earlier_segment_is_no_damage(many: Path) -> None:
    expected = reopened(many)
    with segment(many).open("ab") as file:
        file.write(bytes(4096))
    assert reopened(many) == expected


def test_unfinished_segments_are_removed(many: Path) -> None:
    expected = reopened(many)
    leftover = many / "log" / "00000099.seg.tmp"
    leftover.write_bytes(b"half")
    assert reopened(many) == expected
    assert not leftover.exists()


def test_damaged_floors_are_reported(many: Path) -> None:
    log = Log.open(many)
    log.trim({1: 10})
    log.close()
    floors = many / "log" / "floors.json"
    text = floors.read_text()
    for damaged in (text.replace("10", "11"), "", text[:20], "[1]"):
        floors.write_text(damaged)
        with pytest.raises(PenstockError, match=r"floors\.json is damaged") as error:
            Log.open(many)
        assert error.value.code == "PSK-6001"


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_segment_that_is_missing_is_reported(many: Path, number: int) -> None:
    expected = reopened(many)
    path = segment(many, number)
    data = path.read_bytes()
    path.unlink()
    for _ in range(2):
        with pytest.raises(PenstockError, match=r"lost 0000000\d\.seg|were acknowledged") as error:
            Log.open(many)
        assert error.value.code == "PSK-6001" and "backup" in str(error.value.hint)
    path.write_bytes(data)
    assert reopened(many) == expected


def test_a_log_without_segments_is_not_new(many: Path) -> None:
    for path in many.glob("log/*.seg"):
        path.unlink()
    with pytest.raises(PenstockError, match="commits 1 to 20 are lost"):
        Log.open(many)


def test_segments_that_were_trimmed_are_not_missing(many: Path) -> None:
    log = Log.open(many)
    log.append([part(2, 1)])
    log.trim({1: 8})
    log.close()
    assert not segment(many).exists()
    assert reopened(many)[0] == 21
    # What was removed is recorded in the file, so without it nothing shows that nothing is lost.
    (many / "log" / "floors.json").unlink()
    with pytest.raises(PenstockError, match=r"lost 00000001\.seg"):
        Log.open(many)


def test_a_flipped_bit_in_an_older_segment_is_never_served(many: Path) -> None:
    log = Log.open(many)
    entry = log.entries(1)[1]
    log.close()
    path = segment(many)
    data = bytearray(path.read_bytes())
    # The last bytes of a message are values.
    data[entry.offset + entry.length - 12] ^= 1
    path.write_bytes(data)
    log = Log.open(many)
    assert [e.path for e in log.entries(1)[:2]] == [str(path)] * 2
    with pytest.raises(
        PenstockError, match=r"00000001\.seg is damaged at offset \d+: the 1 rows of commit 2 are lost"
    ) as error:
        log.read(log.entries(1)[1], SCHEMA)
    assert error.value.code == "PSK-6001"
    assert log.read(log.entries(1)[0], SCHEMA)["k"].to_pylist() == [0]
    log.close()


def test_a_segment_that_goes_while_the_log_is_open_is_reported(many: Path) -> None:
    log = Log.open(many)
    first = log.entries(1)[0]
    assert first.path == str(segment(many))
    for remove in (segment(many).unlink, segment(many).mkdir):
        remove()
        with pytest.raises(PenstockError, match=r"PSK-6001.*00000001\.seg cannot be read \(.*the 1 rows of commit 1"):
            log.read(first, SCHEMA)
        assert log.check(first) is not None
    segment(many).rmdir()
    # What was trimmed is not missed.
    log.trim({1: first.lsn})
    with pytest.raises(PenstockError, match="PSK-5011"):
        log.read(first, SCHEMA)
    assert log.check(first) is None
    log.close()


def test_the_last_segment_as_it_was_before_is_reported(many: Path) -> None:
    last = max(many.glob("log/*.seg"))
    older = last.read_bytes()
    log = Log.open(many)
    log.append([part(1, 99)])
    log.close()
    last.write_bytes(older)
    with pytest.raises(PenstockError, match="commits up to 21 were acknowledged"):
        Log.open(many)
