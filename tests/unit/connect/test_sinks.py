from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from penstock.catalog.objects import Connector
from penstock.connect import Access, Opening, Sink, connectors, make_sink, register_callable, sink_names
from penstock.errors import PenstockError

ROWS = pa.table({"k": [1, 2], "v": ["a", None]})
CHANGES = pa.table({"k": [1, 2], "v": ["a", None], "__weight": [-1, 1]})


def opened(connector: Connector, schema: pa.Schema = ROWS.schema, *, changelog: bool = False, **more: Any) -> Sink:
    sink = make_sink(connector, changelog=changelog)
    sink.open(Opening(**({"identity": "one", "schema": schema} | more)))
    return sink


def deliver(sink: Sink, **epochs: pa.Table) -> None:
    """Delivers epochs (`e1=…`) in one transaction."""
    numbers = [int(e[1:]) for e in epochs]
    sink.begin(numbers[0])
    for number, table in zip(numbers, epochs.values(), strict=True):
        sink.write(number, number * 10, table)
    sink.pre_commit(numbers[-1])
    sink.commit(numbers[-1])


def visible(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))


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
        (Connector("POSTGRES", {}), "PSK-1011"),
        (Connector("POSTGRES", {"url": "postgresql://h/d"}), "PSK-1011"),
        (Connector("POSTGRES", {"url": "mysql://h/d", "table": "t"}), "PSK-1011"),
        (Connector("POSTGRES", {"url": "postgresql://h/d", "table": "t", "mode": "merge"}), "PSK-1011"),
        (Connector("POSTGRES", {"url": "postgresql://h/d", "table": "t", "key": "k"}), "PSK-1011"),
        (Connector("POSTGRES", {"url": "postgresql://h/d", "table": "t"}, "JSON"), "PSK-1012"),
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
    assert sink_names() == ["CONSOLE", "FILES", "POSTGRES", "PYTHON"]
    assert [(c.name, c.direction, c.delivery) for c in connectors()] == [
        ("CONSOLE", "sink", "at-least-once"),
        ("FILES", "lookup", None),
        ("FILES", "sink", "exactly-once"),
        ("POSTGRES", "lookup", None),
        ("POSTGRES", "sink", "exactly-once"),
        ("PYTHON", "sink", "exactly-once"),
        ("WEBSOCKET", "source", "not replayable"),
    ]


def test_each_epoch_is_a_file(tmp_path: Path) -> None:
    readers: dict[str, Any] = {
        "parquet": lambda p: pa.parquet.read_table(p).to_pylist(),
        "csv": lambda p: pa.csv.read_csv(p).to_pydict(),
        "json": lambda p: [json.loads(line) for line in p.read_text().splitlines()],
    }
    for format, read in readers.items():
        folder = tmp_path / format
        sink = opened(files(folder, format.upper()))
        deliver(sink, e1=ROWS, e2=ROWS.slice(1))
        sink.close()
        assert visible(folder) == [f"epoch-{e:012d}.{format}" for e in (1, 2)]
        expected: Any = {"k": [1, 2], "v": ["a", ""]} if format == "csv" else ROWS.to_pylist()
        assert read(folder / f"epoch-000000000001.{format}") == expected


def test_an_epoch_shows_when_it_is_committed(tmp_path: Path) -> None:
    sink = opened(files(tmp_path, format="json"))
    sink.begin(1)
    sink.write(1, 10, ROWS)
    sink.pre_commit(1)
    assert visible(tmp_path) == []
    for _ in range(2):
        sink.commit(1)
    assert visible(tmp_path) == ["epoch-000000000001.json"]
    sink.begin(2)
    sink.write(2, 20, ROWS)
    sink.write(3, 30, ROWS)
    for _ in range(2):
        sink.rollback(3)
    sink.commit(3)
    assert visible(tmp_path) == ["epoch-000000000001.json", "epoch-000000000002.json"]


def test_what_a_crash_left_is_committed_or_rolled_back(tmp_path: Path) -> None:
    first = opened(files(tmp_path, format="json"))
    first.begin(1)
    for epoch in (1, 2, 3):
        first.write(epoch, epoch, ROWS)
    first.pre_commit(3)
    # Epochs up to 2 were decided, and the crash came after one of them was renamed.
    first.commit(1)
    first.close()
    again = make_sink(files(tmp_path, format="json"), changelog=False)
    assert again.open(Opening("one", ROWS.schema, committed=2)) == 2
    again.commit(2)
    again.rollback(3)
    assert [p.name for p in sorted(tmp_path.iterdir())] == [
        ".penstock-renamed",
        ".penstock-sink",
        "epoch-000000000001.json",
        "epoch-000000000002.json",
    ]


def test_a_file_that_a_consumer_has_removed_was_delivered(tmp_path: Path) -> None:
    first = opened(files(tmp_path, format="json"))
    deliver(first, e1=ROWS, e2=ROWS)
    first.close()
    for path in tmp_path.glob("epoch-*"):
        path.unlink()
    again = opened(files(tmp_path, format="json"), committed=2)
    assert (again.has(1), again.has(2), again.has(3)) == (True, True, False)
    again.take_back(1, 2)
    assert (again.has(1), again.has(2)) == (True, False)
    again.close()


def test_what_consumers_have_removed_is_not_delivered_again(tmp_path: Path) -> None:
    """The position is an older one, and the files are gone."""
    first = opened(files(tmp_path))
    deliver(first, e1=ROWS, e4=ROWS)
    first.close()
    for path in tmp_path.glob("epoch-*"):
        path.unlink()
    again = make_sink(files(tmp_path), changelog=False)
    assert again.open(Opening("one", ROWS.schema, 1)) == 4
    again.close()
    # Of another sink it says nothing.
    (tmp_path / ".penstock-sink").unlink(missing_ok=True)
    other = make_sink(files(tmp_path), changelog=False)
    assert other.open(Opening("two", ROWS.schema)) == 0
    other.close()


