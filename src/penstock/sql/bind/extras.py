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


def refuse_star(ctx: Context, star: exp.Star) -> None:
    """Raises PSK-1012 for a clause after * other than EXCEPT."""
    clause = next((k for k, v in star.args.items() if v and k != "except_"), None)
    if clause is not None:
        hint = "List the columns; or write SELECT * EXCEPT (a), f(a) AS a."
        raise ctx.fail("PSK-1012", f"* {clause.strip('_').upper()} is not supported", star, hint=hint)


def refuse_join(ctx: Context, join: exp.Join) -> None:
    """Raises PSK-3003 for words of a join that mean nothing together, or nothing for rows that depend on the left side."""
    item, kind = join.this, (join.kind or "").upper()
    natural, using = (join.args.get("method") or "").upper() == "NATURAL", bool(join.args.get("using"))
    if natural and (using or join.args.get("on") is not None or kind == "CROSS"):
        raise ctx.fail("PSK-3003", "NATURAL has its own condition", item, hint="Leave NATURAL out.")
    if not isinstance(item, (exp.Unnest, exp.Lateral)):
        return
    name = "an UNNEST" if isinstance(item, exp.Unnest) else "a LATERAL"
    if (join.side or "").upper() not in ("", "LEFT") or kind in ("SEMI", "ANTI"):
        raise ctx.fail("PSK-3003", f"{name} join must be INNER, LEFT or a comma", item)
    if natural or using:
        what = "NATURAL" if natural else "USING"
        raise ctx.fail("PSK-3003", f"{name} join has no {what}", item, hint="Write the equality in WHERE.")
