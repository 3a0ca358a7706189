"""A catalogue in a dictionary, filled by SQL."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.catalog.objects import Column, Kind, ObjectInfo
from penstock.plan.nodes import Query, TimeAttr
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.script import parse_script

FIXTURES = Path(__file__).parent / "fixtures"
DDL = """
CREATE SOURCE s (k VARCHAR, v BIGINT, d DOUBLE, ts TIMESTAMP, st STRUCT<a: INT, b: STRUCT<c: INT>>, arr ARRAY<INT>,
                 WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);
CREATE SOURCE r (k VARCHAR, w BIGINT, rts TIMESTAMP, WATERMARK FOR rts);
CREATE SOURCE m (k VARCHAR, x DOUBLE, ms BIGINT, WATERMARK FOR ms AS ms - INTERVAL '1' SECOND);
CREATE SOURCE raw (k VARCHAR, v BIGINT, ts TIMESTAMP);
CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, price DOUBLE);
CREATE TABLE t2 (id BIGINT, x BIGINT, PRIMARY KEY (id, x));
CREATE TABLE rates (k VARCHAR, valid_from TIMESTAMP, rate DOUBLE);
CREATE LOOKUP TABLE d (k VARCHAR PRIMARY KEY, label TEXT) WITH (connector = 'static');
CREATE STREAM minutes AS SELECT k, window_start, window_end, sum(v) AS total FROM s
  GROUP BY k, TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE;
"""


class Catalog:
    """What `penstock.sql.bind.CatalogView` asks for, over CREATE statements that are only remembered."""

    def __init__(self, ddl: str = "") -> None:
        self.objects: dict[str, ObjectInfo] = {}
        for statement in parse_script(ddl):
            self.add(statement)

    def get(self, name: str, /) -> ObjectInfo | None:
        return self.objects.get(name.lower())

    def names(self) -> Iterable[str]:
        return [o.name for o in self.objects.values()]

    def add(self, s: st.Statement) -> None:
        number = len(self.objects) + 1
        match s:
            case st.CreateSource():
                times = (TimeAttr(s.watermark.column),) if s.watermark else ()
                info = ObjectInfo(number, s.name, Kind.SOURCE, s.columns, times=times, watermark=s.watermark)
            case st.CreateTable():
                info = ObjectInfo(number, s.name, Kind.TABLE, s.columns, s.key, changelog=True)
            case st.CreateLookupTable():
                info = ObjectInfo(number, s.name, Kind.LOOKUP, s.columns, s.key)
            case st.CreateStream() | st.CreateView() | st.CreateNamedQuery():
                query = bind(s.query, self)
                names = dict(zip(query.root.columns, query.names, strict=True))
                times = tuple(TimeAttr(names[t.column], t.lag_ms) for t in query.root.times)
                kind = {st.CreateStream: Kind.STREAM, st.CreateView: Kind.VIEW}.get(type(s), Kind.NAMED_QUERY)
                columns = tuple(Column(n, "string" if n == "k" else "bigint") for n in query.names)
                changelog, order = query.root.changelog, query.order
                info = ObjectInfo(
                    number, s.name, kind, columns, changelog=changelog, times=times, sql=s.text, order=order
                )
            case _:
                raise AssertionError(s)
        self.objects[s.name.lower()] = info

    def plan(self, sql: str) -> Query:
        (s,) = parse_script(sql)
        assert isinstance(s, st.Select | st.CreateStream | st.CreateView)
        return bind(s.query, self)


def blocks(name: str) -> list[tuple[str, str]]:
    """The blocks of a file of fixtures: a query, and the lines below it."""
    found = []
    for block in (FIXTURES / name).read_text(encoding="utf-8").strip().split("\n\n"):
        sql, _, expected = block.partition("\n")
        found.append((sql, expected))
    return found


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return Catalog(DDL)


@pytest.fixture(scope="session")
def plans(catalog: Catalog) -> dict[str, Query]:
    """The plan of every query in `plans.txt`."""
    return {sql: catalog.plan(sql) for sql, _ in blocks("plans.txt")}


@pytest.fixture(scope="session")
def new_catalog() -> type[Catalog]:
    return Catalog
