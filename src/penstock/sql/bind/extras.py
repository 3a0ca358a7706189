"""Clauses of an item of FROM that are not supported."""

from __future__ import annotations

from sqlglot import exp

from penstock.sql.bind.context import Context

_EXTRAS: dict[str, tuple[str, str | None]] = {
    "pivots": ("PIVOT of a join", "Put the join into a derived table: FROM (SELECT … FROM a JOIN b …) PIVOT …."),
    "sample": ("TABLESAMPLE", "Filter by a hash of the key: WHERE abs(hash(k)) % 10 = 0."),
    "ordinality": ("WITH ORDINALITY", "Use LATERAL VIEW posexplode(…)."),
    "version": ("A version of a table", "SUBSCRIBE … AS OF EPOCH reads the history of a stream or view."),
    "when": ("A version of a table", "SUBSCRIBE … AS OF EPOCH reads the history of a stream or view."),
}


def refuse_extras(ctx: Context, node: exp.Expression, allowed: tuple[str, ...]) -> None:
    """Raises PSK-1012 for a clause of the node that is not among those allowed."""
    for key, value in node.args.items():
        if value and key not in allowed:
            what, hint = _EXTRAS.get(key, (key.strip("_").upper().replace("_", " "), None))
            raise ctx.fail("PSK-1012", f"{what} is not supported in FROM", node, hint=hint)
