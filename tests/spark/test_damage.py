"""Damage to any file is found before it is served: every object has the right rows, or is refused with a code."""

from __future__ import annotations

import io
import logging
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.effort import EFFORT, times
from tests.spark.conftest import CONFIG, MASTER, Opener
from tests.spark.damaging import (
    EARLIER,
    SCRIPT,
    build,
    check,
    cut,
    damages,
    empty,
    flip,
    kinds,
    power_cut,
    rows,
    without_checkpoints,
    without_last_epoch,
)

import penstock
from penstock import PenstockError
from penstock.log import Log
from penstock.runtime.jobs.saved import _state, _version, capture
from penstock.runtime.storage.checkpoints import CheckpointStore
from penstock.spark.offsets import numbered

OLDER = "catalog.older"
NO_INTERVAL = {"checkpoint.interval_ms": 0}
PARTS = 8
"""Of the list of all damages: each takes a few minutes."""


class Built(NamedTuple):
    folder: Path
    out: Path
    kept: Path
    count: int

    def again(self, to: Path) -> Path:
        """A copy of the database; the files of its sink are as they were."""
        shutil.copytree(self.folder, to)
        shutil.copyfile(self.folder.with_name(EARLIER) / "catalog.json", to / OLDER)
        shutil.rmtree(self.out)
        shutil.copytree(self.kept, self.out)
        return to


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, first_database: penstock.Database) -> Built:
    at = tmp_path_factory.mktemp("built")
    count = build(at / "db", at / "out", **CONFIG)
    shutil.copytree(at / "out", at / "kept")
    return Built(at / "db", at / "out", at / "kept", count)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Findings are logged, each with its stack."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def outcome(folder: Path, built: Built) -> dict[str, str]:
    """What is refused, by name; everything else is right."""
    try:
        with penstock.open(folder, master=MASTER, config=CONFIG | NO_INTERVAL) as db:
            return check(db, built.out, built.count)
    except PenstockError as error:
        return {"open": error.code}


def newest(what: str) -> Callable[[Path], Path]:
    return lambda folder: kinds(folder)[what][-1]


OFFSETS = "jobs/N/checkpoint/offsets/N"
KEYED, PLAIN = "jobs/keyed/N/checkpoint/epoch", "jobs/plain/N/checkpoint/epoch"


def unread(folder: Path) -> None:
    """The position of each kind of shared job is empty, and the last epoch of a job of its own is gone."""
    empty(newest(KEYED)(folder))
    empty(newest(PLAIN)(folder))
    without_last_epoch(folder)


def unsound(folder: Path) -> None:
    """A digit of an offset is flipped, and state is cut."""
    flip(newest(OFFSETS)(folder))
    cut(newest("jobs/keyed/N/checkpoint/state/N/N/N.changelog")(folder))


def unknown(folder: Path) -> None:
    """What a query began with is damaged, and how far a sink has come."""
    cut(newest("jobs/N/seeds.json")(folder))
    flip(newest("jobs/N/position.json")(folder))


def older_catalogue(folder: Path) -> None:
    """It is as it was before the last CREATE."""
    shutil.copyfile(folder / OLDER, folder / "catalog.json")


def without_output(folder: Path) -> None:
    """The log ends with the rows of the source that came last: what queries made of them is lost, and nobody attests to it."""
    log = Log.open(folder)
    last = [e for e in log.entries(1) if e.rows][-1]
    log.close()
    with open(last.path, "r+b") as segment:
        segment.truncate(last.offset + last.length)
    (folder / "log" / "head").unlink()
    store = CheckpointStore(folder / "checkpoints")
    for id in store.ids():
        if store.manifest(id).lsn > last.lsn:
            shutil.rmtree(store.path(id))


