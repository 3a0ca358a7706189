"""Shared state while one statement is bound: the catalogue, fresh names, known types, errors with positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sqlglot import exp

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError, Position, fail
from penstock.plan.nodes import Node, Scan
from penstock.sql.limits import MAX_BLOCKS, MAX_JOINS, MAX_NODES
from penstock.sql.names import suggestion
from penstock.sql.query import ParsedQuery


class CatalogView(Protocol):
    """The part of the catalogue that binding needs. `get` ignores case."""

    def get(self, name: str, /) -> ObjectInfo | None: ...

    def names(self) -> Iterable[str]: ...


class Context:
    def __init__(self, query: ParsedQuery, catalog: CatalogView) -> None:
        self.query = query
        self.script = query.script
        self.catalog = catalog
        self.options = query.options
        self.types: dict[str, str] = {}
        self.kinds: dict[int, Kind] = {}
        self.probes = list(query.probes)
        self.expanded: dict[int, ObjectInfo] = {}
        """The named queries that are part of the statement."""
        self._used: dict[str, int] = {}
        self._blocks = self._nodes = 0
        # Windows that are emitted when they close are append-only for the operators above them.
        self.closing = query.emit is not None and query.emit.kind in ("close", "final")

    def fresh(self, base: str) -> str:
        """A prefix or name that is unique in this statement."""
        key = base.lower()
        n = self._used.get(key, 0) + 1
        self._used[key] = n
        return base if n == 1 else self.fresh(f"{base}_{n}")

    def count_block(self, select: exp.Select) -> None:
        """Raises PSK-1020 if the statement has too many SELECT blocks, or a block too many joins. CTEs that reference each other twice double at every level."""
        self._blocks += 1
        if self._blocks > MAX_BLOCKS:
            raise self.fail("PSK-1020", f"the query reads more than {MAX_BLOCKS} SELECT blocks")
        if len(select.args.get("joins") or ()) > MAX_JOINS:
            raise self.fail(
                "PSK-1020", f"more than {MAX_JOINS} joins in one FROM", select.args["joins"][MAX_JOINS].this
            )

    def count_node(self) -> None:
        """Raises PSK-1020 if the expressions of the statement are too large. Aliases that reference each other can grow exponentially."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self.fail("PSK-1020", f"the expressions have more than {MAX_NODES:,} parts")

    def position(self, node: exp.Expr | None) -> Position | None:
        """The position of a parsed node: the span of its parts that have a position."""
        return None if node is None else self.script.place(node)

    def fail(
        self,
        code: str,
        detail: str,
        node: exp.Expr | None = None,
        *,
        hint: str | None = None,
        offset: int | None = None,
    ) -> PenstockError:
        """An error at a node, at an offset of the script, or at the query."""
        where = self.position(node) or self.script.position(self.query.offset if offset is None else offset)
        return fail(code, detail, hint=hint, position=where, sql=self.script.shown)

    def streaming(self, node: Node) -> bool:
        """True for append-only rows from a source or stream: their number is unbounded."""
        if node.changelog:
            return False
        return any(
            isinstance(n, Scan) and self.kinds.get(n.object_id) in (Kind.SOURCE, Kind.STREAM) for n in node.walk()
        )


def qualified(ctx: Context, table: exp.Table) -> PenstockError:
    """The error for a qualified name: there are no schemas."""
    known = ctx.catalog.get(table.name)
    shown = ".".join(p.name for p in table.parts)
    hint = f"Write {known.name} alone." if known is not None else suggestion(table.name, ctx.catalog.names())
    return ctx.fail("PSK-1002", f"{shown} is not found: names have one part", table, hint=hint)
