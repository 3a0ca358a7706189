"""Streaming queries with a lifecycle, on Spark: ten representative queries, windows that a watermark closes, figures, and runs without generated code."""

from __future__ import annotations

import datetime as dt
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.spark.conftest import CONFIG, MASTER

import penstock
from penstock import Change, QueryConfig, QueryState, StreamingQuery
from penstock.query import BatchPolicy

SOON_S = 120.0
SCHEMA = """
CREATE SOURCE trades (symbol STRING, price DOUBLE, volume BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);
CREATE SOURCE quotes (symbol STRING, bid DOUBLE, qts TIMESTAMP, WATERMARK FOR qts);
CREATE TABLE companies (symbol STRING PRIMARY KEY, name STRING);
INSERT INTO companies VALUES ('a', 'Acme'), ('b', 'Bolt');
"""


def at(second: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)


TRADES = [
    ("a", 10.0, 1, at(1)),
    ("a", 20.0, 3, at(30)),
    ("b", 5.0, 2, at(40)),
    ("a", 30.0, 1, at(70)),
    ("b", 7.0, 4, at(200)),
]
QUOTES = [("a", 9.5, at(0)), ("a", 19.0, at(20)), ("b", 4.5, at(41))]


@pytest.fixture(scope="module")
def db(first_database: penstock.Database) -> Iterator[penstock.Database]:
    with penstock.open(master=MASTER, config=CONFIG) as database:
        database.execute(SCHEMA)
        yield database


def net(changes: Iterable[Change]) -> Counter[tuple[Any, ...]]:
    total: Counter[tuple[Any, ...]] = Counter()
    for change in changes:
        for row in change.rows():
            weight = row.pop("__weight", 1)
            total[tuple(row.values())] += weight
    return Counter({row: n for row, n in total.items() if n})


QUERIES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "filter and project": (
        "SELECT symbol, price FROM trades WHERE price >= 10",
        [("a", 10.0), ("a", 20.0), ("a", 30.0)],
    ),
    "several expressions": (
        "SELECT upper(symbol) AS s, price * volume AS value, CASE WHEN volume > 2 THEN 'big' ELSE 'small' END AS size, volume + 1 AS v"
        " FROM trades WHERE symbol = 'a' AND volume < 3",
        [("A", 10.0, "small", 2), ("A", 30.0, "small", 2)],
    ),
    "tumbling window": (
        "SELECT symbol, avg(price) AS price FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE",
        [("a", 15.0), ("b", 5.0), ("a", 30.0), ("b", 7.0)],
    ),
    "hopping window": (
        "SELECT window_start, count(*) AS n FROM trades WHERE symbol = 'a'"
        " GROUP BY HOP(ts, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE) EMIT ON WINDOW CLOSE",
        [(at(-60), 2), (at(0), 3), (at(60), 1)],
    ),
    "session window": (
        "SELECT symbol, count(*) AS n FROM trades GROUP BY symbol, SESSION(ts, INTERVAL '35' SECOND) EMIT ON WINDOW CLOSE",
        [("a", 2), ("b", 1), ("a", 1), ("b", 1)],
    ),
    "running totals": (
        "SELECT symbol, sum(volume) AS v, max(price) AS high FROM trades GROUP BY symbol",
        [("a", 5, 30.0), ("b", 6, 7.0)],
    ),
    "distinct": ("SELECT DISTINCT symbol FROM trades", [("a",), ("b",)]),
    "top two": (
        "SELECT symbol, price FROM trades ORDER BY price DESC LIMIT 2",
        [("a", 30.0), ("a", 20.0)],
    ),
    "as-of join": (
        "SELECT t.symbol, t.price, q.bid FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.qts) ON t.symbol = q.symbol",
        [("a", 10.0, 9.5), ("a", 20.0, 19.0), ("b", 5.0, None), ("a", 30.0, 19.0), ("b", 7.0, 4.5)],
    ),
    "join with a table": (
        "SELECT c.name, sum(t.volume) AS v FROM trades t JOIN companies c ON t.symbol = c.symbol GROUP BY c.name",
        [("Acme", 5), ("Bolt", 6)],
    ),
}


