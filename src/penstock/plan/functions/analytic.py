"""The records of the functions that exist only under OVER."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AnalyticFunction:
    """`ranks`: numbers the rows, as INT in Spark and as a count for the planner. `constants_from`: the first constant argument; None if there is none."""

    name: str
    aliases: tuple[str, ...] = ()
    needs_order: bool = True
    ranks: bool = False
    constants_from: int | None = None
    framed: bool = False
    """Its value depends on a frame."""
    aggregate: bool = False
    """The kernel computes it as the aggregate of the same name over the rows of the frame."""


ANALYTIC = {
    f.name: f
    for f in (
        AnalyticFunction("row_number", ranks=True),
        AnalyticFunction("rank", ranks=True),
        AnalyticFunction("dense_rank", ranks=True),
        AnalyticFunction("percent_rank"),
        AnalyticFunction("cume_dist"),
        AnalyticFunction("ntile", constants_from=0),
        AnalyticFunction("lag", constants_from=1),
        AnalyticFunction("lead", constants_from=1),
        AnalyticFunction("nth_value", constants_from=1, framed=True),
        AnalyticFunction("first_value", ("first",), needs_order=False, framed=True, aggregate=True),
        AnalyticFunction("last_value", ("last",), needs_order=False, framed=True, aggregate=True),
    )
}
_BY_ANY_NAME = {name: f for f in ANALYTIC.values() for name in (f.name, *f.aliases)}


def find_analytic(name: str) -> AnalyticFunction | None:
    """The function with a lower-case name or alias under OVER in a statement."""
    return _BY_ANY_NAME.get(name)
