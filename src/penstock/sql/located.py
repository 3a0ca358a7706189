"""Adds a position in the query text, and a better hint, to errors that Spark reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp

from penstock.errors import PenstockError
from penstock.sql.foreign import FUNCTIONS
from penstock.sql.functions import name_of
from penstock.sql.names import nearest
from penstock.sql.query import ParsedQuery

_WINDOWS = {
    "tumbling": "TUMBLE",
    "hopping": "HOP",
    "sliding": "HOP",
    "cumulative": "CUMULATE",
    "cumulating": "CUMULATE",
}
_KNOWN = (*(name.lower() for name in exp.FUNCTION_BY_NAME), "tumble", "hop", "cumulate", "session")
_QUOTED = re.compile(r"`([^`]+)`")


@contextmanager
def located(query: ParsedQuery) -> Iterator[None]:
    """Gives an error without a position the position of the function it names, or else that of the query."""
    try:
        yield
    except PenstockError as error:
        if error.position is None and error.code.startswith(("PSK-1", "PSK-2011")):
            _place(error, query)
        raise


def _place(error: PenstockError, query: ParsedQuery) -> None:
    error.sql = query.script.shown
    error.position = query.script.position(query.offset)
    names = _QUOTED.findall(error.detail)
    if error.code == "PSK-1006" and names:
        name = names[0]
        error.detail = f"unknown function {name}"
        error.hint = _suggested(name)
    for node in query.ast.find_all(exp.Func):
        called = node.name if isinstance(node, exp.Anonymous) else name_of(node) or ""
        if called.lower() in (n.lower() for n in names) and (where := query.script.place(node)) is not None:
            error.position = where
            if error.code == "PSK-1006":
                error.detail = f"unknown function {called}"
            return


def _suggested(name: str) -> str:
    given = name.lower()
    found = _WINDOWS.get(given) or FUNCTIONS.get(given) or nearest(given, set(_KNOWN) - {given, *FUNCTIONS}, cutoff=0.7)
    if found is not None:
        return f"Did you mean {found}?"
    return "Available are Spark SQL's functions and those registered with db.register_function."
