"""Lookup tables with a source of their own: what they hold, when joins see it, and what happens when the source fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.postgres import PASSWORD, PostgresServer
from tests.spark.conftest import CONFIG, Opener

import penstock
from penstock import PenstockError

WITH_PASSWORD = {**CONFIG, "variables.PG_PASSWORD": PASSWORD}


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


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
        literal = create.replace("${PG_PASSWORD}", PASSWORD)
        db.execute(literal.replace("50 milliseconds", "1 hour"))
        shown = db.sql("SHOW CREATE LOOKUP TABLE rates").fetchall()[0][0]
        assert "password = '***'" in shown
        assert PASSWORD not in shown
        assert PASSWORD not in repr(db.topology())


REFUSED = [
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (cache.ttl = '1 minute')", "PSK-1012"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (refresh = '0 seconds')", "PSK-1011"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (refresh = 'often')", "PSK-1011"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (strategy = 'on-demand', refresh = '1 minute')", "PSK-1012"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (cache.max = 1)", "PSK-1010"),
    ("FROM POSTGRES (url = '{url}', table = 't') WITH (strategy = 'lazy')", "PSK-1011"),
    ("FROM POSTGRES (url = '{url}', tabel = 't')", "PSK-1010"),
    ("FROM POSTGRES (table = 't')", "PSK-1011"),
    ("FROM POSTGRES (url = 'here', table = 't')", "PSK-1011"),
    ("FROM POSTGRES (url = 'postgresql://127.0.0.1:1/x', table = 't')", "PSK-5002"),
    ("FROM POSTGRES (url = '{url}', password = '${{PG_PASSWORD}}', table = 'missing')", "PSK-5002"),
    ("FROM POSTGRES (url = '{url}', password = '${{NOT_THERE}}', table = 't')", "PSK-0003"),
    ("FROM FILES (path = '/nowhere/*.csv')", "PSK-5002"),
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
