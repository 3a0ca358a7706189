"""The live tail of a subscription."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from penstock.cli.options import Format
from penstock.cli.tail import tail_for, weight_of
from penstock.errors import PenstockError

RETRACT = {"k": "a", "n": 1, "__weight": -1}
ASSERT = {"k": "a", "n": 22, "__weight": 1}


def tailed(output: Format, *changes: list[dict[str, object]], colour: bool = False) -> str:
    file = io.StringIO()
    tail = tail_for(
        output, Console(file=file, width=60, force_terminal=colour, color_system="standard" if colour else None)
    )
    for rows in changes:
        tail.write(rows)
    tail.close()
    return file.getvalue()


def test_table_shows_signs_in_aligned_columns() -> None:
    assert tailed(Format.TABLE, [RETRACT, ASSERT]).splitlines() == ["  k  n", "− a   1", "+ a  22", "2 rows"]


def test_table_colours_retractions_red_and_assertions_green() -> None:
    text = tailed(Format.TABLE, [RETRACT, ASSERT], colour=True)
    assert "\x1b[31m− a   1" in text and "\x1b[32m+ a  22" in text


def test_header_comes_again_when_a_column_grows() -> None:
    lines = tailed(Format.TABLE, [ASSERT], [ASSERT], [{**ASSERT, "n": 12345}]).splitlines()
    assert lines == ["  k  n", "+ a  22", "+ a  22", "  k  n", "+ a  12345", "3 rows"]


def test_rows_without_weight_are_assertions_and_multiples_are_counted() -> None:
    assert tailed(Format.TABLE, [{"k": "a"}, {"k": "b", "__weight": -3}]).splitlines()[1:3] == ["+ a", "− b ×3"]


def test_jsonl_has_one_line_per_row() -> None:
    assert [json.loads(line) for line in tailed(Format.JSONL, [RETRACT], [], [ASSERT]).splitlines()] == [
        RETRACT,
        ASSERT,
    ]


def test_json_is_a_closed_array() -> None:
    assert json.loads(tailed(Format.JSON, [RETRACT], [ASSERT])) == [RETRACT, ASSERT]
    assert json.loads(tailed(Format.JSON)) == []


def test_csv_has_one_header() -> None:
    assert tailed(Format.CSV, [RETRACT], [ASSERT]) == "k,n,__weight\na,1,-1\na,22,1\n"


def test_weights_of_all_envelopes() -> None:
    assert weight_of({"k": 1, "__op": "upsert"}) == 1 and weight_of({"k": 1, "__op": "delete"}) == -1
    assert weight_of({"before": {"k": 1}, "after": None, "op": "d", "ts_ms": 0}) == -1


def test_progress() -> None:
    file = io.StringIO()
    console = Console(file=file, width=60)
    tail_for(Format.TABLE, console).progress(3, 14, None)
    tail_for(Format.JSONL, console).progress(3, 14, 1000)
    assert file.getvalue().splitlines() == [
        "· epoch 3, LSN 14",
        '{"__progress": {"epoch": 3, "lsn": 14, "watermark": 1000}}',
    ]
    with pytest.raises(PenstockError, match="PSK-1012"):
        tail_for(Format.CSV, console).progress(3, 14, None)
