"""Files as rows: what is read, and what an error says."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from penstock.catalog.declared import declared
from penstock.catalog.types import schema_of
from penstock.catalog.variant import decoded
from penstock.connect.access import Access
from penstock.connect.rowfiles.columns import Wanted
from penstock.connect.rowfiles.reading import found_files, read_rows
from penstock.connect.rowfiles.writing import target_file, write_rows
from penstock.errors import PenstockError
from penstock.sql.ddl import parse_columns
from penstock.sql.files import FileOptions


def _read(path: Path, schema: str | None = None, *, exact: bool = False, **options: Any) -> pa.Table:
    given = FileOptions(**options)
    files = found_files(Access(), str(path), given.format)
    wanted = Wanted(tuple(schema_of(parse_columns(schema))), exact=exact) if schema else None
    return read_rows(files, given, wanted, lambda read_bytes, rows: None)


def _file(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_csv_with_a_schema(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "a.csv",
        'ID,name,price,on,at,ok\n1,"A, ""x""",1.50,2024-01-31,2024-01-31 10:00:00,true\n'
        '\n 2 ,,,,2024-01-31T10:00:00+02:00,false\n3,"",0.25,,,\n',
    )
    got = _read(path, "id INT, name STRING, price DECIMAL(10,2), `on` DATE, at TIMESTAMP, ok BOOLEAN")
    assert got.to_pylist() == [
        {
            "id": 1,
            "name": 'A, "x"',
            "price": Decimal("1.50"),
            "on": date(2024, 1, 31),
            "at": datetime(2024, 1, 31, 10, tzinfo=UTC),
            "ok": True,
        },
        {"id": 2, "name": None, "price": None, "on": None, "at": datetime(2024, 1, 31, 8, tzinfo=UTC), "ok": False},
        {"id": 3, "name": "", "price": Decimal("0.25"), "on": None, "at": None, "ok": None},
    ]


def test_csv_types_are_inferred_from_all_values(tmp_path: Path) -> None:
    rows = "1,1,1.5,x,2024-01-01,2024-01-01T00:00:00Z,true,,007\n" * 3
    path = _file(tmp_path, "a.csv", "i,big,d,s,on,at,ok,nothing,code\n" + rows + "2,99999999999999999999,2,1,,,,,9\n")
    kinds = {f.name: str(f.type) for f in _read(path).schema}
    assert kinds == {
        "i": "int64",
        "big": "decimal128(38, 0)",
        "d": "double",
        "s": "string",
        "on": "date32[day]",
        "at": "timestamp[us, tz=UTC]",
        "ok": "bool",
        "nothing": "string",
        "code": "int64",
    }


def test_a_quote_that_is_not_closed_is_refused(tmp_path: Path) -> None:
    """It would take the rest of the file for its value: a file that was cut off loses rows."""
    path = _file(tmp_path, "a.csv", 'id,name\n1,a\n2,"b\n3,c\n4,d\n')
    for schema in (None, "id INT, name STRING"):
        with pytest.raises(PenstockError, match=r"PSK-5007.*a\.csv, line 3: a quote is not closed"):
            _read(path, schema)
    inches = _file(tmp_path, "b.csv", 'id,name\n1,5" disc\n2,"x ""y"" z"\n')
    assert _read(inches)["name"].to_pylist() == ['5" disc', 'x "y" z']


def test_fields_may_be_long(tmp_path: Path) -> None:
    long = "x" * 200_000
    path = _file(tmp_path, "a.csv", f"id,name\n1,{long}\ntwo,b\n")
    assert _read(path, "name STRING")["name"].to_pylist() == [long, "b"]
    with pytest.raises(PenstockError, match=r"line 3, column 'id': 'two' is not of type int"):
        _read(path, "id INT, name STRING")


