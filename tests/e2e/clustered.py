"""A database whose tasks run in other processes: `python -m tests.e2e.clustered folder master`. Prints one JSON object."""

from __future__ import annotations

import json
import sys
from typing import Any

import penstock

SOON_S = 120.0

PIPELINE = """
CREATE SOURCE s (k STRING, v BIGINT);
CREATE TABLE names (k STRING PRIMARY KEY, name STRING);
CREATE STREAM even AS SELECT k, v FROM s WHERE v % 2 = 0;
CREATE MATERIALIZED VIEW sums AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;
CREATE MATERIALIZED VIEW named AS SELECT n.name, s.total FROM sums s JOIN names n ON s.k = n.k;
"""


def main(folder: str, master: str) -> dict[str, Any]:
    with penstock.open(folder, master=master, config={"spark.heap": "1g"}) as db:
        db.register_function(lambda v: 2 * v, name="twice", returns="BIGINT")
        db.execute(PIPELINE)
        db.execute("CREATE MATERIALIZED VIEW doubled AS SELECT k, twice(v) AS w FROM s")
        db.insert("names", [("a", "Ada"), ("b", "Bob")])
        for first in (0, 5):
            db.insert("s", [("ab"[n % 2], n) for n in range(first, first + 5)])
            db.flush(timeout=SOON_S)
        return {
            **{
                name: sorted(db.sql(f"SELECT * FROM {name}").fetchall())
                for name in ("even", "sums", "named", "doubled")
            },
            "batch": db.sql("SELECT k, sort_array(collect_set(v % 3)) AS x FROM s GROUP BY k ORDER BY k").fetchall(),
            "executors": db.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size(),
            "errors": [s.error for s in db.status() if s.error],
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])) + "\n")
