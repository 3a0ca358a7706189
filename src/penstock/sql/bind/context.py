"""What is shared while one statement is bound: the catalogue, fresh names, known types, errors with places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sqlglot import exp

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError, Position, fail
from penstock.plan.nodes import Node, Scan
from penstock.sql.names import suggestion
from penstock.sql.query import ParsedQuery


class CatalogView(Protocol):
    """What binding needs of the catalogue. `get` looks a name up without regard to case."""

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
        self._used: dict[str, int] = {}
        # Windows that come out when they close are append-only for the operators above them.
        self.closing = query.emit is not None and query.emit.kind in ("close", "final")

    def fresh(self, base: str) -> str:
        """A prefix or name not given out before in this statement."""
        key = base.lower()
        n = self._used.get(key, 0) + 1
        self._used[key] = n
        return base if n == 1 else self.fresh(f"{base}_{n}")

    def position(self, node: exp.Expr | None) -> Position | None:
        """Where a parsed node stands: the span of the parts that carry a place."""
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
        return fail(code, detail, hint=hint, position=where, sql=self.script.text)

    def streaming(self, node: Node) -> bool:
        """True for append-only rows that come from a source or stream: their number has no bound."""
        if node.changelog:
            return False
        return any(
            isinstance(n, Scan) and self.kinds.get(n.object_id) in (Kind.SOURCE, Kind.STREAM) for n in node.walk()
        )


def qualified(ctx: Context, table: exp.Table) -> PenstockError:
    """The refusal of a name of several parts: there are no schemas."""
    known = ctx.catalog.get(table.name)
    shown = ".".join(p.name for p in table.parts)
    hint = f"Write {known.name} alone." if known is not None else suggestion(table.name, ctx.catalog.names())
    return ctx.fail("PSK-1002", f"{shown} is not found: names have one part", table, hint=hint)
