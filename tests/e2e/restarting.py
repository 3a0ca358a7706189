"""The process that is killed: inserts numbered rows and prints the LSN of each when it is acknowledged; meanwhile it makes checkpoints.

`python restarting.py folder first`: rows `first`, `first + 1`, … until it is killed. Row n has key n % 3, value n and time n × 100 ms.
"""

from __future__ import annotations

import sys
import threading

import penstock

PIPELINE = """
CREATE SOURCE IF NOT EXISTS s (k BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);
CREATE MATERIALIZED VIEW IF NOT EXISTS sums AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;
CREATE MATERIALIZED VIEW IF NOT EXISTS windows AS
  SELECT window_start, count(*) AS n, sum(v) AS total FROM s GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;
CREATE MATERIALIZED VIEW IF NOT EXISTS overall AS SELECT count(*) AS keys, sum(total) AS total FROM sums;
CREATE MATERIALIZED VIEW IF NOT EXISTS best AS
  WITH c AS (SELECT k, window_start, window_end, sum(v) AS total FROM s GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND))
  SELECT c.window_start, c.k, c.total FROM c JOIN (SELECT window_end, max(total) AS most FROM c GROUP BY window_end) m
    ON c.window_end = m.window_end AND c.total = m.most EMIT ON WINDOW CLOSE;
CREATE MATERIALIZED VIEW IF NOT EXISTS deep AS
  SELECT d.n, d.keys, s.v FROM (SELECT n, count(*) AS keys FROM (SELECT k, count(*) AS n FROM s GROUP BY k) GROUP BY n) d JOIN s ON d.n = s.v;
CREATE STREAM IF NOT EXISTS even AS SELECT v FROM s WHERE v % 2 = 0;
CREATE MATERIALIZED VIEW IF NOT EXISTS odd AS SELECT v, k FROM s WHERE v % 2 = 1;
CREATE TABLE IF NOT EXISTS latest (k BIGINT PRIMARY KEY, v BIGINT);
CREATE MATERIALIZED VIEW IF NOT EXISTS latest_sum AS SELECT sum(v) AS v, count(*) AS n FROM latest;
"""


def row(n: int) -> tuple[int, int, int]:
    return (n % 3, n, n * 100)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def checkpoint(db: penstock.Database) -> None:
    """Again and again, while epochs are recorded."""
    pause = threading.Event()
    while not pause.wait(0.1):
        db.execute("CHECKPOINT")


def main(folder: str, first: int) -> None:
    with penstock.open(folder, master="local[2]", config={"spark.heap": "1g"}) as db:
        db.execute(PIPELINE)
        threading.Thread(target=checkpoint, args=(db,), daemon=True).start()
        say("ready")
        n = first
        while True:
            with db.transaction() as t:
                t.insert("s", [row(n)])
                t.insert("latest", [(n % 3, n)])
            say(f"{n} {t.lsn}")
            n += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
