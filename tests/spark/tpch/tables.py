"""The eight tables, and a generator of rows small enough for a test and mixed enough for every query to find some."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Row = tuple[Any, ...]
Key = tuple[Any, ...]
Contents = dict[str, dict[Key, Row]]
"""Rows of each table by primary key."""

MONEY = "DECIMAL(15, 2)"


@dataclass(frozen=True)
class Table:
    name: str
    columns: str
    key: int
    """The first so many columns are the primary key."""

    def create(self) -> str:
        names = [c.split()[0] for c in self.columns.split(", ")]
        return f"CREATE TABLE {self.name} ({self.columns}, PRIMARY KEY ({', '.join(names[: self.key])}))"


TABLES = {
    t.name: t
    for t in (
        Table("region", "r_regionkey BIGINT, r_name STRING, r_comment STRING", 1),
        Table("nation", "n_nationkey BIGINT, n_name STRING, n_regionkey BIGINT, n_comment STRING", 1),
        Table(
            "supplier",
            "s_suppkey BIGINT, s_name STRING, s_address STRING, s_nationkey BIGINT, s_phone STRING, "
            "s_acctbal DECIMAL(15,2), s_comment STRING",
            1,
        ),
        Table(
            "part",
            "p_partkey BIGINT, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, p_size INT, "
            "p_container STRING, p_retailprice DECIMAL(15,2), p_comment STRING",
            1,
        ),
        Table(
            "partsupp",
            "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INT, ps_supplycost DECIMAL(15,2), ps_comment STRING",
            2,
        ),
        Table(
            "customer",
            "c_custkey BIGINT, c_name STRING, c_address STRING, c_nationkey BIGINT, c_phone STRING, "
            "c_acctbal DECIMAL(15,2), c_mktsegment STRING, c_comment STRING",
            1,
        ),
        Table(
            "orders",
            "o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus STRING, o_totalprice DECIMAL(15,2), o_orderdate DATE, "
            "o_orderpriority STRING, o_clerk STRING, o_shippriority INT, o_comment STRING",
            1,
        ),
        Table(
            "lineitem",
            "l_orderkey BIGINT, l_linenumber INT, l_partkey BIGINT, l_suppkey BIGINT, l_quantity DECIMAL(15,2), "
            "l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), l_tax DECIMAL(15,2), l_returnflag STRING, "
            "l_linestatus STRING, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, "
            "l_shipmode STRING, l_comment STRING",
            2,
        ),
    )
}

REGIONS = {
    "AFRICA": ["ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"],
    "AMERICA": ["ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"],
    "ASIA": ["INDIA", "INDONESIA", "JAPAN", "CHINA", "VIETNAM"],
    "EUROPE": ["FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"],
    "MIDDLE EAST": ["EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"],
}
NATIONS = [name for names in REGIONS.values() for name in names]
# Where most of the people are: the nations that the queries ask for.
BUSY = ["FRANCE", "GERMANY", "SAUDI ARABIA", "CANADA", "CHINA", "BRAZIL"]
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
MODES = ["AIR", "AIR REG", "MAIL", "SHIP", "TRUCK", "RAIL"]
INSTRUCTIONS = ["DELIVER IN PERSON", "COLLECT COD", "TAKE BACK RETURN"]
TYPES = ["ECONOMY ANODIZED STEEL", "PROMO BURNISHED BRASS", "MEDIUM POLISHED COPPER", "STANDARD PLATED BRASS"]
CONTAINERS = ["SM CASE", "SM PKG", "MED BOX", "MED BAG", "LG CASE", "LG BOX"]
BRANDS = ["Brand#12", "Brand#23", "Brand#34", "Brand#45"]
COLOURS = ["green", "forest", "almond", "ivory"]
FIRST_DAY, DAYS = dt.date(1993, 6, 1), 1300
TODAY = dt.date(1995, 6, 17)
"""What was received by then may have been returned; what was shipped by then is finished."""


class Maker:
    """Makes rows from a seed. Orders and their lines come out of one call, as in the benchmark's own generator."""

    def __init__(self, seed: int, suppliers: int, parts: int, customers: int) -> None:
        self.chance = random.Random(seed)
        self.suppliers, self.parts, self.customers = suppliers, parts, customers

    def base(self) -> Contents:
        """Everything but orders and lines."""
        out: Contents = {name: {} for name in TABLES}
        for r, (region, nations) in enumerate(REGIONS.items()):
            put(out, "region", (r, region, ""))
            for nation in nations:
                put(out, "nation", (NATIONS.index(nation), nation, r, ""))
        for key in range(1, self.suppliers + 1):
            put(out, "supplier", self.supplier(key))
        for key in range(1, self.parts + 1):
            put(out, "part", self.part(key))
            for supplier in self._suppliers_of(key):
                put(out, "partsupp", (key, supplier, self.chance.randint(1, 60), self._money(1, 100), ""))
        for key in range(1, self.customers + 1):
            put(out, "customer", self.customer(key))
        return out

    def supplier(self, key: int) -> Row:
        nation = self._nation(key)
        comment = "Customer slow Complaints" if self.chance.random() < 0.2 else "quick"
        balance = self._money(-999, 9999)
        return key, f"Supplier#{key:09d}", f"street {key}", nation, self._phone(nation), balance, comment

    def part(self, key: int) -> Row:
        name = " ".join(self.chance.sample(COLOURS, 2))
        brand = self.chance.choice(BRANDS)
        size = self.chance.choice([1, 3, 9, 14, 15, 23, 36, 45, 49])
        container = self.chance.choice(CONTAINERS)
        price = self._money(900, 2000)
        return key, name, f"Manufacturer#{brand[6]}", brand, self.chance.choice(TYPES), size, container, price, ""

    def customer(self, key: int) -> Row:
        nation = self._nation(key // 2)
        segment = self.chance.choice(SEGMENTS)
        balance = self._money(-999, 9999)
        return key, f"Customer#{key:09d}", f"road {key}", nation, self._phone(nation), balance, segment, ""

    def order(self, key: int) -> tuple[Row, list[Row]]:
        day = FIRST_DAY + dt.timedelta(days=self.chance.randrange(DAYS))
        large = self.chance.random() < 0.1
        count = 7 if large else self.chance.randint(1, 6)
        lines = [self.line(key, number, day, large) for number in range(1, count + 1)]
        statuses = {line[9] for line in lines}
        total = sum((line[5] for line in lines), Decimal(0))
        comment = "special careful requests" if self.chance.random() < 0.2 else "plain"
        order = (
            key,
            # Every third customer never orders.
            self.chance.choice([c for c in range(1, self.customers + 1) if c % 3]),
            statuses.pop() if len(statuses) == 1 else "P",
            total,
            day,
            self.chance.choice(PRIORITIES),
            f"Clerk#{self.chance.randrange(10):09d}",
            0,
            comment,
        )
        return order, lines

    def line(self, order: int, number: int, day: dt.date, large: bool) -> Row:
        part = self.chance.randint(1, self.parts)
        supplier = self.chance.choice(self._suppliers_of(part))
        quantity = self.chance.randint(45, 50) if large else self.chance.choice([1, 1, 2, 5, 8, 15, 24, 30])
        shipped = day + dt.timedelta(days=self.chance.randint(1, 70))
        committed = day + dt.timedelta(days=self.chance.randint(30, 90))
        received = shipped + dt.timedelta(days=self.chance.randint(1, 30))
        return (
            order,
            number,
            part,
            supplier,
            Decimal(quantity),
            quantity * self._money(900, 2000),
            Decimal(self.chance.randint(0, 10)) / 100,
            Decimal(self.chance.randint(0, 8)) / 100,
            self.chance.choice("RA") if received <= TODAY else "N",
            "F" if shipped <= TODAY else "O",
            shipped,
            committed,
            received,
            self.chance.choice(INSTRUCTIONS),
            self.chance.choice(MODES),
            "",
        )

    def _suppliers_of(self, part: int) -> list[int]:
        return sorted({(part + i * (self.suppliers // 4 + 1)) % self.suppliers + 1 for i in range(4)})

    def _nation(self, key: int) -> int:
        return NATIONS.index(BUSY[key % len(BUSY)] if self.chance.random() < 0.9 else self.chance.choice(NATIONS))

    def _phone(self, nation: int) -> str:
        return f"{nation + 10}-{self.chance.randrange(1000):03d}-{self.chance.randrange(1000):03d}"

    def _money(self, low: int, high: int) -> Decimal:
        return Decimal(self.chance.randint(low * 100, high * 100)) / 100


def put(contents: Contents, table: str, row: Row) -> None:
    contents[table][row[: TABLES[table].key]] = row
