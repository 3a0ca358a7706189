"""Lookup tables of Parquet and CSV files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.lookups import make, refused, rows

from penstock.errors import PenstockError


def test_files_are_read_by_column_name(tmp_path: Path) -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    pa.parquet.write_table(pa.table({"Name": ["a"], "more": [1], "since": [early], "id": [1]}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text('name,id,since\n"NA, or\nnot",2,2026-01-02T03:04:05Z\n,3,\n')
    (tmp_path / "notes.txt").write_text("not a table")
    expected = {(1, "a", early), (2, "NA, or\nnot", late), (3, "", None)}
    assert rows(make("FILES", {"path": str(tmp_path)}).scan()) == expected
    assert rows(make("FILES", {"path": str(tmp_path / "*.csv")}).scan()) == expected - {(1, "a", early)}
    assert rows(make("FILES", {"path": str(tmp_path), "format": "parquet"}).scan()) == {(1, "a", early)}
    (tmp_path / "c.csv").write_text("id;name;since\n4;d;2026-01-01\n")
    assert rows(make("FILES", {"path": str(tmp_path / "c.csv"), "csv.delimiter": ";"}).scan()) == {(4, "d", early)}


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,nme,since\n1,a,\n")
    with pytest.raises(PenstockError, match=r"a\.csv: There is no column name") as e:
        make("FILES", {"path": str(tmp_path)}).scan()
    assert (e.value.code, e.value.hint) == ("PSK-1004", "Did you mean nme?")
    (tmp_path / "a.csv").write_text("id,name,since\nx,a,\n")
    with pytest.raises(PenstockError, match="cannot be read as csv") as e:
        make("FILES", {"path": str(tmp_path)}).scan()
    assert e.value.code == "PSK-5002"
    (tmp_path / "a.csv").write_text("id,name,since\n,a,\n")
    with pytest.raises(PenstockError, match="NULL in a NOT NULL column"):
        make("FILES", {"path": str(tmp_path)}).scan()
    assert refused("FILES", {"path": str(tmp_path / "none")}).code == "PSK-5002"
    assert refused("FILES", {}).code == "PSK-1011"
    assert refused("FILES", {"path": "x", "format": "orc"}).code == "PSK-1011"
    assert refused("FILES", {"path": "x", "delimiter": ";"}).hint == "Did you mean 'csv.delimiter'?"
