"""INTERVAL literals and durations as plan intervals."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from penstock.plan.nodes import Interval

_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SHORT = {
    "US": "MICROSECOND",
    "MS": "MILLISECOND",
    "S": "SECOND",
    "SEC": "SECOND",
    "M": "MINUTE",
    "MIN": "MINUTE",
    "H": "HOUR",
    "D": "DAY",
    "W": "WEEK",
}
_DURATION = re.compile(r"\s*([+-]?\s*\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def unit_of(word: str) -> str | None:
    """The singular, upper-case unit of a word: `seconds`, `s`, `SECOND`."""
    u = word.upper()
    if u in _SHORT:
        return _SHORT[u]
    for candidate in (u, u.removesuffix("S")):
        if candidate in _MICROS or candidate in _MONTHS:
            return candidate
    return None


def of(amount: str, unit: str) -> Interval | None:
    """`amount` of `unit`. None if either is invalid or the result is not a whole number of microseconds or months."""
    known = unit_of(unit)
    try:
        number = Decimal(amount.replace(" ", ""))
    except InvalidOperation:
        return None
    if known is None or not number.is_finite():
        return None
    scaled = number * (_MONTHS.get(known) or _MICROS[known])
    if scaled != scaled.to_integral_value():
        return None
    return Interval(months=int(scaled)) if known in _MONTHS else Interval(micros=int(scaled))


def from_text(text: str) -> Interval | None:
    """`10 seconds`, `5s`, `1 hour 30 minutes`: a sum of amounts."""
    pos, months, micros = 0, 0, 0
    while pos < len(text):
        m = _DURATION.match(text, pos)
        part = of(m.group(1), m.group(2)) if m else None
        if m is None or part is None:
            return None
        months, micros, pos = months + part.months, micros + part.micros, m.end()
    if pos == 0 or (months and micros):
        return None
    return Interval(months, micros)


_WORDS = frozenset({*_MICROS, *_MONTHS} - {"QUARTER"})


def of_duration(node: exp.Expression) -> Interval | None:
    """An argument of Spark's window functions: text such as `1 hour 30 minutes`, or a number of microseconds."""
    if not isinstance(node, exp.Literal):
        return None
    if not node.is_string:
        return Interval(micros=int(node.name)) if node.is_int else None
    words = node.name.lower().strip()
    text = words.removeprefix("interval ")
    if any(w.upper().removesuffix("S") not in _WORDS for w in re.findall("[a-z]+", text)):
        return None
    return from_text(text)


def from_node(node: exp.Expression) -> Interval | None:
    """The constant interval of a parsed expression: a literal, or a sum, difference or negation of literals."""
    if isinstance(node, exp.Paren):
        return from_node(node.this)
    if isinstance(node, exp.Neg):
        inner = from_node(node.this)
        return Interval(-inner.months, -inner.micros) if inner else None
    if isinstance(node, (exp.Add, exp.Sub)):
        left, right = from_node(node.this), from_node(node.expression)
        if left is None or right is None:
            return None
        sign = 1 if isinstance(node, exp.Add) else -1
        out = Interval(left.months + sign * right.months, left.micros + sign * right.micros)
        return None if out.months and out.micros else out
    if not isinstance(node, exp.Interval):
        return None
    amount, unit = node.this, node.args.get("unit")
    if isinstance(amount, (exp.Add, exp.Sub)):
        # The stock parser sometimes reads `INTERVAL '1' HOUR + x` as an interval of a sum.
        return None
    if isinstance(amount, exp.Neg) and isinstance(amount.this, exp.Literal):
        text = "-" + amount.this.name
    elif isinstance(amount, exp.Literal):
        text = amount.name
    else:
        return None
    if unit is None:
        return from_text(text)
    if isinstance(unit, exp.IntervalSpan):
        return _span(text, unit.this.name.upper(), unit.expression.name.upper())
    return of(text, unit.name)


def _span(text: str, first: str, last: str) -> Interval | None:
    if (first, last) == ("YEAR", "MONTH"):
        m = re.fullmatch(r"([+-])?(\d+)-(\d+)", text.strip())
        if not m:
            return None
        months = int(m.group(2)) * 12 + int(m.group(3))
        return Interval(months=-months if m.group(1) == "-" else months)
    fields = ("DAY", "HOUR", "MINUTE", "SECOND")
    if first not in fields or last not in fields:
        return None
    numbers = re.split(r"[ :]+", text.strip().lstrip("+-"))
    units = fields[fields.index(first) : fields.index(last) + 1]
    if len(numbers) != len(units):
        return None
    parts = [of(n, u) for n, u in zip(numbers, units, strict=True)]
    if any(p is None for p in parts):
        return None
    micros = sum(p.micros for p in parts if p)
    return Interval(micros=-micros if text.strip().startswith("-") else micros)


def millis(interval: Interval) -> int | None:
    """Whole milliseconds, or None for calendar months and fractions."""
    if interval.months or interval.micros % 1000:
        return None
    return interval.micros // 1000
