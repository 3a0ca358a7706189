"""Checkpoints that are taken elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.storing import in_contents, make, opened, part
from tests.unit.runtime.test_checkpoints import epoch, files

from penstock.disk import read_json, write_json
from penstock.errors import PenstockError
from penstock.runtime.jobs.savepoints import export_checkpoint, import_checkpoint, prefix_of
from penstock.runtime.jobs.saving import capture_all, save
from penstock.runtime.storage.checkpoints import FORMAT, MANIFEST


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("file:///var/data", ""),
        ("s3://bucket", ""),
        ("s3://bucket/", ""),
        ("s3://bucket/a/b", "a/b/"),
        ("s3://bucket/a/b/", "a/b/"),
    ],
)
def test_the_prefix_of_a_url(url: str, prefix: str) -> None:
    assert prefix_of(url) == prefix


def test_a_database_is_made_from_a_savepoint(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/out"
    with opened(tmp_path / "db") as storage:
        t = make(storage, "t")
        for k in range(5):
            storage.commit([part(t, (k, "x", 1))])
        epoch(storage.layout.job(7), 1, 3)
        storage.save_contents()
        id = save(storage, capture_all(storage)).id
        storage.commit([part(t, (9, "later", 1))])
        head = export_checkpoint(storage.checkpoints, id, place).lsn
        with pytest.raises(PenstockError) as error:
            export_checkpoint(storage.checkpoints, id, place)
        assert error.value.code == "PSK-6008"
    import_checkpoint(place, tmp_path / "copy")
    with opened(tmp_path / "copy") as storage:
        found = storage.catalog.get("t")
        assert found is not None and in_contents(storage, found) == {(k, "x"): 1 for k in range(5)}
        assert storage.commit([part(found, (7, "y", 1))]).lsn == head + 1
    with pytest.raises(PenstockError) as error:
        import_checkpoint(place, tmp_path / "copy")
    assert error.value.code == "PSK-6008"
    # Each file is checked.
    for name, data in files(tmp_path / "out").items():
        path = tmp_path / "out" / name
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(PenstockError) as error:
            import_checkpoint(place, tmp_path / "bad")
        assert error.value.code in ("PSK-6001", "PSK-6009"), name
        path.write_bytes(data)
        for left in (tmp_path / "bad").rglob("*"):
            assert not left.is_file(), left
        (tmp_path / "bad" / "checkpoints").rmdir()


@pytest.mark.parametrize("name", ["../evil", "log/../../evil", "/evil"])
def test_a_savepoint_writes_nothing_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    with opened(tmp_path / "db") as storage:
        make(storage, "t")
        export_checkpoint(storage.checkpoints, save(storage, capture_all(storage)).id, f"file://{out}")
    (tmp_path / "evil").write_bytes(b"")
    manifest = read_json(out / MANIFEST, FORMAT, lost="", hint="")
    manifest["files"][name] = (0, 0)
    write_json(out / MANIFEST, manifest, FORMAT)
    with pytest.raises(PenstockError, match="leads out of its folder") as error:
        import_checkpoint(f"file://{out}", tmp_path / "copy")
    assert error.value.code == "PSK-6001"
    assert not [f for f in (tmp_path / "copy").rglob("*") if f.is_file()]
