"""Whether two bags of rows are the same."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from tests.generated.schemas import Row

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def plain(value: Any) -> Any:
    """Times as epoch microseconds, numbers of one value equal whatever their type, floats to ten digits."""
    match value:
        case bool() | str() | None:
            return value
        case dt.datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            return (moment - _EPOCH) // dt.timedelta(microseconds=1)
        case Decimal() | float():
            number = float(value)
            if math.isnan(number):
                return "NaN"
            return 0.0 if abs(number) < 1e-9 else float(f"{number:.10g}")
        case list() | tuple():
            return tuple(plain(v) for v in value)
        case dict():
            return tuple((k, plain(v)) for k, v in value.items())
        case _:
            return value


def bag(rows: Iterable[Sequence[Any]]) -> Counter[Row]:
    return Counter(tuple(plain(v) for v in row) for row in rows)


def difference(got: Counter[Row], wanted: Counter[Row]) -> tuple[Counter[Row], Counter[Row]] | None:
    """(rows too many, rows missing), or None where both are the same up to the last digits of floats."""
    if got == wanted:
        return None
    more, less = got - wanted, wanted - got
    rest = list(less.elements())
    for row in list(more.elements()):
        near = next((r for r in rest if _near(row, r)), None)
        if near is None:
            return more, less
        rest.remove(near)
    return (more, less) if rest else None


def _near(a: Row, b: Row) -> bool:
    return len(a) == len(b) and all(_close(x, y) for x, y in zip(a, b, strict=True))


def _close(x: Any, y: Any) -> bool:
    if isinstance(x, float) and isinstance(y, (int, float)) and not isinstance(y, bool):
        return math.isclose(x, y, rel_tol=1e-8, abs_tol=1e-8)
    if isinstance(x, tuple) and isinstance(y, tuple):
        return _near(x, y)
    return bool(x == y)
