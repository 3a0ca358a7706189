"""`${…}` in a literal or a bound value is text. Spark would replace it."""

from __future__ import annotations

import pytest
from tests.spark.conftest import CONFIG, Opener
from tests.spark.following import SOON_S

import penstock

TEXTS = ("price is ${amount} now", "${env:DB_SECRET}", "${spark.driver.memory}", "${system:user.home}")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_SECRET", "hunter2")


def test_values_are_stored_as_given(db: penstock.Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING)")
    for n, text in enumerate(TEXTS):
        db.execute(f"INSERT INTO t VALUES ({2 * n}, '{text}')")
        db.execute("INSERT INTO t VALUES (?, ?)", [2 * n + 1, text])
    assert db.sql("SELECT s FROM t ORDER BY id").fetchall() == [(t,) for t in TEXTS for _ in range(2)]


def test_literals_of_queries_and_views_too(db: penstock.Database) -> None:
    db.execute("CREATE SOURCE s (k BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, concat(k, '${env:DB_SECRET}') AS t FROM s")
    db.execute("CREATE MATERIALIZED VIEW g AS SELECT k, max('${amount}') AS t FROM s GROUP BY k")
    db.insert("s", [(1,)])
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT * FROM v").fetchall() == [(1, "1${env:DB_SECRET}")]
    assert db.sql("SELECT * FROM g").fetchall() == [(1, "${amount}")]
    # Only Spark has this function.
    assert db.sql("SELECT soundex('a') AS x, '${env:DB_SECRET}' AS t FROM v").fetchall() == [
        ("A000", "${env:DB_SECRET}")
    ]
    assert (
        db.sql("SELECT soundex('a') AS x, ? AS t FROM v", ["${env:DB_SECRET}"]).fetchall()[0][1] == "${env:DB_SECRET}"
    )


def test_it_cannot_be_turned_on(opener: Opener) -> None:
    with pytest.raises(penstock.PenstockError) as refused:
        opener(config={**CONFIG, "spark.conf.spark.sql.variable.substitute": True})
    assert refused.value.code == "PSK-0002"
