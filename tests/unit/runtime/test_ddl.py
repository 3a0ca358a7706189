from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.effort import EFFORT
from tests.unit.runtime.engines import Batch, Compiler, Database, database
from tests.unit.runtime.kernels import HostKernel, Kernel
from tests.unit.runtime.striking import at_every_line

from penstock.catalog.objects import Kind
from penstock.connect import register_callable
from penstock.errors import PenstockError, fail
from penstock.runtime import engine as engine_module
from penstock.runtime.jobs import planned as planned_module
from penstock.runtime.jobs.job import Job
from penstock.runtime.statements import sinks as sinks_module
from penstock.runtime.statements.readable import check_readable
from penstock.runtime.storage.storage import Storage
from penstock.serve.hub import Hub
from penstock.serve.store import ViewStore

REFUSED = fail("PSK-7001", "Something refuses.")
ERRORS = [REFUSED, KeyboardInterrupt(), ValueError("a defect")]

SETUP = """
CREATE SOURCE s (k BIGINT, v STRING);
CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING);
CREATE MATERIALIZED VIEW a AS SELECT k, v FROM s;
CREATE MATERIALIZED VIEW b AS SELECT k, v FROM t;
CREATE SINK out FROM b INTO PYTHON (callable = 'received');
"""


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """For tests that leave everything as it was."""
    with pytest.MonkeyPatch.context() as patch, begun(tmp_path_factory.mktemp("ddl"), patch) as made:
        yield made


@contextmanager
def begun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    register_callable("received", lambda table, epoch: None)
    with database(folder, monkeypatch) as made:
        made.run(SETUP)
        made.run("START PIPELINE")
        yield made


Fault = Callable[[pytest.MonkeyPatch, BaseException], None]