def run(db: penstock.Database, sql: str, config: QueryConfig | None = None) -> Counter[tuple[Any, ...]]:
    """The net output of a query over all trades and quotes, in two parts."""
    with StreamingQuery.compile(sql, config, db=db) as query:
        query.start()
        out: list[Change] = []
        if "quotes" in sql:
            query.submit(QUOTES, source="quotes")
        for part in (TRADES[:3], TRADES[3:]):
            query.submit(part, source="trades")
            query.flush(SOON_S)
            out += query.poll_output()
        out += query.finish()
        assert query.state is QueryState.STOPPED
        return net(out)


@pytest.mark.parametrize("name", QUERIES)
def test_representative_queries(db: penstock.Database, name: str) -> None:
    sql, expected = QUERIES[name]
    assert run(db, sql) == Counter(expected)


@pytest.mark.parametrize("name", ["several expressions", "tumbling window", "running totals"])
def test_the_results_are_the_same_without_generated_code(db: penstock.Database, name: str) -> None:
    sql, expected = QUERIES[name]
    assert run(db, sql, QueryConfig(jit=False)) == Counter(expected)


def test_windows_are_emitted_when_the_watermark_passes_their_end_and_not_before(db: penstock.Database) -> None:
    with StreamingQuery.compile(QUERIES["tumbling window"][0], db=db) as query:
        query.start()
        query.submit(TRADES[:3])
        query.flush(SOON_S)
        assert query.poll_output() == []
        query.submit(TRADES[3])
        query.flush(SOON_S)
        assert net(query.poll_output()) == {("a", 15.0): 1, ("b", 5.0): 1}
        assert query.checkpoint() > 0
        query.pause()
        query.resume()
        query.submit(("b", 1.0, 1, at(71)))
        query.flush(SOON_S)
        assert net(query.finish()) == {("a", 30.0): 1, ("b", 1.0): 1}


def test_figures_are_those_of_the_rows(db: penstock.Database) -> None:
    with StreamingQuery.compile(
        "SELECT symbol, sum(volume) AS v FROM trades WHERE price >= 10 GROUP BY symbol", db=db
    ) as query:
        query.start()
        query.submit(TRADES)
        query.flush(SOON_S)
        found = query.metrics()
        assert (found.ring0_events_in, found.ring0_events_out, found.ring0_events_dropped) == (5, 3, 2)
        assert (found.bridge_pending, found.ring1_events_out) == (0, 1)
        assert found.ring1_batches_processed >= 1 and found.ring1_total_ns > 0
        assert query.metadata.ring1_operator_count == 1 and query.metadata.compile_time > 0
        assert query.metadata.native_pipelines == 2
    assert [s.name for s in db.status()] == ["trades", "quotes", "companies"]


def test_a_failing_row_is_an_error_of_its_query_alone(db: penstock.Database) -> None:
    with StreamingQuery.compile("SELECT symbol, 10 / volume AS x FROM trades", db=db) as query:
        assert query.metadata.kernel_pipelines == 1
        query.start()
        query.submit([("a", 1.0, 0, at(1)), ("b", 1.0, 5, at(1))])
        with pytest.raises(penstock.PenstockError, match="PSK-7007"):
            query.flush(SOON_S)
    assert run(db, QUERIES["filter and project"][0]) == Counter(QUERIES["filter and project"][1])


