"""The order of the statements of a script."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.sql.ordering import ordered
from penstock.sql.script import parse_script


@pytest.mark.parametrize(
    ("script", "order"),
    [
        ("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT * FROM t; SELECT 1", [1, 2, 3]),
        ("CREATE VIEW v AS SELECT * FROM t; CREATE TABLE t (a INT); SELECT 1", [2, 1, 3]),
        ("CREATE VIEW w AS SELECT * FROM v; CREATE STREAM v AS SELECT * FROM t; CREATE TABLE t (a INT)", [3, 2, 1]),
        ("CREATE SINK k FROM v INTO CONSOLE (); CREATE STREAM v AS SELECT * FROM known", [2, 1]),
        ("CREATE VIEW v AS SELECT * FROM known; CREATE OR REPLACE TABLE known (a INT)", [1, 2]),
        ("CREATE VIEW v AS WITH t AS (SELECT 1 AS x) SELECT * FROM t; CREATE TABLE t (a INT)", [1, 2]),
        (
            "CREATE VIEW v AS SELECT * FROM a JOIN b ON a.x = b.x; CREATE TABLE b (x INT); SELECT 1; CREATE TABLE a (x INT)",
            [2, 3, 4, 1],
        ),
        (
            "CREATE VIEW v AS SELECT * FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE); CREATE SOURCE s (ts TIMESTAMP)",
            [2, 1],
        ),
        ("CREATE VIEW v AS SELECT * FROM late; CREATE STREAM q AS SELECT * FROM known LATE DATA TO late", [2, 1]),
        ("CREATE VIEW v AS SELECT * FROM nowhere; SELECT 1", [1, 2]),
        ("CREATE VIEW tumble AS SELECT k FROM known GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND)", [1]),
        ("CREATE VIEW v AS SELECT f(a) FROM known; CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1", [2, 1]),
        (
            "CREATE VIEW a AS SELECT * FROM t; CREATE VIEW b AS SELECT * FROM a; CREATE TABLE t (x INT); SELECT 1",
            [3, 1, 2, 4],
        ),
    ],
)
def test_a_query_waits_for_what_it_reads(script: str, order: list[int]) -> None:
    found = ordered(parse_script(script), lambda name: name == "known")
    assert [n for n, _ in found] == order


@pytest.mark.parametrize(
    ("script", "words", "column"),
    [
        ("CREATE VIEW a AS SELECT * FROM b; CREATE VIEW b AS SELECT * FROM a", "a → b → a", 32),
        (
            "CREATE VIEW x AS SELECT 1; CREATE VIEW a AS SELECT * FROM c; CREATE VIEW b AS SELECT * FROM a; CREATE VIEW c AS SELECT * FROM b",
            "a → c → b → a",
            59,
        ),
        ("CREATE VIEW a AS SELECT * FROM a", "a reads itself", 32),
    ],
)
def test_cycles_are_named(script: str, words: str, column: int) -> None:
    with pytest.raises(PenstockError) as caught:
        ordered(parse_script(script), lambda name: False)
    assert caught.value.code == "PSK-1017"
    assert words in caught.value.detail
    assert caught.value.position is not None and caught.value.position.column == column
