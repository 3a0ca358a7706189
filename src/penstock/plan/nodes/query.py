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
class Query:
    """A bound SELECT that a stream, view, sink or subscription maintains. `names` are the user-visible output columns."""

    root: Node
    names: tuple[str, ...]
    emit: Emit = field(default_factory=Emit)
