"""DuckDBs that are used again. Opening one costs 20 ms of CPU time, and hundreds of tests open a database."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

_open = duckdb.connect
_idle: list[duckdb.DuckDBPyConnection] = []


class _Reused:
    """An empty DuckDB. `close` makes it empty again for the next test, and closes it if something still uses it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._db = _idle.pop() if _idle else _open(":memory:", config=config)
        self._closed = False
        for name in ("memory_limit", "temp_directory"):
            self._db.execute(f"SET GLOBAL {name} = '{config[name]}'")
        self.cursor, self.execute = self._db.cursor, self._db.execute

    def close(self) -> None:
        if self._closed:
            return
        try:
            for kind in ("view", "table"):
                found = self._db.execute(f"SELECT {kind}_name FROM duckdb_{kind}s() WHERE NOT internal").fetchall()
                for (name,) in found:
                    self._db.execute(f'DROP {kind} "{name}"')
        except duckdb.Error:
            self._db.close()
        else:
            _idle.append(self._db)
        self._closed = True


def reuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """View stores that are opened during a test use a DuckDB of an earlier one. Not for tests of how a store fills its memory, and closes."""

    def connect(*args: Any, config: dict[str, Any], **options: Any) -> Any:
        return _Reused(config) if "memory_limit" in config else _open(*args, config=config, **options)

    monkeypatch.setattr(duckdb, "connect", connect)
