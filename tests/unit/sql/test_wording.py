"""Expressions have a text that does not depend on the version of the SQL library."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlglot import exp, parse_one

from penstock.plan.dialect import DIALECT
from penstock.plan.nodes import Query
from penstock.plan.repeats import expressions, shape
from penstock.plan.wording import worded

WORDINGS = Path(__file__).parent / "fixtures" / "wordings.txt"
"""An expression and its text. A line that changes is a query that refuses its state (PSK-6003): when the library reads something otherwise, `worded` has to make up for it."""


def lines() -> list[tuple[str, str]]:
    found = [line.partition(" ⇒ ") for line in WORDINGS.read_text(encoding="utf-8").splitlines()]
    return [(sql, text) for sql, _, text in found]


@pytest.mark.parametrize(("sql", "text"), lines())
def test_the_text_of_an_expression_stays(sql: str, text: str) -> None:
    assert worded(parse_one(sql, dialect=DIALECT)) == text


def test_the_library_writes_nothing_of_it(plans: dict[str, Query], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> str:
        raise AssertionError("an expression is written by the library")

    monkeypatch.setattr(exp.Expression, "sql", refuse)
    for plan in plans.values():
        assert shape(plan.root, lambda e: worded(e.node))


def test_expressions_that_differ_have_other_texts(plans: dict[str, Query]) -> None:
    written: dict[str, set[str]] = {}
    for plan in plans.values():
        for e in expressions(plan.root):
            written.setdefault(worded(e.node), set()).add(e.sql().replace("(", "").replace(")", "").upper())
    assert len(written) > 100 and [texts for texts in written.values() if len(texts) > 1] == []
