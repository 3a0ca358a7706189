"""Lookup sources, as a lookup table makes and reads them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.catalog.objects import Column, Connector
from penstock.connect import LookupSource, find_lookup
from penstock.errors import PenstockError

COLUMNS = (Column("id", "bigint", False), Column("name", "string"), Column("since", "timestamp"))


def make(name: str, options: dict[str, str], columns: tuple[Column, ...] = COLUMNS, key: str = "id") -> LookupSource:
    return find_lookup(name).factory(Connector(name, options), columns, key.split())


def refused(name: str, options: dict[str, str]) -> PenstockError:
    with pytest.raises(PenstockError) as e:
        make(name, options).check()
    return e.value


def rows(table: pa.Table) -> set[tuple[object, ...]]:
    return {tuple(r.values()) for r in table.to_pylist()}
