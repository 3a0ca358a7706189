"""Starting, stopping, failing, adding and dropping."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.spark.conftest import Opener
from tests.spark.following import SOON_S, Follower, rows_of, until

import penstock
from penstock.runtime.jobs.job import Job

PIPELINE = """
CREATE SOURCE s (k STRING, v BIGINT);
CREATE MATERIALIZED VIEW g AS SELECT k, sum(v) AS total FROM s GROUP BY k;
"""


def totals(db: penstock.Database, name: str = "g", *, stale: bool = False) -> dict[str, int]:
    anyway = " WITH (stale = true)" if stale else ""
    return dict(db.sql(f"SELECT k, total FROM {name}{anyway}").fetchall())


def test_start_stop_and_close_can_be_repeated(db: penstock.Database) -> None:
    db.execute(PIPELINE)
    db.start()
    assert db.state == "Running"
    db.stop()
    db.stop()
    assert db.state == "Stopped"
    db.start()
    db.start()
    assert db.state == "Running"
    db.close()
    db.close()
    assert db.state == "Closed"


def test_what_comes_while_stopped_is_taken_in_after_the_start(db: penstock.Database) -> None:
    db.execute(PIPELINE)
    follower = Follower(db, "g")
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    db.execute("STOP PIPELINE")
    db.insert("s", [("a", 2)])
    with pytest.raises(
        penstock.PenstockError, match=r"PSK-7006: g cannot be read: g is stopped\. Its contents are as of LSN"
    ):
        totals(db)
    with pytest.raises(penstock.PenstockError, match="PSK-7006: The pipeline is stopped, so g cannot catch up"):
        db.flush()
    assert totals(db, stale=True) == {"a": 1}
    db.execute("SET read.stale = true")
    assert totals(db) == {"a": 1}
    db.execute("SET read.stale = false")
    assert db.metrics()["g"].state == "stopped"
    db.execute("START PIPELINE")
    db.insert("s", [("a", 4)])
    db.flush(timeout=SOON_S)
    assert totals(db) == {"a": 7}
    assert sum(r[1] * r[2] for r in follower.rows()) == 7


def test_open_without_starting(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "data", start=False)
    assert db.state == "Created"
    db.execute(PIPELINE)
    db.insert("s", [("a", 1)])
    assert totals(db, stale=True) == {}
    db.start()
    db.flush(timeout=SOON_S)
    assert totals(db) == {"a": 1}
    db.close()
    db = opener(tmp_path / "data", start=False)
    assert totals(db, stale=True) == {"a": 1}
    db.insert("s", [("a", 1)])
    db.start()
    db.flush(timeout=SOON_S)
    assert totals(db) == {"a": 2}


@pytest.mark.parametrize(
    "rows",
    ["s", "s WHERE rand() < v"],
    ids=["sharing a job", "with a job of its own"],
)
def test_a_query_that_does_not_start_keeps_no_other_from_it(
    db: penstock.Database, monkeypatch: pytest.MonkeyPatch, rows: str
) -> None:
    db.execute(PIPELINE)
    db.execute(f"CREATE MATERIALIZED VIEW h AS SELECT k, v + 1 AS w FROM {rows}")
    h = db._object("h").id
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    db.stop()
    start = Job.start

    def start_all_but_h(job: Job) -> None:
        if h in job.objects:
            raise penstock.ExecutionError("PSK-7001", "h does not start.")
        start(job)

    with monkeypatch.context() as broken:
        broken.setattr(Job, "start", start_all_but_h)
        db.start()
    assert db.state == "Running"
    assert {s.name: s.state for s in db.status() if s.kind == "materialized view"} == {"g": "running", "h": "failed"}
    db.insert("s", [("b", 2)])
    assert totals(db) == {"a": 1, "b": 2}
    with pytest.raises(
        penstock.PenstockError, match=r"PSK-7006: h cannot be read: h has failed since .*h does not start"
    ):
        db.sql("SELECT * FROM h")
    with pytest.raises(penstock.PenstockError, match="PSK-7006: Not everything can catch up: h: h does not start"):
        db.flush(timeout=SOON_S)
    db.execute("RESTART MATERIALIZED VIEW h")
    assert sorted(db.sql("SELECT * FROM h").fetchall()) == [("a", 2), ("b", 3)]
    db.flush(timeout=SOON_S)


def test_everything_comes_back_when_the_folder_is_opened_again(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "data")
    db.execute(PIPELINE)
    db.execute("""
        CREATE TABLE names (k STRING PRIMARY KEY, name STRING);
        CREATE STREAM big AS SELECT k, v FROM s WHERE v > 1;
        CREATE MATERIALIZED VIEW over AS SELECT count(*) AS n FROM g;
    """)
    db.insert("names", [("a", "Anna")])
    for i in range(3):
        db.insert("s", [("a", i), (f"k{i}", 5)])
    db.flush(timeout=SOON_S)
    names = [s.name for s in db.status()]
    db.insert("s", [("late", 1)])
    db.close()
    db = opener(tmp_path / "data")
    db.flush(timeout=SOON_S)
    assert [s.name for s in db.status()] == names
    assert totals(db) == {"a": 3, "k0": 5, "k1": 5, "k2": 5, "late": 1}
    assert db.sql("SELECT * FROM over").fetchall() == [(5,)]
    assert db.sql("SELECT * FROM names").fetchall() == [("a", "Anna")]
    assert len(db.sql("SELECT * FROM big")) == 4
    before = [c["id"] for c in db.checkpoints()]
    made = db.checkpoint()
    assert made == before[-1] + 1
    assert [c["id"] for c in db.checkpoints()][-2:] == [before[-1], made]
    assert db.sql("SHOW CHECKPOINTS").fetchall()[-1][0] == made


def test_the_query_of_a_subscription_does_not_outlive_its_process(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "data")
    db.execute(PIPELINE)
    held = db.subscribe("SELECT k, count(*) AS n FROM s GROUP BY k")
    assert len(db.sql("SHOW QUERIES")) == 2
    db.close()
    assert list(held) == []
    db = opener(tmp_path / "data")
    assert [r[0] for r in db.sql("SHOW QUERIES").fetchall()] == ["g"]
    db.execute("DROP SOURCE s CASCADE")


def test_adding_and_dropping_while_the_pipeline_runs(db: penstock.Database) -> None:
    db.execute(PIPELINE)
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    db.execute("CREATE MATERIALIZED VIEW later AS SELECT k, count(*) AS total FROM s GROUP BY k")
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    assert totals(db) == {"a": 2}
    assert totals(db, "later") == {"a": 2}
    subscription = db.subscribe("later")
    db.execute("DROP MATERIALIZED VIEW later")
    assert list(subscription) == []
    db.execute("CREATE MATERIALIZED VIEW later AS SELECT k, max(v) AS total FROM s GROUP BY k")
    db.insert("s", [("b", 7)])
    db.flush(timeout=SOON_S)
    assert totals(db) == {"a": 2, "b": 7}
    assert totals(db, "later") == {"a": 1, "b": 7}


def test_replacing_a_view(db: penstock.Database) -> None:
    db.execute(PIPELINE)
    db.insert("s", [("a", 1), ("a", 5)])
    db.flush(timeout=SOON_S)
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW g AS SELECT k, max(v) AS total FROM s GROUP BY k")
    db.flush(timeout=SOON_S)
    assert totals(db) == {"a": 5}
    with pytest.raises(penstock.PenstockError):
        db.execute("CREATE OR REPLACE MATERIALIZED VIEW g AS SELECT nope FROM s")
    assert totals(db) == {"a": 5}
    db.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS g AS SELECT k, min(v) AS total FROM s GROUP BY k")
    assert totals(db) == {"a": 5}


def test_drop_names_what_depends_and_cascade_drops_it(db: penstock.Database) -> None:
    db.execute(PIPELINE)
    db.execute("""
        CREATE MATERIALIZED VIEW h AS SELECT count(*) AS n FROM g;
        CREATE STREAM other AS SELECT v FROM s;
    """)
    with pytest.raises(penstock.PenstockError, match="PSK-1009") as caught:
        db.execute("DROP MATERIALIZED VIEW g")
    assert "h" in caught.value.detail
    with pytest.raises(penstock.PenstockError, match="PSK-1009"):
        db.execute("DROP SOURCE s")
    db.execute("DROP MATERIALIZED VIEW g CASCADE")
    assert [s.name for s in db.status()] == ["s", "other"]
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT * FROM other").fetchall() == [(1,)]
    db.execute("DROP SOURCE s CASCADE")
    assert db.status() == []
    db.execute("DROP SOURCE IF EXISTS s")
    db.execute(PIPELINE)
    db.insert("s", [("new", 1)])
    db.flush(timeout=SOON_S)
    assert totals(db) == {"new": 1}


@pytest.mark.parametrize(
    ("expression", "bad", "says"),
    [("100 / v", "0", "zero"), ("CAST(k AS INT)", "3", "INT")],
    ids=["division by zero", "cast"],
)
def test_a_row_that_cannot_be_computed_disturbs_no_other_query(
    db: penstock.Database, expression: str, bad: str, says: str
) -> None:
    db.execute(PIPELINE)
    db.execute(f"CREATE MATERIALIZED VIEW bad AS SELECT k, {expression} AS x FROM s")
    good = db.subscribe("g")
    broken = db.subscribe("bad")
    db.insert("s", [("5", 5)])
    db.flush(timeout=SOON_S)
    assert broken.next(timeout=SOON_S) is not None
    db.insert("s", [("five", int(bad))])
    db.flush(timeout=SOON_S)
    with pytest.raises(penstock.PenstockError) as caught:
        broken.next(timeout=SOON_S)
    assert caught.value.code == "PSK-7007"
    assert says.lower() in str(caught.value).lower()
    status = db.metrics()
    assert status["bad"].state == "running"
    assert status["bad"].error is not None and "PSK-7007" in status["bad"].error
    assert status["g"].state == "running" and status["g"].error is None
    db.insert("s", [("5", 6)])
    db.flush(timeout=SOON_S)
    assert totals(db) == {"5": 11, "five": int(bad)}
    with pytest.raises(penstock.PenstockError, match="PSK-7007: bad has 1 row that could not be computed"):
        db.sql("SELECT * FROM bad")
    assert len(db.sql("SELECT * FROM bad WITH (stale = true)")) == 2
    seen = []
    while (change := good.next(timeout=0)) is not None:
        seen += rows_of(change)
    assert sum(r[1] * r[2] for r in seen) == 11 + int(bad)
    db.execute("DROP MATERIALIZED VIEW bad")
    assert [s.name for s in db.status()] == ["s", "g"]


def test_a_failing_filter_disturbs_no_other_on_the_same_source(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, v BIGINT);
        CREATE STREAM one AS SELECT k FROM s WHERE v > 0;
        CREATE MATERIALIZED VIEW bad AS SELECT 100 / v AS x FROM s;
        CREATE MATERIALIZED VIEW two AS SELECT k, v * 2 AS w FROM s;
    """)
    followers = [Follower(db, name) for name in ("one", "two")]
    broken = db.subscribe("bad")
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    assert broken.next(timeout=SOON_S) is not None
    for number in (0, 5, 6):
        db.insert("s", [("b", number)])
        db.flush(timeout=SOON_S)
    assert [f.rows() for f in followers] == [
        [("a",), ("b",), ("b",)],
        [("a", 2), ("b", 0), ("b", 10), ("b", 12)],
    ]
    with pytest.raises(penstock.PenstockError, match="PSK-7007"):
        broken.next(timeout=SOON_S)
    assert {s.state for s in db.status() if s.kind != "source"} == {"running"}
    assert len(list(db._engine.jobs)) == 1
    db.execute("DROP MATERIALIZED VIEW bad")
    db.execute("CREATE STREAM three AS SELECT v FROM s")
    db.insert("s", [("c", 0)])
    db.flush(timeout=SOON_S)
    assert [f.rows() for f in followers] == [[], [("c", 0)]]
    assert len(db.sql("SELECT * FROM three")) == 5


