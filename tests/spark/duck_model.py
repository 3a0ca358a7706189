"""DuckDB as the measure: it carries out the same statements, and a view's SELECT over its tables says what the view must hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
from tests.spark.conftest import Opener
from tests.spark.following import bag, contents, settle

import penstock


class Measured:
    """A database in `folder` and its double in DuckDB, with views by name. `do` carries a statement out in both and compares."""

    def __init__(self, opener: Opener, folder: Path, tables: list[str], views: Mapping[str, str]) -> None:
        self._opener, self._folder = opener, folder
        self._views = dict(views)
        self._duck = duckdb.connect()
        self.db: penstock.Database = opener(folder)
        for statement in tables:
            self.db.execute(statement)
            self._duck.execute(statement.replace("STRING", "VARCHAR"))
        for name, select in views.items():
            self.db.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")

    def do(self, sql: str) -> dict[str, int]:
        """Carries out a script in both, compares every view, and returns how many rows each has.

        An INSERT replaces the rows of its keys, which DuckDB calls INSERT OR REPLACE.
        """
        self.db.execute(sql)
        self._duck.execute(sql.replace("INSERT INTO", "INSERT OR REPLACE INTO"))
        return self.check(sql)

    def check(self, after: str) -> dict[str, int]:
        settle(self.db)
        rows = {}
        for name, select in self._views.items():
            got, wanted = contents(self.db, name), bag(self._duck.execute(select).fetchall())
            assert got == wanted, f"{name} after {after}: too much {got - wanted}, too little {wanted - got}"
            rows[name] = got.total()
        return rows

    def reopen(self) -> None:
        self.db.close()
        self.db = self._opener(self._folder)
        self.check("reopening")

    def close(self) -> None:
        self.db.close()
        self._duck.close()
