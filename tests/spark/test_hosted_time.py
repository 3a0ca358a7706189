"""Queries that wait for event time share a job: windows, sessions, temporal filters, and what is above them, each compared with its definition after every commit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.effort import times
from tests.spark.conftest import Opener
from tests.spark.defects import break_member
from tests.spark.following import SOON_S, Follower, settle
from tests.spark.kernel_state import entries_of_host

import penstock
import penstock.runtime.jobs.planned as planned_module
from penstock.spark.hosted import HostJob

DELAY = 4
"""How many seconds the watermark is behind."""
SQL = f"""
CREATE SOURCE s (k INT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{DELAY}' SECOND);
CREATE SOURCE r (k INT, w BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{DELAY}' SECOND);
"""

Event = tuple[int, int, int]
"""Key, value and second."""


class Model:
    """All rows that were not late, by definition of the queries: in seconds."""

    def __init__(self) -> None:
        self.s: list[Event] = []
        self.r: list[Event] = []
        self.tops = {"s": 0, "r": 0}

    def take(self, source: str, rows: list[Event]) -> None:
        getattr(self, source).extend(rows)
        self.tops[source] = max([self.tops[source], *(t for _, _, t in rows)])

    def watermark(self, *sources: str) -> int:
        return min(self.tops[s] for s in sources) - DELAY

    def windows(self, size: int, slide: int) -> dict[tuple[int, int], list[int]]:
        """The values of each key and window, by its end, of those that have closed."""
        found: dict[tuple[int, int], list[int]] = {}
        for k, v, t in self.s:
            for end in range(t - t % slide + slide, t + size + 1, slide):
                found.setdefault((k, end), []).append(v)
        return {(k, end): values for (k, end), values in found.items() if end <= self.watermark("s")}

    def sums(self) -> Counter[tuple[Any, ...]]:
        return Counter((k, end, len(v), sum(v)) for (k, end), v in self.windows(10, 10).items())

    def firsts(self) -> Counter[tuple[Any, ...]]:
        return Counter((k, end, v[0], len(v)) for (k, end), v in self.windows(15, 5).items())

    def most(self) -> Counter[tuple[Any, ...]]:
        """The largest count of each window."""
        counts: dict[int, list[int]] = {}
        for (_, end), v in self.windows(10, 10).items():
            counts.setdefault(end, []).append(len(v))
        return Counter((end, max(n), len(n)) for end, n in counts.items())

    def best(self) -> Counter[tuple[Any, ...]]:
        """The two keys with the largest sums of each window."""
        sums: dict[int, list[tuple[int, int]]] = {}
        for (k, end), v in self.windows(10, 10).items():
            sums.setdefault(end, []).append((-sum(v), k))
        return Counter((end, k, -total) for end, of in sums.items() for total, k in sorted(of)[:2])

    def sessions(self) -> Counter[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for key in {k for k, _, _ in self.s}:
            mine = sorted((t, v) for k, v, t in self.s if k == key)
            run: list[tuple[int, int]] = []
            for t, v in [*mine, (1 << 40, 0)]:
                if run and t - run[-1][0] > 3:
                    if run[-1][0] + 3 <= self.watermark("s"):
                        found.append((key, run[0][0], len(run), sum(v for _, v in run)))
                    run = []
                run.append((t, v))
        return Counter(found)

    def recent(self) -> Counter[tuple[Any, ...]]:
        return Counter((k, v) for k, v, t in self.s if t + 8 > self.watermark("s"))

    def pairs(self) -> Counter[tuple[Any, ...]]:
        return Counter((k, v, w) for k, v, t in self.s for j, w, u in self.r if k == j and t - 2 <= u <= t + 2)

    def latest(self) -> Counter[tuple[Any, ...]]:
        """Each row of s with the last row of r before it, once the watermark has passed it."""
        out: list[tuple[Any, ...]] = []
        for k, v, t in self.s:
            if t < self.watermark("s", "r"):
                before = [(u, i, w) for i, (j, w, u) in enumerate(self.r) if j == k and u <= t]
                out.append((k, v, max(before)[2] if before else None))
        return Counter(out)


QUERIES: dict[str, tuple[str, Callable[[Model], Counter[tuple[Any, ...]]]]] = {
    "firsts": (
        "SELECT k, window_end DIV 1000, first_value(v), count(*) FROM s "
        "GROUP BY k, HOP(ts, INTERVAL '5' SECOND, INTERVAL '15' SECOND) EMIT ON WINDOW CLOSE",
        Model.firsts,
    ),
    "sums": (
        "SELECT k, window_end DIV 1000, count(*), sum(v) FROM s "
        "GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE",
        Model.sums,
    ),
    "most": (
        "SELECT window_end DIV 1000, max(n), count(*) FROM (SELECT k, window_end, count(*) AS n FROM s "
        "GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)) GROUP BY window_end EMIT ON WINDOW CLOSE",
        Model.most,
    ),
    "best": (
        "SELECT window_end DIV 1000, k, total FROM (SELECT k, window_end, sum(v) AS total FROM s "
        "GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)) "
        "QUALIFY row_number() OVER (PARTITION BY window_end ORDER BY total DESC, k) <= 2 EMIT ON WINDOW CLOSE",
        Model.best,
    ),
    "sessions": (
        "SELECT k, window_start DIV 1000, count(*), sum(v) FROM s "
        "GROUP BY k, SESSION(ts, INTERVAL '3' SECOND) EMIT ON WINDOW CLOSE",
        Model.sessions,
    ),
    "recent": ("SELECT k, v FROM s WHERE ts > now() - INTERVAL '8' SECOND", Model.recent),
    "pairs": (
        "SELECT s.k, s.v, r.w FROM s JOIN r ON s.k = r.k "
        "AND r.ts BETWEEN s.ts - INTERVAL '2' SECOND AND s.ts + INTERVAL '2' SECOND",
        Model.pairs,
    ),
    "latest": ("SELECT s.k, s.v, r.w FROM s ASOF JOIN r ON s.k = r.k AND s.ts >= r.ts", Model.latest),
}
ON_ONE = ("firsts", "sums", "most", "best", "sessions", "recent")
ON_TWO = ("pairs", "latest")


def create(db: penstock.Database, *names: str) -> None:
    for name in names:
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name][0]}")


def jobs(db: penstock.Database, *names: str) -> set[str]:
    return {db._engine.jobs.by_object[db._object(n).id].name for n in names}


class Feed:
    """Rows of both sources that are not late, and the model of what they lead to."""

    def __init__(self, seed: int) -> None:
        self.model = Model()
        self._choose = random.Random(seed)
        self._value = 0

    def push(self, db: penstock.Database, source: str = "s") -> None:
        choose, top = self._choose, self.model.tops[source]
        rows = []
        for _ in range(choose.randrange(1, 8)):
            self._value += 1
            # Of equal times the last row counts, whichever it is, so that a time is that of one row of a key.
            rows.append((choose.randrange(3), self._value, max(0, top + choose.randrange(-DELAY + 1, 6))))
        self.model.take(source, rows)
        db.insert(source, [(k, v, t * 1000) for k, v, t in rows])

    def check(self, db: penstock.Database, *names: str) -> None:
        for name in names:
            found = Counter(db.sql(f"SELECT * FROM {name}").fetchall())
            assert found == QUERIES[name][1](self.model), name


@pytest.mark.parametrize("seed", range(times(1)))
def test_members_come_go_fail_and_are_what_they_are_by_definition(opener: Opener, tmp_path: Path, seed: int) -> None:
    db = opener(tmp_path / "db")
    db.execute(SQL)
    feed = Feed(seed)
    create(db, "firsts", "sums", "recent", "pairs")
    for source in ("s", "r", "s"):
        feed.push(db, source)
        feed.check(db, "firsts", "sums", "recent", "pairs")
    # They begin with the past, and with its watermarks.
    create(db, "most", "best", "sessions", "latest")
    for source in ("s", "r", "s", "s", "r"):
        feed.push(db, source)
        feed.check(db, *QUERIES)
    assert jobs(db, *ON_ONE) == {"keyed queries on s"}
    assert jobs(db, *ON_TWO) == {"keyed queries on s, r"}
    db.close()
    db = opener(tmp_path / "db")
    for source in ("s", "r", "s"):
        feed.push(db, source)
        feed.check(db, *QUERIES)
    # One that can be computed again is, and one that cannot says so.
    left = dict.fromkeys(QUERIES)
    for name in ("recent", "sessions"):
        break_member(db, name, "v")
        feed.push(db)
        left.pop(name)
        feed.check(db, *left)
        with pytest.raises(penstock.PenstockError, match=f"PSK-7006.*{name}"):
            db.sql(f"SELECT * FROM {name}")
    db.execute("RESTART MATERIALIZED VIEW recent")
    with pytest.raises(penstock.PenstockError, match=r"PSK-6003.*rows cannot be retracted"):
        db.execute("RESTART MATERIALIZED VIEW sessions")
    db.execute("DROP MATERIALIZED VIEW sessions; DROP MATERIALIZED VIEW firsts")
    create(db, "sessions")
    db.stop()
    feed.push(db)
    feed.push(db, "r")
    db.start()
    left = dict.fromkeys(n for n in QUERIES if n != "firsts")
    feed.check(db, *left)
    for source in ("s", "s", "r", "s"):
        feed.push(db, source)
        feed.check(db, *left)


def test_a_partition_is_opened_when_a_timer_is_due_and_state_goes_with_its_window(db: penstock.Database) -> None:
    db.execute(SQL)
    create(db, "firsts", "most", "sessions", "recent")
    db.insert("s", [(k, 1, 1000 * k) for k in range(20)])
    db.flush(timeout=SOON_S)
    kernel = db._engine.jobs.by_object[db._object("most").id].kernel
    assert isinstance(kernel, HostJob)
    assert entries_of_host(db.spark, kernel._folder) > 0
    # It closes everything but its own windows; nobody has a row in the other partitions.
    db.insert("s", [(7, 1, 1_000_000)])
    db.flush(timeout=SOON_S)
    assert len(db.sql("SELECT * FROM firsts").fetchall()) == 60
    db.execute("DROP MATERIALIZED VIEW firsts; DROP MATERIALIZED VIEW most; DROP MATERIALIZED VIEW sessions")
    for second in range(1001, 1004):
        db.insert("s", [(7, 1, second * 1000)])
        db.flush(timeout=SOON_S)
    assert kernel.remains() == {}
    # Each row that is present has an entry and a timer; nothing is left of the others.
    assert entries_of_host(db.spark, kernel._folder) == 2 * 4


def test_late_rows_are_those_of_each_member(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "db")
    db.execute(SQL)
    windows = "SELECT k, window_end DIV 1000 AS ends, array_agg(v) AS every FROM s GROUP BY k"
    db.execute(f"""
        CREATE STREAM short AS {windows}, TUMBLE(ts, INTERVAL '5' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO late_short;
        CREATE STREAM patient AS {windows}, TUMBLE(ts, INTERVAL '5' SECOND)
          EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '20' SECOND LATE DATA TO late_patient;
        CREATE STREAM sessions AS {windows}, SESSION(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO late_sessions;
        CREATE STREAM again AS SELECT v, ts FROM late_short WHERE v > 2;
    """)
    names = ("short", "patient", "sessions", "late_short", "late_patient", "late_sessions")
    assert jobs(db, *names) == {"keyed queries on s"}
    followers = {n: Follower(db, n) for n in (*names, "again")}

    def told(name: str) -> list[tuple[Any, ...]]:
        settle(db)
        return sorted(followers[name].rows())

    db.insert("s", [(1, 1, 1000), (1, 2, 10_000)])
    db.insert("s", [(1, 3, 2000), (1, 4, 9000)])
    assert told("short") == [(1, 5, (1,))]
    assert told("late_short") == [(1, 3, 2000)]
    assert told("again") == [(3, 2000)]
    assert told("late_patient") == told("patient") == []
    assert told("sessions") == [(1, 2, (1,))]
    assert told("late_sessions") == [(1, 3, 2000)]
    db.insert("s", [(2, 5, 40_000), (1, 6, 3000)])
    db.insert("s", [(1, 7, 4000)])
    assert told("short") == [(1, 10, (4,)), (1, 15, (2,))]
    assert told("patient") == [(1, 5, (1, 3, 6)), (1, 10, (4,)), (1, 15, (2,))]
    assert told("late_patient") == [(1, 7, 4000)]
    assert told("late_short") == [(1, 6, 3000), (1, 7, 4000)]
    late = {o.name: o.late_rows for o in db.status()}
    assert {n: late[n] for n in ("short", "patient", "sessions")} == {"short": 3, "patient": 1, "sessions": 3}
    db.close()
    db = opener(tmp_path / "db")
    late = {o.name: o.late_rows for o in db.status()}
    assert {n: late[n] for n in ("short", "patient", "sessions")} == {"short": 3, "patient": 1, "sessions": 3}


def test_a_join_in_time_that_has_a_job_of_its_own_keeps_it(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = opener(tmp_path / "db")
    db.execute(SQL)
    feed = Feed(3)
    with monkeypatch.context() as patch:
        patch.setattr(planned_module, "unfit", lambda query: "the test compares it with a member")
        create(db, "latest")
    db.execute("CREATE MATERIALIZED VIEW others AS " + QUERIES["latest"][0])
    for again in (False, True):
        if again:
            db.close()
            db = opener(tmp_path / "db")
        # Neither moves, whoever else is there, and whether it has begun or not.
        assert [jobs(db, n) for n in ("latest", "others")] == [{"latest"}, {"keyed queries on s, r"}]
        for source in ("s", "r", "s"):
            feed.push(db, source)
        feed.check(db, "latest")
        assert sorted(db.sql("SELECT * FROM others").fetchall()) == sorted(db.sql("SELECT * FROM latest").fetchall())


def test_another_query_goes_on_with_the_state_of_a_member(db: penstock.Database) -> None:
    db.execute(SQL)
    select = "SELECT k, window_end DIV 1000 AS ends, first_value(v) AS first FROM s GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)"
    db.execute(f"CREATE STREAM w AS {select} EMIT ON WINDOW CLOSE")
    db.execute(f"CREATE STREAM other AS {select} EMIT ON WINDOW CLOSE")
    follower = Follower(db, "w")
    db.insert("s", [(1, 5, 1000), (2, 6, 2000)])
    settle(db)
    changed = "SELECT k, window_end DIV 1000 AS ends, first_value(v) AS first FROM s WHERE k > 0 GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)"
    with pytest.raises(penstock.PenstockError, match="PSK-6018"):
        db.execute(f"ALTER STREAM w AS {changed} EMIT ON WINDOW CLOSE")
    db.execute(f"ALTER STREAM w AS SELECT k * 100 AS k, ends, first FROM ({select}) EMIT ON WINDOW CLOSE")
    assert jobs(db, "w", "other") == {"keyed queries on s"}
    db.insert("s", [(1, 7, 3000), (1, 8, 20_000)])
    settle(db)
    assert sorted(follower.rows()) == [(100, 10, 5), (200, 10, 6)]


def test_of_many_rows_at_one_time_the_last_counts(db: penstock.Database) -> None:
    """They are read by several tasks, with code that has been in others before."""
    db.execute(SQL)
    create(db, "pairs", "latest")
    assert jobs(db, "pairs", "latest") == {"keyed queries on s, r"}
    for second in (10, 20, 30):
        db.stop()
        for part in range(6):
            db.insert("r", [(1, part * 10_000 + i, second * 1000) for i in range(10_000)])
        db.insert("s", [(1, second, second * 1000 + 5000)])
        db.start()
        db.flush(timeout=SOON_S)
    for source in ("s", "r"):
        db.insert(source, [(2, 0, 100_000)])
    assert sorted(db.sql("SELECT * FROM latest WHERE k = 1").fetchall()) == [(1, v, 59_999) for v in (10, 20, 30)]
