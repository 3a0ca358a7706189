"""Refuses expressions that would not reach Spark as they are written."""

from __future__ import annotations

from sqlglot import exp

from penstock.runtime.engine import Engine
from penstock.sql import statements as st
from penstock.sql.query import ParsedQuery
from penstock.sql.tokens import Script
from penstock.sql.written import refusal, written


def check_query(engine: Engine, query: ParsedQuery) -> None:
    """Raises PSK-1001 if Spark cannot read an expression of a query, and PSK-1012 if it would be written back differently."""
    _check(engine, query.script, 0, query.ast)


def check_expressions(engine: Engine, s: st.Statement, *trees: exp.Expr | None) -> None:
    """The same for expressions of another statement."""
    _check(engine, Script(s.text), s.offset, *trees)


def check_condition(engine: Engine, text: str, tree: exp.Expr) -> None:
    """The same for a condition that is a text of its own."""
    _check(engine, Script(text), 0, tree)


def _check(engine: Engine, script: Script, offset: int, *trees: exp.Expr | None) -> None:
    found = engine.compute.sameness.difference(written(script.text, *trees, offset=offset))
    if found is not None:
        where, at, message = found
        raise refusal(script, where._replace(offset=where.offset - offset), at, message)
