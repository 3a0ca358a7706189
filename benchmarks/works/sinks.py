"""A stream delivered to a PostgreSQL server on the same machine, which syncs nothing: exactly once beside at least once."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from benchmarks.data import Shape
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, Figures, Row, Work

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

    import penstock as api

GUARANTEES = ("exactly-once", "at-least-once")


def with_penstock(quick: bool) -> Figures:
    # The competitors' Pythons, which know all works, have no driver for it.
    from tests.postgres import PASSWORD, PostgresServer

    os.environ["BENCHMARK_PASSWORD"] = PASSWORD
    server = PostgresServer()
    try:
        with penstock.opened() as db:
            db.execute(penstock.SOURCE.format(name="s"))
            db.execute("CREATE STREAM t AS SELECT k, v, ts FROM s")
            rows = Shape(200_000 if quick else 2_000_000)
            for batch in rows.batches():
                db.insert("s", batch)
            db.flush()
            found: Figures = {guarantee: [] for guarantee in GUARANTEES}
            # The first of each is warm-up.
            for n in range(2 if quick else 4):
                for guarantee in GUARANTEES:
                    rate = rows.rows / seconds(db, server, guarantee)
                    found[guarantee] += [rate] if n else []
            return found
    finally:
        server.remove()


def seconds(db: api.Database, server: PostgresServer, guarantee: str) -> float:
    """How long a new sink takes to catch up."""
    server.execute("CREATE TABLE target (k bigint, v bigint, ts timestamptz)")
    began = time.perf_counter()
    db.execute(
        f"CREATE SINK p FROM t INTO POSTGRES (url = '{server.url}', password = '${{BENCHMARK_PASSWORD}}', table = 'target') "
        f"WITH (guarantee = '{guarantee}')"
    )
    db.flush()
    took = time.perf_counter() - began
    db.execute("DROP SINK p")
    server.execute("DROP TABLE target")
    return took


WORK = Work(
    name="sinks",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("into PostgreSQL, exactly once", "exactly-once", "M rows/s"),
        Row("into PostgreSQL, at least once", "at-least-once", "M rows/s"),
    ),
)
