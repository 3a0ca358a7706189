"""Lookup tables with a source of their own: what they hold, when joins see it, and what happens when the source fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.postgres import PASSWORD, PostgresServer
from tests.spark.conftest import CONFIG, Opener
from tests.spark.following import until

import penstock
from penstock import PenstockError

WITH_PASSWORD = {**CONFIG, "variables.PG_PASSWORD": PASSWORD}


def rows(db: penstock.Database, sql: str) -> list[tuple[object, ...]]:
    db.flush()
    return sorted(db.sql(sql).fetchall(), key=repr)


def test_a_replica_of_files(db: penstock.Database, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,name\n1,one\n2,two\n")
    db.execute(f"""
        CREATE SOURCE s (k BIGINT, n BIGINT);
        CREATE LOOKUP TABLE d (k BIGINT PRIMARY KEY, name STRING) FROM FILES (path = '{tmp_path}/*.csv');
        CREATE MATERIALIZED VIEW v AS SELECT s.n, d.name FROM s LEFT JOIN d ON s.k = d.k;
        CREATE MATERIALIZED VIEW names AS SELECT count(*) AS n, max(name) AS last FROM d;
    """)
    db.execute("INSERT INTO s VALUES (1, 1), (3, 2)")
    assert rows(db, "SELECT * FROM v") == [(1, "one"), (2, None)]
    assert rows(db, "SELECT * FROM names") == [(2, "two")]

    (tmp_path / "b.csv").write_text("k,name\n3,zoo\n")
    (tmp_path / "a.csv").write_text("k,name\n1,uno\n")
    with db.subscribe("d") as changes:
        assert db.sql("REFRESH LOOKUP TABLE d").fetchall() == [(4,)]
        assert db.sql("REFRESH LOOKUP TABLE d").fetchall() == [(0,)]
        # One commit: retractions and assertions of the whole refresh together.
        change = changes.next(timeout=10)
        assert change is not None
        assert sorted((r["k"], r["name"], r["__weight"]) for r in change.rows()) == [
            (1, "one", -1), (1, "uno", 1), (2, "two", -1), (3, "zoo", 1),
        ]  # fmt: skip
    db.execute("INSERT INTO s VALUES (1, 3), (2, 4), (3, 5)")
    # Rows that came before the refresh keep what they got; what reads the table as a table follows it.
    assert rows(db, "SELECT * FROM v") == [(1, "one"), (2, None), (3, "uno"), (4, None), (5, "zoo")]
    assert rows(db, "SELECT * FROM names") == [(2, "zoo")]

    (tmp_path / "c.csv").write_text("k,name\n3,twice\n")
    with pytest.raises(PenstockError, match="more than one row with k = 3") as e:
        db.execute("REFRESH LOOKUP TABLE d")
    assert e.value.code == "PSK-5006"
    assert rows(db, "SELECT * FROM d") == [(1, "uno"), (3, "zoo")]
    assert "PSK-5006" in (db.metrics()["d"].error or "")
    with pytest.raises(PenstockError) as e:
        db.execute("INSERT INTO d VALUES (4, 'x')")
    assert e.value.code == "PSK-5005"


def test_a_replica_of_postgres(opener: Opener, tmp_path: Path, postgres: PostgresServer) -> None:
    postgres.execute(
        "CREATE TABLE rates (cur text, day date, rate numeric(6, 3), PRIMARY KEY (cur, day))",
        "INSERT INTO rates VALUES ('EUR', '2026-01-01', 1.5), ('USD', '2026-01-01', 1)",
    )
    create = f"""
        CREATE LOOKUP TABLE rates (cur STRING, day DATE, rate DECIMAL(6, 3), PRIMARY KEY (cur, day))
        FROM POSTGRES (url = '{postgres.url}', password = '${{PG_PASSWORD}}', table = 'rates', timeout = '5')
        WITH (refresh = '50 milliseconds')"""
    folder = tmp_path / "data"
    with opener(folder, config=WITH_PASSWORD) as db:
        db.execute(create)
        db.execute("""
            CREATE SOURCE s (n BIGINT, cur STRING, day DATE);
            CREATE MATERIALIZED VIEW v AS SELECT n, rate FROM s JOIN rates USING (cur, day);
            CREATE MATERIALIZED VIEW total AS SELECT sum(rate) AS total FROM rates;
            INSERT INTO s VALUES (1, 'EUR', DATE '2026-01-01'), (2, 'EUR', DATE '2026-01-02');
        """)
        assert [(n, float(r)) for n, r in rows(db, "SELECT * FROM v")] == [(1, 1.5)]
        postgres.execute("INSERT INTO rates VALUES ('EUR', '2026-01-02', 2)", "DELETE FROM rates WHERE cur = 'USD'")
        until(lambda: float(rows(db, "SELECT * FROM total")[0][0]) == 3.5)

        # The server goes away and comes back: the error is told, the contents stay, other queries go on.
        postgres.stop()
        try:
            until(lambda: db.metrics()["rates"].state == "retrying")
            assert "PSK-5002" in (db.metrics()["rates"].error or "")
            db.execute("INSERT INTO s VALUES (3, 'EUR', DATE '2026-01-02')")
            assert [(n, float(r)) for n, r in rows(db, "SELECT * FROM v")] == [(1, 1.5), (3, 2.0)]
            with pytest.raises(PenstockError) as e:
                db.execute("REFRESH LOOKUP TABLE rates")
            assert e.value.code == "PSK-5002"
        finally:
            postgres.start()
        postgres.execute("UPDATE rates SET rate = 4 WHERE day = '2026-01-02'")
        until(lambda: float(rows(db, "SELECT * FROM total")[0][0]) == 5.5)
        status = db.metrics()["rates"]
        assert (status.state, status.error) == ("ready", None)
        assert status.lookup is not None
        assert status.lookup.failures > 0

        shown = db.sql("SHOW CREATE LOOKUP TABLE rates").fetchall()[0][0]
        assert "${PG_PASSWORD}" in shown
        assert PASSWORD not in shown
    assert PASSWORD not in (folder / "catalog.json").read_text()

    # Without the password the database opens all the same, with what it had.
    postgres.execute("INSERT INTO rates VALUES ('GBP', '2026-01-01', 1)")
    with opener(folder) as db:
        until(lambda: "PSK-0003" in (db.metrics()["rates"].error or ""))
        assert float(rows(db, "SELECT * FROM total")[0][0]) == 5.5
    with opener(folder, config=WITH_PASSWORD) as db:
        until(lambda: float(rows(db, "SELECT * FROM total")[0][0]) == 6.5)
        db.execute("DROP LOOKUP TABLE rates CASCADE")
        assert "v" not in db.metrics()
        with pytest.raises(penstock.PenstockError) as caught:
            db.execute(create.replace("${PG_PASSWORD}", PASSWORD))
        assert caught.value.code == "PSK-1011"
        assert PASSWORD not in caught.value.render()
        db.execute(create)
        assert PASSWORD not in repr(db.topology())
        assert PASSWORD not in repr(db.status())


def on_demand(postgres: PostgresServer, name: str, columns: str, options: str = "", **relation: str) -> str:
    ((kind, text),) = relation.items()
    return f"""
        CREATE LOOKUP TABLE {name} ({columns})
        FROM POSTGRES (url = '{postgres.url}', password = '${{PG_PASSWORD}}', {kind} = '{text}')
        WITH (strategy = 'on-demand'{options})"""


def test_rows_are_fetched_when_they_are_asked_for(opener: Opener, postgres: PostgresServer) -> None:
    postgres.execute(
        "CREATE TABLE people (id int PRIMARY KEY, name text)",
        "INSERT INTO people SELECT i, 'p' || i FROM generate_series(1, 8) i",
    )
    db = opener(config=WITH_PASSWORD)
    options = ", cache.max_entries = 4, cache.ttl = '1 hour', cache.negative_ttl = '1 millisecond'"
    db.execute(on_demand(postgres, "people", "id BIGINT PRIMARY KEY, name STRING", options, table="people"))
    db.execute("""
        CREATE SOURCE s (n BIGINT, k BIGINT);
        CREATE MATERIALIZED VIEW v AS SELECT n, name FROM s LEFT JOIN people p ON s.k = p.id AND p.name <> 'p8';
        CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM s;
    """)
    assert "LookupJoin inner on demand" in db.explain("SELECT n, name FROM s JOIN people p ON s.k = p.id")

    def figures() -> tuple[int, int, int, int]:
        f = db.metrics()["people"].lookup
        assert f is not None
        return f.requests, f.keys_asked, f.hits, f.entries

    # One request for all keys of an epoch; a NULL is not asked for, and what is not there is remembered too.
    db.execute("INSERT INTO s VALUES (1, 1), (2, 2), (3, 1), (4, 99), (5, NULL)")
    assert rows(db, "SELECT * FROM v") == [(1, "p1"), (2, "p2"), (3, "p1"), (4, None), (5, None)]
    assert figures() == (1, 3, 0, 3)
    # What is kept answers without the source, also if it is no longer so there; what was not there is asked for again.
    postgres.execute("UPDATE people SET name = 'new ' || id", "INSERT INTO people VALUES (99, 'late')")
    db.execute("INSERT INTO s VALUES (6, 1), (7, 99)")
    assert rows(db, "SELECT * FROM v WHERE n > 5") == [(6, "p1"), (7, "late")]
    assert figures() == (2, 4, 1, 3)
    # The keys that were asked for least recently go; a later row fetches them again, and earlier rows keep what they got.
    db.execute("INSERT INTO s VALUES (8, 3), (9, 4), (10, 5)")
    db.flush()
    db.execute("INSERT INTO s VALUES (11, 1), (12, 2)")
    assert rows(db, "SELECT * FROM v WHERE n > 7") == [
        (10, "new 5"),
        (11, "new 1"),
        (12, "new 2"),
        (8, "new 3"),
        (9, "new 4"),
    ]
    assert rows(db, "SELECT * FROM v WHERE n < 4") == [(1, "p1"), (2, "p2"), (3, "p1")]
    assert figures()[3] == 4
    # A SELECT reads the source as it is now.
    assert len(rows(db, "SELECT * FROM people")) == 9

    # While the source is away the rows that ask it wait, and all other queries go on.
    postgres.stop()
    try:
        db.execute("INSERT INTO s VALUES (13, 6), (14, 7)")
        until(lambda: db.metrics()["people"].state == "retrying")
        until(lambda: db.sql("SELECT * FROM other").fetchall() == [(14,)])
        assert "PSK-5002" in (db.metrics()["people"].error or "")
        with pytest.raises(PenstockError) as e:
            db.flush(timeout=0.5)
        assert e.value.code == "PSK-0010"
        db.stop()
        db.start()
    finally:
        postgres.start()
    assert rows(db, "SELECT * FROM v WHERE n > 12") == [(13, "new 6"), (14, "new 7")]
    assert (db.metrics()["people"].state, db.metrics()["people"].error) == ("ready", None)

    for statement, code in [
        ("CREATE STREAM x AS SELECT * FROM people", "PSK-3003"),
        ("CREATE STREAM x AS SELECT n FROM s WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = s.k)", "PSK-3003"),
        ("CREATE STREAM x AS SELECT n FROM s JOIN people p ON s.k > p.id", "PSK-3002"),
        ("CREATE SINK x FROM people INTO CONSOLE (style = 'plain')", "PSK-5012"),
        ("SUBSCRIBE people", "PSK-5012"),
        ("REFRESH LOOKUP TABLE people", "PSK-1008"),
        ("INSERT INTO people VALUES (1, 'x')", "PSK-5005"),
        ("DROP LOOKUP TABLE people", "PSK-1009"),
    ]:
        with pytest.raises(PenstockError) as e:
            db.execute(statement)
        assert e.value.code == code, statement
        assert "__probe" not in str(e.value)
    db.execute("DROP SOURCE s CASCADE")
    assert [s.name for s in db.status()] == ["people"]
    assert db.sql("SHOW QUERIES").fetchall() == []


def test_on_demand_lookups_in_larger_queries(opener: Opener, tmp_path: Path, postgres: PostgresServer) -> None:
    postgres.execute(
        "CREATE TABLE cities (id int PRIMARY KEY, country char(2), zone int)",
        "INSERT INTO cities VALUES (1, 'DE', 7), (2, 'FR', 7), (3, 'DE', 8)",
        "CREATE TABLE zones (country char(2), zone int, name text, PRIMARY KEY (country, zone))",
        "INSERT INTO zones VALUES ('DE', 7, 'west'), ('DE', 8, 'east'), ('FR', 7, 'ouest')",
    )
    folder = tmp_path / "data"
    with opener(folder, config=WITH_PASSWORD) as db:
        db.execute(on_demand(postgres, "cities", "id INT PRIMARY KEY, country STRING, zone INT", table="cities"))
        query = "SELECT country, zone, name FROM zones WHERE name LIKE \\'%s%\\'"
        db.execute(
            on_demand(
                postgres, "zones", "zone BIGINT, country STRING, name STRING, PRIMARY KEY (zone, country)", query=query
            )
        )
        db.execute("""
            CREATE SOURCE s (city STRING, v BIGINT, ts BIGINT, WATERMARK FOR ts);
            CREATE TABLE t (id BIGINT PRIMARY KEY, city BIGINT);
            CREATE MATERIALIZED VIEW w AS
              SELECT z.name, window_end, sum(v) AS v FROM s JOIN cities c ON CAST(s.city AS INT) = c.id
              LEFT JOIN zones z ON c.country = z.country AND z.zone = c.zone
              WHERE v > 0 GROUP BY z.name, TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;
            CREATE MATERIALIZED VIEW per_city AS
              SELECT n.city, c.country, n.n FROM (SELECT city, count(*) AS n FROM t GROUP BY city) n JOIN cities c ON n.city = c.id;
            INSERT INTO t VALUES (1, 1), (2, 1), (3, 3);
            INSERT INTO s VALUES ('1', 1, 100), ('2', 2, 200), ('3', 4, 300), ('4', 8, 400), ('1', 0, 500), ('1', 16, 1500);
        """)
        closed = [("east", 1000, 4), ("ouest", 1000, 2), ("west", 1000, 1)]
        assert rows(db, "SELECT * FROM w") == closed
        assert rows(db, "SELECT * FROM per_city") == [(1, "DE", 2), (3, "DE", 1)]
        postgres.execute("UPDATE cities SET country = 'FR' WHERE id = 1")
        # A row is taken back as it was given, and a new one gets what is kept.
        db.execute("DELETE FROM t WHERE id = 2")
        assert rows(db, "SELECT * FROM per_city") == [(1, "DE", 1), (3, "DE", 1)]
    with opener(folder, config=WITH_PASSWORD) as db:
        # How old the rows of an earlier process are is not known, so they are fetched again when they are asked for.
        db.execute("INSERT INTO t VALUES (4, 1)")
        db.execute("INSERT INTO s VALUES ('1', 32, 1600), ('3', 1, 2500)")
        assert rows(db, "SELECT * FROM per_city") == [(1, "FR", 2), (3, "DE", 1)]
        assert rows(db, "SELECT * FROM w") == sorted([*closed, ("ouest", 2000, 32), ("west", 2000, 16)], key=repr)
        db.execute("DROP MATERIALIZED VIEW w; DROP LOOKUP TABLE zones; DROP LOOKUP TABLE cities CASCADE")
        assert [s.name for s in db.status()] == ["s", "t"]


REFUSED = [
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (cache.ttl = '1 minute')", "PSK-1012"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (refresh = '0 seconds')", "PSK-1011"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (refresh = 'often')", "PSK-1011"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (strategy = 'on-demand', refresh = '1 minute')", "PSK-1012"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (strategy = 'on-demand', cache.max_entries = 0)", "PSK-1011"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (strategy = 'on-demand', cache.max_bytes = '7')", "PSK-1011"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (cache.max = 1)", "PSK-1010"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (strategy = 'lazy')", "PSK-1011"),
    ("FROM POSTGRES (url = '{url}', tabel = 't')", "PSK-1010"),
    ("FROM POSTGRES (table = 't')", "PSK-1011"),
    ("FROM POSTGRES (url = 'here', table = 't')", "PSK-1011"),
    ("FROM POSTGRES (url = 'postgresql://127.0.0.1:1/x', table = 't')", "PSK-5002"),
    ("FROM POSTGRES (url = '{url}', password = '${{PG_PASSWORD}}', table = 'missing')", "PSK-5002"),
    ("FROM POSTGRES (url = '{url}', password = '${{NOT_THERE}}', table = 't')", "PSK-0003"),
    ("FROM FILES (path = 'nowhere/*.csv')", "PSK-5002"),
    ("FROM FILES (path = '/nowhere/*.csv')", "PSK-0012"),
    ("FROM FILES (path = '/nowhere') WITH (strategy = 'on-demand')", "PSK-1012"),
    ("FROM CARRIER_PIGEON (loft = 'x')", "PSK-5001"),
]


def test_what_cannot_be_carried_out_is_refused(opener: Opener, postgres: PostgresServer) -> None:
    db = opener(config=WITH_PASSWORD)
    for clause, code in REFUSED:
        with pytest.raises(PenstockError) as e:
            db.execute("CREATE LOOKUP TABLE t (a INT PRIMARY KEY) " + clause.format(url=postgres.url))
        assert e.value.code == code, clause
        assert e.value.hint or code in ("PSK-1011", "PSK-5006"), clause
    with pytest.raises(PenstockError) as e:
        db.execute(f"CREATE LOOKUP TABLE t (a INT) FROM POSTGRES (url = '{postgres.url}', table = 't')")
    assert e.value.code == "PSK-5006"
    assert db.status() == []
