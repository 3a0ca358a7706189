"""Rows joined with the maximum or minimum of their own window: planned as one operator, and the same rows as the join gives."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from tests.effort import times
from tests.spark.following import SOON_S, Follower, settle

import penstock

SOURCE = "CREATE SOURCE s (id BIGINT, k STRING, v DOUBLE, ts BIGINT, WATERMARK FOR ts)"
TUMBLED = "TUMBLE(ts, INTERVAL '10' SECOND)"


def create(db: penstock.Database, statement: str, *, planned: bool = True) -> Follower:
    """Carries the statement out; `planned`: its join must have become Extremes."""
    plan = "\n".join(str(row) for row in db.sql(f"EXPLAIN {statement}").fetchall())
    assert ("Extremes" in plan, "Join" in plan) == (planned, not planned), plan
    db.execute(statement)
    return Follower(db, statement.split(" AS", 1)[0].split()[-1])


def highest(func: str, extra: str = "") -> str:
    """Raw rows with the extreme of the window that their time lies in."""
    key = "m.k = r.k AND " if extra else ""
    return f"""
        SELECT r.id, r.v, m.window_end FROM s r
        JOIN (SELECT {func}(v) AS top, {extra} window_end FROM s GROUP BY {extra} {TUMBLED}) m
          ON {key} r.v = m.top AND r.ts >= m.window_end - INTERVAL '10' SECOND AND r.ts < m.window_end
        EMIT ON WINDOW CLOSE"""


def test_all_rows_that_share_the_extreme_come_once_when_the_window_closes(db: penstock.Database) -> None:
    db.execute(SOURCE)
    top = create(db, f"CREATE STREAM top AS {highest('max')}")
    low = create(db, f"CREATE STREAM low AS {highest('min')}")
    busiest = create(
        db,
        """CREATE STREAM busiest AS
          WITH counts AS (SELECT k, count(*) AS n, window_start, window_end FROM s GROUP BY k, HOP(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND))
          SELECT c.k, c.n, c.window_end FROM counts c
          JOIN (SELECT max(n) AS most, window_start, window_end FROM counts GROUP BY window_start, window_end) m
            ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.n >= m.most
          EMIT ON WINDOW CLOSE""",
    )
    db.insert("s", [(1, "a", 5.0, 1_000), (2, "b", None, 2_000), (3, "a", 7.0, 3_000), (4, "b", 5.0, 9_999)])
    settle(db)
    assert top.rows() == low.rows() == []
    assert busiest.rows() == [("a", 2, 5_000)]
    db.insert("s", [(5, "b", 7.0, 9_000), (5, "b", 7.0, 9_000), (6, "c", 8.0, 10_000)])
    settle(db)
    assert sorted(top.rows()) == [(3, 7.0, 10_000), (5, 7.0, 10_000), (5, 7.0, 10_000)]
    assert sorted(low.rows()) == [(1, 5.0, 10_000), (4, 5.0, 10_000)]
    assert busiest.rows() == [("b", 4, 10_000)]
    # Late for the windows of ten seconds, but not for the one from 5 s to 15 s.
    db.insert("s", [(7, "b", 7.0, 9_500), (8, "b", 9.0, 9_500), (9, "d", 1.0, 20_000)])
    settle(db)
    assert top.rows() == low.rows() == [(6, 8.0, 20_000)]
    assert sorted(busiest.rows()) == [("b", 5, 15_000), ("c", 1, 20_000)]


def test_what_is_joined_further_and_asked_besides_stays(db: penstock.Database) -> None:
    """More conditions, columns of both sides, and a window over the time of the rows that came out."""
    db.execute(SOURCE)
    tops = create(
        db,
        f"""CREATE STREAM tops AS
          SELECT r.id, r.ts, m.top + 1 AS above, m.window_end AS e FROM s r
          JOIN (SELECT max(v) AS top, window_end FROM s GROUP BY {TUMBLED}) m
            ON m.top = r.v AND m.window_end > r.ts AND r.ts >= m.window_end - INTERVAL '10' SECOND AND r.id + m.top > 10
          EMIT ON WINDOW CLOSE""",
    )
    db.execute("""
        CREATE STREAM later AS SELECT window_end, count(*) AS n FROM tops GROUP BY TUMBLE(ts, INTERVAL '20' SECOND) EMIT ON WINDOW CLOSE
    """)
    later = Follower(db, "later")
    db.insert("s", [(1, "a", 5.0, 1_000), (9, "b", 5.0, 2_000), (10, "b", 4.0, 3_000), (20, "c", 1.0, 12_000)])
    db.insert("s", [(0, "x", 0.0, 20_000)])
    settle(db)
    assert sorted(tops.rows()) == [(9, 2_000, 6.0, 10_000), (20, 12_000, 2.0, 20_000)]
    db.insert("s", [(0, "x", 0.0, 60_000)])
    settle(db)
    assert later.rows() == [(20_000, 2)]


def test_other_joins_with_an_extreme_stay_joins(db: penstock.Database) -> None:
    bounded = "r.ts >= m.window_end - INTERVAL '10' SECOND AND r.ts < m.window_end"
    tops = f"(SELECT max(v) AS top, window_end FROM s GROUP BY {TUMBLED}) m"
    selects = {
        "filtered": f"SELECT r.id FROM s r JOIN {tops} ON r.v = m.top AND {bounded} WHERE r.k = 'a'",
        "wider": f"SELECT r.id FROM s r JOIN {tops} ON r.v = m.top AND {bounded.replace('10', '20')}",
        "another": f"SELECT r.id FROM s r JOIN {tops} ON r.id = m.top AND {bounded}",
        "outer_too": f"SELECT r.id, m.top FROM s r LEFT JOIN {tops} ON r.v = m.top AND {bounded}",
    }
    db.execute(SOURCE)
    followers = [
        create(db, f"CREATE STREAM {n} AS {select} EMIT ON WINDOW CLOSE", planned=False)
        for n, select in selects.items()
    ]
    # In one epoch: a join with the windows of its own query knows no commits, so that a row that is late for a window that an earlier epoch has closed would not meet it.
    db.stop()
    db.insert("s", [(1, "a", 5.0, 1_000), (5, "b", 5.0, 2_000), (3, "a", 4.0, 3_000), (4, "c", 3.0, 12_000)])
    db.insert("s", [(5, "a", 3.0, 9_000), (0, "a", 5.0, 30_000), (0, "a", 0.0, 60_000)])
    db.start()
    db.flush(timeout=SOON_S)
    got = [sorted(f.rows(), key=repr) for f in followers]
    assert got[0] == [(0,), (1,)]
    assert got[1] == [(0,), (1,), (4,), (5,), (5,)]
    assert got[2] == [(5,), (5,)]
    # A row without a match is emitted once, when it can no longer match; those of open windows are not emitted.
    assert got[3] == sorted([(1, 5.0), (5, 5.0), (0, 5.0), (4, 3.0), (3, None), (5, None)], key=repr)


def model(
    rows: list[tuple[Any, ...]], best: Callable[..., float], keyed: bool, watermark: int
) -> list[tuple[Any, ...]]:
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for id_, k, v, ts in rows:
        end = ts // 10_000 * 10_000 + 10_000
        if end <= watermark and v is not None and not (keyed and k is None):
            groups.setdefault((end, k if keyed else None), []).append((id_, v, end))
    return [r for found in groups.values() for r in found if _rank(r[1]) == best(_rank(x[1]) for x in found)]


def _rank(v: float) -> float:
    return math.inf if math.isnan(v) else v


def test_generated_rows_in_generated_commits(db: penstock.Database) -> None:
    draw = random.Random(11)
    db.execute(SOURCE)
    create(db, f"CREATE MATERIALIZED VIEW top AS {highest('max')}")
    create(db, f"CREATE MATERIALIZED VIEW low AS {highest('min', 'k,')}")
    rows: list[tuple[Any, ...]] = []
    now = 0
    for _ in range(times(7)):
        fresh = []
        for _ in range(draw.randrange(40)):
            value = draw.choice([None, math.nan, 0.0, -0.0, *(float(n) for n in range(-3, 4))])
            fresh.append((draw.randrange(9), draw.choice(["a", "b", None]), value, now + draw.randrange(15_000)))
        rows += fresh
        now = max([now, *(r[3] for r in fresh)])
        db.insert("s", fresh)
        settle(db)
        for name, best, keyed in (("top", max, False), ("low", min, True)):
            shown = db.sql(f"SELECT * FROM {name}").fetchall()
            expected = model(rows, best, keyed, now)
            assert sorted(map(repr, shown)) == sorted(repr((i, v + 0.0, e)) for i, v, e in expected)
