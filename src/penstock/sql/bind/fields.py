"""Arguments that Spark looks at by name: fields of `struct(a, b)`, `(a, b)` and `arrays_zip(a, b)`, and `*`.

A bound expression has internal names and hidden columns, so fields are named, and `*` is expanded, here.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from penstock.plan.dialect import Part
from penstock.sql.bind.context import Context
from penstock.sql.bind.scope import Scope
from penstock.sql.trees import bare

Names = list[str | None]
_COMPARED = (exp.Predicate, exp.Values, exp.Tuple)


def field_names(node: exp.Expression) -> Names:
    """The names that the arguments of a call have as it was written: "" for a computed value, which has none; None for one whose name Spark finds."""
    listed = node.expressions if isinstance(node, (exp.Anonymous, exp.Tuple)) else []
    return [_name(e) for e in listed]


def _name(argument: exp.Expression) -> str | None:
    inner = bare(argument)
    if isinstance(inner, exp.Column) and not _is_star(inner):
        return inner.name
    return None if isinstance(inner, _OTHERWISE_NAMED) else ""


def with_fields(ctx: Context, scope: Scope, node: exp.Expression, names: Names) -> exp.Expression:
    """A bound call whose fields have the `names` that were written, and whose `*` is a list of columns."""
    refuse_count(ctx, node)
    if isinstance(node, (exp.Anonymous, exp.Distinct)) and any(_is_star(e) for e in node.expressions):
        node, names = _expanded(ctx, scope, node, names or [None] * len(node.expressions))
    elif isinstance(node, exp.Func) and not isinstance(node, exp.Count) and any(map(_is_star, node.args.values())):
        raise ctx.fail("PSK-1012", "* is not allowed here", node, hint="Name the columns.")
    if isinstance(node, exp.Tuple) and not isinstance(node.parent, _COMPARED):
        # As Spark reads it.
        node = exp.Anonymous(this="struct", expressions=node.expressions)
    if isinstance(node, exp.Anonymous) and node.name.lower() in _NAMED:
        make, unnamed = _NAMED[node.name.lower()]
        named = []
        for i, (e, n) in enumerate(zip(node.expressions, names, strict=True)):
            # A computed value may become a column of the plan, whose name Spark would take.
            named.append(e if n is None else make(e, n or unnamed(i)))
        node.set("expressions", named)
    return node


def refuse_count(ctx: Context, node: exp.Expression) -> None:
    """Raises PSK-1012 for count(t.*), which Spark refuses, too: it would count rows without NULLs."""
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Column) and _is_star(node.this):
        raise ctx.fail("PSK-1012", "count(t.*) is not supported", node, hint="Write count(*), or count(a, b).")


def _is_star(node: object) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _expanded(ctx: Context, scope: Scope, node: exp.Expression, names: Names) -> tuple[exp.Expression, Names]:
    items: list[exp.Expression] = []
    made: Names = []
    for item, name in zip(node.expressions, names, strict=True):
        if not _is_star(item):
            items.append(item)
            made.append(name)
            continue
        star = item.this if isinstance(item, exp.Column) else item
        if any(star.args.values()):
            raise ctx.fail("PSK-1012", "* has no EXCEPT here", item, hint="Name the columns.")
        relation = scope.relation(item.table) if isinstance(item, exp.Column) else None
        if isinstance(item, exp.Column) and relation is None:
            raise ctx.fail("PSK-1002", f"{item.table} is not in FROM", item)
        for c in relation.cols if relation is not None else scope.visible():
            items.append(exp.Column(this=exp.Identifier(this=c.internal, quoted=True)))
            made.append(c.name)
    node.set("expressions", items)
    return node, made


def _aliased(value: exp.Expression, name: str) -> exp.Expression:
    return exp.Alias(this=value, alias=exp.Identifier(this=name, quoted=True))


def _extracted(value: exp.Expression, name: str) -> exp.Expression:
    """An argument cannot have an alias; a field has a name."""
    held = exp.Anonymous(this="named_struct", expressions=[exp.Literal.string(name), value])
    return exp.Dot(this=held, expression=exp.Identifier(this=name, quoted=True))


_NAMED: dict[str, tuple[Callable[[exp.Expression, str], exp.Expression], Callable[[int], str]]] = {
    "struct": (_aliased, lambda i: f"col{i + 1}"),
    "arrays_zip": (_extracted, str),
}
"""How an argument gets a name, and the name that Spark gives to one without."""
_OTHERWISE_NAMED = (
    exp.Alias, exp.Aliases, exp.PropertyEQ, exp.Column, exp.Identifier, exp.Dot, exp.Bracket, exp.Star, exp.Lambda, exp.Kwarg, Part
)  # fmt: skip
"""Arguments that have a name of their own, or one that Spark finds."""