def test_filters_on_one_source_come_and_go(opener: Opener, tmp_path: Path) -> None:
    """They share one job, whose members change while rows come in; each stream has every row once."""
    db = opener(tmp_path / "data")
    db.execute("CREATE SOURCE s (v BIGINT)")
    names: list[str] = []
    for n in range(4):
        db.execute(f"CREATE STREAM f{n} AS SELECT v FROM s WHERE v % 4 >= {n}")
        names.append(f"f{n}")
    for n in range(12):
        db.insert("s", [{"v": n}])
        if n == 3:
            db.execute("DROP STREAM f1")
            names.remove("f1")
        if n == 6:
            db.execute("ALTER SOURCE s ADD COLUMN note STRING")
            db.insert("s", [(100, "x")])
        if n == 9:
            db.close()
            db = opener(tmp_path / "data")
    db.flush(timeout=SOON_S)
    every = [*range(12), 100]
    for name in names:
        wanted = [v for v in every if v % 4 >= int(name[1:])]
        assert sorted(r[0] for r in db.sql(f"SELECT * FROM {name}").fetchall()) == wanted, name
        assert sorted(r[0] for r in Follower(db, name, as_of=0).rows()) == wanted, name


def test_a_temporary_database_leaves_nothing_behind(opener: Opener) -> None:
    db = opener()
    db.execute(PIPELINE)
    folder = db._engine.folder
    assert folder.is_dir()
    db.close()
    assert not folder.exists()