def failing(owner: Any, name: str, *, after: bool = False, once: bool = False) -> Fault:
    """Lets a function or method fail; `after`: when its work is done; `once`: the first time only."""

    def patch(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        own = getattr(owner, name)
        calls = 0

        def fails(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            sound = once and calls > 1
            done = own(*args, **more) if after or sound else None
            if sound:
                return done
            raise error

        monkeypatch.setattr(owner, name, fails)

    return patch


def begins_failing(*, after: bool = False) -> Fault:
    """Lets a query fail to begin, with a job or as a member of one."""

    def patch(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        for owner, name in ((Job, "start"), (HostKernel, "join")):
            failing(owner, name, after=after, once=True)(monkeypatch, error)

    return patch


def full_disk(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Every file that is written whole is refused, by the operating system or, for other errors, by themselves."""
    rename = os.replace

    def refuses(source: Any, target: Any) -> None:
        if Path(target).name == "catalog.json":
            raise error if not isinstance(error, PenstockError) else OSError(errno.ENOSPC, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refuses)


STEPS: dict[str, Fault] = {
    "columns": failing(Batch, "check_columns"),
    "defaults": failing(Batch, "constants"),
    "compile": failing(Compiler, "compile"),
    "seeds": failing(planned_module, "write_json"),
    "hub": failing(Hub, "open"),
    "attach": failing(Storage, "attach"),
    "attached": failing(Storage, "attach", after=True),
    "start": begins_failing(),
    "started": begins_failing(after=True),
    "catalogue": full_disk,
}

CREATES = {
    "source": (
        "CREATE {} SOURCE {} (k BIGINT, v STRING)",
        {"columns", "defaults", "hub", "attach", "attached", "catalogue"},
    ),
    "table": (
        "CREATE {} TABLE {} (k BIGINT PRIMARY KEY, v STRING)",
        {"columns", "defaults", "hub", "attach", "attached", "catalogue"},
    ),
    "view": (
        "CREATE {} MATERIALIZED VIEW {} AS SELECT k, v FROM t WHERE k > 0",
        {"compile", "seeds", "hub", "attach", "attached", "start", "started", "catalogue"},
    ),
    "sink": (
        "CREATE {} SINK {} INTO PYTHON (callable = 'received') AS SELECT k, v FROM t WHERE k > 0",
        {"compile", "seeds", "hub", "attach", "attached", "start", "started", "catalogue"},
    ),
}


def with_fault(db: Database, monkeypatch: pytest.MonkeyPatch, fault: Fault, error: BaseException, text: str) -> None:
    with monkeypatch.context() as patch:
        fault(patch, error)
        db.run(text)


def works(db: Database) -> None:
    """Everything that was there before still does what it should."""
    db.insert("s", (db.engine.log.head, "x"))
    db.insert("t", (db.engine.log.head, "x"))
    assert db.rows("a") and db.rows("b") == db.rows("t")
    out = db.engine.catalog.get("out")
    assert out is not None and db.engine.sinks[out.id].settle(None)


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_a_create_that_fails_at_any_step_leaves_everything_as_it_was(
    db: Database, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    works(db)
    before = db.state()
    for kind, (text, steps) in CREATES.items():
        for step in STEPS:
            if step not in steps:
                continue
            with pytest.raises(BaseException) as raised:  # noqa: PT011
                with_fault(db, monkeypatch, STEPS[step], error, text.format("", "fresh"))
            if step == "catalogue" and error is REFUSED:
                assert raised.value.code == "PSK-7004"  # type: ignore[attr-defined]
            else:
                assert raised.value is error or isinstance(raised.value, type(error)), (kind, step)
            assert db.state() == before, (kind, step)
    works(db)
    for kind, (text, _) in CREATES.items():
        db.run(text.format("", f"fresh_{kind}"))
    assert {o.name for o in db.engine.catalog.objects()} >= {f"fresh_{k}" for k in CREATES}
    for kind in CREATES:
        db.run(f"DROP {'MATERIALIZED VIEW' if kind == 'view' else kind.upper()} fresh_{kind}")
    assert sizes(db.state()) == sizes(before)


def sizes(state: dict[str, Any]) -> dict[str, int]:
    """How much there is of everything; of the log it depends on what was inserted."""
    return {k: len(v) if hasattr(v, "__len__") else v for k, v in state.items() if k != "log"}


OLD = {"source": "s1", "table": "t1", "view": "v1", "sink": "k1"}


def test_a_replacement_that_fails_leaves_the_old_object_working(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, (text, _) in CREATES.items():
        db.run(text.format("", OLD[kind]))
    db.insert("t", (1, "x"))
    db.insert("t1", (7, "old"))
    db.rows("v1")  # Its first epoch is part of the state.
    before = db.state()
    for kind, (text, steps) in CREATES.items():
        for number, step in enumerate(sorted(steps)):
            with pytest.raises(BaseException):  # noqa: B017, PT011
                with_fault(db, monkeypatch, STEPS[step], ERRORS[number % 3], text.format("OR REPLACE", OLD[kind]))
            assert db.state() == before, (kind, step)
    works(db)
    assert db.rows("t1") == {(7, "old"): 1} and db.rows("v1") == db.rows("t")
    for kind, (text, _) in CREATES.items():
        db.run(text.format("OR REPLACE", OLD[kind]))
    assert not db.rows("t1") and db.rows("v1") == db.rows("t")
    # Nothing is left of the old ones.
    assert sizes(db.state()) == sizes(before)
    for kind, name in OLD.items():
        db.run(f"DROP {'MATERIALIZED VIEW' if kind == 'view' else kind.upper()} {name}")


def test_what_happens_after_the_catalogue_was_changed_is_not_undone(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "start_sink": "CREATE SINK fresh FROM a INTO PYTHON (callable = 'received')",
        "start_connector": "CREATE SOURCE fresh (k BIGINT) FROM WEBSOCKET (url = 'ws://127.0.0.1:1') FORMAT JSON",
    }
    for (name, text), error in zip(texts.items(), (REFUSED, ValueError("a defect")), strict=True):
        with_fault(db, monkeypatch, failing(engine_module.Engine, name), error, text)
        info = db.engine.catalog.get("fresh")
        assert info is not None and info.id in db.engine.storage._attached
        assert db.engine.refusals[info.id].code in ("PSK-7001", "PSK-8001")
        works(db)
        # It is tried again when the pipeline is started.
        db.run("STOP PIPELINE; START PIPELINE")
        assert info.id not in db.engine.refusals
        db.run(f"DROP {info.kind.value.upper()} fresh")
        assert info.id not in db.engine.refusals


def test_ctrl_c_at_any_line_of_a_create_leaves_all_of_it_or_nothing(db: Database) -> None:
    before = db.state()
    outcomes = set()
    for interrupted in at_every_line(
        lambda: db.run("CREATE MATERIALIZED VIEW fresh AS SELECT k, v FROM t WHERE k > 0"), 29 if EFFORT > 1 else 67
    ):
        there = db.engine.catalog.get("fresh") is not None
        outcomes.add((interrupted, there))
        if there:
            assert db.rows("fresh") == db.rows("t")
            db.run("DROP MATERIALIZED VIEW fresh")
        assert db.state() == before
    works(db)
    assert outcomes >= {(True, False), (False, True)}


def test_ctrl_c_at_any_line_of_a_replacement_leaves_the_old_or_the_new(db: Database) -> None:
    text = "CREATE {} TABLE u (k BIGINT PRIMARY KEY, v STRING{})"
    db.run(text.format("", ""))
    db.insert("u", (1, "old"))
    for _ in at_every_line(lambda: db.run(text.format("OR REPLACE", ", w STRING")), 97 if EFFORT > 1 else 151):
        info = db.engine.catalog.get("u")
        assert info is not None
        if len(info.columns) == 3:
            assert not db.rows("u")
            db.insert("u", (2, "new", "x"))
            db.run(text.format("OR REPLACE", ""))
            db.insert("u", (1, "old"))
        assert db.rows("u") == {(1, "old"): 1}
        state = db.state()
        assert len(state["attached"]) == len(state["objects"]) == len(state["channels"])
    db.run("DROP TABLE u")


DROPS = ["DROP SINK out", "DROP SOURCE s CASCADE", "DROP TABLE t CASCADE", "DROP MATERIALIZED VIEW a"]


def test_a_drop_that_the_disk_refuses_leaves_everything(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.state()
    for text in DROPS:
        with pytest.raises(PenstockError, match="PSK-7004"):
            with_fault(db, monkeypatch, full_disk, REFUSED, text)
        assert db.state() == before, text
    works(db)


REMAINS: dict[str, Fault] = {
    "job": failing(Kernel, "stop"),
    "contents": failing(ViewStore, "drop"),
    "subscribers": failing(Hub, "end"),
}


def test_a_drop_has_happened_whatever_of_its_remains_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = "CREATE MATERIALIZED VIEW {} AS SELECT k, v FROM t WHERE k > 0"
    with begun(tmp_path, monkeypatch) as db:
        db.insert("t", (1, "x"))
        for number, fault in enumerate(REMAINS.values()):
            for error in (REFUSED, OSError("a defect")):
                db.run(view.format("gone"))
                with_fault(db, monkeypatch, fault, error, "DROP MATERIALIZED VIEW gone CASCADE")
                assert db.engine.catalog.get("gone") is None
            db.insert("t", (number + 2, "x"))
            assert db.rows("b") == db.rows("t") and len(db.rows("t")) == number + 2
        known = {j.kernel for j in db.engine.jobs}
        for kernel in db.world.running:
            if kernel not in known:
                kernel.stop()
        objects = db.engine.catalog.objects()
    with database(tmp_path, monkeypatch) as db:
        db.run("START PIPELINE")
        state = db.state()
        # The next open has swept them up.
        assert state["objects"] == objects and state["attached"] == [o.id for o in objects]
        works(db)


def test_ctrl_c_at_any_line_of_a_drop_leaves_all_of_it_or_nothing(db: Database) -> None:
    text = "CREATE MATERIALIZED VIEW fresh AS SELECT k, v FROM t WHERE k > 0"
    db.run(text)
    with_it = db.state()
    for _ in at_every_line(lambda: db.run("DROP MATERIALIZED VIEW fresh"), 131):
        if db.engine.catalog.get("fresh") is None:
            db.run(text)
        assert sizes(db.state()) == sizes(with_it)
    db.run("DROP MATERIALIZED VIEW fresh")
    works(db)


def test_an_added_column_is_there_even_if_a_reader_cannot_be_started_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.run("CREATE SOURCE r (k BIGINT); CREATE MATERIALIZED VIEW shared AS SELECT k FROM r WHERE k > 0")
    db.insert("r", (1,))
    db.run("CREATE MATERIALIZED VIEW alone AS SELECT k FROM r WHERE k > 0")
    assert db.rows("alone") == db.rows("shared") == {(1,): 1}
    db.run("ALTER SOURCE r ADD COLUMN v STRING")
    db.insert("r", (2, "x"))
    assert db.rows("alone") == db.rows("shared") == {(1,): 1, (2,): 1}
    with_fault(db, monkeypatch, failing(Job, "start"), REFUSED, "ALTER SOURCE r ADD COLUMN w STRING")
    db.insert("r", (3, "x", "y"))
    for name in ("alone", "shared"):
        reader = db.engine.catalog.get(name)
        assert reader is not None
        trouble = db.engine.jobs.trouble(reader)
        assert trouble is not None and trouble.error is REFUSED
        with pytest.raises(PenstockError, match="PSK-7006"):
            check_readable(db.engine, [reader])
    db.run("STOP PIPELINE; START PIPELINE")
    assert db.rows("alone") == db.rows("shared") == {(1,): 1, (2,): 1, (3,): 1}
    db.run("DROP SOURCE r CASCADE")


def test_a_restart_that_fails_does_not_let_old_rows_pass_for_new(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.run("CREATE SOURCE r (k BIGINT); CREATE MATERIALIZED VIEW shared AS SELECT k FROM r WHERE k > 0")
    db.insert("r", (1,))
    db.run("CREATE STREAM alone AS SELECT k FROM r WHERE k > 0")
    for name, kind in (("shared", "MATERIALIZED VIEW"), ("alone", "STREAM")):
        info = db.engine.catalog.get(name)
        assert info is not None
        with pytest.raises(PenstockError, match="Something refuses"):
            with_fault(db, monkeypatch, failing(Job, "start"), REFUSED, f"RESTART {kind} {name}")
        with pytest.raises(PenstockError, match="PSK-7006"):
            check_readable(db.engine, [info])
        db.run(f"RESTART {kind} {name}")
        check_readable(db.engine, [info])
    db.run("DROP SOURCE r CASCADE")


def test_a_query_that_shares_its_job_begins_again_on_demand(db: Database) -> None:
    db.run("CREATE TABLE r (k BIGINT); CREATE MATERIALIZED VIEW shared AS SELECT k FROM r WHERE k > 0")
    db.insert("r", (1,))
    assert db.rows("shared") == {(1,): 1}
    info = db.engine.catalog.get("shared")
    assert info is not None and db.engine.jobs.hosted.member(info.id)
    before = db.engine.log.epoch(info.id)
    db.run("RESTART MATERIALIZED VIEW shared FROM BEGINNING")
    assert db.rows("shared") == {(1,): 1}
    # What it had emitted was taken back, and is computed again.
    assert db.engine.log.epoch(info.id) == before + 2
    db.insert("r", (2,))
    assert db.rows("shared") == {(1,): 1, (2,): 1}
    db.run("DROP TABLE r CASCADE")


def test_a_query_that_cannot_begin_again_goes_on(db: Database) -> None:
    db.run("CREATE SOURCE r (k BIGINT); CREATE MATERIALIZED VIEW shared AS SELECT k FROM r WHERE k > 0")
    db.insert("r", (1,))
    db.run("CREATE MATERIALIZED VIEW alone AS SELECT k FROM r WHERE k > 0")
    assert db.rows("shared") == db.rows("alone") == {(1,): 1}
    before = db.state()
    for name in ("shared", "alone"):
        with pytest.raises(PenstockError, match="PSK-6003"):
            db.run(f"RESTART MATERIALIZED VIEW {name} FROM BEGINNING")
    assert db.state() == before
    db.insert("r", (2,))
    assert db.rows("shared") == db.rows("alone") == {(1,): 1, (2,): 1}
    db.run("DROP SOURCE r CASCADE")


def test_the_sink_of_a_statement_that_fails_is_closed(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    make = sinks_module.make_sink

    def noted(*args: Any, **more: Any) -> Any:
        sink = make(*args, **more)
        close = sink.close
        monkeypatch.setattr(sink, "close", lambda: (made.append("closed"), close()), raising=False)
        return sink

    monkeypatch.setattr(sinks_module, "make_sink", noted)
    text = "CREATE SINK fresh FROM a INTO PYTHON (callable = 'received')"
    with pytest.raises(PenstockError, match="PSK-7004"):
        with_fault(db, monkeypatch, full_disk, REFUSED, text)
    assert made == ["closed"]


def test_names_and_kinds_are_checked_before_anything_is_made(db: Database) -> None:
    before = db.state()
    refusals = {
        "CREATE TABLE S (k BIGINT)": "PSK-1003",
        "CREATE MATERIALIZED VIEW x AS SELECT nothing FROM t": "PSK-1004",
        "CREATE OR REPLACE MATERIALIZED VIEW a AS SELECT k, v FROM a": "PSK-1017",
        "CREATE OR REPLACE TABLE t (k BIGINT)": "PSK-1009",
        "CREATE TABLE x (__k BIGINT)": "PSK-1015",
        "CREATE TABLE x (k BIGINT, K BIGINT)": "PSK-1014",
        "DROP TABLE s": "PSK-1008",
        "DROP TABLE t": "PSK-1009",
        "DROP TABLE nobody": "PSK-1002",
        "CREATE SINK x FROM nobody INTO PYTHON (callable = 'received')": "PSK-1002",
    }
    for text, code in refusals.items():
        with pytest.raises(PenstockError) as refused:
            db.run(text)
        assert refused.value.code == code, text
    db.run("CREATE TABLE IF NOT EXISTS t (other STRING); DROP TABLE IF EXISTS nobody")
    assert db.state() == before


def test_objects_and_rows_are_there_when_the_database_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(tmp_path, monkeypatch) as db:
        db.insert("s", (1, "x"))
        db.insert("t", (1, "y"))
        assert db.rows("a") and db.rows("b")
        objects = db.engine.catalog.objects()
    with database(tmp_path, monkeypatch) as db:
        assert db.engine.catalog.objects() == objects
        db.run("START PIPELINE")
        db.insert("s", (2, "x"))
        assert db.rows("a") == {(1, "x"): 1, (2, "x"): 1} and db.rows("b") == {(1, "y"): 1}
        assert [o.kind for o in objects].count(Kind.VIEW) == 2 and not db.engine.refusals
