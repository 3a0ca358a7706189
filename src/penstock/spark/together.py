"""Compiles several queries without state or event time into one job.

A row has the columns of all queries, and `__out` says for each output whether the row belongs to it. Filters and projections of one object read
it once: each row carries the output of every query, so an epoch is one task and not one per query. A query's
expressions are only evaluated for rows that pass its filter. Other queries are branches of a union, each with its own scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.plan import nodes as p
from penstock.plan.predicates import renamed
from penstock.plan.shown import shown
from penstock.spark.compile import Compiled, Compiler, behind
from penstock.spark.guards import Attempt
from penstock.spark.session import jvm
from penstock.spark.translate import translated


class _Chain(NamedTuple):
    """A query that is a projection of a filter of a scan; each part is optional."""

    scan: p.Scan
    predicate: p.Expr | None
    items: tuple[p.Expr, ...]


def compile_together(compiler: Compiler, queries: Sequence[p.Query]) -> Compiled:
    """The job of all queries, with one output each, in their order. All of them read the same object."""
    with translated():
        alone = []
        for i, q in enumerate(queries):
            compiler.guards.query = i
            alone.append(compiler.compile(q))
        if len(alone) == 1:
            return alone[0]
        slots, befores, at = [], [], 0
        for a in alone:
            slots.append([at + n for n in a.slots[0]])
            befores.append(at + a.befores[0] if a.befores[0] >= 0 else -1)
            at += len(a.frame.columns)
        compiler.stamped = any(b >= 0 for b in befores)
        chains = {
            i: c for i, q in enumerate(queries) if (c := _chain(q.root)) and jvm().Guard.allows(alone[i].frame._jdf)
        }
        parts = [_branch(alone, i) for i in range(len(alone)) if i not in chains]
        if chains:
            parts.append(_wide(compiler, alone, chains))
        frame = parts[0]
        for part in parts[1:]:
            frame = frame.unionAll(part)
        outputs = [a.outputs[0] for a in alone]
        by_lag = sorted((t for a in alone for t in a.timed), key=lambda t: t.lag_ms)
        timed = list({t.object_id: t for t in by_lag}.values())
        return Compiled(
            frame,
            outputs,
            slots,
            befores,
            alone[0].objects,
            timed,
            (),
            False,
            compiler.operators,
            guarded=compiler.guards.nodes,
            errors=compiler.guards.channel if compiler.guards.nodes else None,
            queries=len(queries),
        )


def _chain(root: p.Node) -> _Chain | None:
    items = tuple(p.col(c) for c in root.columns)
    node = root
    if isinstance(node, p.Project):
        items = tuple(i.expr for i in node.items)
        node = node.child
    predicate = None
    if isinstance(node, p.Filter):
        predicate = node.predicate
        node = node.child
    return _Chain(node, predicate, items) if isinstance(node, p.Scan) else None


def _branch(alone: Sequence[Compiled], own: int) -> DataFrame:
    """One query over its own scan, with NULLs for the others."""
    select = []
    for i, a in enumerate(alone):
        for n, field in enumerate(a.frame.schema.fields):
            value = F.col(field.name) if i == own else F.lit(None).cast(field.dataType)
            select.append(value.alias(f"o{i}_{n}"))
    out = F.array(*(F.lit(i == own) for i in range(len(alone))))
    chosen: DataFrame = alone[own].frame.select(*select, out.alias("__out"))
    return chosen


def _wide(compiler: Compiler, alone: Sequence[Compiled], chains: dict[int, _Chain]) -> DataFrame:
    """All chains over one scan."""
    scan = next(iter(chains.values())).scan
    sources = list(dict.fromkeys(s for c in chains.values() for _, s in c.scan.fields))
    raw = {source: f"r{n}" for n, source in enumerate(sources)}
    df = compiler.scan(p.Scan(scan.object, scan.object_id, tuple((raw[s], s) for s in sources), scan.is_changelog))
    names = {i: {name: raw[source] for name, source in c.scan.fields} for i, c in chains.items()}
    if any(_fallible(compiler, alone[i]) for i in chains):
        return _attempted(compiler, df, alone, chains, names)
    keep = [_kept(c, names[i]).alias(f"k{i}") for i, c in chains.items()]
    df = df.select("*", *keep)
    select: list[Column] = []
    for i, a in enumerate(alone):
        fields = a.frame.schema.fields
        chain = chains.get(i)
        values = [F.lit(None) for _ in fields] if chain is None else _values(df, a, chain, names[i])
        for n, (value, field) in enumerate(zip(values, fields, strict=True)):
            guarded = F.when(F.col(f"k{i}"), value) if chain is not None else value
            select.append(guarded.cast(field.dataType).alias(f"o{i}_{n}"))
    out = F.array(*(F.col(f"k{i}") if i in chains else F.lit(False) for i in range(len(alone))))
    return df.select(*select, out.alias("__out"))


def _fallible(compiler: Compiler, query: Compiled) -> bool:
    assert query.root is not None
    return any(n is g for n in query.root.walk() for g in compiler.guards.nodes)


def _attempted(
    compiler: Compiler,
    df: DataFrame,
    alone: Sequence[Compiled],
    chains: dict[int, _Chain],
    names: dict[int, dict[str, str]],
) -> DataFrame:
    """The same if a row can fail: each query evaluates the row independently."""
    attempts = []
    for i, chain in chains.items():
        compiler.guards.query = i
        fields = alone[i].frame.schema.fields
        values = [v.cast(f.dataType) for v, f in zip(_values(df, alone[i], chain, names[i]), fields, strict=True)]
        attempts.append(
            Attempt(
                i,
                F.lit(True) if chain.predicate is None else F.expr(renamed(chain.predicate, names[i]).sql()),
                [v.alias(f"o{i}_{n}") for n, v in enumerate(values)],
                chain.predicate,
                chain.items,
                shown(chain.scan),
                names[i],
            )
        )
    df = compiler.guards.wide(df, attempts)
    select: list[Column] = []
    for i, a in enumerate(alone):
        for n, field in enumerate(a.frame.schema.fields):
            name = f"o{i}_{n}"
            select.append(F.col(name) if i in chains else F.lit(None).cast(field.dataType).alias(name))
    out = F.array(*(F.col(f"k{i}") if i in chains else F.lit(False) for i in range(len(alone))))
    return df.select(*select, out.alias("__out"))


def _kept(chain: _Chain, names: dict[str, str]) -> Column:
    if chain.predicate is None:
        return F.lit(True)
    return F.coalesce(F.expr(renamed(chain.predicate, names).sql()), F.lit(False))


def _values(df: DataFrame, alone: Compiled, chain: _Chain, names: dict[str, str]) -> list[Column]:
    texts = [renamed(e, names).sql() for e in chain.items]
    values = [F.expr(text) for text in texts]
    if chain.scan.changelog:
        values.append(F.col("__weight"))
    if alone.befores[0] >= 0:
        assert alone.root is not None
        at = {c: texts[i] for i, c in enumerate(alone.root.columns)}
        values.append(behind(df, {at[t.column]: t.lag_ms for t in alone.times}))
    return values
