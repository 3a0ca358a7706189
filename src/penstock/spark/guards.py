"""Projections and filters in which a row may fail: a failing row is dropped and reported in the job's errors.

The kernel decides, from Spark's resolved expressions, whether a row can fail at all; if not, the plan is Spark's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.column import Column

from penstock.plan import nodes as p
from penstock.plan.shown import shown, text
from penstock.spark.session import jvm


class Guards:
    """The guarded nodes of a query. `current` returns the node that is being compiled. A query that is compiled
    as a member of a shared job (`hosted`) has no channel of its own.
    """

    def __init__(self, spark: SparkSession, current: Callable[[], p.Node], *, hosted: bool = False) -> None:
        self._spark = spark
        self._hosted = hosted
        self._current = current
        self._channel: Any = None
        self._silent = False
        self.nodes: list[p.Node] = []
        """The nodes in which rows can fail."""

    @property
    def channel(self) -> Any:
        """The kernel's error channel of the job; None if no row can fail."""
        return self._channel

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Within the block, failing rows are dropped without an error, because the same expressions are also evaluated elsewhere."""
        before, self._silent = self._silent, True
        try:
            yield
        finally:
            self._silent = before

    def select(
        self,
        n: p.Node,
        df: DataFrame,
        columns: Sequence[Column],
        exprs: Sequence[p.Expr | str | None],
        names: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Selects columns of a frame. `exprs` are their expressions; None for those that cannot fail. `names` are the user-visible names of
        the frame's columns; without them the frame is the one of the node's child.
        """
        if all(e is None for e in exprs):
            return df.select(*columns)
        known = shown(*n.children) if names is None else names
        told = [e if isinstance(e, str) or e is None else text(e, known) for e in exprs]
        spec = self._spec(known) | {"texts": told}
        made = jvm().Attempts.select(df._jdf, [c._jc for c in columns], json.dumps(spec))
        return self._noted(made)

    def where(self, n: p.Node, df: DataFrame, condition: Column, expr: p.Expr) -> DataFrame:
        """The rows of the child's frame that match a condition; `expr` is its user-visible form."""
        known = shown(*n.children)
        spec = self._spec(known) | {"condition": text(expr, known)}
        return self._noted(jvm().Attempts.filter(df._jdf, condition._jc, json.dumps(spec)))

    @staticmethod
    def fallible(df: DataFrame, columns: Sequence[Column]) -> bool:
        """Whether one of the expressions can fail for a row of a frame."""
        return bool(jvm().Attempts.fallible(df._jdf, [c._jc for c in columns]))

    @staticmethod
    def guards(df: DataFrame) -> bool:
        """Whether a row can fail in the outermost node of a frame."""
        return bool(jvm().Attempts.guards(df._jdf))

    def spec(self, names: Mapping[str, str]) -> dict[str, object]:
        """The channel's spec for a kernel operator in which rows with these columns can fail."""
        self._note()
        return self._spec(names)

    def _spec(self, names: Mapping[str, str]) -> dict[str, object]:
        told: dict[str, object] = {"names": dict(names)}
        if self._silent:
            return told
        return told | ({"member": True} if self._hosted else {"channel": self._open().id()})

    def _open(self) -> Any:
        if self._channel is None:
            self._channel = jvm().ErrorChannel.create(self._spark._jsparkSession)
        return self._channel

    def _noted(self, made: Any) -> DataFrame:
        if jvm().Attempts.guards(made):
            self._note()
        return DataFrame(made, self._spark)

    def _note(self) -> None:
        node = self._current()
        if not any(known is node for known in self.nodes):
            self.nodes.append(node)


def told(expr: p.Expr) -> p.Expr | None:
    """The expression; None for a plain column, which cannot fail."""
    return expr if expr.column is None else None