def test_json_values_become_variants(tmp_path: Path) -> None:
    path = _file(tmp_path, "a.json", '{"v": {"a": [1, 1.50, 1e2, null, "x"]}, "l": [true]}\n{"v": null}\n')
    got = _read(path, "v VARIANT, l ARRAY<VARIANT>").to_pylist()
    assert [decoded(**r["v"]) if r["v"] else None for r in got] == [{"a": [1, Decimal("1.50"), 100.0, None, "x"]}, None]
    assert [decoded(**v) for v in got[0]["l"]] == [True] and got[1]["l"] is None
    with pytest.raises(PenstockError, match=r"PSK-5007.*line 1, column 'v': .*more than 38 digits"):
        _read(_file(tmp_path, "b.json", '{"v": ' + "1" * 39 + "}"), "v VARIANT")


def test_a_time_in_parquet_is_a_time(tmp_path: Path) -> None:
    at = pa.array([time(1, 2, 3, 4), None], pa.time64("ns"))
    pa.parquet.write_table(pa.table({"at": at}), tmp_path / "a.parquet")
    got = _read(tmp_path / "a.parquet")
    assert got["at"].to_pylist() == [time(1, 2, 3, 4), None] and declared(got.schema.field("at")) == "time(6)"


def test_csv_without_a_header(tmp_path: Path) -> None:
    path = _file(tmp_path, "a.txt", "1;x\n2;y\n")
    assert _read(path, format="csv", header=False, delimiter=";").to_pylist() == [
        {"_c0": 1, "_c1": "x"},
        {"_c0": 2, "_c1": "y"},
    ]
    assert _read(path, "a INT, b STRING", format="csv", header=False, delimiter=";").column_names == ["a", "b"]


def test_tabs_and_other_nulls(tmp_path: Path) -> None:
    path = _file(tmp_path, "a.tsv", "a\tb\n1\tNA\nNA\t\n")
    assert _read(path, "a INT, b STRING", null="NA").to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": ""}]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("a,b\n1,x\ntwo,y\n", "line 3, column 'a': 'two' is not of type int"),
        ('a,b\n1,"x\ny"\n\n2.5,y\n', "line 5, column 'a': '2.5' is not of type int"),
        ("a,b\n1,x,9\n", "line 2: 3 values for 2 columns"),
        ("a,b\n1,x\n2\n", "line 3: 1 values for 2 columns"),
        (b"a,b\n1,x\n2,\xff\n", "line 3: it is not UTF-8"),
        ("a,b\n99999999999,x\n", "line 2, column 'a': '99999999999' is not of type int"),
        ("a,b\n1,\n", "line 2, column 'b': NULL in a NOT NULL column"),
    ],
)
def test_a_bad_row_of_csv_is_named(tmp_path: Path, content: str | bytes, place: str) -> None:
    path = _file(tmp_path, "bad.csv", content)
    with pytest.raises(PenstockError) as caught:
        _read(path, "a INT, b STRING NOT NULL")
    assert caught.value.code == "PSK-5007"
    assert caught.value.detail.rstrip(".") == f"{path}, {place}"


def test_json_lines(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "a.jsonl",
        '{"id": 1, "p": 0.1, "tags": ["x"], "at": "2024-01-01T00:00:00Z", "more": {"k": 1}}\n\n{"ID": 2, "tags": null}\n',
    )
    assert _read(path).to_pylist() == [
        {"id": 1, "p": 0.1, "tags": ["x"], "at": "2024-01-01T00:00:00Z", "more": {"k": 1}},
        {"id": 2, "p": None, "tags": None, "at": None, "more": None},
    ]
    assert _read(path, "p DECIMAL(20,2), at TIMESTAMP").to_pylist()[0] == {
        "p": Decimal("0.10"),
        "at": datetime(2024, 1, 1, tzinfo=UTC),
    }


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        ('{"a": 1}\n{"a": "x"}\n', "PSK-5007", "line 2, column 'a'"),
        ('{"a": 1}\n{"a": \n', "PSK-5007", "line 2: it is not JSON"),
        ('{"a": 1}\n{"b": 1}\n', "PSK-5007", "line 2: the target has no column 'b'"),
        ('{"a": 1, "a": 2}\n', "PSK-5007", "line 1, column 'a': it is given twice"),
        ('{"a": 1, "A": 2}\n', "PSK-5007", "line 1, column 'A': it is given twice"),
        ('{"a": 1}\n{"a": {"x": 1, "y": 2, "y": 2}}\n', "PSK-5007", "line 2, column 'y': it is given twice"),
        ('[{"a": 1}]\n', "PSK-1021", "line 1 is not a JSON object"),
        ('[\n{"a": 1}]\n', "PSK-1021", "it is one JSON array"),
    ],
)
def test_a_bad_row_of_json_is_named(tmp_path: Path, content: str, code: str, words: str) -> None:
    with pytest.raises(PenstockError) as caught:
        _read(_file(tmp_path, "bad.json", content), "a INT", exact=True)
    assert caught.value.code == code
    assert words in caught.value.detail


