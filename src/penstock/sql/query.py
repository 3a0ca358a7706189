"""A query as it was written, before names mean anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from penstock.plan.nodes import Interval
from penstock.sql.tokens import Script

EmitKind = Literal["close", "final", "update", "changes", "every"]


@dataclass(frozen=True)
class EmitClause:
    kind: EmitKind
    every: Interval | None = None
    offset: int = 0


@dataclass(frozen=True)
class Probe:
    """The extra part of a TEMPORAL PROBE JOIN: key names, the two time columns, the offsets, and the name of its columns."""

    keys: tuple[exp.Identifier, ...]
    times: tuple[exp.Column, exp.Column] | None
    offsets_ms: tuple[int, ...]
    alias: str | None


@dataclass(frozen=True, eq=False)
class ParsedQuery:
    """`ast` is a sqlglot query in which our own clauses stand as calls of reserved functions (`__asof`, `__probe` …)."""

    script: Script
    ast: exp.Expression
    text: str
    offset: int
    probes: tuple[Probe, ...] = ()
    emit: EmitClause | None = None
    lateness: Interval | None = None
    late_to: str | None = None
    errors_to: str | None = None
    """The stream that rows go to which cannot be computed; without one such a row makes the query fail."""
    options: dict[str, str] = field(default_factory=dict)
