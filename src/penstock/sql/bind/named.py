"""Named windows: what an OVER has of its own and of the windows of the WINDOW clause that it names, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlglot import exp

from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import walk_block
from penstock.sql.names import suggestion


class Parts(NamedTuple):
    """What a window consists of; `spec` is its frame."""

    partition: list[exp.Expression]
    order: exp.Expression | None
    spec: exp.Expression | None


class NamedWindows:
    """The WINDOW clause of one SELECT."""

    def __init__(self, ctx: Context, clause: Iterable[exp.Expression]) -> None:
        self.ctx = ctx
        self._named: dict[str, exp.Window] = {}
        for window in clause:
            if not isinstance(window, exp.Window):
                continue
            if window.name.lower() in self._named:
                raise ctx.fail("PSK-1014", f"two windows are named {window.name}", window.this)
            self._named[window.name.lower()] = window

    def parts(self, window: exp.Window, origin: exp.Expression | None = None) -> Parts:
        """The parts of a window; those of the windows that it names may add to it, and not be replaced."""
        partition, order, spec = _own(window)
        passed: list[str] = []
        while window.alias:
            name = window.alias
            base = self._named.get(name.lower())
            place = window.args["alias"] if isinstance(window.args["alias"], exp.Identifier) else origin
            if base is None:
                hint = suggestion(name, [w.name for w in self._named.values()])
                raise self.ctx.fail("PSK-1002", f"unknown window {name}", place, hint=hint)
            if name.lower() in passed:
                raise self.ctx.fail("PSK-1017", f"the window {name} is defined by itself", place)
            passed.append(name.lower())
            more = _own(base)
            if partition and (more.partition or base.alias):
                raise self._replaced(name, "PARTITION BY", place)
            if order is not None and more.order is not None:
                raise self._replaced(name, "ORDER BY", place)
            partition, order, spec = partition or more.partition, order or more.order, spec or more.spec
            window = base
        return Parts(partition, order, spec)

    def _replaced(self, name: str, what: str, place: exp.Expression | None) -> Exception:
        return self.ctx.fail(
            "PSK-1012",
            f"the window {name} cannot get another {what}",
            place,
            hint="Write out the whole window in OVER (…).",
        )


def write_out(ctx: Context, tree: exp.Expression) -> None:
    """Writes windows out where they are named. Spark knows a window only by the exact name, and alone in its OVER."""
    for select in tree.find_all(exp.Select):
        clause = select.args.get("windows")
        if not clause:
            continue
        named = NamedWindows(ctx, clause)
        for node in list(_calls(select)):
            if isinstance(node, exp.Window) and node.alias:
                parts = named.parts(node)
                node.set("partition_by", [p.copy() for p in parts.partition])
                node.set("order", parts.order.copy() if parts.order is not None else None)
                node.set("spec", parts.spec.copy() if parts.spec is not None else None)
                node.set("alias", None)
        select.set("windows", None)


def _calls(select: exp.Select) -> Iterable[exp.Expression]:
    """The nodes of the expressions of a SELECT, except those of nested queries and of its WINDOW clause."""
    for key in ("expressions", "qualify", "order", "distinct"):
        value = select.args.get(key)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, exp.Expression):
                yield from walk_block(item)


def _own(window: exp.Window) -> Parts:
    return Parts(list(window.args.get("partition_by") or []), window.args.get("order"), window.args.get("spec"))
