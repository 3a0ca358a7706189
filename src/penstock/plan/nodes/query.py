"""A bound SELECT as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from penstock.plan.nodes.base import Interval, Node


@dataclass(frozen=True)
class Emit:
    """The EMIT clause of a stream or view."""

    kind: Literal["append", "changes", "update", "close", "every"] = "append"
    every: Interval | None = None


@dataclass(frozen=True)
class SortTerm:
    """A term of the order in which a view presents its rows. `expression` is Spark SQL over the output columns."""

    expression: str
    desc: bool
    nulls_first: bool

    def __str__(self) -> str:
        nulls = "" if self.nulls_first is not self.desc else f" nulls {'first' if self.nulls_first else 'last'}"
        return f"{self.expression}{' desc' if self.desc else ''}{nulls}"


@dataclass(frozen=True)
class Query:
    """A bound SELECT that a stream, view, sink or subscription maintains. `names` are the user-visible output columns.

    `order`: ORDER BY without LIMIT, which only determines how a SELECT from the view presents the rows. `expands`: the ids of the
    named queries that it contains.
    """

    root: Node
    names: tuple[str, ...]
    emit: Emit = field(default_factory=Emit)
    order: tuple[SortTerm, ...] = ()
    expands: tuple[int, ...] = ()
