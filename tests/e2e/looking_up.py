"""The process that is killed: inserts numbered rows that are looked up on demand, and prints each result when it is visible.

`python looking_up.py folder url first`: rows `first`, `first + 1`, … until it is killed. The source answers every request differently.
"""

from __future__ import annotations

import sys

import penstock


def pipeline(url: str) -> str:
    return f"""
        CREATE SOURCE IF NOT EXISTS s (n BIGINT, k BIGINT);
        CREATE LOOKUP TABLE IF NOT EXISTS stamps (k BIGINT PRIMARY KEY, stamp STRING)
          FROM POSTGRES (url = '{url}', password = '${{PG_PASSWORD}}', query = 'SELECT k, clock_timestamp() AS stamp FROM generate_series(0, 2) k')
          WITH (strategy = 'on-demand', cache.ttl = '1 millisecond');
        CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT n, stamp FROM s LEFT JOIN stamps d ON s.k = d.k;
    """


def main(folder: str, url: str, first: int) -> None:
    with penstock.open(folder, master="local[2]", config={"spark.heap": "1g"}) as db:
        db.execute(pipeline(url))
        with db.subscribe("v") as seen:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            n = first
            while True:
                db.insert("s", [(n, n % 3)])
                n += 1
                while (change := seen.next(timeout=0.01)) is not None:
                    for row in change.rows():
                        sys.stdout.write(f"{row['n']}\t{row['stamp']}\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
