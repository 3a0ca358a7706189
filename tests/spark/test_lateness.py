"""Which rows are late depends on the commits alone, not on how they are grouped into epochs.

The same commits go through the same queries as one epoch, as one epoch each, each one settled before the next, and in random groups with the pipeline
stopped in between. All must give the same results and the same late rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.effort import EFFORT
from tests.spark.conftest import CONFIG, Opener
from tests.spark.following import Row, contents, settle

import penstock

# An example is many seconds of Spark: few of them, the same in every run.
few = settings(
    max_examples=1,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

Commit = dict[str, list[Row]] | int
"""Rows by source, in one transaction; or a watermark for both."""

SOURCES = """
    CREATE SOURCE a (k STRING, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);
    CREATE SOURCE b (k STRING, w BIGINT, bts BIGINT, WATERMARK FOR bts);
    CREATE LOOKUP TABLE names (k STRING PRIMARY KEY, name STRING);
    INSERT INTO names VALUES ('x', 'ex'), ('y', 'why');
"""

WINDOWS = """
    CREATE STREAM tumble AS SELECT k, window_start, count(*) AS n, sum(v) AS s FROM a
      GROUP BY k, TUMBLE(ts, INTERVAL '2' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO tumble_late;
    CREATE STREAM hop AS SELECT k, window_start, median(v) AS m FROM a
      GROUP BY k, HOP(ts, INTERVAL '1' SECOND, INTERVAL '3' SECOND)
      EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '1' SECOND LATE DATA TO hop_late;
    CREATE MATERIALIZED VIEW running AS SELECT k, window_start, count(*) AS n FROM a
      GROUP BY k, TUMBLE(ts, INTERVAL '2' SECOND) ALLOW LATENESS INTERVAL '1' SECOND;
    CREATE STREAM both AS SELECT window_start, count(*) AS n
      FROM (SELECT ts FROM a UNION ALL SELECT bts FROM b) GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)
      EMIT ON WINDOW CLOSE LATE DATA TO both_late;
"""

SESSIONS = """
    CREATE STREAM sessions AS SELECT k, window_start, window_end, count(*) AS n, sum(v) AS s FROM a
      GROUP BY k, SESSION(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO sessions_late;
    CREATE STREAM patient AS SELECT k, window_start, window_end, count(*) AS n FROM a
      GROUP BY k, SESSION(ts, INTERVAL '700' MILLISECOND)
      EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '1' SECOND LATE DATA TO patient_late;
    CREATE MATERIALIZED VIEW open_sessions AS SELECT k, window_start, window_end, count(*) AS n FROM a
      GROUP BY k, SESSION(ts, INTERVAL '1' SECOND);
"""

JOINS = """
    CREATE STREAM pairs AS SELECT a.k, v, ts, w, bts FROM a JOIN b
      ON a.k = b.k AND b.bts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts + INTERVAL '500' MILLISECOND;
    CREATE STREAM kept AS SELECT a.k, v, ts, w FROM a LEFT JOIN b
      ON a.k = b.k AND b.bts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts - INTERVAL '200' MILLISECOND;
    CREATE STREAM latest AS SELECT a.k, v, ts, w FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.bts) ON a.k = b.k;
    CREATE STREAM probed AS SELECT a.k, v, p.offset_ms, w FROM a TEMPORAL PROBE JOIN b ON (k)
      TIMESTAMPS (a.ts, b.bts) LIST (-1s, 0s, 500ms) AS p;
