"""The stateful operators of a compiled plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.plan import nodes as p


@dataclass(frozen=True)
class StateFigures:
    """The size of an operator's state: rows, and bytes of keys and values."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class Operator:
    """One stateful operator of a job, and the plan node that it implements.

    The kernel's `StateSize` object `size` counts the state of a kernel operator. Spark counts the rows of a native one, each of
    about `row_bytes`. The shared job counts the state of a `hosted` one.
    """

    name: str
    node: p.Node
    size: Any = None
    row_bytes: int = 0
    hosted: bool = False

    @property
    def native(self) -> bool:
        return self.size is None and not self.hosted