def test_a_sink_that_lost_its_position_finds_its_epochs(tmp_path: Path) -> None:
    first = opened(files(tmp_path))
    deliver(first, e1=ROWS, e4=ROWS)
    first.close()
    assert make_sink(files(tmp_path), changelog=False).open(Opening("one", ROWS.schema)) == 4


def test_a_folder_belongs_to_one_sink(tmp_path: Path) -> None:
    first = opened(files(tmp_path))
    with pytest.raises(PenstockError, match=r"PSK-5015.*belongs to another sink \(one\)"):
        opened(files(tmp_path), identity="two")
    deliver(first, e1=ROWS)
    first.close()
    opened(files(tmp_path)).close()
    with pytest.raises(PenstockError, match="PSK-5015"):
        opened(files(tmp_path), identity="two")
    assert visible(tmp_path) == ["epoch-000000000001.parquet"]


def test_a_folder_is_written_by_one_at_a_time(tmp_path: Path) -> None:
    first = opened(files(tmp_path))
    deliver(first, e1=ROWS)
    with pytest.raises(PenstockError, match=r"PSK-5015.*another process, or an earlier call"):
        opened(files(tmp_path))
    first.close()
    opened(files(tmp_path)).close()


def test_a_folder_without_a_mark_is_used_if_it_has_no_epochs_or_they_are_ours(tmp_path: Path) -> None:
    (tmp_path / "epoch-000000000001.parquet").write_text("")
    with pytest.raises(PenstockError, match=r"PSK-5015.*left no mark"):
        opened(files(tmp_path))
    opened(files(tmp_path), committed=1).close()
    with pytest.raises(PenstockError, match="PSK-5015"):
        opened(files(tmp_path), identity="two", committed=1)


def test_a_folder_in_which_nothing_was_delivered_is_free_again(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    opened(files(tmp_path)).close()
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    opened(files(tmp_path), identity="two").close()


def test_a_changelog_needs_consent(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="PSK-5004"):
        make_sink(files(tmp_path), changelog=True)
    sink = opened(files(tmp_path, changelog="true"), CHANGES.schema, changelog=True)
    deliver(sink, e1=CHANGES)
    assert pa.parquet.read_table(tmp_path / "epoch-000000000001.parquet")["__weight"].to_pylist() == [-1, 1]
    plain = make_sink(files(tmp_path), changelog=False)
    with pytest.raises(PenstockError, match="PSK-8001"):
        plain.write(2, 20, CHANGES)


def test_json_writes_every_type(tmp_path: Path) -> None:
    table = pa.table({"m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), "b": [b"\xff", None]})
    deliver(opened(files(tmp_path, "JSON"), table.schema), e1=table)
    lines = (tmp_path / "epoch-000000000001.json").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"m": {"a": 1}, "b": "ff"}, {"m": None, "b": None}]


def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(PenstockError, match="PSK-5002"):
        opened(files(tmp_path / "taken"))
    with pytest.raises(PenstockError, match=r"PSK-5002.*'l'"):
        opened(files(tmp_path, "CSV"), pa.schema([("l", pa.list_(pa.int64()))]))


def test_console_prints_rows(capsys: pytest.CaptureFixture[str]) -> None:
    for style in ("plain", "table"):
        sink = opened(Connector("console", {"style": style}), CHANGES.schema, changelog=True)
        deliver(sink, e7=CHANGES)
        sink.close()
    out = capsys.readouterr().out
    assert "1\ta\t-1\n2\tNULL\t1\n" in out
    assert "epoch 7" in out


def test_python_calls_a_function() -> None:
    seen: list[tuple[int, int]] = []
    register_callable("collect", lambda epoch, table: seen.append((epoch, table.num_rows)))
    sink = opened(Connector("python", {"callable": "collect"}), changelog=True)
    assert not sink.capabilities.exactly_once
    deliver(sink, e3=ROWS)
    sink.rollback(3)
    sink.cancel()
    sink.close()
    assert seen == [(3, 2)]
    broken = make_sink(
        Connector("python", {"callable": "operator:truediv"}), changelog=False, access=Access(python_imports=True)
    )
    with pytest.raises(PenstockError, match="PSK-5002"):
        broken.write(1, 1, ROWS)


class Ledger:
    """A transactional object."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int]] = []

    def begin(self, epoch: int) -> None:
        self.steps.append(("begin", epoch))

    def write(self, epoch: int, table: pa.Table) -> None:
        if table.num_rows == 1:
            raise ValueError("too few")
        self.steps.append(("write", epoch))

    def pre_commit(self, epoch: int) -> None:
        self.steps.append(("pre_commit", epoch))

    def commit(self, epoch: int) -> None:
        self.steps.append(("commit", epoch))

    def rollback(self, epoch: int) -> None:
        self.steps.append(("rollback", epoch))


def test_a_transactional_object_takes_part_in_every_step() -> None:
    ledger = Ledger()
    register_callable("ledger", ledger)
    sink = opened(Connector("python", {"callable": "ledger"}), changelog=True)
    assert sink.capabilities.exactly_once and sink.capabilities.prepares
    deliver(sink, e3=ROWS, e4=ROWS)
    with pytest.raises(PenstockError, match=r"PSK-5002: PYTHON: ledger raised ValueError: too few"):
        deliver(sink, e5=ROWS.slice(1))
    sink.rollback(5)
    assert ledger.steps == [
        ("begin", 3),
        ("write", 3),
        ("write", 4),
        ("pre_commit", 4),
        ("commit", 4),
        ("begin", 5),
        ("rollback", 5),
    ]
