"""Name resolution: the columns in scope at a point in a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from penstock.plan.nodes import Node


@dataclass(frozen=True)
class Col:
    """`name` is the user-visible name, `internal` the column of the plan. A hidden column can only be referenced through its table.

    `bounds`: the value is the struct of a window, and these are the columns of its start and end.
    """

    name: str
    internal: str
    hidden: bool = False
    bounds: tuple[str, str] | None = None


@dataclass(frozen=True)
class Relation:
    """`window`: its columns are the start and the end of the window of GROUP BY, and its name alone is the struct of both."""

    alias: str | None
    cols: tuple[Col, ...]
    window: bool = False

    def find(self, name: str) -> list[Col]:
        return [c for c in self.cols if c.name.lower() == name.lower()]

    def hide(self, internals: frozenset[str]) -> Relation:
        return replace(self, cols=tuple(replace(c, hidden=True) if c.internal in internals else c for c in self.cols))


@dataclass(frozen=True)
class Domain:
    """The distinct combinations of values of some columns of an outer query; `names` are the columns of `node`."""

    node: Node
    names: tuple[str, ...]


@dataclass
class Scope:
    """The relations in FROM so far; `outer` is the scope of the outer query.

    `domain`: directly nested queries start from it, and names in this scope resolve to its columns. `used` are the columns that nested
    queries have referenced.
    """

    relations: list[Relation] = field(default_factory=list)
    outer: Scope | None = None
    domain: Domain | None = None
    used: set[str] = field(default_factory=set)

    def relation(self, alias: str) -> Relation | None:
        return next((r for r in self.relations if r.alias is not None and r.alias.lower() == alias.lower()), None)

    def visible(self) -> Iterator[Col]:
        for r in self.relations:
            yield from (c for c in r.cols if not c.hidden)

    def find(self, name: str) -> list[Col]:
        return [c for c in self.visible() if c.name.lower() == name.lower()]

    def names(self) -> list[str]:
        return [c.name for c in self.visible()]
