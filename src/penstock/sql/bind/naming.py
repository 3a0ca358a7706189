"""Names of output columns without an alias, by Spark's rule."""

from __future__ import annotations

import re

from sqlglot import exp

from penstock.plan.dialect import DIALECT, Part, Phrase
from penstock.sql.functions import name_of, struct_window
from penstock.sql.trees import bare

_OPERATORS: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.And: "AND",
    exp.Or: "OR",
}
_NAMES = re.compile(r"""(?:^|\.)(?:(\w+)|`([^`]+)`)|\[['"]([^'"]+)['"]\]""")
"""The names in a path into a VARIANT."""


def output_name(node: exp.Expression) -> str:
    """`a.b` → `b`, `sum(x)` → `sum(x)`, `a + 1` → `(a + 1)`, `count(*)` → `count(1)`."""
    if isinstance(node, exp.Alias):
        return str(node.alias)
    if isinstance(node, exp.Paren) and isinstance(bare(node), exp.Column):
        return str(bare(node).name)
    if isinstance(node, (exp.Column, exp.Dot)):
        return str(node.name)
    if struct_window(node) is not None:
        return str(node.name).lower()
    if isinstance(node, Part):
        path = node.text("path")
        names = _NAMES.findall(path)
        return next(filter(None, names[-1])) if names else f"variant_get({_shown(node.this)}, ${path})"
    return _shown(node)


def _shown(node: exp.Expression) -> str:
    if isinstance(node, exp.Paren):
        return _shown(node.this)
    if isinstance(node, exp.Column):
        return ".".join(p.name for p in node.parts)
    if isinstance(node, exp.Literal):
        return str(node.name)
    if isinstance(node, exp.Star):
        return "1"
    if isinstance(node, exp.Distinct):
        return "DISTINCT " + ", ".join(_shown(e) for e in node.expressions)
    op = _OPERATORS.get(type(node))
    if op is not None:
        return f"({_shown(node.this)} {op} {_shown(node.expression)})"
    if isinstance(node, exp.Func) and not isinstance(node, (exp.Cast, exp.Case, exp.If, Part, Phrase)):
        name = name_of(node) or ""
        args: list[exp.Expression] = []
        for key in node.arg_types:
            value = node.args.get(key)
            if isinstance(node, exp.Anonymous) and key == "this":
                continue
            args += value if isinstance(value, list) else [value] if isinstance(value, exp.Expression) else []
        return f"{name.removeprefix('__')}({', '.join(_shown(a) for a in args)})"
    return str(node.sql(dialect=DIALECT))
