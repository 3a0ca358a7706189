"""The registry of formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest

from penstock.catalog.objects import Column, Connector
from penstock.connect import Access, Opening, formats, make_sink, make_source
from penstock.connect.formats import Format, by_ending, decoded, encoded, find_format, register_format
from penstock.errors import PenstockError
from penstock.sql.files import FORMATS, FileOptions


class Words:
    """Each message is a word."""

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str]) -> None:
        self.options = options

    def decode(self, lines: Sequence[str | bytes], /) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"word": [str(line) for line in lines]})


def write(table: pa.Table, out: BinaryIO, options: FileOptions) -> None:
    out.write(" ".join(table["word"].to_pylist()).encode())


@pytest.fixture
def words() -> Iterator[None]:
    register_format(Format("words", (".words",), decoder=Words, options=("case",), encode=write, nested=False))
    yield
    del formats._FORMATS["words"]


def test_copy_knows_exactly_the_formats_that_can_be_read() -> None:
    readable = {n for n in FORMATS if find_format(n).read is not None and find_format(n).inferred is not None}
    assert readable == set(FORMATS) == {f.name for f in formats._FORMATS.values() if f.read is not None}
    assert encoded() == ["parquet", "csv", "json"] and decoded() == ["json"]
    assert [by_ending(e) for e in (".tsv", ".ndjson", ".parquet", ".words")] == ["csv", "json", "parquet", None]


@pytest.mark.usefixtures("words")
def test_a_sink_writes_a_format_of_a_program(tmp_path: Path) -> None:
    connector = Connector("files", {"path": str(tmp_path / "out"), "format": "words"})
    sink = make_sink(connector, changelog=False, access=Access())
    table = pa.table({"word": ["a", "b"]})
    assert sink.open(Opening("me", table.schema)) == 0
    sink.begin(1)
    sink.write(1, 1, table)
    sink.pre_commit(1)
    sink.commit(1)
    assert (tmp_path / "out" / "epoch-000000000001.words").read_text() == "a b"
    sink.close()
    again = make_sink(connector, changelog=False, access=Access())
    assert again.open(Opening("me", table.schema)) == 1
    again.close()
    nested = make_sink(Connector("files", {"path": str(tmp_path / "n"), "format": "words"}), changelog=False)
    with pytest.raises(PenstockError, match="WORDS does not support the nested column"):
        nested.open(Opening("me", pa.schema([("a", pa.list_(pa.int64()))])))


@pytest.mark.usefixtures("words")
def test_a_source_reads_a_format_of_a_program() -> None:
    columns = [Column("word", "string")]
    make_source(Connector("websocket", {"url": "ws://h", "format": "words", "case": "lower"}), columns)
    with pytest.raises(PenstockError, match="PSK-1010"):
        make_source(Connector("websocket", {"url": "ws://h", "format": "words", "json.column.x": "y"}), columns)
    with pytest.raises(PenstockError, match="PSK-1011"):
        make_source(Connector("websocket", {"url": "ws://h", "format": "parquet"}), columns)
