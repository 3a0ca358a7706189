from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.runtime.storing import drop, in_contents, make, opened, part, together

from penstock.catalog.objects import ObjectInfo
from penstock.errors import PenstockError
from penstock.runtime.jobs.saving import capture_all, save
from penstock.runtime.storage.storage import Storage
from penstock.serve.sealed import unsealed

ROWS = [(i, f"value {i}", 1) for i in range(40)]


def cut(to: float) -> Callable[[Path], None]:
    """Leaves a part of a file, from its beginning."""
    return lambda path: path.write_bytes(path.read_bytes()[: int(path.stat().st_size * to)]) and None


def flip(at: float) -> Callable[[Path], None]:
    """Changes one bit of a file."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int((len(data) - 1) * at)] ^= 0x10
        path.write_bytes(data)

    return damage


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[Callable[[Path], object]] = [
    *(cut(to) for to in (0, 0.5, 0.999)),
    *(flip(at / 4) for at in range(5)),
    lambda path: path.write_bytes(path.read_bytes() + b"more"),
    lambda path: path.write_bytes(b"garbage" * 99),
    folder,
]


def forgotten(storage: Storage, up_to: int, *objects: ObjectInfo) -> None:
    """Trims the log, durably although no segment can be deleted."""
    storage.log.trim({o.id: up_to for o in objects})
    storage.log._floors.save()


def test_a_damaged_snapshot_damages_its_object_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        sound, *bad = (make(storage, f"t{i}") for i in range(len(DAMAGES) + 1))
        storage.commit([part(t, *ROWS) for t in (sound, *bad)])
        storage.save_contents()
        head = storage.log.head
        storage.commit([part(t, (*ROWS[0][:2], -1)) for t in (sound, *bad)])
        forgotten(storage, head, sound, *bad)
    for table, damage in zip(bad, DAMAGES, strict=True):
        damage(storage.layout.snapshot(table.id))
    with opened(tmp_path) as storage:
        assert sorted(storage.damage) == [t.id for t in bad]
        with pytest.raises(PenstockError, match="PSK-6004: The contents of t1 are damaged"):
            storage.check_sound(bad[0])
        assert in_contents(storage, sound) == Counter(r[:2] for r in ROWS[1:])
        # The others work on, in one commit with a damaged one, and so does the log of the damaged one.
        storage.commit([part(sound, (*ROWS[0][:2], 1)), part(bad[0], (*ROWS[0][:2], 1))])
        assert in_contents(storage, sound) == Counter(r[:2] for r in ROWS)
        for table in bad:
            drop(storage, table)
        assert not storage.damage
    with opened(tmp_path) as storage:
        assert [o.id for o in storage.catalog.objects()] == [sound.id] and not storage.damage


def test_a_snapshot_that_is_missing_or_older_damages_its_object(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        missing, older = make(storage, "missing"), make(storage, "older")
        storage.commit([part(t, *ROWS[:1]) for t in (missing, older)])
        storage.save_contents()
        before = storage.layout.snapshot(older.id).read_bytes()
        head = storage.commit([part(t, *ROWS[1:]) for t in (missing, older)]).lsn
        storage.save_contents()
        forgotten(storage, head, missing, older)
    storage.layout.snapshot(missing.id).unlink()
    storage.layout.snapshot(older.id).write_bytes(before)
    with opened(tmp_path) as storage:
        assert sorted(storage.damage) == [missing.id, older.id]


@pytest.mark.parametrize("damage", [*DAMAGES, Path.unlink], ids=lambda d: d.__name__)
def test_a_damaged_object_stops_no_checkpoint(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    with opened(tmp_path) as storage:
        table, other = make(storage, "t"), make(storage, "u")
        storage.commit([part(o, *ROWS) for o in (table, other)])
        storage.save_contents()
        forgotten(storage, storage.log.head, table, other)
    damage(storage.layout.snapshot(table.id))
    with opened(tmp_path) as storage:
        made = save(storage, capture_all(storage))
        assert made.damaged == ("t",) and storage.checkpoints.verify(made.id) == made
        assert [n for n in made.files if n.startswith("views/")] == [f"views/{other.id}.arrow"]


def test_a_checkpoint_is_not_made_without_contents_that_are_whole(tmp_path: Path) -> None:
    """The log no longer has all of them, and somebody has removed the snapshot while the database is open."""
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        storage.commit([part(table, *ROWS)])
        storage.save_contents()
        forgotten(storage, storage.log.head, table)
        storage.layout.snapshot(table.id).unlink()
        with pytest.raises(PenstockError, match=r"PSK-6001.*1\.arrow is missing: no checkpoint can be made"):
            save(storage, capture_all(storage))
        # CHECKPOINT writes it again, because the contents are there.
        storage.commit([part(table, (99, "x", 1))])
        storage.save_contents()
        assert f"views/{table.id}.arrow" in save(storage, capture_all(storage)).files


@pytest.mark.parametrize("damage", [*DAMAGES, Path.unlink], ids=lambda d: d.__name__)
def test_contents_are_rebuilt_while_the_log_has_all_changes(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        storage.commit([part(table, *ROWS)])
        storage.save_contents()
    damage(storage.layout.snapshot(table.id))
    with opened(tmp_path) as storage:
        assert not storage.damage and in_contents(storage, table) == Counter(r[:2] for r in ROWS)


def test_a_snapshot_without_a_seal_is_read(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        storage.commit([part(table, *ROWS)])
        storage.save_contents()
        path = storage.layout.snapshot(table.id)
        storage.log.trim({table.id: 1})
    path.write_bytes(unsealed(pa.py_buffer(path.read_bytes())).to_pybytes())
    with opened(tmp_path) as storage:
        assert in_contents(storage, table) == Counter(r[:2] for r in ROWS)


def test_two_may_write_down_the_same_contents_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        storage.commit([part(table, *ROWS)])
        together([storage.save_contents] * 4)
        storage.log.trim({table.id: 1})
    with opened(tmp_path) as storage:
        assert in_contents(storage, table) == Counter(r[:2] for r in ROWS)
