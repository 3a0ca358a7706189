"""An unsupported statement is refused when it is submitted, with a code, a position and an alternative, and has no effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.spark.conftest import Opener

import penstock
from penstock.errors import CODES

SETUP = """
CREATE SOURCE trades (symbol STRING, price DOUBLE, volume BIGINT NOT NULL, ts TIMESTAMP,
                      WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);
CREATE SOURCE quotes (symbol STRING, bid DOUBLE, qts TIMESTAMP, WATERMARK FOR qts);
CREATE SOURCE plain (id BIGINT, ts BIGINT);
CREATE TABLE products (id INT, name STRING NOT NULL, PRIMARY KEY (id));
CREATE MATERIALIZED VIEW totals AS SELECT symbol, sum(volume) AS volume FROM trades GROUP BY symbol;
CREATE STREAM cheap AS SELECT symbol, price FROM trades WHERE price < 1;
"""


@pytest.fixture(scope="module")
def shared(first_database: penstock.Database) -> Iterator[penstock.Database]:
    """One database for all: a refused statement leaves it as it was."""
    with penstock.open(master="local[2]", config={"spark.heap": "2g", "variables": {"KNOWN": "5 seconds"}}) as database:
        database.execute(SETUP)
        yield database


@dataclass(frozen=True)
class Refused:
    """A statement, the code it is refused with, a part of the message or hint, and the line and column if there are any."""

    sql: str
    code: str
    says: str = ""
    at: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.code}: {' '.join(self.sql.split())[:70]}"


STATEMENTS = [
    # Syntax
    Refused("CREATE x", "PSK-1001", at=(1, 8)),
    Refused("CREATE WIDGET w (a INT)", "PSK-1001", at=(1, 8)),
    Refused("SELEC 1", "PSK-1001", "SELECT", at=(1, 1)),
    Refused("CREATE SOURCE s (a INT", "PSK-1001"),
    Refused("CREATE STREAM o AS", "PSK-1001"),
    Refused("SELECT FROM trades", "PSK-1001"),
    Refused("SELECT symbol,\n  price price2 x\nFROM trades", "PSK-1001", at=(2, 16)),
    Refused("DROP trades", "PSK-1001", at=(1, 6)),
    Refused("SHOW NOTHING", "PSK-1001"),
    Refused("CREATE STREAM o AS SELECT symbol FROM trades EMIT SOMETIMES", "PSK-1001"),
    Refused("INSERT INTO products VALUES (1, 'a'", "PSK-1001"),
    # Rows that come out behind the watermark
    Refused(
        "CREATE STREAM o AS SELECT w.symbol, q.bid FROM "
        "(SELECT symbol, window_start FROM trades GROUP BY symbol, TUMBLE(ts, INTERVAL '1' MINUTE)) w "
        "ASOF JOIN quotes q MATCH_CONDITION (w.window_start >= q.qts) ON w.symbol = q.symbol EMIT ON WINDOW CLOSE",
        "PSK-1012",
        "Create a stream of the inner query",
    ),
    # Names
    Refused("SELECT * FROM trade", "PSK-1002", "trades", at=(1, 15)),
    Refused("CREATE STREAM o AS SELECT * FROM trads", "PSK-1002", "trades", at=(1, 34)),
    Refused("CREATE STREAM o AS\nSELECT symbol, pricee FROM trades", "PSK-1004", "price", at=(2, 16)),
    Refused("CREATE STREAM o AS SELECT t.nope FROM trades t", "PSK-1004"),
    Refused("CREATE STREAM o AS SELECT x.symbol FROM trades t", "PSK-1004"),
    Refused("SELECT nope FROM totals", "PSK-1004"),
    Refused(
        "CREATE STREAM o AS SELECT nosuchfunction(price) AS p FROM trades", "PSK-1006", "nosuchfunction", at=(1, 27)
    ),
    Refused("SELECT\n  coun(symbol) FROM totals", "PSK-1006", "count?", at=(2, 3)),
    Refused(
        "CREATE STREAM o AS SELECT symbol FROM trades GROUP BY symbol, TUMBLING(ts, INTERVAL '1' MINUTE)",
        "PSK-1006",
        "TUMBLE?",
        at=(1, 63),
    ),
    Refused("SELECT volume * 2 AS twice FROM totals WHERE twice > 3", "PSK-1004", "derived table", at=(1, 46)),
    Refused("SELECT * FROM other.totals", "PSK-1002", "Write totals alone", at=(1, 15)),
    Refused("CREATE STREAM o AS SELECT kll_sketch_agg_double(price) AS x FROM trades", "PSK-1012", "view", at=(1, 27)),
    Refused("CREATE STREAM o AS SELECT id FROM plain a JOIN products p ON a.id = p.id", "PSK-1005", "id", at=(1, 27)),
    Refused("CREATE SOURCE trades (a INT)", "PSK-1003", "already exists"),
    Refused("CREATE TABLE totals (a INT)", "PSK-1003", "already exists"),
    Refused("CREATE MATERIALIZED VIEW cheap AS SELECT * FROM trades", "PSK-1003", "already exists"),
    Refused("DROP STREAM chaep", "PSK-1002", "cheap"),
    Refused("DROP STREAM totals", "PSK-1008", "DROP MATERIALIZED VIEW totals"),
    Refused("DESCRIBE nope", "PSK-1002"),
    Refused("SHOW CREATE STREAM nope", "PSK-1002"),
    Refused("UPDATE nope SET a = 1", "PSK-1002"),
    Refused("UPDATE products SET nme = 'x'", "PSK-1004"),
    Refused("INSERT INTO products (id, nme) VALUES (1, 'x')", "PSK-1004", "name"),
    Refused("FETCH 1 FROM nocursor", "PSK-1002"),
    # Columns
    Refused("CREATE SOURCE s (a INT, A STRING)", "PSK-1014"),
    Refused("CREATE STREAM o AS SELECT symbol, price AS symbol FROM trades", "PSK-1014"),
    Refused("CREATE SOURCE s (__weight INT)", "PSK-1015"),
    Refused("CREATE SOURCE s (a NOSUCHTYPE)", "PSK-1013"),
    Refused("CREATE TABLE t (a INT, PRIMARY KEY (b))", "PSK-1004"),
    Refused("CREATE SOURCE s (a INT, PRIMARY KEY (a))", "PSK-1012", "CREATE TABLE"),
    Refused("INSERT INTO products VALUES (1)", "PSK-1016"),
    Refused("INSERT INTO products VALUES (1, 'a', 2)", "PSK-1016"),
    Refused("CREATE STREAM o AS SELECT symbol FROM trades UNION ALL SELECT symbol, price FROM trades", "PSK-1016"),
    Refused("CREATE STREAM o AS SELECT symbol, sum(volume) AS v FROM trades", "PSK-1019", "symbol"),
    Refused("CREATE STREAM o AS SELECT symbol FROM trades WHERE sum(volume) > 1", "PSK-1019"),
    Refused("CREATE STREAM o AS SELECT symbol + ts AS z FROM trades", "PSK-1007"),
    # Options
    Refused("CREATE STREAM o AS SELECT symbol FROM trades WITH (bogus = '1')", "PSK-1010", at=(1, 52)),
    Refused("CREATE SOURCE s (a INT) WITH (idle_timout = '3 seconds')", "PSK-1010", "idle_timeout"),
    Refused("CREATE SOURCE s (a INT, ts BIGINT, WATERMARK FOR ts) WITH (watermark_per = 'b')", "PSK-1004", "a, ts"),
    Refused("CREATE SOURCE s (a INT) WITH (watermark_per = 'a')", "PSK-1012", "WATERMARK FOR"),
    Refused(
        "CREATE SOURCE s (a INT, ts TIMESTAMP, WATERMARK FOR ts AS PROCTIME()) WITH (watermark_per = 'a')", "PSK-1012"
    ),
    Refused(
        "CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts) WITH (max_drift = '1 second')", "PSK-1012", "watermark_group"
    ),
    Refused("CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts) WITH (watermark_group = 'g')", "PSK-1012", "max_drift ="),
    Refused(
        "CREATE SOURCE s (a INT) WITH (watermark_group = 'g', max_drift = '1 second')", "PSK-1012", "WATERMARK FOR"
    ),
    Refused("CREATE SOURCE s (a INT) WITH (on_drift = 'halt')", "PSK-1011", "pause, reject, warn", at=(1, 42)),
    Refused("CREATE STREAM o AS SELECT symbol FROM trades WITH (retain_history = 'many')", "PSK-1011"),
    Refused("CREATE SOURCE s (a INT) FROM CARRIER_PIGEON (loft = 'x')", "PSK-5001"),
    Refused("CREATE SINK k FROM cheap INTO CARRIER_PIGEON (loft = 'x')", "PSK-5001"),
    Refused("CREATE TABLE t (a INT PRIMARY KEY) FROM WEBSOCKET (url = 'ws://localhost:1')", "PSK-5001"),
    Refused("CREATE LOOKUP TABLE t (a INT PRIMARY KEY) FROM CARRIER_PIGEON (loft = 'x')", "PSK-5001"),
    Refused(
        "CREATE LOOKUP TABLE t (a INT PRIMARY KEY) WITH (connector = 'static', strategy = 'on-demand')", "PSK-1012"
    ),
    Refused("CREATE LOOKUP TABLE t (a INT PRIMARY KEY) WITH (connector = 'static', refresh = '1 minute')", "PSK-1012"),
    Refused("CREATE SOURCE s (a INT) FROM WEBSOCKET (url = '${UNSET_URL}')", "PSK-0003", "UNSET_URL"),
    Refused("SUBSCRIBE totals WITH (envelope = 'letter')", "PSK-1011"),
    Refused("SUBSCRIBE totals WITH (colour = 'red')", "PSK-1010"),
    Refused("SET spark.heap = '4g'", "PSK-0011"),
    Refused("SET engine.poll_timeout = 5", "PSK-0001"),
    Refused("SET engine.poll_timeout_ms = 'soon'", "PSK-0002"),
    # Time
    Refused("CREATE SOURCE s (ts TIMESTAMP, WATERMARK FOR ts AS ts + INTERVAL '5' SECOND)", "PSK-2001"),
    Refused("CREATE SOURCE s (ts TIMESTAMP, a INT, WATERMARK FOR ts AS ts - a)", "PSK-2001"),
    Refused("CREATE SOURCE s (ts TIMESTAMP, us TIMESTAMP, WATERMARK FOR ts AS us - INTERVAL '5' SECOND)", "PSK-2001"),
    Refused("CREATE SOURCE s (a STRING, WATERMARK FOR a)", "PSK-2002"),
    Refused("CREATE SOURCE s (a INT, WATERMARK FOR b)", "PSK-1004"),
    Refused("CREATE STREAM o AS SELECT count(*) AS n FROM trades GROUP BY TUMBLE(ts)", "PSK-2003"),
    Refused("CREATE STREAM o AS SELECT count(*) AS n FROM trades GROUP BY TUMBLE(ts, INTERVAL '0' SECOND)", "PSK-2003"),
    Refused("CREATE STREAM o AS SELECT count(*) AS n FROM trades GROUP BY TUMBLE(ts, 5)", "PSK-2008"),
    Refused(
        "CREATE STREAM o AS SELECT count(*) AS n FROM trades GROUP BY TUMBLE(symbol, INTERVAL '1' SECOND)", "PSK-2002"
    ),
    Refused(
        "CREATE STREAM o AS SELECT count(*) AS n FROM trades GROUP BY HOP(ts, INTERVAL '5' SECOND, INTERVAL '2' SECOND)",
        "PSK-2003",
        "HOP",
    ),
    Refused(
        "CREATE STREAM o AS SELECT count(*) AS n FROM trades GROUP BY CUMULATE(ts, INTERVAL '2' SECOND, INTERVAL '5' SECOND)",
        "PSK-2003",
        "multiple",
    ),
    Refused(
        "CREATE STREAM o AS SELECT count(*) AS n FROM trades "
        "GROUP BY TUMBLE(ts, INTERVAL '1' SECOND), TUMBLE(ts, INTERVAL '2' SECOND)",
        "PSK-2003",
    ),
    Refused("CREATE STREAM o AS SELECT symbol FROM trades EMIT ON WINDOW CLOSE", "PSK-2005"),
    Refused("CREATE STREAM o AS SELECT symbol, count(*) AS n FROM trades GROUP BY symbol EMIT FINAL", "PSK-2005"),
    Refused(
        "CREATE STREAM o AS SELECT count(*) AS n FROM plain GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE",
        "PSK-2004",
        "WATERMARK",
    ),
    Refused(
        "CREATE STREAM o AS SELECT count(*) AS n FROM trades GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) "
        "ALLOW LATENESS INTERVAL '1' MINUTE EMIT FINAL",
        "PSK-2006",
    ),
    Refused("CREATE STREAM o AS SELECT symbol FROM trades ALLOW LATENESS INTERVAL '1' MINUTE", "PSK-2005"),
    Refused("CREATE STREAM o AS SELECT symbol FROM trades EMIT EVERY INTERVAL '0' SECOND", "PSK-2008"),
    Refused("CREATE STREAM o AS SELECT symbol, now() AS n FROM trades", "PSK-2007", at=(1, 35)),
    Refused("CREATE STREAM o AS SELECT symbol FROM trades WHERE ts > now() OR price > 1", "PSK-2007"),
    Refused("CREATE STREAM o AS SELECT symbol FROM trades WHERE hour(now()) > 3", "PSK-2007"),
    # Joins
    Refused(
        "CREATE STREAM o AS SELECT t.price, q.bid FROM trades t JOIN quotes q ON t.symbol = q.symbol",
        "PSK-3001",
        "BETWEEN",
    ),
    Refused("CREATE STREAM o AS SELECT t.price, q.bid FROM trades t CROSS JOIN quotes q", "PSK-3"),
    Refused("CREATE STREAM o AS SELECT t.price, q.bid FROM trades t, quotes q", "PSK-3"),
    Refused("CREATE STREAM o AS SELECT price, bid FROM trades NATURAL JOIN quotes", "PSK-3001"),
    Refused("CREATE STREAM o AS SELECT t.price, q.bid FROM trades t JOIN quotes q ON t.price < q.bid", "PSK-3"),
    # Order
    Refused("CREATE STREAM o AS SELECT symbol FROM trades ORDER BY symbol", "PSK-4001", "LIMIT"),
    Refused("CREATE MATERIALIZED VIEW o AS SELECT symbol FROM totals ORDER BY volume", "PSK-4001"),
    # Wrong kind of object
    Refused("SUBSCRIBE trades", "PSK-5012", "CREATE STREAM"),
    Refused("SUBSCRIBE nothere", "PSK-1002"),
    Refused("INSERT INTO totals VALUES ('a', 1)", "PSK-5005"),
    Refused("UPDATE trades SET price = 1", "PSK-5005"),
    Refused("DELETE FROM cheap", "PSK-5005"),
    Refused("DROP SOURCE trades", "PSK-1009", "cheap, totals"),
    Refused("CREATE OR REPLACE SOURCE trades (a INT)", "PSK-1009"),
    # Not supported is said
    Refused("RESTORE FROM CHECKPOINT 99999", "PSK-6005"),
    Refused("ALTER STREAM cheap AS SELECT symbol FROM trades", "PSK-1016", "price double"),
    Refused("ALTER TABLE products ADD COLUMN name INT", "PSK-1"),
    Refused("COMMIT", "PSK-0006"),
    Refused("ROLLBACK", "PSK-0006"),
]


@pytest.mark.parametrize("refused", STATEMENTS, ids=str)
def test_bad_statements(shared: penstock.Database, refused: Refused) -> None:
    before = _objects(shared)
    with pytest.raises(penstock.PenstockError) as caught:
        shared.execute(refused.sql)
    error = caught.value
    assert error.code.startswith(refused.code), error
    assert error.code in CODES
    assert refused.says in str(error)
    if refused.at is not None:
        assert error.position is not None, error
        assert (error.position.line, error.position.column) == refused.at
    assert _objects(shared) == before


def test_the_database_still_works_after_all_that(shared: penstock.Database) -> None:
    shared.insert("trades", [("still", 1.0, 7, 1000)])
    shared.flush()
    assert shared.sql("SELECT volume FROM totals WHERE symbol = 'still'").fetchall() == [(7,)]
    assert [s.error for s in shared.status() if s.error] == []


ROWS: list[tuple[str, Any, str, str]] = [
    # target, data, code, part of the message
    ("trades", [("a", 1.0, 1)], "PSK-5003", "Row 1"),
    ("trades", [("a", 1.0, 1, 0), ("b", "dear", 1, 0)], "PSK-5003", "Row 2, column 'price'"),
    ("trades", [("a", 1.0, None, 0)], "PSK-5003", "NULL in a NOT NULL column"),
    ("trades", [{"symbol": "a", "volume": 1.5}], "PSK-5003", "volume"),
    ("trades", [{"symbol": "a", "volume": 2**70}], "PSK-5003", "volume"),
    ("trades", [{"symbol": "a", "volume": 1, "prize": 1.0}], "PSK-1004", "price"),
    ("trades", [{"symbol": "a", "volume": 1, "ts": "yesterday"}], "PSK-5003", "ts"),
    ("trades", [("a", 1.0, 1, 0), {"symbol": "a"}], "PSK-5003", "Row 2"),
    ("trades", 5, "PSK-0009", "int"),
    ("trades", "rows", "PSK-0009", "str"),
    ("trades", [5], "PSK-5003", "Row 1"),
    ("trads", [("a", 1.0, 1, 0)], "PSK-1002", "trades"),
    ("totals", [("a", 1)], "PSK-5005", "view"),
    ("products", [(None, "a")], "PSK-5", "id"),
    ("products", [(1, None)], "PSK-5003", "name"),
]


@pytest.mark.parametrize(("target", "data", "code", "says"), ROWS, ids=lambda v: str(v)[:40])
def test_bad_rows_are_refused_whole(shared: penstock.Database, target: str, data: Any, code: str, says: str) -> None:
    shared.flush()
    before = [(s.name, s.lsn) for s in shared.status()]
    with pytest.raises(penstock.PenstockError) as caught:
        shared.insert(target, data)
    assert caught.value.code.startswith(code), caught.value
    assert says in str(caught.value)
    assert [(s.name, s.lsn) for s in shared.status()] == before


def test_a_script_stops_at_its_first_error_and_says_which(db: penstock.Database) -> None:
    with pytest.raises(penstock.PenstockError) as caught:
        db.execute("CREATE SOURCE a (x INT);\nCREATE SOURCE b (x INT);\nDROP SOURCE c;\nCREATE SOURCE d (x INT)")
    assert caught.value.code == "PSK-1002"
    assert any("statement 3 of 4" in note for note in caught.value.__notes__)
    assert _objects(db) == ["a", "b"]


def test_a_syntax_error_anywhere_in_a_script_runs_nothing(db: penstock.Database) -> None:
    with pytest.raises(penstock.PenstockError) as caught:
        db.execute("CREATE SOURCE a (x INT);\nCREATE SORCE b (x INT)")
    assert caught.value.code == "PSK-1001"
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (2, 8)
    assert "SORCE" in caught.value.render()
    assert _objects(db) == []


def test_variables_come_from_the_config_then_the_environment(opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "7 seconds")
    db = opener(config={"variables": {"KNOWN": "5 seconds"}})
    for name, text in (("a", "${KNOWN}"), ("b", "${FROM_OUTSIDE}"), ("c", "${NOWHERE:-9 seconds}")):
        db.execute(f"CREATE SOURCE {name} (ts TIMESTAMP, WATERMARK FOR ts) WITH (idle_timeout = '{text}')")
    assert _objects(db) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"config": {"spark.heep": "1g"}}, "PSK-0001"),
        ({"config": {"log.wal_mode": "never"}}, "PSK-0002"),
        ({"master": "local[1]"}, "PSK-0008"),
        ({"master": "local[2]", "config": {"spark.heap": "3g"}}, "PSK-0008"),
        ({"master": "local[2]", "config": {"spark.conf.spark.ui.enabled": "true"}}, "PSK-0008"),
    ],
    ids=["unknown setting", "bad value", "another master", "another heap", "another fixed setting"],
)
def test_bad_settings(first_database: penstock.Database, arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(penstock.PenstockError) as caught:
        penstock.open(**arguments)
    assert caught.value.code == code


def _objects(database: penstock.Database) -> list[str]:
    return sorted(s.name for s in database.status())
