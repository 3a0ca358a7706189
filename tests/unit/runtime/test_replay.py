"""Connectors that a program registers: replayable sources commit each batch once, and sinks get each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.engines import Database, database
from tests.unit.runtime.storing import eventually, fresh, make, opened

import penstock
from penstock.catalog.objects import Column, Connector, Kind, ObjectInfo
from penstock.connect import Access, Insert, Report, Sink, Status, register_sink, register_source
from penstock.connect.options import check_options
from penstock.connect.sinks import SINKS
from penstock.connect.sources import SOURCES
from penstock.errors import PenstockError
from penstock.runtime.connect.intake import Intake
from penstock.runtime.storage.storage import Storage

FEED = [(i, f"v{i}") for i in range(10)]
"""What the server of the sources below has, for ever."""


class Numbers:
    """Two rows at a time, as far as the test lets it. A position is the number of rows before it."""

    def __init__(self, connector: Connector, columns: Sequence[Column], access: Access) -> None:
        check_options("NUMBERS", connector.options, ("up_to",))
        self._up_to = int(connector.options.get("up_to", "10"))
        self._at = 0
        self.stopped = False

    def resume(self, position: str | None) -> None:
        self._at = int(position or 0)

    def start(self, insert: Insert, report: Report) -> None:
        report(Status("connected"))
        while self._at < self._up_to:
            rows = FEED[self._at : self._at + 2]
            self._at += len(rows)
            insert(pa.RecordBatch.from_pydict({"k": [r[0] for r in rows], "v": [r[1] for r in rows]}), str(self._at))

    def stop(self) -> None:
        self.stopped = True


class Collected(Sink):
    rows: list[Any]

    def __init__(self, connector: Connector, access: Access) -> None:
        check_options("COLLECTED", connector.options, ())

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        self.rows += table.to_pylist()


@pytest.fixture(autouse=True)
def connectors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    register_source("numbers", ("up_to",), replayable=True)(Numbers)
    register_sink("collected", (), exactly_once=False)(Collected)
    monkeypatch.setattr(Collected, "rows", [], raising=False)
    yield
    SOURCES.remove("NUMBERS")
    SINKS.remove("COLLECTED")


def run(storage: Storage, info: ObjectInfo, up_to: int) -> Intake:
    given = ObjectInfo(**{**vars(info), "connector": Connector("numbers", {"up_to": str(up_to)})})
    return Intake(storage, given, Access())


def keys(storage: Storage, info: ObjectInfo) -> list[int]:
    schema = storage.feed(info).schema
    return [k for e in storage.log.entries(info.id) for k in storage.log.read(e, schema)["k"].to_pylist()]


def test_a_source_goes_on_after_the_last_batch_in_the_log(tmp_path: Path) -> None:
    name = fresh("s")
    with opened(tmp_path) as storage:
        info = make(storage, name, Kind.SOURCE)
        run(storage, info, 4).stop()
        assert keys(storage, info) == [0, 1, 2, 3]
    with opened(tmp_path) as storage:
        info = storage.catalog.get(name) or info
        run(storage, info, 10).stop()
        assert keys(storage, info) == list(range(10))


def test_a_batch_whose_commit_failed_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as storage:
        info = make(storage, fresh("s"), Kind.SOURCE)
        run(storage, info, 4).stop()
        with monkeypatch.context() as broken:
            # The position is on disk, and the rows are not.
            broken.setattr(storage, "persist", lambda part, stopping: pytest.fail("the disk is full"))
            with pytest.raises(pytest.fail.Exception):
                run(storage, info, 6)
        run(storage, info, 8).stop()
        assert keys(storage, info) == list(range(8))


def test_other_commits_of_the_source_do_not_matter(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        info = make(storage, fresh("s"), Kind.SOURCE)
        run(storage, info, 2).stop()
        storage.commit([storage.feed(info).part([(77, "by hand")])])
        run(storage, info, 4).stop()
        assert keys(storage, info) == [0, 1, 77, 2, 3]


def test_a_position_that_is_lost_is_an_error_and_not_a_guess(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        info = make(storage, fresh("s"), Kind.SOURCE)
        run(storage, info, 4).stop()
        (storage.layout.job(info.id) / "replay.json").unlink()
        with pytest.raises(PenstockError, match="PSK-6001"):
            run(storage, info, 6)
        (storage.layout.job(info.id) / "replay.json").write_text("{}")
        with pytest.raises(PenstockError, match="PSK-6001"):
            run(storage, info, 6)
        assert keys(storage, info) == [0, 1, 2, 3]


def test_a_replayable_source_must_give_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: Numbers, insert: Insert, report: Report) -> None:
        insert(pa.RecordBatch.from_pydict({"k": [1], "v": ["x"]}))

    monkeypatch.setattr(Numbers, "start", start)
    with opened(tmp_path) as storage, pytest.raises(PenstockError, match="gave rows without a position"):
        run(storage, make(storage, fresh("s"), Kind.SOURCE), 2)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(tmp_path, monkeypatch) as made:
        yield made


def test_statements_use_connectors_of_a_program(db: Database) -> None:
    db.run(
        "CREATE SOURCE s (k BIGINT NOT NULL, v STRING) FROM NUMBERS (up_to = '4'); CREATE SINK c FROM s INTO COLLECTED ()"
    )
    db.engine.start()
    eventually(lambda: [r["k"] for r in Collected.rows] == [0, 1, 2, 3], "the rows")
    listed = {(r["name"], r["direction"]): r for r in db.run("SHOW CONNECTORS").to_pylist()}
    assert listed["NUMBERS", "source"]["delivery"] == "replayable"
    assert listed["COLLECTED", "sink"]["delivery"] == "at-least-once"
    with pytest.raises(PenstockError, match="PSK-1010"):
        db.run("CREATE SOURCE t (k BIGINT) FROM NUMBERS (upto = '4')")


def test_they_are_part_of_the_package() -> None:
    assert penstock.register_source is register_source
    assert penstock.register_sink is register_sink
    assert penstock.Sink is Sink
