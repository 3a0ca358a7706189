"""Suggestions for misspelled names, and words that cannot be names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

KEYWORDS = frozenset(
    {
        "all", "alter", "and", "any", "as", "between", "case", "create", "cross", "describe", "distinct", "drop", "else", "except",
        "false", "fetch", "for", "from", "glob", "grant", "having", "ilike", "inner", "insert", "intersect", "into", "join", "lateral",
        "like", "minus", "not", "notnull", "null", "on", "or", "outer", "qualify", "regexp", "returning", "revoke", "rlike", "rollback",
        "select", "serdeproperties", "tablesample", "then", "true", "uncache", "union", "using", "values", "when", "where", "with", "xor",
    }
)  # fmt: skip
"""Words that must be quoted as the name of an object or column in a query."""


_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029`]")


def unfit(name: str) -> str | None:
    """The reason why an object or column cannot have this name; None if it can."""
    if not name.strip():
        return "a name cannot be empty"
    if _UNFIT.search(name):
        return f"the name {_UNFIT.sub('?', name)!r} contains a backquote, a line break or another control character"
    return None


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    by_lower = {k.lower(): k for k in known}
    match = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[match[0]] if match else None


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """`Did you mean x?`, or the known names if there are few, or nothing."""
    # Nobody can write the names of hidden objects.
    names = [n for n in known if not n.startswith("__")]
    best = nearest(name, names)
    if best is not None:
        return f"Did you mean {best}?"
    if 0 < len(names) <= 12:
        return f"Known: {', '.join(sorted(names))}."
    return None
