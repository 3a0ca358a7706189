"""Statements of other systems are refused with a hint."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.sql.script import parse_script


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("MERGE INTO u USING t ON u.id = t.id", "PSK-1001", "INSERT replaces the row of its key"),
        ("TRUNCATE TABLE t", "PSK-1001", "DELETE FROM"),
        ("CREATE TEMP TABLE t (a INT)", "PSK-1001", "Objects stay until they are dropped"),
        ("CREATE INDEX i ON t (a)", "PSK-1001", "PRIMARY KEY"),
        ("CREATE TABLE x AS SELECT 1", "PSK-1001", "INSERT INTO … SELECT"),
        ("UPDATE u SET a = DEFAULT WHERE b = 1", "PSK-1012", "Write the value"),
        ("ALTER TABLE t ADD COLUMNS (a INT, b INT)", "PSK-1012", "ADD COLUMN c type"),
        ("SELECT k ~ 'a' FROM s", "PSK-1001", "RLIKE"),
        ("SELECT {'a': 1} AS x", "PSK-1001", "named_struct"),
    ],
)
def test_what_others_write_has_a_hint(text: str, code: str, hint: str) -> None:
    with pytest.raises(PenstockError) as refused:
        parse_script(text)
    assert refused.value.code == code and refused.value.position is not None
    assert hint in (refused.value.hint or "")
