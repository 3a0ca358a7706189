from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from penstock.catalog.objects import Connector
from penstock.connect import Access, connectors, make_sink, register_callable, sink_names
from penstock.errors import PenstockError

ROWS = pa.table({"k": [1, 2], "v": ["a", None]})
CHANGES = pa.table({"k": [1, 2], "v": ["a", None], "__weight": [-1, 1]})


def files(path: Path, format: str | None = None, **options: str) -> Connector:
    return Connector("files", {"path": str(path), **options}, format)


@pytest.mark.parametrize(
    ("connector", "code"),
    [
        (Connector("fils"), "PSK-5001"),
        (Connector("FILES"), "PSK-1011"),
        (Connector("FILES", {"path": "x", "pth": "y"}), "PSK-1010"),
        (Connector("FILES", {"path": "x", "format": "xml"}), "PSK-1011"),
        (Connector("FILES", {"path": "x", "mode": "overwrite"}), "PSK-1011"),
        (Connector("FILES", {"path": "x", "changelog": "maybe"}), "PSK-1011"),
        (Connector("FILES", {"path": "x", "format": "csv"}, "JSON"), "PSK-1011"),
        (Connector("FILES", {"path": "x"}, "JSON", {"indent": "2"}), "PSK-1010"),
        (Connector("CONSOLE", {"color": "red"}), "PSK-1010"),
        (Connector("CONSOLE", {"style": "loud"}), "PSK-1011"),
        (Connector("CONSOLE", {}, "JSON"), "PSK-1012"),
        (Connector("PYTHON", {}), "PSK-1011"),
        (Connector("PYTHON", {"callable": "nobody"}), "PSK-1011"),
        (Connector("PYTHON", {"callable": "os:system"}), "PSK-0012"),
        (Connector("PYTHON", {"callable": "no_such_module:f"}), "PSK-0012"),
        (Connector("PYTHON", {"callable": "json:dumps"}, "CSV"), "PSK-1012"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(connector: Connector, code: str) -> None:
    with pytest.raises(PenstockError) as e:
        make_sink(connector, changelog=False)
    assert e.value.code == code


def test_suggestions() -> None:
    with pytest.raises(PenstockError, match="Did you mean FILES"):
        make_sink(Connector("FILE"), changelog=False)
    with pytest.raises(PenstockError, match="Did you mean 'path'"):
        make_sink(Connector("FILES", {"pth": "x"}), changelog=False)
    assert sink_names() == ["CONSOLE", "FILES", "PYTHON"]
    assert [(c.name, c.direction) for c in connectors()] == [
        ("CONSOLE", "sink"),
        ("FILES", "lookup"),
        ("FILES", "sink"),
        ("POSTGRES", "lookup"),
        ("PYTHON", "sink"),
        ("WEBSOCKET", "source"),
    ]


def test_each_epoch_is_a_file(tmp_path: Path) -> None:
    readers: dict[str, Any] = {
        "parquet": lambda p: pa.parquet.read_table(p).to_pylist(),
        "csv": lambda p: pa.csv.read_csv(p).to_pydict(),
        "json": lambda p: [json.loads(line) for line in p.read_text().splitlines()],
    }
    for format, read in readers.items():
        folder = tmp_path / format
        sink = make_sink(files(folder, format.upper()), changelog=False)
        assert sink.last_epoch() == 0
        sink.open(ROWS.schema, 0)
        sink.write(1, 10, ROWS)
        sink.write(2, 20, ROWS.slice(1))
        sink.flush()
        sink.close()
        assert sorted(p.name for p in folder.iterdir()) == [f"epoch-{e:012d}.{format}" for e in (1, 2)]
        expected: Any = {"k": [1, 2], "v": ["a", ""]} if format == "csv" else ROWS.to_pylist()
        assert read(folder / f"epoch-000000000001.{format}") == expected
        assert sink.last_epoch() == 2


def test_a_replayed_epoch_takes_the_place_of_itself(tmp_path: Path) -> None:
    sink = make_sink(files(tmp_path, format="json"), changelog=False)
    sink.open(ROWS.schema, 0)
    (tmp_path / "epoch-000000000001.json.tmp").write_text('{"k": 1')
    for _ in range(2):
        sink.write(1, 10, ROWS)
    assert [p.name for p in tmp_path.iterdir()] == ["epoch-000000000001.json"]
    assert len((tmp_path / "epoch-000000000001.json").read_text().splitlines()) == 2


def test_a_changelog_needs_consent(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="PSK-5004"):
        make_sink(files(tmp_path), changelog=True)
    sink = make_sink(files(tmp_path, changelog="true"), changelog=True)
    sink.open(CHANGES.schema, 0)
    sink.write(1, 10, CHANGES)
    assert pa.parquet.read_table(tmp_path / "epoch-000000000001.parquet")["__weight"].to_pylist() == [-1, 1]
    plain = make_sink(files(tmp_path), changelog=False)
    with pytest.raises(PenstockError, match="PSK-8001"):
        plain.write(2, 20, CHANGES)


def test_json_writes_every_type(tmp_path: Path) -> None:
    table = pa.table({"m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), "b": [b"\xff", None]})
    sink = make_sink(files(tmp_path, "JSON"), changelog=False)
    sink.open(table.schema, 0)
    sink.write(1, 1, table)
    lines = (tmp_path / "epoch-000000000001.json").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"m": {"a": 1}, "b": "ff"}, {"m": None, "b": None}]


def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    sink = make_sink(files(tmp_path / "taken"), changelog=False)
    with pytest.raises(PenstockError, match="PSK-5002"):
        sink.open(ROWS.schema, 0)
    nested = make_sink(files(tmp_path, "CSV"), changelog=False)
    with pytest.raises(PenstockError, match=r"PSK-5002.*'l'"):
        nested.open(pa.schema([("l", pa.list_(pa.int64()))]), 0)


def test_console_prints_rows(capsys: pytest.CaptureFixture[str]) -> None:
    for style in ("plain", "table"):
        sink = make_sink(Connector("console", {"style": style}), changelog=True)
        sink.open(CHANGES.schema, 0)
        sink.write(7, 70, CHANGES)
        sink.flush()
        sink.close()
        assert sink.last_epoch() == 0
    out = capsys.readouterr().out
    assert "1\ta\t-1\n2\tNULL\t1\n" in out
    assert "epoch 7" in out


def test_python_calls_a_function() -> None:
    seen: list[tuple[int, int]] = []
    register_callable("collect", lambda epoch, table: seen.append((epoch, table.num_rows)))
    sink = make_sink(Connector("python", {"callable": "collect"}), changelog=True)
    sink.open(ROWS.schema, 0)
    sink.write(3, 30, ROWS)
    sink.flush()
    sink.close()
    assert seen == [(3, 2)]
    broken = make_sink(
        Connector("python", {"callable": "operator:truediv"}), changelog=False, access=Access(python_imports=True)
    )
    with pytest.raises(PenstockError, match="PSK-5002"):
        broken.write(1, 1, ROWS)
