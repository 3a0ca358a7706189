"""A stable text of an expression, for comparisons across versions. After an upgrade, the SQL library may write the same tree differently, with other quotes or parentheses."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from penstock.plan.dialect import RAW, Part, Phrase, Positive, Unsigned
from penstock.plan.room import with_room

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "DIV",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.NullSafeEQ: "<=>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.And: "AND",
    exp.Or: "OR",
    exp.Is: "IS",
    exp.Like: "LIKE",
    exp.ILike: "ILIKE",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.Dot: ".",
}
_PREFIXES: dict[type[exp.Expr], str] = {exp.Not: "NOT", exp.Neg: "-", exp.BitwiseNot: "~", Unsigned: ">", Positive: "+"}


_HABITS = frozenset({"big_int=True"})
"""Arguments that the dialect sets for every such call."""


def worded(node: exp.Expr) -> str:
    """Equal trees have equal texts in any version of the library. Parentheses are not part of a tree."""
    return with_room(lambda: _worded(node))


def _worded(node: exp.Expr) -> str:
    raw = node._meta.get(RAW) if node._meta else None
    if raw is not None:
        return str(raw)
    kind = type(node)
    if kind in _OPERATORS:
        return f"({_worded(node.this)} {_OPERATORS[kind]} {_worded(node.args['expression'])})"
    if kind in _PREFIXES:
        return f"({_PREFIXES[kind]} {_worded(node.this)})"
    match node:
        case exp.Paren():
            return _worded(node.this)
        case exp.Column():
            return ".".join(_worded(part) for part in node.parts)
        case exp.Identifier():
            return "`" + str(node.this).replace("`", "``") + "`"
        case exp.Literal():
            return repr(str(node.this)) if node.args.get("is_string") else str(node.this)
        case exp.Null():
            return "NULL"
        case exp.Boolean():
            return "TRUE" if node.this else "FALSE"
        case exp.Cast() if not any(node.args.get(name) for name in ("format", "action", "default")):
            name = "try_cast" if node.args.get("safe") else "cast"
            return f"{name}({_worded(node.this)} AS {_worded(node.args['to'])})"
        case exp.DataType():
            return _type(node)
        case exp.Anonymous():
            return f"{str(node.this).lower()}({_listed(node.expressions)})"
        case Phrase():
            return f"{str(node.this).lower()}({' '.join(_worded(e) for e in node.expressions)})"
        case Part():
            return f"{_worded(node.this)}:{_worded(node.args['path'])}"
        case exp.Var():
            return str(node.this)
        case exp.Between():
            low, high = _worded(node.args["low"]), _worded(node.args["high"])
            return f"({_worded(node.this)} BETWEEN {low} AND {high})"
        case exp.Func() if not isinstance(node, (exp.Cast, exp.Case)):
            return _call(node)
    return _plain(node)


def _type(node: exp.DataType) -> str:
    name = node.this.value if isinstance(node.this, exp.DType) else str(node.this)
    return f"{name}<{_listed(node.expressions)}>" if node.expressions else str(name)


def _call(node: exp.Func) -> str:
    """A function that the library knows: its name, its arguments in order, and its other properties."""
    given = {name: node.args.get(name) for name in node.arg_types}
    values = [v for v in given.values() if isinstance(v, (exp.Expr, list))]
    said = [f"{name}={_part(v)}" for name, v in given.items() if not (isinstance(v, (exp.Expr, list)) or _is_absent(v))]
    arguments = [_listed(v) if isinstance(v, list) else _worded(v) for v in values if v != []]
    return f"{node.sql_name().lower()}({', '.join([*arguments, *(s for s in said if s not in _HABITS)])})"


def _plain(node: exp.Expr) -> str:
    """Any other node: its name and its parts."""
    parts = [f"{name}={_part(value)}" for name, value in sorted(node.args.items()) if not _is_absent(value)]
    return f"{type(node).__name__.lower()}({', '.join(parts)})"


def _is_absent(value: Any) -> bool:
    """Whether a part is absent. A later version of the library may have more parts, which are absent in trees that do not need them."""
    return value is None or value is False or (isinstance(value, list) and not value)


def _part(value: Any) -> str:
    if isinstance(value, exp.Expr):
        return _worded(value)
    if isinstance(value, list):
        return f"[{_listed(value)}]"
    return repr(value) if isinstance(value, (str, int, float)) else str(value)


def _listed(values: list[Any]) -> str:
    return ", ".join(_part(v) for v in values)


__all__ = ["worded"]
