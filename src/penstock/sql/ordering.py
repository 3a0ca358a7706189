"""The order in which the statements of a script run: as written, except that a query waits for what a later statement creates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from penstock.catalog.objects import Column
from penstock.errors import PenstockError, fail
from penstock.sql import statements as st
from penstock.sql.bind.ctes import is_cte
from penstock.sql.bind.windows import window_kind
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_constant

_CREATES = (
    st.CreateSource,
    st.CreateTable,
    st.CreateLookupTable,
    st.CreateStream,
    st.CreateView,
    st.CreateNamedQuery,
    st.CreateSink,
)
_CALL = "()"
"""Ends the names of functions: a stream may have the name of a function that it calls."""


def ordered(statements: Sequence[st.Statement], exists: Callable[[str], bool]) -> list[tuple[int, st.Statement]]:
    """The statements with their numbers in the script, from 1.

    A CREATE that reads an object which does not exist, and which only a later statement creates, runs right after that one. Raises PSK-1017 if objects
    would read each other.
    """
    numbered = list(enumerate(statements, 1))
    made: dict[str, int] = {}
    for number, s in numbered:
        for name in _created(s):
            made.setdefault(name, number)
    needs: dict[int, dict[int, exp.Expr]] = {}
    for number, s in numbered:
        for name, node in _read(s):
            if name in made and not exists(name.removesuffix(_CALL)):
                needs.setdefault(number, {})[made[name]] = node
    if all(other < number for number, others in needs.items() for other in others):
        return numbered
    out: dict[int, None] = {}
    waiting: list[int] = []
    for number, _ in numbered:
        waiting.append(number)
        while (ready := next((w for w in waiting if needs.get(w, {}).keys() <= out.keys()), None)) is not None:
            waiting.remove(ready)
            out[ready] = None
    if waiting:
        path = [waiting[0]]
        while path[-1] not in path[:-1]:
            path.append(next(other for other in needs[path[-1]] if other not in out))
        raise _cycle(statements, path[path.index(path[-1]) :], needs)
    return [(n, statements[n - 1]) for n in out]


def _created(s: st.Statement) -> Iterator[str]:
    if isinstance(s, st.CreateFunction):
        yield s.name.lower() + _CALL
    elif isinstance(s, _CREATES):
        yield s.name.lower()
        query = getattr(s, "query", None)
        if isinstance(query, ParsedQuery):
            yield from (n.lower() for n in (query.late_to, query.errors_to) if n is not None)


def _read(s: st.Statement) -> Iterator[tuple[str, exp.Expr]]:
    """The names of the objects that a new query reads, and those of the functions that it or a new function calls."""
    for column in _declared(s):
        if column.default is not None:
            yield from _calls(parse_constant(column.default, programs=True))
    if isinstance(s, st.CreateFunction):
        tree = s.body
    elif isinstance(s, (st.CreateStream, st.CreateView, st.CreateNamedQuery, st.CreateSink)) and s.query is not None:
        tree = s.query.ast
    else:
        return
    yield from _calls(tree)
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and not is_cte(table):
            yield table.name.lower(), table
        elif isinstance(table.this, exp.Anonymous) and window_kind(table.this) and table.this.expressions:
            first = table.this.expressions[0]
            yield first.name.lower(), first


def _calls(tree: exp.Expression) -> Iterator[tuple[str, exp.Expr]]:
    return ((n.name.lower() + _CALL, n) for n in tree.find_all(exp.Anonymous))


def _declared(s: st.Statement) -> tuple[Column, ...]:
    if isinstance(s, st.CreateFunction):
        return s.parameters
    return s.columns if isinstance(s, (st.CreateSource, st.CreateTable, st.CreateLookupTable)) else ()


def _cycle(
    statements: Sequence[st.Statement], path: Sequence[int], needs: dict[int, dict[int, exp.Expr]]
) -> PenstockError:
    names = [str(getattr(statements[n - 1], "name", "")) for n in path]
    first = statements[path[0] - 1]
    query = getattr(first, "query", None)
    node = needs[path[0]][path[1]]
    position = query.script.place(node) if isinstance(query, ParsedQuery) else None
    sql = query.script.shown if isinstance(query, ParsedQuery) else None
    what = f"{names[0]} reads itself" if len(names) == 2 else f"these objects read each other: {' → '.join(names)}"
    return fail("PSK-1017", what, position=position, sql=sql, hint="WITH RECURSIVE lets a query read its own result.")
