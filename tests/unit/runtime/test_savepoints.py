"""Checkpoints that are taken elsewhere."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from tests.s3 import CREDENTIALS, object_store
from tests.unit.runtime.storing import in_contents, make, opened, part
from tests.unit.runtime.test_checkpoints import epoch, files

from penstock.disk import read_json, write_json
from penstock.errors import PenstockError
from penstock.runtime.jobs.place import prefix_of
from penstock.runtime.jobs.savepoints import export_checkpoint, import_checkpoint
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


def test_a_savepoint_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_store() as store:
        prefix = f"shop-{uuid4().hex}/daily"
        place = store.url(f"{prefix}/")
        with opened(tmp_path / "db") as storage:
            t = make(storage, "t")
            storage.commit([part(t, *((k, "x" * 1000, 1) for k in range(2000)))])
            epoch(storage.layout.job(7), 1, 2)
            id = save(storage, capture_all(storage)).id
            export_checkpoint(storage.checkpoints, id, place)
            # With and without a slash at its end it is the same place.
            with pytest.raises(PenstockError, match=rf"PSK-6008.*s3://{store.bucket}/{prefix} has a savepoint already"):
                export_checkpoint(storage.checkpoints, id, store.url(prefix))
            here = storage.layout.checkpoints / str(id)
            keys = [k.removeprefix(f"{prefix}/") for k in store.listed() if k.startswith(f"{prefix}/")]
            assert keys == sorted(files(here))
        import_checkpoint(store.url(prefix), tmp_path / "copy")
        with opened(tmp_path / "copy") as storage:
            found = storage.catalog.get("t")
            assert found is not None and len(in_contents(storage, found)) == 2000
        segment = next(k for k in store.listed() if k.startswith(prefix) and k.endswith(".seg"))
        data = store.read(segment)
        store.write(segment, data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(PenstockError, match=r"PSK-6009.*\.seg is damaged"):
            import_checkpoint(place, tmp_path / "bad")
        with pytest.raises(PenstockError, match="PSK-6008") as error:
            import_checkpoint(store.url(f"{prefix}/none"), tmp_path / "bad")
        assert "endpoint" not in str(error.value)


def test_a_place_that_cannot_be_reached_is_named_without_its_secrets(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as storage:
        make(storage, "t")
        id = save(storage, capture_all(storage)).id
        for url in ("s3://key:hush@bucket/x?endpoint_override=127.0.0.1:9&scheme=hush", "nowhere://bucket/x"):
            with pytest.raises(PenstockError, match="PSK-6008") as error:
                export_checkpoint(storage.checkpoints, id, url)
            assert "bucket/x" in str(error.value) and "hush@" not in str(error.value)


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
