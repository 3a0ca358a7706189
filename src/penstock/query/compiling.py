"""Compiles text to a plan, its pipelines and Spark's analysis, and times each step."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.catalog.objects import Column
from penstock.errors import fail
from penstock.plan import nodes as p
from penstock.plan.repeats import canonical
from penstock.query.cache import CompilerCache, Facts
from penstock.query.config import QueryConfig
from penstock.query.figures import QueryMetadata
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.limits import state_limits
from penstock.runtime.statements.faithful import check_query
from penstock.sql import statements as st
from penstock.sql.bind import bind
from penstock.sql.query import ParsedQuery
from penstock.sql.script import parse_script

_OFF = "code generation is off"


@dataclass(frozen=True)
class CompiledQuery:
    """A query before it runs. `text` is the statement from which its stream is replanned in a new JVM."""

    parsed: ParsedQuery
    text: str
    query: p.Query
    columns: tuple[Column, ...]
    number: int
    metadata: QueryMetadata


def compile_query(engine: Engine, sql: str, config: QueryConfig, cache: CompilerCache) -> CompiledQuery:
    clock = _Clock()
    text = f"CREATE STREAM query AS {sql}"
    parsed = _parsed(engine, text)
    parse_time = clock.lap()
    query = bind(parsed, engine.catalog)
    meaning = canonical(query)
    key = f"{meaning or sql} {query.names} {json.dumps(sorted(parsed.options.items()))} {config.jit}"
    plan_time = clock.lap()
    pipes = list(pipelines(query.root))
    extract_time = clock.lap()
    facts = cache.find(key)
    cached = facts is not None
    if facts is None:
        check_query(engine, parsed)
        facts = _facts(engine, query, parsed, pipes, config.jit)
        if meaning is not None:
            cache.keep(key, facts, config.max_cache_entries)
    metadata = QueryMetadata(
        parse_time=parse_time,
        plan_time=plan_time,
        extract_time=extract_time,
        compile_time=0.0 if cached else clock.lap(),
        native_pipelines=facts.native,
        kernel_pipelines=facts.kernel,
        interpreted_pipelines=len(facts.fallbacks),
        fallbacks=facts.fallbacks,
        ring1_operator_count=facts.operators,
        jit_enabled=config.jit,
        cached=cached,
    )
    options = dict(parsed.options) | {"lifecycle": "true"} | ({} if config.jit else {"jit": "false"})
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])
    return CompiledQuery(replace(parsed, options=options), text, query, facts.columns, number, metadata)


def _parsed(engine: Engine, text: str) -> ParsedQuery:
    statements = parse_script(text, programs=engine.settings.security.allow_programs)
    if len(statements) != 1 or not isinstance(statements[0], st.CreateStream):
        raise fail("PSK-1001", "A streaming query is one SELECT.")
    parsed = statements[0].query
    if parsed.late_to is not None or parsed.errors_to is not None:
        raise fail("PSK-1012", "A streaming query has no side streams.", hint="CREATE STREAM … LATE DATA TO … has.")
    return parsed


def pipelines(root: p.Node) -> Iterator[list[p.Node]]:
    """The chains of stateless steps between stateful operators."""
    starts = [root]
    while starts:
        node = starts.pop()
        if not isinstance(node, p.Linear):
            starts += node.children
            continue
        chain: list[p.Node] = []
        left: list[p.Node] = [node]
        while left:
            n = left.pop()
            if isinstance(n, p.Linear):
                chain.append(n)
                left += n.children
            else:
                starts.append(n)
        yield chain


def _facts(engine: Engine, query: p.Query, parsed: ParsedQuery, pipes: list[list[p.Node]], jit: bool) -> Facts:
    compiled, _ = engine.jobs.planner.compile(
        None, "compile", query, engine.catalog.by_id, state_limits(parsed.options), "it has a lifecycle of its own"
    )
    assert compiled.root is not None
    # Compiling rebuilds the nodes in the same tree.
    pairs = zip(query.root.walk(), compiled.root.walk(), strict=True)
    guarded = {id(n) for n, c in pairs if any(c is g for g in compiled.guarded)}
    known = engine.functions
    native = kernel = 0
    fallbacks: list[str] = []
    for chain in pipes:
        why = _OFF if not jit else _python(chain, known.__contains__)
        if why is not None:
            fallbacks.append(why)
        elif any(id(n) in guarded for n in chain):
            kernel += 1
        else:
            native += 1
    return Facts(native, kernel, tuple(fallbacks), len(compiled.operators), compiled.outputs[0].columns)


def _python(chain: list[p.Node], known: Callable[[str], bool]) -> str | None:
    """The Python function that a chain calls, which is why it is not generated code."""
    for n in chain:
        for e in n.expressions:
            for call in e.node.find_all(exp.Anonymous):
                if known(call.name.lower()):
                    return f"{call.name} is a Python function"
    return None


class _Clock:
    def __init__(self) -> None:
        self._at = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self._at = self._at, time.perf_counter()
        return self._at - before
