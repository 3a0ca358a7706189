"""The types of a plan's columns, where they are known without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.plan.nodes import Aggregate, Expr, Named, Node, Project, Recursive, Scan, SetOp, Union, WindowAssign


def column_types(node: Node) -> dict[str, str]:
    """Types of the columns that are passed on unchanged from storage. Only Spark knows the types of computed columns."""
    match node:
        case Scan():
            return dict(node.types)
        case Project():
            return _named(node.items, column_types(node.child))
        case Aggregate():
            return _named(node.keys, column_types(node.child))
        case WindowAssign():
            known = column_types(node.child)
            time = _of(node.time, known)
            return known | ({node.start: time, node.end: time} if time is not None else {})
        case Union() | SetOp():
            return shared_types(node)
        case Recursive():
            return {}
    return {name: t for child in node.children for name, t in column_types(child).items() if name in node.columns}


def shared_types(node: Union | SetOp) -> dict[str, str]:
    """Columns that have the same type in all inputs."""
    first, *rest = node.children
    known = column_types(first)
    others = [(child.columns, column_types(child)) for child in rest]
    return {
        name: known[name]
        for i, name in enumerate(first.columns)
        if name in known and all(types.get(columns[i]) == known[name] for columns, types in others)
    }


def _of(expr: Expr, known: dict[str, str]) -> str | None:
    return known.get(expr.column) if expr.column is not None else None


def _named(items: Iterable[Named], known: dict[str, str]) -> dict[str, str]:
    return {i.name: t for i in items if (t := _of(i.expr, known)) is not None}
