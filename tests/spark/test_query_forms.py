"""Less usual forms of SELECT: after every commit each view has what Spark's batch gives for the same SELECT, or for one that means the same."""

from __future__ import annotations

from pyspark.sql import SparkSession
from tests.spark.batch_model import Batch, Maintained
from tests.spark.conftest import Opener
from tests.spark.following import settle

SCHEMAS = {"a": "id BIGINT, k STRING, x BIGINT", "b": "id BIGINT, k STRING, v BIGINT"}
COMMITS = (
    "INSERT INTO a VALUES (1, 'p', 10), (2, 'p', 20), (3, 'q', NULL), (4, NULL, 10); INSERT INTO b VALUES (1, 'p', 10), (2, 'q', 15)",
    "INSERT INTO b VALUES (3, 'q', 25), (4, NULL, 30), (5, 'r', NULL); UPDATE a SET x = x + 4 WHERE k = 'p'",
    "DELETE FROM b WHERE v = 15; UPDATE a SET k = 'r' WHERE id = 3; INSERT INTO a VALUES (5, 'q', 28)",
    "DELETE FROM a WHERE id > 1; UPDATE b SET v = 9 WHERE k = 'p'",
)
SAME = {
    "cross_joined": "SELECT a.id, b.id AS bid FROM a CROSS JOIN b",
    "natural": "SELECT * FROM (SELECT x, k FROM a) l NATURAL JOIN (SELECT v, k FROM b) r",
    "natural_full": "SELECT * FROM (SELECT x, k FROM a) l NATURAL FULL JOIN (SELECT v, k FROM b) r",
    "smaller": "SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON a.x < b.v AND b.k <> 'r'",
    "apart": "SELECT a.id, b.id AS bid FROM a FULL JOIN b ON a.x + b.v > 30 OR a.k = b.k",
    "none_larger": "SELECT a.id, a.x FROM a LEFT ANTI JOIN b ON b.v > a.x",
}
MEANT = {
    "on_scalar": (
        "SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON a.k = b.k AND b.v > (SELECT avg(x) FROM a)",
        "SELECT a.id, r.id FROM a LEFT JOIN (SELECT * FROM b WHERE v > (SELECT avg(x) FROM a)) r ON a.k = r.k",
    ),
    "on_exists": (
        "SELECT a.id, b.id AS bid FROM a FULL JOIN b ON a.k = b.k AND EXISTS (SELECT 1 FROM b c WHERE c.v = a.x)",
        """SELECT l.id, b.id FROM (SELECT id, k, x IN (SELECT v FROM b WHERE v IS NOT NULL) AS f FROM a WHERE x IS NOT NULL
             UNION ALL SELECT id, k, false FROM a WHERE x IS NULL) l FULL JOIN b ON l.k = b.k AND l.f""",
    ),
}


def test_views_are_those_of_batch_after_every_commit(interpreted: Opener, spark: SparkSession) -> None:
    db = interpreted()
    for name, columns in SCHEMAS.items():
        db.execute(f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id))")
    views = Maintained(db, SAME | {name: ours for name, (ours, _) in MEANT.items()})
    batch = Batch(spark, SCHEMAS)
    for commit in COMMITS:
        db.execute(commit)
        settle(db)
        batch.load({name: db.sql(f"SELECT * FROM {name}").fetchall() for name in SCHEMAS})
        views.check(db, batch.answers(SAME | {name: plain for name, (_, plain) in MEANT.items()}))


def test_the_cost_of_a_join_without_an_equality_is_shown(interpreted: Opener) -> None:
    db = interpreted()
    db.execute("CREATE TABLE a (id BIGINT, x BIGINT); CREATE TABLE b (id BIGINT, v BIGINT)")
    plan = db.explain("SELECT a.id, b.v FROM a JOIN b ON a.x < b.v")
    assert "keeps rows of both sides in one partition; O(diff · all rows of the other side)" in plan