def test_json_of_different_types_needs_a_schema(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="line 2: field a has values of different types"):
        _read(_file(tmp_path, "a.json", '{"a": 1}\n{"a": "x"}\n'))


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_what_is_written_can_be_read(tmp_path: Path, format: str) -> None:
    schema = "i BIGINT, s STRING, d DECIMAL(10,2), f DOUBLE, t TIMESTAMP, n TIMESTAMP_NTZ, o DATE, b BOOLEAN, c TIME"
    now = datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)
    fields = schema_of(parse_columns(schema))
    rows = pa.Table.from_pylist(
        [
            {
                "i": 1,
                "s": 'a "quoted",\nline',
                "d": Decimal("1.20"),
                "f": 0.1,
                "t": now,
                "n": now.replace(tzinfo=None),
                "o": now.date(),
                "b": True,
                "c": now.time(),
            },
            {"i": None, "s": "", "d": None, "f": None, "t": None, "n": None, "o": None, "b": None},
            {"i": -5, "s": None, "d": Decimal("-0.01"), "f": 1e300, "t": now, "n": None, "o": None, "b": False},
        ],
        schema=fields,
    )
    path, found = target_file(Access(), str(tmp_path / f"out.{format}"), FileOptions())
    write_rows(path, found, FileOptions(), rows)
    assert _read(path, schema).to_pylist() == rows.to_pylist()
    with pytest.raises(PenstockError, match="exists"):
        target_file(Access(), str(path), FileOptions())
    assert [f.name for f in tmp_path.iterdir()] == [path.name]


def test_folders_and_patterns(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        _file(tmp_path, name, f"x\n{name}\n")
    _file(tmp_path, "c.json", '{"x": "c.json"}\n')
    assert _read(tmp_path, format="csv").column("x").to_pylist() == ["a.csv", "b.csv"]
    assert _read(tmp_path / "[b]*.csv").column("x").to_pylist() == ["b.csv"]
    assert _read(tmp_path, "x STRING").num_rows == 3
    with pytest.raises(PenstockError, match="csv and json"):
        _read(tmp_path)


@pytest.mark.parametrize(
    ("name", "code"), [("nothing.csv", "PSK-1021"), ("unknown.xyz", "PSK-1021"), ("../*.csv", "PSK-0012")]
)
def test_refused_paths(tmp_path: Path, name: str, code: str) -> None:
    _file(tmp_path, "unknown.xyz", "1")
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(PenstockError) as caught:
        found_files(
            Access(roots=(inside if ".." in name else tmp_path,)),
            str((inside if ".." in name else tmp_path) / name),
            None,
        )
    assert caught.value.code == code


def test_a_link_out_of_the_roots_is_refused(tmp_path: Path) -> None:
    secret = _file(tmp_path, "secret.csv", "a\n1\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.csv").symlink_to(secret)
    for path in (inside, inside / "a.csv", inside / "*.csv"):
        with pytest.raises(PenstockError) as caught:
            found_files(Access(roots=(inside,)), str(path), None)
        assert caught.value.code == "PSK-0012"