def test_a_swap_is_at_an_epoch_boundary(db: penstock.Database) -> None:
    with StreamingQuery.compile("SELECT symbol FROM trades", db=db) as query:
        query.start()
        query.submit(TRADES[0])
        query.swap(query.compile_new_version("SELECT symbol, price * 2 AS double FROM trades WHERE price > 5"))
        query.submit(TRADES[1:3])
        assert [c.rows() for c in query.finish()] == [[{"symbol": "a"}], [{"symbol": "a", "double": 40.0}]]
    with StreamingQuery.compile(QUERIES["running totals"][0], db=db) as query:
        query.start()
        with pytest.raises(penstock.PenstockError, match="PSK-6018"):
            query.swap(query.compile_new_version("SELECT symbol FROM trades"))
    grouped = "FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1' MINUTE)"
    with StreamingQuery.compile(f"SELECT symbol, sum(volume) AS n {grouped} EMIT ON WINDOW CLOSE", db=db) as query:
        query.start()
        query.submit(TRADES[:2])
        query.flush(SOON_S)
        other = grouped.replace("symbol", "volume")
        new = query.compile_new_version(f"SELECT 'x' AS symbol, sum(volume) AS n {other} EMIT ON WINDOW CLOSE")
        with pytest.raises(penstock.PenstockError, match=r"(?s)PSK-6018.*aggregate by volume.*rebuild=True"):
            query.swap(new)
        # The window that is open keeps what it has.
        query.swap(
            query.compile_new_version(
                f"SELECT upper(symbol) AS symbol, sum(volume) AS n {grouped} HAVING sum(volume) > 2 EMIT ON WINDOW CLOSE"
            )
        )
        query.submit(TRADES[2:])
        query.flush(SOON_S)
        # One more aggregate, which has seen the rows before; the windows that are closed are those of the old version.
        query.swap(
            query.compile_new_version(
                f"SELECT symbol, max(price) AS high, count(*) AS n {grouped} EMIT ON WINDOW CLOSE"
            )
        )
        assert net(query.finish()) == Counter({("A", 4): 1, ("b", 7.0, 1): 1})


def test_a_version_with_other_aggregates_has_seen_all_rows(db: penstock.Database) -> None:
    """Swaps of running totals while rows are submitted: one sequence of changes, whose sum is the result over all rows."""
    steps = [
        ("SELECT symbol, sum(volume) AS v FROM trades GROUP BY symbol", False),
        ("SELECT symbol, sum(volume) + count(*) AS v FROM trades GROUP BY symbol", False),
        ("SELECT symbol, sum(volume) AS v, max(price) AS high FROM trades GROUP BY symbol HAVING count(*) > 3", False),
        ("SELECT price, count(*) AS n FROM trades WHERE price > 5 GROUP BY price", True),
    ]
    ended, sent = threading.Event(), []

    def submit(query: StreamingQuery) -> None:
        while not ended.is_set():
            row = TRADES[len(sent) % len(TRADES)]
            query.submit(row)
            sent.append(row)
            time.sleep(0.005)

    policy = BatchPolicy(max_rows=20, max_delay=0.01)
    with StreamingQuery.compile(steps[0][0], QueryConfig(batch_policy=policy), db=db) as query:
        query.start()
        writer = threading.Thread(target=submit, args=(query,))
        writer.start()
        changes: list[Change] = []
        try:
            for sql, rebuild in steps[1:]:
                new = query.compile_new_version(sql)
                if rebuild:
                    with pytest.raises(penstock.PenstockError, match=r"(?s)PSK-6018.*aggregate by price"):
                        query.swap(new)
                query.swap(new, rebuild=rebuild)
                changes += query.poll_output()
        finally:
            ended.set()
            writer.join()
        query.flush(SOON_S)
        changes += query.finish()
    for before, after in itertools.pairwise(changes):
        assert (after.seq, after.prev_lsn) == (before.seq + 1, before.lsn)
    counted = Counter(price for _, price, _, _ in sent if price > 5)
    assert net(changes) == Counter(dict.fromkeys(counted.items(), 1))


def test_a_version_that_can_compute_every_row_replaces_one_that_cannot(db: penstock.Database) -> None:
    total = "SELECT symbol, sum({}) AS x FROM trades GROUP BY symbol"
    with StreamingQuery.compile(total.format("10 DIV volume"), db=db) as query:
        query.start()
        query.submit([("a", 1.0, 0, at(1)), ("b", 1.0, 5, at(1))])
        with pytest.raises(penstock.PenstockError, match="PSK-7007"):
            query.flush(SOON_S)
        with pytest.raises(penstock.PenstockError, match="PSK-6019"):
            query.swap(query.compile_new_version(total.format("20 DIV volume")))
        query.swap(
            query.compile_new_version(total.format("CASE WHEN volume <> 0 THEN 10 DIV volume ELSE 0 END")), rebuild=True
        )
        query.submit(("b", 1.0, 2, at(2)))
        query.flush(SOON_S)
        assert net(query.finish()) == Counter({("a", 0): 1, ("b", 7): 1})
