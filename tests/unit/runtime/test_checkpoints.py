"""Checkpoints of jobs on disk, and jobs that go back to one."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import pytest
from tests.unit.runtime.storing import in_contents, make, opened, part

from penstock.catalog.objects import Kind
from penstock.checkpoint import StreamCheckpoint
from penstock.disk import Witness
from penstock.errors import PenstockError, fail
from penstock.runtime.closed import restore_closed
from penstock.runtime.jobs.recovery import Beginning, Recovery
from penstock.runtime.jobs.saved import capture, discard, put_back
from penstock.runtime.jobs.saving import Captured, capture_all, save
from penstock.runtime.storage.checkpoints import CheckpointStore
from penstock.runtime.storage.storage import Storage
from penstock.spark.offsets import recorded_file

LARGE = bytes(200_000)


def epoch(folder: Path, number: int, lsn: int) -> None:
    """One more epoch of a job with an engine for streams of its own."""
    checkpoint = folder / "checkpoint"
    (checkpoint / "metadata").parent.mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text('{"id":"3f0c4b9e-8a3e-4a55-9a8e-111111111111"}')
    for kind, text in (("offsets", f'v1\n{{}}\n{{"lsn":{lsn}}}'), ("commits", "v1\n{}")):
        (checkpoint / kind).mkdir(exist_ok=True)
        (checkpoint / kind / str(number)).write_text(text)
    state = checkpoint / "state" / "0" / "0"
    state.mkdir(parents=True, exist_ok=True)
    (state / f"{number}_x.changelog").write_text(f"change {number}")
    (state / f"{number}_x.sst").write_bytes(LARGE + bytes([number]))


BEFORE, AFTER = ["3:a", "", "2:b", "5:c"], ["4:d", "1:e", "2:b", "6:f"]
"""What the parts of the state are called: two partitions at two depths."""


def shared(folder: Path, lsn: int, *, done: bool, recorded: int | None = None) -> None:
    """The position of a shared job."""
    offset = json.dumps({"lsn": lsn, "roster": 3})
    known = {
        "version": 2,
        "epoch": 4,
        "start": json.dumps({"lsn": 1}),
        "end": offset,
        "partitions": 2,
        "before": BEFORE,
    }
    known |= {} if recorded is None else {"recorded": recorded}
    text = json.dumps(known | ({"after": AFTER} if done else {}))
    (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
    (folder / "checkpoint" / "epoch").write_text(f"{text}\n{google_crc32c.value(text.encode())}")


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def saved(store: CheckpointStore, folder: Path, key: str, id: int, base: int = 0) -> None:
    found = capture(folder)
    assert found is not None
    body = StreamCheckpoint(id=id, epoch=id, operator_states={key: found.small}, created_at=id)
    with store.draft(id) as draft:
        for name, path in found.large.items():
            draft.add(f"{key}/{name}", path)
        jobs = {key: Captured(base, found).job}
        draft.complete(body, jobs, lsn=99, catalog=1, begun=0)


def test_a_job_is_as_it_was(tmp_path: Path) -> None:
    job = tmp_path / "jobs" / "7"
    assert capture(job) is None
    for number in range(3):
        epoch(job, number, 10 * number)
    (job / "state").write_text("sizes")
    (job / "seeds.json").write_text("seeds")
    before = files(job)
    found = capture(job)
    assert found is not None and found.reached == (20, 0) and len(found.large) == 3
    large = {name: tmp_path / f"kept{i}" for i, name in enumerate(found.large)}
    for name, path in found.large.items():
        large[name].hardlink_to(path)
    epoch(job, 3, 30)
    (job / "state").write_text("other sizes")
    put_back(job, found.small, large)
    assert files(job) == before
    discard(job)
    assert files(job) == {"seeds.json": b"seeds"}
    put_back(job, found.small, large)
    assert files(job) == before


@pytest.mark.parametrize(("done", "lsn", "roster"), [(True, 40, 3), (False, 1, 0)])
def test_a_shared_job_is_where_its_last_whole_epoch_ended(tmp_path: Path, done: bool, lsn: int, roster: int) -> None:
    shared(tmp_path, 40, done=done)
    found = capture(tmp_path)
    assert found is not None and found.reached == (lsn, roster)
    path = tmp_path / "checkpoint" / "epoch"
    path.write_text(path.read_text()[:-1])
    assert capture(tmp_path) is None


def test_what_is_written_is_read_and_pruned(tmp_path: Path) -> None:
    job, store = tmp_path / "jobs" / "7", CheckpointStore(tmp_path / "checkpoints")
    assert (store.ids(), store.prune(2)) == ([], [])
    for id in (1, 2, 3):
        epoch(job, id, 10 * id)
        saved(store, job, "jobs/7", id)
    assert store.ids() == [1, 2, 3]
    manifest = store.verify(3)
    assert (manifest.lsn, manifest.jobs["jobs/7"].lsn, len(manifest.jobs["jobs/7"].large)) == (99, 30, 3)
    (tmp_path / "checkpoints" / "4.new").mkdir()
    assert store.prune(2) == [1] and store.ids() == [2, 3]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["2", "3"]
    assert CheckpointStore(tmp_path / "checkpoints").verify(2) == store.manifest(2)


def test_a_checkpoint_that_was_half_removed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, store = tmp_path / "jobs" / "7", CheckpointStore(tmp_path / "checkpoints")
    for id in (1, 2):
        epoch(job, id, 10 * id)
        saved(store, job, "jobs/7", id)

    def killed(step: str) -> None:
        raise KeyboardInterrupt(step)

    with monkeypatch.context() as patch:
        patch.setattr("penstock.runtime.storage.checkpoints.crash_point", killed)
        with pytest.raises(KeyboardInterrupt):
            store.prune(1)
    assert store.ids() == [2] and (tmp_path / "checkpoints" / "1.gone").is_dir()
    assert store.prune(1) == [] and [p.name for p in store.folder.iterdir()] == ["2"]


def test_the_checksum_of_a_file_is_not_that_of_one_that_had_its_inode(tmp_path: Path) -> None:
    """A checkpoint that was given up leaves sums. A file that is merged away may then give its inode to a new one."""
    store, path = CheckpointStore(tmp_path), tmp_path / "views"
    for data in (b"a" * 100, b"b" * 100, b"c" * 200):
        path.write_bytes(data)
        os.utime(path, ns=(0, len(data) + data[0]))
        assert store.sum(path, len(data), "views/1/1.seg") == google_crc32c.value(data)
    # Another name: another file.
    path.write_bytes(b"d" * 200)
    os.utime(path, ns=(0, 200 + ord("c")))
    assert store.sum(path, 200, "views/1/2.seg") == google_crc32c.value(b"d" * 200)


def test_what_was_summed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, path = CheckpointStore(tmp_path), tmp_path / "segment"
    path.write_bytes(b"a" * 100)
    read: list[int] = []
    monkeypatch.setattr("penstock.runtime.storage.checkpoints.sync_file", lambda path: read.append(path.stat().st_size))
    store.sum(path, 100, "log/1.seg", grows=True)
    store.sum(path, 100, "log/1.seg", grows=True)
    with path.open("ab") as out:
        out.write(b"b" * 50)
    assert store.sum(path, 150, "log/1.seg", grows=True) == google_crc32c.value(b"a" * 100 + b"b" * 50)
    assert read == [100, 150]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [Path.unlink, cut, flip], ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", ["manifest.json", "body", "jobs/7/checkpoint/state/0/0/1_x.sst"])
def test_every_file_of_a_checkpoint_is_checked(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    job, store = tmp_path / "jobs" / "7", CheckpointStore(tmp_path / "checkpoints")
    epoch(job, 1, 10)
    saved(store, job, "jobs/7", 1)
    path = tmp_path / "checkpoints" / "1" / name
    # Not in place: the job has the same file.
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    store.verify(1)
    damage(path)
    with pytest.raises(PenstockError) as error:
        store.verify(1)
    assert error.value.code in ("PSK-6001", "PSK-6002")


def test_a_checkpoint_in_the_place_of_another_is_found(tmp_path: Path) -> None:
    """Each file of it is sound."""
    job, store = tmp_path / "jobs" / "7", CheckpointStore(tmp_path / "checkpoints")
    for id in (1, 2):
        epoch(job, id, 10 * id)
        saved(store, job, "jobs/7", id)
    shutil.rmtree(store.path(2))
    shutil.copytree(store.path(1), store.path(2))
    for look in (store.manifest, store.verify):
        with pytest.raises(PenstockError, match=r"PSK-6001.*2/manifest\.json is that of checkpoint 1"):
            look(2)
    assert store.verify(1).id == 1


def test_other_names_are_no_checkpoints(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    for name in ("3", "0", "04", "٣", "5x", "-6", "1" + "0" * 20, "8.gone", "9.new"):
        (store.folder / name).mkdir(parents=True)
    (store.folder / "7").write_text("")
    (store.folder / "2.new").write_text("")
    assert store.ids() == [3] and store.next_id() == 4
    # What an import or a checkpoint has left is removed.
    store.prune(1)
    left = {f.name for f in store.folder.iterdir()}
    assert left == {"3", "04", "٣", "5x", "-6", "1" + "0" * 20, "7"}


def test_checkpoints_that_cannot_be_listed_are_not_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    assert store.ids() == []
    store.folder.write_text("")
    for call in (store.ids, store.next_id, lambda: store.prune(1), lambda: store.lent(1).__enter__()):
        with pytest.raises(PenstockError, match=r"PSK-6001.*checkpoints/?\S* (cannot be read|is damaged)"):
            call()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with opened(tmp_path) as storage:
        yield storage


def test_a_job_goes_back_to_the_newest_that_can_be_used(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    source = make(storage, "s", Kind.SOURCE)
    for k in range(40):
        storage.commit([part(source, (k, "x"))])
    recovery, folder = Recovery(storage), storage.layout.job(7)
    job = Beginning("q", folder, 0, {source.id: 0})
    for id in (1, 2, 3):
        epoch(folder, id, 10 * id)
        saved(storage.checkpoints, folder, recovery.key(folder), id)
    assert recovery.saved(job) and not recovery.saved(Beginning("q", folder, 1 << 40, {}))
    newest = files(folder)
    epoch(folder, 4, 35)
    assert recovery.damage(folder) is None
    (folder / "checkpoint" / "offsets" / "4").write_text("")
    assert recovery.damage(folder) is not None
    assert recovery.roll_back(job, "damaged") and files(folder) == newest
    # The next attempts go further back, and at last to the beginning.
    (storage.layout.checkpoints / "2" / "body").unlink()
    assert recovery.roll_back(job, "damaged", 1) and capture(folder).reached.lsn == 10  # type: ignore[union-attr]
    assert recovery.roll_back(job, "damaged", 3) and not (folder / "checkpoint").exists()
    assert not recovery.roll_back(job, "damaged", 4)
    assert "goes on from checkpoint 3" in caplog.text and "goes on from its beginning" in caplog.text


def test_a_job_does_not_go_back_to_where_the_log_is_gone(storage: Storage) -> None:
    source = make(storage, "s", Kind.SOURCE)
    for k in range(40):
        storage.commit([part(source, (k, "x"))])
    recovery, folder = Recovery(storage), storage.layout.job(7)
    job = Beginning("q", folder, 0, {source.id: 0})
    epoch(folder, 1, 10)
    saved(storage.checkpoints, folder, recovery.key(folder), 1)
    storage.log.trim({source.id: 10})
    assert recovery.roll_back(job, "damaged") and not recovery.roll_back(job, "damaged", 1)
    storage.log.trim({source.id: 11})
    assert not recovery.roll_back(job, "damaged")
    # Nor if it would do something else this time, or if it is the log that is damaged.
    assert not recovery.roll_back(Beginning("q", folder, 0, {}, repeatable=False), "damaged")
    lost = fail("PSK-6001", "x.seg is damaged at offset 5: the 3 rows of commit 4 are lost.")
    assert not recovery.mend(Beginning("q", folder, 0, {}), lost, 0)


@pytest.mark.parametrize("who", ["7", "hosted-1/1"])
def test_a_log_that_has_lost_what_was_recorded_is_noticed(tmp_path: Path, who: str) -> None:
    """It has all that the epoch has read: an asynchronous log was cut by a power cut between that and the output."""
    folder = tmp_path / "jobs" / who
    with opened(tmp_path) as storage:
        t, head = make(storage, "t"), 3
        for k in range(head):
            storage.commit([part(t, (k, "x", 1))])
        job = Beginning("q", folder, 0, {t.id: 0})

    def found(recorded: int | None) -> str | None:
        if who == "7":
            epoch(folder, 1, head)
            recorded_file(folder).write_bytes(b"")
            if recorded is not None:
                Witness.write(recorded_file(folder), recorded)
        else:
            shared(folder, head, done=True, recorded=recorded)
        with opened(tmp_path) as storage:
            return Recovery(storage).damage(folder)

    assert [found(n) for n in (None, head)] == [None, None]
    said = f"has recorded epochs up to LSN {head + 1}, and the log ends with {head}"
    assert said in str(found(head + 1))
    with opened(tmp_path) as storage:
        recovery = Recovery(storage)
        # Another commit gets the number of the one that is lost.
        storage.commit([part(t, (9, "y", 1))])
        assert said in str(recovery.damage(folder))
        assert recovery.roll_back(job, said) and not (folder / "checkpoint").exists()
        # From here on what it records is what the log has.
        head = storage.log.head
        epoch(folder, 1, head) if who == "7" else shared(folder, head, done=True, recorded=head)
        assert recovery.damage(folder) is None


def test_a_log_that_ends_before_a_checkpoint_is_not_opened(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        t = make(storage, "t")
        lsns = [storage.commit([part(t, (k, "x", 1))]).lsn for k in range(4)]
        last = storage.log.last_entry(t.id, up_to=lsns[1])
        assert last is not None
        id = save(storage, capture_all(storage)).id
    segment = Path(last.path)
    data = segment.read_bytes()[: last.offset + last.length]
    # The checkpoint has the same file.
    segment.unlink()
    segment.write_bytes(data)
    (tmp_path / "log" / "head").unlink()
    said = rf"PSK-6001.*ends with commit {lsns[1]}, and checkpoint {id} has commits up to {lsns[-1]}: commits are lost"
    with pytest.raises(PenstockError, match=said), opened(tmp_path):
        raise AssertionError
    restore_closed(tmp_path, id, backup=True, keep_delivered=False)
    with opened(tmp_path) as storage:
        assert in_contents(storage, t) == {(k, "x"): 1 for k in range(4)}
        # None of the numbers that the lost commits had, and those that others may have got since.
        assert storage.commit([part(t, (9, "y", 1))]).lsn > lsns[-1] + 1000


def test_offsets_ahead_of_the_log_are_damage(storage: Storage) -> None:
    epoch(storage.layout.job(7), 1, 5)
    assert "the log ends with" in str(Recovery(storage).damage(storage.layout.job(7)))


@pytest.mark.parametrize("done", [True, False])
def test_state_of_later_epochs_is_no_part_of_a_checkpoint(tmp_path: Path, done: bool) -> None:
    """Spark removes what is some versions older than the newest that it finds."""
    shared(tmp_path, 40, done=done)
    for n, place in enumerate(("1/0", "1/1", "2/0", "2/1")):
        folder = tmp_path / "checkpoint" / "state" / place
        folder.mkdir(parents=True)
        (folder / "a-0001.sst").write_bytes(b"s")
        for version in range(1, 9):
            (folder / f"{version}_x{n}.changelog").write_bytes(b"c")
            (folder / f"{version}_x{n}.zip").write_bytes(b"z")
    saved = capture(tmp_path)
    assert saved is not None
    with zipfile.ZipFile(io.BytesIO(saved.small)) as archive:
        names = archive.namelist()
    assert sum(n.endswith(".sst") for n in names) == 4
    for place, name in zip(("1/0", "1/1", "2/0", "2/1"), AFTER if done else BEFORE, strict=True):
        kept = {
            int(n.rpartition("/")[2].partition("_")[0]) for n in names if f"state/{place}/" in n and ".sst" not in n
        }
        assert kept == set(range(1, int(name.partition(":")[0] or 0) + 1)), place


def test_a_shared_job_that_moves_on_too_fast_is_captured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared(tmp_path, 40, done=True)
    numbers = iter([4, 13, 14, 22, 22, 22])

    def number(epoch: dict[str, object]) -> int:
        return next(numbers)

    monkeypatch.setattr("penstock.runtime.jobs.saved._number", number)
    assert capture(tmp_path) is not None and list(numbers) == [22, 22]
