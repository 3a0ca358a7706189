"""Checkpoints that are taken elsewhere."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from tests.s3 import CREDENTIALS, object_store
from tests.unit.runtime.storing import in_contents, make, opened, part
from tests.unit.runtime.test_checkpoints import epoch, files

from penstock.disk import FolderLock, read_json, write_json
from penstock.errors import PenstockError
from penstock.runtime.jobs.place import Place, prefix_of
from penstock.runtime.jobs.savepoints import export_checkpoint, find_savepoint, import_checkpoint
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


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "it is no place"),
        ("a\0b", "it is no place"),
        # It would be a folder called file: in the current one.
        ("file:/var/backups", "begins with file:/"),
        ("FILE:///var/backups", "begins with FILE://"),
        ("S3://bucket/x", "begins with S3://"),
        # A file system in memory, which forgets what it is given.
        ("mock://x", "begins with mock://"),
        ("http://x/y", "begins with http://"),
        ("file:///var/backups?keep=3", "mean nothing here"),
        ("file:///var/backups#1", "mean nothing here"),
        ("s3://bucket/x#1", "mean nothing here"),
        ("file://host/x", "Unsupported hostname"),
    ],
)
def test_a_place_that_is_none_is_refused(url: str, why: str) -> None:
    with pytest.raises(PenstockError, match=f"PSK-6008.*{why}"):
        Place(url)


def test_an_error_quotes_no_secret() -> None:
    # A secret key may have a slash, which a URL may not.
    with pytest.raises(PenstockError, match=r"PSK-6008.*s3://bucket/x") as error:
        Place("s3://key:hush/hush@bucket/x")
    assert "hush" not in str(error.value) and error.value.__cause__ is None


@pytest.mark.parametrize("name", ["x" * 300, "n\0l"])
def test_a_folder_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    exported(tmp_path, tmp_path / "out")
    with pytest.raises(PenstockError, match=r"PSK-6008|PSK-7004"):
        import_checkpoint(str(tmp_path / "out"), tmp_path / name)


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
        assert not (tmp_path / "bad").exists()


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
    assert not (tmp_path / "copy").exists()


def exported(tmp_path: Path, place: Path) -> int:
    """A savepoint of a database of one row; returns its checkpoint."""
    with opened(tmp_path / "db") as storage:
        storage.commit([part(make(storage, "t"), (1, "x", 1))])
        id = save(storage, capture_all(storage)).id
        export_checkpoint(storage.checkpoints, id, str(place))
    return id


def test_an_export_overwrites_nothing(tmp_path: Path) -> None:
    out, db = tmp_path / "out", tmp_path / "db"
    id = exported(tmp_path, out)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "catalog.json").write_text("mine")
    with opened(db) as storage:
        for place, why in (
            (db, "in the folder of the database"),
            (db / "log", "in the folder"),
            (tmp_path / "full", "other files"),
        ):
            with pytest.raises(PenstockError, match=f"PSK-6008.*{why}"):
                export_checkpoint(storage.checkpoints, id, str(place))
        # What an export that was interrupted has left is written again.
        (out / MANIFEST).unlink()
        with pytest.raises(PenstockError, match=r"PSK-6008.*other files"):
            export_checkpoint(storage.checkpoints, id, str(out))
        (out / "unfinished").write_bytes(b"")
        export_checkpoint(storage.checkpoints, id, str(out))
    assert (tmp_path / "full" / "catalog.json").read_text() == "mine"
    assert find_savepoint(str(out), verify=True) is not None and not (out / "unfinished").exists()


@pytest.mark.parametrize("stored", [False, True])
def test_two_exports_to_one_place_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool) -> None:
    """Each was once taken for the rest of an interrupted one: both reported success, and the savepoint had files of either."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:
        place = str(tmp_path / "out")
        if stored:
            place = stack.enter_context(object_store()).url(f"shop-{uuid4().hex}/daily")
        storage = stack.enter_context(opened(tmp_path / "db"))
        t = make(storage, "t")
        storage.commit([part(t, (1, "x", 1))])
        older = save(storage, capture_all(storage)).id
        storage.commit([part(t, (2, "y", 1))])
        newer = save(storage, capture_all(storage)).id
        write, other = Place.write, [newer]

        def meanwhile(self: Place, name: str, source: Path, size: int) -> int:
            crc = write(self, name, source, size)
            if name.endswith(".seg") and other:
                export = partial(export_checkpoint, storage.checkpoints, other.pop(), place)
                if stored:
                    export()
                else:
                    with pytest.raises(PenstockError, match=r"PSK-6008: Another export writes to"):
                        export()
            return crc

        monkeypatch.setattr(Place, "write", meanwhile)
        if stored:
            with pytest.raises(PenstockError, match=r"PSK-6008: Another export to s3://.* has begun|PSK-6009"):
                export_checkpoint(storage.checkpoints, older, place)
        else:
            export_checkpoint(storage.checkpoints, older, place)
        found = find_savepoint(place, verify=True)
        assert found is not None and found.id == (newer if stored else older)
        assert not (tmp_path / "out" / "unfinished").exists()


def test_an_import_leaves_a_folder_as_it_was_or_a_database(tmp_path: Path) -> None:
    out, copy = tmp_path / "out", tmp_path / "copy"
    exported(tmp_path, out)
    with pytest.raises(PenstockError, match=r"PSK-6008.*nowhere has no savepoint"):
        import_checkpoint(str(tmp_path / "nowhere"), copy)
    assert not copy.exists()
    with pytest.raises(PenstockError, match=r"PSK-6008.*is not a folder"):
        import_checkpoint(str(out), out / MANIFEST)
    lock = FolderLock(copy)
    lock.acquire()
    with pytest.raises(PenstockError, match="PSK-0005"):
        import_checkpoint(str(out), copy)
    lock.release()
    # One that was killed leaves no empty database.
    (copy / "import").write_bytes(b"")
    (copy / "checkpoints" / "0").mkdir(parents=True)
    with pytest.raises(PenstockError, match=r"PSK-6008.*was interrupted"), opened(copy):
        raise AssertionError
    import_checkpoint(str(out), copy)
    with opened(copy) as storage:
        found = storage.catalog.get("t")
        assert found is not None and in_contents(storage, found) == {(1, "x"): 1}
    with pytest.raises(PenstockError, match=r"PSK-6008.*is not empty"):
        import_checkpoint(str(out), copy)


def test_an_import_that_was_decided_is_ended_by_the_next_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, copy = tmp_path / "out", tmp_path / "copy"
    exported(tmp_path, out)

    def killed(root: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("penstock.runtime.jobs.savepoints.finish", killed)
        with pytest.raises(KeyboardInterrupt):
            import_checkpoint(str(out), copy)
    assert (copy / "import").exists()
    with opened(copy) as storage:
        found = storage.catalog.get("t")
        assert found is not None and in_contents(storage, found) == {(1, "x"): 1}
    assert not (copy / "import").exists()


def test_a_savepoint_is_not_opened(tmp_path: Path) -> None:
    exported(tmp_path, tmp_path / "out")
    before = files(tmp_path / "out")
    with pytest.raises(PenstockError, match=r"PSK-0009.*is a savepoint"), opened(tmp_path / "out"):
        raise AssertionError
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["späß/日本", "a b%20c", "q?x#y", "x" * 200])
def test_names_of_folders_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    at = tmp_path / name
    exported(at, at / "out")
    assert (at / "out" / MANIFEST).is_file()
    import_checkpoint(str(at / "out"), at / "copy")
    with opened(at / "copy") as storage:
        assert storage.catalog.get("t") is not None
