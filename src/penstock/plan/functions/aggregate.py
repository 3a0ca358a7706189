"""The record of an aggregate function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum


class Path(Enum):
    """How a continuous query maintains a value."""

    KERNEL = "incremental"
    """The kernel has an accumulator of this name, to which rows can be added and from which they can be retracted."""
    REWRITTEN = "as another call"
    """The binder replaces the call with one of another function."""
    RECOMPUTED = "recomputed by Spark"
    """Spark's own implementation recomputes the value from all rows of a changed group."""
    REFUSED = "refused"
    """The value is random, so it could not be retracted."""


class Keeps(Enum):
    """The state of a group for one call."""

    VALUE = "a value"
    CANDIDATES = "a value; all values if rows can be retracted"
    DIFFERENT = "each different value"
    WHOLE = "all values"


class OfNothing(Enum):
    """The value over no rows."""

    NULL = "NULL"
    ZERO = "0"
    EMPTY = "an empty array"
    UNKNOWN = "Spark's"
    """Only Spark knows it."""


class Result(Enum):
    """The type of the result, as far as it is known without Spark."""

    BIGINT = "BIGINT"
    NUMBER = "a number"
    BOOLEAN = "BOOLEAN"
    SAME = "that of the first argument"
    ALIKE = "a number if the first argument is one"
    TEXT = "STRING"
    LIST = "an array"
    OPEN = "Spark's"

    def is_number(self, argument: bool | None) -> bool | None:
        """Whether the result is a number or a boolean, given whether the first argument is; None if that is not known."""
        match self:
            case Result.BIGINT | Result.NUMBER | Result.BOOLEAN:
                return True
            case Result.TEXT | Result.LIST:
                return False
            case Result.SAME | Result.ALIKE:
                return argument
            case Result.OPEN:
                return None


class Accepts(Enum):
    """The type to which Spark casts an argument that is a string."""

    ANYTHING = None
    NUMBERS = "DOUBLE"
    BOOLEANS = "BOOLEAN"


@dataclass(frozen=True)
class AggregateFunction:
    """Everything that the planner, the compiler and the documentation know about an aggregate function.

    `name` is canonical: the plan, the kernel and EXPLAIN use it even if the user wrote one of the `aliases`.
    """

    name: str
    aliases: tuple[str, ...] = ()
    path: Path = Path.KERNEL
    native: bool = False
    """Spark's own streaming aggregate gives the same value, because it does not depend on the order of rows."""
    keeps: Keeps = Keeps.VALUE
    of_nothing: OfNothing = OfNothing.NULL
    result: Result = Result.NUMBER
    accepts: Accepts = Accepts.ANYTHING
    most: int | None = None
    """The number of arguments of the incremental form. A call with more is recomputed. None: no call has more."""
    decides: int | None = 0
    """The argument whose NULL excludes a row; -1 is the last. None: a NULL counts as a value."""
    constant: str | None = None
    """The name of the second argument, if it must be a constant."""
    counts: bool = False
    """The value depends on how often each value occurs, and the incremental form has no DISTINCT."""
    ordered: bool = False
    """The value depends on ORDER BY inside the call."""
    within: str | None = None
    """The name under which WITHIN GROUP (ORDER BY x) gives the first argument. The direction counts."""
    overflows: bool = False
    """The value can be too large for its type, which is an error of the group."""
    typed: Callable[[Sequence[str]], str] | None = None
    """A Spark call of the same type, where Spark does not accept the call itself without its ORDER BY."""

    @property
    def edge(self) -> bool:
        """The value is that of one row, chosen by arrival, unchanged, even if NULL."""
        return self.decides is None

    @property
    def work(self) -> str:
        """The cost of an epoch. Over append-only rows, candidates cost no more than a value."""
        match self.keeps:
            case Keeps.VALUE:
                return "O(diff)"
            case Keeps.CANDIDATES | Keeps.DIFFERENT:
                return "O(diff · log n)"
            case Keeps.WHOLE:
                return "O(group)"

    def typed_call(self, args: Sequence[str]) -> str:
        """The Spark call from which Spark derives the type of the result."""
        return self.typed(args) if self.typed is not None else f"{self.name}({', '.join(args) or '*'})"
