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

    A kernel operator is counted by `size` (an object of the kernel's `StateSize`). Spark counts the rows of a native one, of
    which one takes about `row_bytes`. What a `hosted` one keeps is counted by the job that its query shares.
    """

    name: str
    node: p.Node
    size: Any = None
    row_bytes: int = 0
    hosted: bool = False

    @property
    def native(self) -> bool:
        return self.size is None and not self.hosted
