"""The Nexmark queries in Flink's SQL, and the tables that they read from Parquet files."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.nexmark.queries import BY_NAME

_EVENT_TIME = "WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
_BID = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP(3), extra STRING"
TABLES = {
    "person": (
        "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, "
        f"date_time TIMESTAMP(3), extra STRING, {_EVENT_TIME}"
    ),
    "auction": (
        "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
        f"date_time TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING, {_EVENT_TIME}"
    ),
    "bid": f"{_BID}, {_EVENT_TIME}",
    "bid_now": f"{_BID}, p_time AS PROCTIME()",
    "side_input": "`key` BIGINT, `value` STRING",
}


def table(name: str, folder: Path) -> str:
    """The statement that makes a table of the Parquet files in a folder."""
    return (
        f"CREATE TABLE {name} ({TABLES[name]}) "
        f"WITH ('connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true')"
    )


def _window(call: str, source: str, keys: str, values: str = "count(*) AS num") -> str:
    columns = f"{keys}, {values}" if keys and values else keys or values
    partition = f"{keys}, " if keys else ""
    return f"SELECT {columns}, window_start, window_end FROM TABLE({call.format(source)}) GROUP BY {partition}window_start, window_end"


_TUMBLE = "TUMBLE(TABLE {}, DESCRIPTOR(date_time), INTERVAL '10' SECOND)"
_HOP = "HOP(TABLE {}, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)"
_SESSION = "SESSION(TABLE {} PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND)"
_CLOCK = "TUMBLE(TABLE {}, DESCRIPTOR(p_time), INTERVAL '10' SECOND)"
_DAY = "date_format(date_time, 'yyyy-MM-dd')"
_BID_COLUMNS = "auction, bidder, price, channel, url, date_time, extra"


def _words(select: str) -> str:
    """Penstock's text with the names quoted that are words of Flink's SQL."""
    # Flink's average of integers is an integer.
    select = re.sub(r"avg\((\w+)\)", r"avg(CAST(\1 AS DOUBLE))", select)
    for word in ("day", "minute", "final"):
        select = select.replace(f"AS {word}", f"AS `{word}`").replace(f"({word}", f"(`{word}`")
    return select


def _ranked(columns: str, source: str, partition: str, order: str, limit: int, extra: str = "") -> str:
    ranked = f"SELECT *, row_number() OVER (PARTITION BY {partition} ORDER BY {order}) AS place FROM {source}"
    return f"SELECT {columns}{extra} FROM ({ranked}) WHERE place <= {limit}"


QUERIES = {
    **{name: _words(BY_NAME[name].select) for name in ("q0", "q1", "q2", "q3", "q4", "q10", "q15", "q16", "q17")},
    "q5": f"""
SELECT c.auction, c.num, c.window_start FROM ({_window(_HOP, "bid", "auction")}) c
JOIN (SELECT max(num) AS top, window_start, window_end FROM ({_window(_HOP, "bid", "auction")}) GROUP BY window_start, window_end) m
  ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.top
""",
    "q7": f"""
SELECT b.auction, b.price, b.bidder, b.date_time
FROM bid b JOIN ({
        _window(_TUMBLE, "bid", "", "max(price) AS top, window_time AS ended").replace(
            "GROUP BY window_start, window_end", "GROUP BY window_start, window_end, window_time"
        )
    }) m
  ON b.price = m.top AND b.date_time > m.ended - INTERVAL '10' SECOND AND b.date_time <= m.ended
""",
    "q8": f"""
SELECT p.id, p.name, p.window_start FROM ({_window(_TUMBLE, "person", "id, name", "")}) p
JOIN ({_window(_TUMBLE, "auction", "seller", "")}) a
  ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
""",
    "q9": _ranked(
        "id, item_name, initial_bid, reserve, opened, expires, seller, category, auction, bidder, price, bid_time",
        """(SELECT a.id, a.item_name, a.initial_bid, a.reserve, a.date_time AS opened, a.expires, a.seller, a.category,
                   b.auction, b.bidder, b.price, b.date_time AS bid_time
            FROM auction a JOIN bid b ON a.id = b.auction WHERE b.date_time BETWEEN a.date_time AND a.expires)""",
        "id",
        "price DESC, bid_time",
        1,
    ),
    "q11": _window(_SESSION, "bid", "bidder"),
    "q12": _window(_CLOCK, "bid_now", "bidder"),
    "q13": "SELECT b.auction, b.bidder, b.price, b.date_time, s.`value` FROM bid b JOIN side_input s ON mod(b.auction, 10000) = s.`key`",
    "q14": BY_NAME["q14"].select.replace("length(", "char_length("),
    "q18": _ranked(_BID_COLUMNS, "bid", "bidder, auction", "date_time DESC", 1),
    "q19": _ranked(_BID_COLUMNS, "bid", "auction", "price DESC, date_time", 10, ", place"),
    "q20": BY_NAME["q20"].select,
    "q21": BY_NAME["q21"].select,
    "q22": """
SELECT auction, bidder, price, channel, split_index(url, '/', 3) AS dir1, split_index(url, '/', 4) AS dir2, split_index(url, '/', 5) AS dir3
FROM bid
""",
}

WHY_NOT = {"q6": "an analytic function over rows that change"}
"""What of the other queries Flink refuses."""
