"""Checkpoints of jobs on disk, and jobs that go back to one."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import pytest
from tests.unit.runtime.storing import make, opened, part

from penstock.catalog.objects import Kind
from penstock.checkpoint import StreamCheckpoint
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs.recovery import Beginning, Recovery
from penstock.runtime.jobs.saved import capture, discard, put_back
from penstock.runtime.jobs.saving import Captured
from penstock.runtime.storage.checkpoints import CheckpointStore
from penstock.runtime.storage.storage import Storage

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


def shared(folder: Path, lsn: int, *, done: bool) -> None:
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
