"""Checkpoints that are copied to another place as they are made."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.s3 import CREDENTIALS, ObjectStore, object_store
from tests.unit.runtime.engines import database
from tests.unit.runtime.storing import in_contents, make, opened, part, settings

from penstock.config.settings import CheckpointSettings
from penstock.errors import PenstockError
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.remote import RemoteCheckpoints, identity, remote
from penstock.runtime.jobs.restoring import fetch_missing
from penstock.runtime.jobs.savepoints import export_checkpoint, find_savepoint, import_checkpoint
from penstock.runtime.jobs.saving import capture_all, save
from penstock.runtime.statements.totals import database_status
from penstock.runtime.storage.storage import Storage
from penstock.runtime.storage.totals import DatabaseCounts
from penstock.runtime.uploads import Uploads


@pytest.fixture(params=["folder", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "folder":
        yield (tmp_path / "there").as_uri()
        return
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_store() as store:
        yield store.url("shop/hourly")


def saved(storage: Storage, *keys: int) -> int:
    """A checkpoint after some more rows."""
    t = storage.catalog.get("t") or make(storage, "t")
    for k in keys:
        storage.commit([part(t, (k, "x" * 1000, 1))])
    return save(storage, capture_all(storage)).id


def rows(folder: Path) -> set[int]:
    with opened(folder) as storage:
        t = storage.catalog.get("t")
        assert t is not None
        return {k for k, _ in in_contents(storage, t)}


def uploads(storage: Storage, url: str, keep: int = 2) -> tuple[Uploads, DatabaseCounts]:
    counts = DatabaseCounts()
    settings = CheckpointSettings(url=url, max_retained=keep)
    return Uploads(storage.layout.root, storage.checkpoints, lambda: settings, lambda: counts), counts


def test_each_checkpoint_can_be_imported(tmp_path: Path, place: str) -> None:
    with opened(tmp_path / "db") as storage:
        there, owner = remote(place), identity(storage.checkpoints.folder)
        ids = [saved(storage, n, n + 1) for n in (0, 2, 4)]
        for id in ids:
            assert there.upload(storage.checkpoints, id, owner)
        assert not there.upload(storage.checkpoints, ids[-1], owner)
        assert there.ids() == ids
        assert [there.verify(id).lsn for id in ids] == [storage.checkpoints.manifest(id).lsn for id in ids]
    import_checkpoint(place, tmp_path / "newest")
    assert rows(tmp_path / "newest") == set(range(6))
    import_checkpoint(place, tmp_path / "older", ids[0])
    assert rows(tmp_path / "older") == {0, 1}
    with pytest.raises(PenstockError, match=r"PSK-6005.*has no checkpoint 9\. There are: 1, 2, 3"):
        import_checkpoint(place, tmp_path / "none", 9)


def test_a_file_that_several_checkpoints_have_is_there_once_and_goes_with_the_last(tmp_path: Path) -> None:
    place = tmp_path / "there"
    with opened(tmp_path / "db") as storage:
        there, owner = remote(place.as_uri()), identity(storage.checkpoints.folder)
        first = saved(storage, *range(50))
        there.upload(storage.checkpoints, first, owner)
        again = save(storage, capture_all(storage)).id
        there.upload(storage.checkpoints, again, owner)
        # Two checkpoints of the same log: their manifests and bodies are all that differs.
        segments = [f for f in place.rglob("*") if ".seg." in f.name]
        assert len(segments) == 1
        newest = saved(storage, 77)
        there.upload(storage.checkpoints, newest, owner)
        assert there.prune(1) == [first, again]
        left = [f for f in place.rglob("*") if ".seg." in f.name]
        assert len(left) == 1 and left != segments
        assert there.verify(newest).id == newest
    import_checkpoint(place.as_uri(), tmp_path / "copy")
    assert rows(tmp_path / "copy") == {*range(50), 77}


def test_every_file_that_is_damaged_or_missing_there_is_found(tmp_path: Path) -> None:
    place = tmp_path / "there"
    with opened(tmp_path / "db") as storage:
        there = remote(place.as_uri())
        id = saved(storage, 1, 2)
        there.upload(storage.checkpoints, id, identity(storage.checkpoints.folder))
    for path in [f for f in place.rglob("*") if f.is_file() and f.name != "owner.json"]:
        data = path.read_bytes()
        for damaged in (data[:-1] + bytes([data[-1] ^ 1]), data[:-1], b"", None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(PenstockError) as error:
                there.verify(id)
            assert error.value.code in ("PSK-6009", "PSK-6005"), path
            with pytest.raises(PenstockError) as error:
                import_checkpoint(place.as_uri(), tmp_path / "bad", id)
            assert error.value.code in ("PSK-6009", "PSK-6005"), path
            assert not (tmp_path / "bad").exists()
            path.write_bytes(data)
    there.verify(id)


def test_a_list_in_the_place_of_another_is_found(tmp_path: Path) -> None:
    place = tmp_path / "there"
    with opened(tmp_path / "db") as storage:
        there, owner = remote(place.as_uri()), identity(storage.checkpoints.folder)
        for n in (1, 2):
            there.upload(storage.checkpoints, saved(storage, n), owner)
    shutil.copy(place / "checkpoints" / "1.json", place / "checkpoints" / "2.json")
    for take in (lambda: there.verify(2), lambda: import_checkpoint(place.as_uri(), tmp_path / "bad")):
        with pytest.raises(PenstockError, match=r"PSK-6009.*2\.json is damaged: it lists checkpoint 1"):
            take()
    assert there.verify(1).id == 1 and not (tmp_path / "bad").exists()


def test_two_databases_do_not_share_a_place(tmp_path: Path) -> None:
    place = (tmp_path / "there").as_uri()
    with opened(tmp_path / "db") as storage:
        remote(place).upload(storage.checkpoints, saved(storage, 1), identity(storage.checkpoints.folder))
    import_checkpoint(place, tmp_path / "copy")
    with opened(tmp_path / "copy") as storage:
        id = saved(storage, 2)
        with pytest.raises(PenstockError, match=r"PSK-6008.*another database"):
            remote(place).upload(storage.checkpoints, id, identity(storage.checkpoints.folder))
        with pytest.raises(PenstockError, match=r"PSK-6008.*in the folder of the database"):
            remote((tmp_path / "copy" / "there").as_uri(), tmp_path / "copy")
        with pytest.raises(PenstockError, match=r"PSK-6008.*has the checkpoints of a database"):
            export_checkpoint(storage.checkpoints, id, place)


def test_a_copy_of_a_database_does_not_mix_its_checkpoints_with_those_of_the_original(tmp_path: Path) -> None:
    place = (tmp_path / "there").as_uri()
    with opened(tmp_path / "db") as storage:
        remote(place).upload(storage.checkpoints, saved(storage, 1), identity(storage.checkpoints.folder))
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with opened(tmp_path / "copy") as storage:
        # It has the same identity, and what is there is its own.
        owner = identity(storage.checkpoints.folder)
        assert not remote(place).upload(storage.checkpoints, 1, owner)
        other = saved(storage, 2)
    with opened(tmp_path / "db") as storage:
        remote(place).upload(storage.checkpoints, saved(storage, 3), owner)
        remote(place).upload(storage.checkpoints, saved(storage, 4), owner)
    with opened(tmp_path / "copy") as storage:
        for id in (other, saved(storage, 5)):
            with pytest.raises(PenstockError, match=r"PSK-6008.*has checkpoint 3, which this database has not made"):
                remote(place).upload(storage.checkpoints, id, owner)


def test_a_damaged_checkpoint_is_not_uploaded(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as storage:
        id = saved(storage, 1)
        body = storage.checkpoints.path(id) / "body"
        body.write_bytes(bytes(body.stat().st_size))
        there = remote((tmp_path / "there").as_uri())
        with pytest.raises(PenstockError, match=r"PSK-6001.*body is damaged"):
            there.upload(storage.checkpoints, id, identity(storage.checkpoints.folder))
        assert there.ids() == []


def test_a_checkpoint_is_uploaded_although_it_is_pruned_meanwhile(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as storage:
        id = saved(storage, 1, 2, 3)
        pruned = False

        def prune() -> None:
            nonlocal pruned
            if not pruned:
                pruned = True
                saved(storage, 4)
                assert storage.checkpoints.prune(1) == [id]

        there = remote((tmp_path / "there").as_uri(), go_on=prune)
        there.upload(storage.checkpoints, id, identity(storage.checkpoints.folder))
        assert pruned and there.verify(id).id == id
        assert [f.name for f in storage.checkpoints.folder.iterdir() if "lent" in f.name] == []


def test_a_checkpoint_on_a_disk_that_can_only_be_read_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    with opened(tmp_path / "db") as storage:
        id = saved(storage, 1)
        with monkeypatch.context() as patch:
            patch.setattr("penstock.runtime.storage.lending._locked", refuse)
            export_checkpoint(storage.checkpoints, id, str(tmp_path / "out"))
    assert find_savepoint(str(tmp_path / "out"), verify=True) is not None


def test_what_a_killed_reader_has_left_is_removed(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as storage:
        id = saved(storage, 1)
        child = os.fork()
        if not child:
            with storage.checkpoints.lent(id):
                os._exit(0)
        os.waitpid(child, 0)
        assert any("lent" in f.name for f in storage.checkpoints.folder.iterdir())
        with storage.checkpoints.lent(id) as (folder, _):
            storage.checkpoints.prune(1)
            assert [f.name for f in storage.checkpoints.folder.iterdir() if f.is_dir() and "lent" in f.name] == [
                folder.name
            ]


def test_a_checkpoint_that_is_only_there_is_fetched(tmp_path: Path) -> None:
    place = (tmp_path / "there").as_uri()
    with opened(tmp_path / "db") as storage:
        storage.settings = storage.settings.model_copy(update={"checkpoint": CheckpointSettings(url=place)})
        first = saved(storage, 1)
        remote(place).upload(storage.checkpoints, first, identity(storage.checkpoints.folder))
        saved(storage, 2)
        storage.checkpoints.prune(1)
        assert first not in storage.checkpoints.ids()
        for id in (99, first):
            fetch_missing(storage.layout, storage.checkpoints, place, id)
        assert storage.checkpoints.verify(first).id == first
        assert storage.checkpoints.next_id() == first + 2


def settled(up: Uploads) -> None:
    up.wake()
    up.close(60)


def test_the_newest_checkpoint_is_uploaded_in_the_background(tmp_path: Path, place: str) -> None:
    with opened(tmp_path / "db") as storage:
        up, counts = uploads(storage, place, keep=2)
        for n in range(4):
            id = saved(storage, n)
            up.wake()
            with up._changed:
                assert up._changed.wait_for(lambda id=id: up.last == id, 60)
        assert (counts.uploaded, counts.upload_failed, up.error) == (4, 0, None)
        assert up.there == {id - 1, id} and RemoteCheckpoints(remote(place).place).ids() == [id - 1, id]
        up.close(10)
        # The next process finds nothing to do.
        again, counts = uploads(storage, place)
        settled(again)
        assert (again.last, counts.uploaded) == (id, 0)


def test_a_place_that_fails_holds_nobody_up_and_is_tried_again(tmp_path: Path) -> None:
    place = tmp_path / "there"
    place.write_text("a file, where a folder should be")
    with opened(tmp_path / "db") as storage:
        up, counts = uploads(storage, place.as_uri())
        id = saved(storage, 1)
        up.wake()
        with up._changed:
            assert up._changed.wait_for(lambda: up.error is not None, 60)
        assert up.error is not None and up.error.code == "PSK-6008" and counts.upload_failed >= 1
        place.unlink()
        with up._changed:
            assert up._changed.wait_for(lambda: up.last == id, 60)
        assert up.error is None and counts.uploaded == 1
        up.close(10)


def test_close_gives_up_an_upload_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, on = threading.Event(), threading.Event()

    def slow(self: RemoteCheckpoints, *args: object) -> bool:
        begun.set()
        on.wait(60)
        self.place._go_on()
        return True

    monkeypatch.setattr(RemoteCheckpoints, "upload", slow)
    with opened(tmp_path / "db") as storage:
        up, counts = uploads(storage, (tmp_path / "there").as_uri())
        saved(storage, 1)
        up.wake()
        assert begun.wait(60)
        up.close(0.01)
        on.set()
        assert up._thread is not None
        up._thread.join(60)
        assert not up._thread.is_alive() and (counts.uploaded, counts.upload_failed) == (0, 0)


def test_the_setting_takes_no_credentials() -> None:
    assert CheckpointSettings().url == ""
    with pytest.raises(ValueError, match="url"):
        CheckpointSettings(url="s3://key:secret@bucket/shop")


def test_the_store_has_the_prefix_of_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_store() as store, opened(tmp_path / "db") as storage:
        _upload(storage, store, "shop/hourly")
        assert all(k.startswith("shop/hourly/") for k in store.listed())
        kinds = {k.removeprefix("shop/hourly/").partition("/")[0] for k in store.listed()}
        assert kinds == {"owner.json", "checkpoints", "objects"}


def _upload(storage: Storage, store: ObjectStore, prefix: str) -> None:
    remote(store.url(prefix)).upload(storage.checkpoints, saved(storage, 1), identity(storage.checkpoints.folder))


def test_a_database_uploads_its_checkpoints_and_goes_back_to_one_that_is_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "there"
    given = settings(checkpoint={"interval_ms": 0, "max_retained": 3, "url": place.as_uri()})
    monkeypatch.setattr("tests.unit.runtime.engines.Engine", lambda folder, _: Engine(folder, given))
    with database(tmp_path / "db", monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, v VARCHAR, PRIMARY KEY (k))")
        db.engine.start()
        db.insert("t", (1, "x"))
        (first,) = db.run("CHECKPOINT")["checkpoint"].to_pylist()
        up = db.engine.uploads
        with up._changed:
            assert up._changed.wait_for(lambda: up.last == first, 60)
        assert db.run("SHOW CHECKPOINTS")["uploaded"].to_pylist() == [True]
        whole = database_status(db.engine)
        assert (whole.uploads_completed, whole.uploads_failed, whole.uploaded_id) == (1, 0, first)
        assert whole.upload_error is None
        db.insert("t", (2, "y"))
    # The last checkpoint was uploaded before the end.
    assert remote(place.as_uri()).ids() == [first, first + 1]
    with database(tmp_path / "db", monkeypatch) as db:
        db.engine.start()
        shutil.rmtree(db.engine.storage.checkpoints.path(first))
        assert db.rows("t") == {(1, "x"): 1, (2, "y"): 1}
        with pytest.raises(PenstockError, match="PSK-6005"):
            db.run("RESTORE FROM CHECKPOINT 99")
        db.run(f"RESTORE FROM CHECKPOINT {first}")
        assert db.rows("t") == {(1, "x"): 1}
        shutil.rmtree(place)
        place.write_text("")
        (made,) = db.run("CHECKPOINT")["checkpoint"].to_pylist()
        up = db.engine.uploads
        with up._changed:
            assert up._changed.wait_for(lambda: up.error is not None, 60)
        assert made > first and "PSK-6008" in str(database_status(db.engine).upload_error)
