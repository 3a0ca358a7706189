"""The Nexmark queries in Penstock's SQL, and the sources that they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PERSON = """CREATE SOURCE person (
  id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING,
  date_time TIMESTAMP, extra STRING, WATERMARK FOR date_time AS date_time - INTERVAL '{delay}' SECOND)"""
AUCTION = """CREATE SOURCE auction (
  id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT,
  date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING,
  WATERMARK FOR date_time AS date_time - INTERVAL '{delay}' SECOND)"""
BID = """CREATE SOURCE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,
  date_time TIMESTAMP, extra STRING, WATERMARK FOR date_time AS date_time - INTERVAL '{delay}' SECOND)"""
BID_NOW = """CREATE SOURCE bid_now (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,
  date_time TIMESTAMP, extra STRING, p_time TIMESTAMP, WATERMARK FOR p_time AS PROCTIME())"""
SIDE_INPUT = "CREATE LOOKUP TABLE side_input (key BIGINT PRIMARY KEY, value STRING)"

OBJECTS = {"person": PERSON, "auction": AUCTION, "bid": BID, "bid_now": BID_NOW, "side_input": SIDE_INPUT}


def create(name: str, delay: str = "4") -> str:
    """The statement that makes a source; its watermark follows `delay` seconds behind its newest event."""
    return OBJECTS[name].format(delay=delay)


@dataclass(frozen=True)
class Query:
    """One query: the `select`, the clauses after it, and what it reads."""

    name: str
    title: str
    select: str
    reads: tuple[str, ...] = ("bid",)
    emit: Literal["", "EMIT ON WINDOW CLOSE"] = ""
    unbounded: bool = False
    """It joins streams whose rows can match at any distance in time, so its state grows with them."""

    def create(self, kind: Literal["STREAM", "MATERIALIZED VIEW"] = "MATERIALIZED VIEW", name: str = "") -> str:
        options = " WITH (unbounded_state = true)" if self.unbounded else ""
        emit = f"\n{self.emit}" if self.emit else ""
        return f"CREATE {kind} {name or self.name} AS\n{self.select.strip()}{emit}{options}"


# The parts of the day's statistics that q15 and q16 have in common: bids, bidders and auctions by price band.
_BANDS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_STATISTICS = ",\n  ".join(
    f"{call} AS total_{what}"
    + "".join(f",\n  {call} FILTER (WHERE {b}) AS rank{i}_{what}" for i, b in enumerate(_BANDS, 1))
    for what, call in {
        "bids": "count(*)",
        "bidders": "count(DISTINCT bidder)",
        "auctions": "count(DISTINCT auction)",
    }.items()
)

QUERIES = (
    Query("q0", "pass through", "SELECT auction, bidder, price, date_time, extra FROM bid"),
    Query(
        "q1",
        "currency conversion",
        "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    ),
    Query("q2", "selection", "SELECT auction, price FROM bid WHERE auction % 123 = 0"),
    Query(
        "q3",
        "local item suggestion",
        """
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')
""",
        reads=("auction", "person"),
        unbounded=True,
    ),
    Query(
        "q4",
        "average price for a category",
        """
SELECT category, avg(final) AS average
FROM (
  SELECT max(b.price) AS final, a.category
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category)
GROUP BY category
""",
        reads=("auction", "bid"),
        unbounded=True,
    ),
    Query(
        "q5",
        "hot items",
        """
WITH counts AS (
  SELECT auction, count(*) AS num, window_start, window_end
  FROM bid GROUP BY auction, HOP(date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND))
SELECT c.auction, c.num, c.window_start
FROM counts c
JOIN (SELECT max(num) AS top, window_start, window_end FROM counts GROUP BY window_start, window_end) m
  ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.top
""",
        emit="EMIT ON WINDOW CLOSE",
    ),
    Query(
        "q6",
        "average selling price by seller, of the last ten auctions",
        """