def test_a_closed_database_has_no_state_open(opener: Opener) -> None:
    """Spark's upkeep of state that is open would write into the folder again when it is gone."""
    stores = opener().spark._jvm.java.lang.Class.forName("org.apache.spark.sql.execution.streaming.state.StateStore$")
    loaded = stores.getDeclaredField("loadedProviders")
    loaded.setAccessible(True)
    open_stores = loaded.get(stores.getField("MODULE$").get(None))
    before = open_stores.size()
    db = opener()
    db.execute("CREATE SOURCE s (k STRING); CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM s GROUP BY k")
    db.insert("s", [("a",), ("b",)])
    db.flush(timeout=SOON_S)
    assert open_stores.size() > before
    db.close()
    assert open_stores.size() == before


def test_one_slow_subscriber_does_not_stop_the_pipeline(db: penstock.Database) -> None:
    db.execute(PIPELINE)
    slow = db.subscribe("g", policy="coalesce", buffer_bytes=1)
    fast = Follower(db, "g")
    for _ in range(5):
        db.insert("s", [("a", 1)])
        db.flush(timeout=SOON_S)
    assert totals(db) == {"a": 5}
    assert len(fast.rows()) == 9
    slow.cancel()


def test_an_open_that_fails_lets_everything_go(opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, engine: object) -> None:
            raise OSError("no ticker today")

    before = {t for t in threading.enumerate() if t.name.startswith("penstock")}
    with monkeypatch.context() as patched:
        patched.setattr("penstock.runtime.engine.Ticker", Broken)
        with pytest.raises(OSError, match="no ticker"):
            penstock.open(tmp_path / "data", master="local[2]")
    until(
        lambda: (
            not {t.name for t in set(threading.enumerate()) - before if t.name.startswith("penstock")}
            - {"penstock-call"}
        )
    )
    db = opener(tmp_path / "data")
    db.execute(PIPELINE)


def test_housekeeping_that_fails_shows_and_is_tried_again(
    db: penstock.Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    db.execute("CREATE SOURCE p (v BIGINT, at TIMESTAMP, WATERMARK FOR at AS PROCTIME())")
    db.execute(
        "CREATE STREAM w AS SELECT count(*) AS n FROM p GROUP BY TUMBLE(at, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE"
    )

    with monkeypatch.context() as patched:
        patched.setattr("penstock.runtime.ticker.Ticker._heartbeat", _fails)
        until(lambda: "disk on fire" in (db.metrics()["p"].error or ""))
        assert db.metrics()["w"].error is None
    until(lambda: db.metrics()["p"].error is None)
    assert sum("disk on fire" in r.getMessage() for r in caplog.records) == 1


def _fails(*_: object) -> None:
    raise OSError("disk on fire")
