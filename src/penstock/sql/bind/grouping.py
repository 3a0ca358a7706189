"""GROUP BY lists: plain keys, and the product of GROUPING SETS, ROLLUP and CUBE."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

from sqlglot import exp

from penstock.sql.bind.context import Context

Resolve = Callable[[exp.Expression], exp.Expression]
_MAX_SETS = 64


def grouping_sets(
    ctx: Context, group: exp.Expression, resolve: Resolve
) -> tuple[list[exp.Expression], list[list[exp.Expression]] | None]:
    """Returns the keys common to all sets, and the sets of the remaining keys; None for a plain GROUP BY."""
    plain: list[exp.Expression] = []
    factors: list[list[list[exp.Expression]]] = []
    for item in group.expressions:
        if isinstance(item, exp.Rollup):
            factors.append(_rollup(_elements(item.expressions, resolve)))
        elif isinstance(item, exp.Cube):
            factors.append(_cube(_elements(item.expressions, resolve)))
        elif isinstance(item, exp.GroupingSets):
            factors.append(_sets(ctx, item, resolve))
        elif isinstance(item, exp.Tuple):
            plain += [resolve(e) for e in item.expressions]
        else:
            plain.append(resolve(item))
    for key, make in (("rollup", _rollup), ("cube", _cube)):
        for extra in group.args.get(key) or []:
            given = extra.expressions if isinstance(extra, exp.Expression) else []
            if given:
                factors.append(make(_elements(given, resolve)))
            else:
                factors.append(make([[p] for p in plain]))
                plain = []
    for extra in group.args.get("grouping_sets") or []:
        factors.append(_sets(ctx, extra, resolve))
    if group.args.get("totals"):
        raise ctx.fail("PSK-1012", "WITH TOTALS is not supported", group)
    if not factors:
        return plain, None
    sets = [[e for part in combo for e in part] for combo in product(*factors)]
    if len(sets) > _MAX_SETS:
        raise ctx.fail("PSK-1012", f"{len(sets)} grouping sets are too many (at most {_MAX_SETS})", group)
    return plain, sets


def _elements(items: list[exp.Expression], resolve: Resolve) -> list[list[exp.Expression]]:
    return [[resolve(e) for e in i.expressions] if isinstance(i, exp.Tuple) else [resolve(i)] for i in items]


def _rollup(elements: list[list[exp.Expression]]) -> list[list[exp.Expression]]:
    return [[e for part in elements[:n] for e in part] for n in range(len(elements), -1, -1)]


def _cube(elements: list[list[exp.Expression]]) -> list[list[exp.Expression]]:
    out = []
    for n in range(len(elements), -1, -1):
        out += [[e for part in combo for e in part] for combo in combinations(elements, n)]
    return out


def _sets(ctx: Context, node: exp.Expression, resolve: Resolve) -> list[list[exp.Expression]]:
    out: list[list[exp.Expression]] = []
    for item in node.expressions:
        if isinstance(item, exp.Rollup):
            out += _rollup(_elements(item.expressions, resolve))
        elif isinstance(item, exp.Cube):
            out += _cube(_elements(item.expressions, resolve))
        elif isinstance(item, exp.GroupingSets):
            out += _sets(ctx, item, resolve)
        elif isinstance(item, exp.Tuple):
            out.append([resolve(e) for e in item.expressions])
        else:
            out.append([resolve(item)])
    return out
