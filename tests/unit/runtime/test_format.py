"""Folders that an earlier version wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.runtime.storing import in_contents, make, opened, part

from penstock.catalog.objects import Connector, Kind
from penstock.disk import pack_json, read_json, write_json
from penstock.errors import PenstockError
from penstock.runtime.closed import restore_closed
from penstock.runtime.jobs.saving import capture_all, save
from penstock.runtime.storage import format as format_module
from penstock.runtime.storage.checkpoints import FORMAT as CHECKPOINT
from penstock.runtime.storage.format import FORMAT, STEPS, bring_up_to_date, format_of, write_format
from penstock.runtime.storage.position import Position, position_file

ONE = {(1, "one"): 1}


def folder(path: Path) -> Path:
    """A database with a table and a sink."""
    with opened(path) as storage:
        table = make(storage, "t")
        make(storage, "out", Kind.SINK, depends_on=(table.id,), connector=Connector("console"))
        storage.commit([part(table, (1, "one", 1))])
    return path


def test_there_is_a_step_from_every_earlier_format() -> None:
    assert sorted(STEPS) == list(range(FORMAT))


def test_a_new_folder_has_the_newest_format(tmp_path: Path) -> None:
    assert format_of(tmp_path) is None
    assert bring_up_to_date(tmp_path) is None and format_of(tmp_path) == FORMAT
    assert format_of(folder(tmp_path / "db")) == FORMAT
    assert not list((tmp_path / "db").glob("backup-*"))


def test_a_folder_of_format_0_is_migrated_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = folder(tmp_path)
    (root / "format.json").unlink()
    (position,) = root.glob("jobs/*/position.json")
    position.unlink()
    before = {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file() and "lock" not in p.name}
    with opened(root) as storage:
        assert storage.migrated_from == 0 and "had format 0" in caplog.text
        sink, table = storage.catalog.get("out"), storage.catalog.get("t")
        assert sink is not None and position_file(storage.layout, sink).read() == Position()
        assert table is not None and in_contents(storage, table) == ONE
        storage.commit([part(table, (2, "two", 1))])
    kept = root / "backup-format-0"
    # What came later is not in it.
    assert {p.relative_to(kept): p.read_bytes() for p in kept.rglob("*") if p.is_file()} == before
    with opened(root) as storage:
        assert storage.migrated_from is None
    with opened(kept) as storage:
        assert table is not None and in_contents(storage, table) == ONE


@pytest.mark.parametrize("at", ["_back_up", "write_format"])
def test_a_migration_that_was_interrupted_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    root = folder(tmp_path)
    (root / "format.json").unlink()
    whole: Callable[..., object] = getattr(format_module, at)

    def cut(*args: object) -> object:
        if at == "write_format":
            raise OSError("cut")
        whole(*args)
        raise OSError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(format_module, at, cut)
        with pytest.raises(OSError, match="cut"):
            bring_up_to_date(root)
    assert bring_up_to_date(root) == 0 and format_of(root) == FORMAT


def test_a_format_that_is_not_known_is_refused(tmp_path: Path) -> None:
    root = folder(tmp_path)
    write_format(root, FORMAT + 1)
    with pytest.raises(PenstockError, match="PSK-6002"):
        bring_up_to_date(root)
    path = root / "format.json"
    for data in (b"", b"{}", pack_json(FORMAT, 1)[:-2], pack_json(FORMAT, 1).replace(b'"content": 1', b'"content": 0')):
        path.write_bytes(data)
        with pytest.raises(PenstockError, match="PSK-6001"):
            bring_up_to_date(root)


def test_a_checkpoint_of_an_earlier_format_is_brought_up_to_date_when_it_is_restored(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        storage.commit([part(make(storage, "t"), (1, "x", 1))])
        id = save(storage, capture_all(storage)).id
    manifest = tmp_path / "checkpoints" / str(id) / "manifest.json"
    content = read_json(manifest, CHECKPOINT, lost="", hint="")
    write_json(manifest, content | {"folder": 0}, CHECKPOINT)
    restore_closed(tmp_path, id, backup=False, keep_delivered=False)
    assert format_of(tmp_path) == 0
    with opened(tmp_path) as storage:
        assert storage.migrated_from == 0 and format_of(tmp_path) == FORMAT
        found = storage.catalog.get("t")
        assert found is not None and in_contents(storage, found) == {(1, "x"): 1}
