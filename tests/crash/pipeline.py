"""What the process that is killed computes, and the rows that must be there after N commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Rows = Counter[tuple[Any, ...]]

DATABASES = 8
"""So many databases share a process and its JVM: a JVM and its first queries take five times as long as those of one database more."""


def config(databases: int) -> dict[str, Any]:
    """Small segments, frequent checkpoints and contents that go to disk, so that each life trims, thins, merges and prunes."""
    return {
        "spark.heap": "1g",
        "log.segment_bytes": 65_536,
        "log.retain_bytes": 200_000,
        "checkpoint.interval_ms": 700 * max(1, databases // 2),
        "serve.object_memory": "2kb",
        # Lives are short: the optimizing compiler would cost each more than it saves.
        "spark.conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
    }


INPUTS = """
CREATE SOURCE IF NOT EXISTS s (k BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);
CREATE TABLE IF NOT EXISTS latest (k BIGINT PRIMARY KEY, v BIGINT);
CREATE TABLE IF NOT EXISTS edges (a BIGINT PRIMARY KEY, b BIGINT);
CREATE LOOKUP TABLE IF NOT EXISTS names (k BIGINT PRIMARY KEY, name STRING);
"""

QUERIES = {
    "sums": "CREATE MATERIALIZED VIEW IF NOT EXISTS sums AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;",
    "windows": """CREATE MATERIALIZED VIEW IF NOT EXISTS windows AS
      SELECT window_start, count(*) AS n, sum(v) AS total FROM s GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;""",
    "overall": "CREATE MATERIALIZED VIEW IF NOT EXISTS overall AS SELECT count(*) AS keys, sum(total) AS total FROM sums;",
    "best": """CREATE MATERIALIZED VIEW IF NOT EXISTS best AS
      WITH c AS (SELECT k, window_start, window_end, sum(v) AS total FROM s GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND))
      SELECT c.window_start, c.k, c.total FROM c JOIN (SELECT window_end, max(total) AS most FROM c GROUP BY window_end) m
        ON c.window_end = m.window_end AND c.total = m.most EMIT ON WINDOW CLOSE;""",
    "deep": """CREATE MATERIALIZED VIEW IF NOT EXISTS deep AS
      SELECT d.n, d.keys, s.v FROM (SELECT n, count(*) AS keys FROM (SELECT k, count(*) AS n FROM s GROUP BY k) GROUP BY n) d JOIN s ON d.n = s.v;""",
    "even": "CREATE STREAM IF NOT EXISTS even AS SELECT v FROM s WHERE v % 2 = 0;",
    "odd": "CREATE MATERIALIZED VIEW IF NOT EXISTS odd AS SELECT v, k FROM s WHERE v % 2 = 1;",
    "latest_sum": "CREATE MATERIALIZED VIEW IF NOT EXISTS latest_sum AS SELECT sum(v) AS v, count(*) AS n FROM latest;",
    "reached": """CREATE MATERIALIZED VIEW IF NOT EXISTS reached AS
      WITH RECURSIVE r(x) AS (SELECT max(a) FROM edges UNION SELECT e.b FROM r JOIN edges e ON e.a = r.x) SELECT x FROM r WHERE x IS NOT NULL;""",
    "named": "CREATE MATERIALIZED VIEW IF NOT EXISTS named AS SELECT s.v, n.name FROM s JOIN names n ON s.k = n.k;",
}

SINKS = {
    "archive": """CREATE SINK IF NOT EXISTS archive FROM even INTO FILES (path = '{files}', format = 'json')
      WITH (guarantee = 'exactly-once');""",
    "appended": """CREATE SINK IF NOT EXISTS appended FROM even INTO POSTGRES (url = '{url}', password = '${{PG_PASSWORD}}', table = '{even}')
      WITH (guarantee = 'exactly-once');""",
    "upserted": """CREATE SINK IF NOT EXISTS upserted FROM sums INTO POSTGRES (url = '{url}', password = '${{PG_PASSWORD}}', table = '{sums}', mode = 'upsert')
      WITH (guarantee = 'exactly-once');""",
}


@dataclass(frozen=True)
class Part:
    """What one database computes. A view that is `followed` has a consumer that survives; `extra`: a view comes and goes."""

    queries: tuple[str, ...]
    followed: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    extra: bool = False


WHOLE = Part(tuple(QUERIES), ("sums", "windows", "even"), tuple(SINKS), extra=True)
PARTS = (
    Part(("sums", "windows", "overall"), ("sums", "windows"), ("upserted",)),
    Part(("even", "odd", "named"), ("even",), ("archive", "appended")),
    Part(("latest_sum", "reached"), extra=True),
    Part(("sums", "best", "deep", "even"), ("sums",), ("archive",)),
)


def part(number: int, databases: int) -> Part:
    """What a database of so many computes."""
    return WHOLE if databases == 1 else PARTS[number % len(PARTS)]


def tables(number: int) -> dict[str, str]:
    """The names of the tables of a database on the PostgreSQL server."""
    return {"even": f"crash_even_{number}", "sums": f"crash_sums_{number}"}


def created(databases: int) -> list[str]:
    """The statements that make them."""
    found = []
    for named in map(tables, range(databases)):
        found.append(f"CREATE TABLE {named['even']} (v bigint)")
        found.append(f"CREATE TABLE {named['sums']} (k bigint PRIMARY KEY, n bigint, total numeric)")
    return found


CHAIN = 6
"""So many edges form the chain that `reached` follows; older ones are deleted."""


def row(n: int) -> tuple[int, int, int]:
    """The row of `s` in commit n: key, value, and time."""
    return (n % 3, n, n * 100)


def expected(commits: int) -> dict[str, Rows]:
    """The rows of each view, and of the stream, after so many commits."""
    rows = [row(n) for n in range(commits)]
    watermark = rows[-1][2] - 1000 if rows else -1
    by_key: dict[int, list[int]] = {}
    by_window: dict[int, list[int]] = {}
    by_both: dict[int, Counter[int]] = {}
    for k, v, ts in rows:
        start = ts // 1000 * 1000
        by_key.setdefault(k, []).append(v)
        by_window.setdefault(start, []).append(v)
        by_both.setdefault(start, Counter())[k] += v
    lengths = Counter(len(vs) for vs in by_key.values())
    found: dict[str, Iterable[tuple[Any, ...]]] = {
        "sums": [(k, len(vs), sum(vs)) for k, vs in by_key.items()],
        "windows": [(start, len(vs), sum(vs)) for start, vs in by_window.items() if start + 1000 <= watermark],
        "best": [
            (start, k, total)
            for start, totals in by_both.items()
            if start + 1000 <= watermark
            for k, total in totals.items()
            if total == max(totals.values())
        ],
        "overall": [(len(by_key), sum(v for _, v, _ in rows) if rows else None)],
        "deep": [(n, keys, n) for n, keys in lengths.items() if n < commits],
        "even": [(v,) for _, v, _ in rows if v % 2 == 0],
        "odd": [(v, k) for k, v, _ in rows if v % 2 == 1],
        "latest_sum": [(sum(vs[-1] for vs in by_key.values()) if rows else None, len(by_key))],
        "reached": [(x,) for x in range(max(0, commits - CHAIN), commits + 1)] if commits else [],
        "named": [(v, f"name {k}") for k, v, _ in rows],
    }
    return {name: Counter(rows) for name, rows in found.items()}