SELECT seller, id, avg(final) OVER (PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
FROM (
  SELECT a.id, a.seller, a.expires, max(b.price) AS final
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.seller, a.expires)
""",
        reads=("auction", "bid"),
        unbounded=True,
    ),
    Query(
        "q7",
        "highest bid",
        """
SELECT b.auction, b.price, b.bidder, b.date_time
FROM bid b
JOIN (SELECT max(price) AS top, window_end FROM bid GROUP BY TUMBLE(date_time, INTERVAL '10' SECOND)) m
  ON b.price = m.top AND b.date_time >= m.window_end - INTERVAL '10' SECOND AND b.date_time < m.window_end
""",
        emit="EMIT ON WINDOW CLOSE",
    ),
    Query(
        "q8",
        "monitor new users",
        """
SELECT p.id, p.name, p.window_start
FROM (SELECT id, name, window_start, window_end FROM person
      GROUP BY id, name, TUMBLE(date_time, INTERVAL '10' SECOND)) p
JOIN (SELECT seller, window_start, window_end FROM auction
      GROUP BY seller, TUMBLE(date_time, INTERVAL '10' SECOND)) a
  ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
""",
        reads=("person", "auction"),
        emit="EMIT ON WINDOW CLOSE",
    ),
    Query(
        "q9",
        "winning bids",
        """
SELECT a.id, a.item_name, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category,
       b.auction, b.bidder, b.price, b.date_time AS bid_time
FROM auction a JOIN bid b ON a.id = b.auction
WHERE b.date_time BETWEEN a.date_time AND a.expires
QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) = 1
""",
        reads=("auction", "bid"),
        unbounded=True,
    ),
    Query(
        "q10",
        "log to file system",
        """
SELECT auction, bidder, price, date_time, extra,
       date_format(date_time, 'yyyy-MM-dd') AS day, date_format(date_time, 'HH:mm') AS minute
FROM bid
""",
    ),
    Query(
        "q11",
        "user sessions",
        """
SELECT bidder, count(*) AS bids, window_start, window_end
FROM bid GROUP BY bidder, SESSION(date_time, INTERVAL '10' SECOND)
""",
        emit="EMIT ON WINDOW CLOSE",
    ),
    Query(
        "q12",
        "processing-time windows",
        """
SELECT bidder, count(*) AS bids, window_start, window_end
FROM bid_now GROUP BY bidder, TUMBLE(p_time, INTERVAL '10' SECOND)
""",
        reads=("bid_now",),
        emit="EMIT ON WINDOW CLOSE",
    ),
    Query(
        "q13",
        "bounded side input join",
        """
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid b JOIN side_input s ON b.auction % 10000 = s.key
""",
        reads=("bid", "side_input"),
    ),
    Query(
        "q14",
        "calculation",
        """
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time_type,
       date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
""",
    ),
    Query(
        "q15",
        "bidding statistics",
        f"""
SELECT date_format(date_time, 'yyyy-MM-dd') AS day,
  {_STATISTICS}
FROM bid GROUP BY date_format(date_time, 'yyyy-MM-dd')
""",
    ),
    Query(
        "q16",
        "channel statistics",
        f"""
SELECT channel, date_format(date_time, 'yyyy-MM-dd') AS day, max(date_format(date_time, 'HH:mm')) AS minute,
  {_STATISTICS}
FROM bid GROUP BY channel, date_format(date_time, 'yyyy-MM-dd')
""",
    ),
    Query(
        "q17",
        "auction statistics",
        """
SELECT auction, date_format(date_time, 'yyyy-MM-dd') AS day, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bid GROUP BY auction, date_format(date_time, 'yyyy-MM-dd')
""",
    ),
    Query(
        "q18",
        "last bid",
        """
SELECT auction, bidder, price, channel, url, date_time, extra
FROM bid QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) = 1
""",
    ),
    Query(
        "q19",
        "top ten bids of an auction",
        """
SELECT auction, bidder, price, channel, url, date_time, extra,
       row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place
FROM bid QUALIFY place <= 10
""",
    ),
    Query(
        "q20",
        "bids with their auction",
        """
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra,
       a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS opened, a.expires, a.seller, a.category
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10
""",
        reads=("bid", "auction"),
        unbounded=True,
    ),
    Query(
        "q21",
        "channel id",
        """
SELECT auction, bidder, price, channel,
       CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
""",
    ),
    Query(
        "q22",
        "URL directories",
        """
SELECT auction, bidder, price, channel,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid
""",
    ),
)

BY_NAME = {query.name: query for query in QUERIES}