"""

CHAINS = """
    CREATE STREAM odd AS SELECT k, v, ts FROM a WHERE v % 3 <> 0;
    CREATE STREAM renamed AS SELECT k AS kk, ts FROM a;
    CREATE STREAM counted AS SELECT k, window_start, count(*) AS n FROM odd
      GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO counted_late;
    CREATE STREAM chained AS SELECT kk, window_start, window_end, count(*) AS n FROM renamed
      GROUP BY kk, SESSION(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO chained_late;
    CREATE STREAM named AS SELECT name, window_start, count(*) AS n FROM a JOIN names ON a.k = names.k
      GROUP BY name, TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO named_late;
    CREATE STREAM once AS SELECT window_start, count(*) AS n FROM (SELECT DISTINCT k, ts FROM a)
      GROUP BY HOP(ts, INTERVAL '1' SECOND, INTERVAL '2' SECOND) EMIT ON WINDOW CLOSE;
    CREATE STREAM joined AS SELECT window_start, count(*) AS n FROM a JOIN b
      ON a.k = b.k AND b.bts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts + INTERVAL '500' MILLISECOND
      GROUP BY TUMBLE(a.ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO joined_late;
"""

OUTPUTS = {
    WINDOWS: ("tumble", "tumble_late", "hop", "hop_late", "running", "both", "both_late"),
    SESSIONS: ("sessions", "sessions_late", "patient", "patient_late", "open_sessions"),
    JOINS: ("pairs", "kept", "latest", "probed"),
    CHAINS: (
        "counted",
        "counted_late",
        "chained",
        "chained_late",
        "named",
        "named_late",
        "once",
        "joined",
        "joined_late",
    ),
}

Results = dict[str, Counter[Row]]


def commits_of(seed: int) -> list[Commit]:
    """Event time moves on; rows are spread around it, up to four seconds too late."""
    chance = random.Random(seed)
    out: list[Commit] = []
    now = chance.randrange(5000)
    number = 0
    for _ in range(5 if EFFORT == 1 else 7):
        now += chance.randrange(2000)
        rows: dict[str, list[Row]] = {}
        for source in chance.choice(("a", "a", "b", "ab")):
            rows[source] = []
            for _ in range(chance.randint(1, 5)):
                number += 1
                time = max(0, now + chance.randint(-4000, 1500)) // 100 * 100
                rows[source].append((chance.choice("xyz"), number, time))
        out.append(rows)
        if chance.random() < 0.2:
            out.append(now + chance.randrange(500))
    out.append(now + 60_000)
    return out


def put(db: penstock.Database, commit: Commit) -> None:
    if isinstance(commit, int):
        for source in ("a", "b"):
            db.source(source).watermark(commit)
        return
    with db.transaction() as t:
        for source, rows in commit.items():
            t.insert(source, rows)


def one_epoch(opener: Opener, queries: str, commits: list[Commit]) -> penstock.Database:
    db = opener(start=False)
    db.execute(SOURCES + queries)
    for commit in commits:
        put(db, commit)
    db.start()
    return db


def one_epoch_each(opener: Opener, queries: str, commits: list[Commit]) -> penstock.Database:
    db = opener(start=False, config={**CONFIG, "engine.max_rows_per_epoch": 1})
    db.execute(SOURCES + queries)
    for commit in commits:
        put(db, commit)
    db.start()
    return db


def settled_each(opener: Opener, queries: str, commits: list[Commit]) -> penstock.Database:
    db = opener()
    db.execute(SOURCES + queries)
    for commit in commits:
        put(db, commit)
        settle(db)
    return db


def in_groups(opener: Opener, queries: str, commits: list[Commit]) -> penstock.Database:
    chance = random.Random(len(commits))
    db = opener()
    db.execute(SOURCES + queries)
    at = 0
    while at < len(commits):
        size = chance.randint(1, 5)
        db.stop()
        for commit in commits[at : at + size]:
            put(db, commit)
        db.start()
        settle(db)
        at += size
    return db


ALL_GROUPINGS: tuple[Callable[[Opener, str, list[Commit]], penstock.Database], ...] = (
    one_epoch,
    in_groups,
    settled_each,
    one_epoch_each,
)
GROUPINGS = ALL_GROUPINGS if EFFORT > 1 else ALL_GROUPINGS[:2]


@pytest.mark.parametrize("queries", OUTPUTS, ids=["windows", "sessions", "joins", "chains"])
@few
@given(seed=st.integers(0, 2**32 - 1))
def test_the_grouping_of_commits_changes_nothing(interpreted: Opener, queries: str, seed: int) -> None:
    results, late = groupings(interpreted, queries, seed)
    expected = results[GROUPINGS[0].__name__]
    assert results == dict.fromkeys(results, expected)
    assert late == dict.fromkeys(late, late[GROUPINGS[0].__name__])
    assert any(+rows for name, rows in expected.items() if name.endswith("_late")) or queries == JOINS


def groupings(opener: Opener, queries: str, seed: int) -> tuple[dict[str, Results], dict[str, dict[str, int]]]:
    """For each way to group the commits: the contents of all outputs, and how many rows were late."""
    commits = commits_of(seed)
    results: dict[str, Results] = {}
    late: dict[str, dict[str, int]] = {}
    for grouping in GROUPINGS:
        db = grouping(opener, queries, commits)
        settle(db)
        results[grouping.__name__] = {name: contents(db, name) for name in OUTPUTS[queries]}
        metrics = db.metrics()
        if grouping is not in_groups:  # It counts from the last start on.
            late[grouping.__name__] = {name: metrics[name].late_rows for name in OUTPUTS[queries]}
        db.close()
    return results, late