CASES: dict[str, tuple[Callable[[Path], object], dict[str, str]]] = {
    "the checkpoints of all queries are gone": (without_checkpoints, {}),
    "unread": (unread, {}),
    "unsound": (unsound, {}),
    "unknown": (unknown, {"flush": "PSK-7006", "joined": "PSK-7006"}),
    # The sink has delivered what the log no longer has.
    "the log has lost the last output": (without_output, {"flush": "PSK-7006"}),
    "the last segment is cut": (lambda f: cut(newest("log/N.seg")(f)), {"open": "PSK-6001"}),
    "the log is gone": (lambda f: newest("log/N.seg")(f).unlink(), {"open": "PSK-6001"}),
    "the catalogue is gone": (lambda f: (f / "catalog.json").unlink(), {"open": "PSK-6001"}),
    "the catalogue is empty": (lambda f: empty(f / "catalog.json"), {"open": "PSK-6001"}),
    "the catalogue lacks the last object": (older_catalogue, {"open": "PSK-6001"}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_finding(built: Built, tmp_path: Path, case: str) -> None:
    damage, refused = CASES[case]
    folder = built.again(tmp_path / "db")
    damage(folder)
    assert outcome(folder, built) == refused
    # It is found again, or was mended for good.
    if "open" in refused:
        assert outcome(folder, built) == refused


@pytest.mark.skipif(EFFORT == 1, reason="many minutes; `make test-long` runs it")
@pytest.mark.parametrize("part", range(PARTS if EFFORT > 1 else 1))
def test_every_kind_of_file_with_every_kind_of_damage(built: Built, tmp_path: Path, part: int) -> None:
    for i, (what, path, how, damage) in list(enumerate(damages(built.folder)))[part::PARTS]:
        folder = built.again(tmp_path / str(i))
        damage(folder / path.relative_to(built.folder))
        try:
            outcome(folder, built)
        except AssertionError as error:
            raise AssertionError(f"{what}, {how}") from error
        shutil.rmtree(folder)


@pytest.mark.parametrize("seed", range(times(1)))
def test_power_cuts_while_it_runs(opener: Opener, tmp_path: Path, seed: int) -> None:
    """Copies of the folder of a running database, without what may not be on disk: nothing acknowledged is lost, and nothing doubled."""
    chance = random.Random(seed)
    db, out = opener(tmp_path / "db", config=CONFIG | NO_INTERVAL), tmp_path / "out"
    db.execute(SCRIPT)
    db.execute(f"CREATE SINK files FROM even INTO FILES (path = '{out}', format = 'json')")
    count = 0
    for round in range(times(6, quick=2)):
        for _ in range(chance.randrange(1, 4)):
            more = chance.randrange(3, 15)
            db.source("s").insert(rows(count, count + more))
            count += more
            db.flush()
        if chance.random() < 0.5:
            db.execute("CHECKPOINT")
        image = tmp_path / f"cut{round}"
        shutil.copytree(tmp_path / "db", image)
        shutil.copytree(out, tmp_path / "kept")
        power_cut(image, chance)
        # Only one of them may deliver to the folder of the sink.
        db.execute("STOP PIPELINE")
        with penstock.open(image, master=MASTER, config=CONFIG | NO_INTERVAL) as after:
            assert check(after, out, count) == {}
        shutil.rmtree(out)
        shutil.copytree(tmp_path / "kept", out)
        shutil.rmtree(tmp_path / "kept")
        db.execute("START PIPELINE")


def test_a_query_that_emits_before_it_has_read_anything_is_repeated_once(tmp_path: Path) -> None:
    """A total over nothing is a row. The epoch that emits it reads no commit, and later commits must not become a part of it when it is repeated."""
    folder = tmp_path / "db"
    with penstock.open(folder, master=MASTER, config=CONFIG | NO_INTERVAL) as db:
        db.execute("CREATE SOURCE s (v BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM s")
        db.flush()
        db.execute("CREATE TABLE other (k BIGINT PRIMARY KEY)")
        db.execute("INSERT INTO other VALUES (1)")
        db.flush()
    shutil.rmtree(folder / "checkpoints")
    without_checkpoints(folder)
    with penstock.open(folder, master=MASTER, config=CONFIG | NO_INTERVAL) as db:
        db.flush()
        assert db.sql("SELECT * FROM total").fetchall() == [(0,)]
        db.insert("s", [(1,), (2,)])
        db.flush()
        assert db.sql("SELECT * FROM total").fetchall() == [(2,)]


def test_a_job_that_moves_on_while_it_is_captured_leaves_no_later_state_in_its_checkpoint(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's upkeep keeps the newest ten versions that it finds. With later ones in the folder it removes those that a query has gone back to, which then fails again and again."""
    db = opener(tmp_path / "db", config=CONFIG | NO_INTERVAL)
    db.execute("CREATE SOURCE s (k BIGINT, v BIGINT)")
    db.execute(
        "CREATE MATERIALIZED VIEW m AS SELECT k, max(v) AS v FROM s GROUP BY k EMIT EVERY INTERVAL '20' MILLISECOND"
    )
    count = 0

    def epochs(more: int) -> None:
        nonlocal count
        for _ in range(more):
            db.insert("s", [(count % 2, count)])
            db.flush()
            count += 1

    def listed(folder: Path) -> Iterator[Path]:
        """The files of state, after five epochs more."""
        epochs(5)
        return _state(folder)

    epochs(3)
    [checkpoint] = (tmp_path / "db" / "jobs").glob("*/checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr("penstock.runtime.jobs.saved._state", listed)
        db.execute("CHECKPOINT")
        captured = capture(checkpoint.parent)
    assert captured is not None and count == 13
    with zipfile.ZipFile(io.BytesIO(captured.small)) as archive:
        newest = max(int(n.rpartition("/")[2]) for n in archive.namelist() if n.startswith("checkpoint/commits/"))
        versions = [_version(Path(n)) for n in archive.namelist() if n.startswith("checkpoint/state/")]
    # Spark's number of a version is that of the epoch after it.
    assert max(versions) == newest + 1 and max(numbered(checkpoint / "commits")) > newest
    db.execute("STOP PIPELINE")
    shutil.copytree(tmp_path / "db", tmp_path / "cut")
    without_checkpoints(tmp_path / "cut")
    with penstock.open(tmp_path / "cut", master=MASTER, config=CONFIG | NO_INTERVAL) as after:
        after.insert("s", [(0, count)])
        after.flush()
        assert sorted(after.sql("SELECT * FROM m").fetchall()) == [(0, count), (1, count - 2)]


def test_a_shared_job_goes_on_past_an_epoch_with_which_a_dropped_query_began(opener: Opener, tmp_path: Path) -> None:
    """Going back to a checkpoint, it once waited for ever at the place in the log to which only that epoch had led."""
    db = opener(tmp_path / "db", config=CONFIG | NO_INTERVAL)
    db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT); CREATE TABLE other (k BIGINT PRIMARY KEY)")
    db.execute("CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS v FROM t")
    db.insert("t", [(1, 1), (2, 2)])
    db.flush()
    db.execute("CHECKPOINT")
    for name in ("gone", "extra"):
        db.insert("other", [(len(name),)])
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS SELECT k % 2 AS p, sum(v) AS v FROM t GROUP BY k % 2")
        db.flush()
        if name == "gone":
            db.execute("DROP MATERIALIZED VIEW gone")
    db.execute("STOP PIPELINE")
    shutil.copytree(tmp_path / "db", tmp_path / "cut")
    without_checkpoints(tmp_path / "cut")
    with penstock.open(tmp_path / "cut", master=MASTER, config=CONFIG | NO_INTERVAL) as after:
        after.flush(timeout=60)
        after.insert("t", [(3, 3)])
        after.flush(timeout=60)
        assert after.sql("SELECT v FROM total").fetchall() == [(6,)]
        assert sorted(after.sql("SELECT * FROM extra").fetchall()) == [(0, 2), (1, 4)]


def test_windows_that_a_quiet_source_has_closed_are_not_closed_again(opener: Opener, tmp_path: Path) -> None:
    """Their watermark came without rows, and so did the next: the log keeps the newest alone. Going back to its beginning, a query once closed them at that one, after all that was recorded."""
    db = opener(tmp_path / "db", config=CONFIG | NO_INTERVAL)
    db.execute("CREATE SOURCE s (v BIGINT, ts BIGINT, WATERMARK FOR ts)")
    view = "SELECT window_start, count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE"
    db.execute(f"CREATE MATERIALIZED VIEW shared AS {view}")
    db.execute(f"CREATE MATERIALIZED VIEW own AS {view} WITH (max_state_bytes = '10mb')")
    db.insert("s", [(1, 100), (2, 1100), (3, 5100)])
    db.flush()
    db.source("s").watermark(6500)
    db.flush()
    db.execute("STOP PIPELINE")
    db.source("s").watermark(9000)
    shutil.copytree(tmp_path / "db", tmp_path / "cut")
    without_checkpoints(tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints", ignore_errors=True)
    with penstock.open(tmp_path / "cut", master=MASTER, config=CONFIG | NO_INTERVAL) as after:
        for more, closed in (([], [0, 1000, 5000]), ([(4, 9100), (5, 11000)], [0, 1000, 5000, 9000])):
            if more:
                after.insert("s", more)
            after.flush(timeout=60)
            for name in ("shared", "own"):
                assert sorted(after.sql(f"SELECT * FROM {name}").fetchall()) == [(start, 1) for start in closed], name
