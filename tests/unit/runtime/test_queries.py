"""The lifecycle of a streaming query on an engine without a JVM, whose queries copy rows: compile, submit, poll, refusals, backpressure, figures."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import generate_latest
from tests.unit.runtime.engines import Database, database

from penstock.api.exposition import registry
from penstock.errors import PenstockError, fail
from penstock.query import (
    BackpressureStrategy,
    BatchPolicy,
    CompilerCache,
    QueryConfig,
    QueryMetrics,
    QueryState,
    StateStore,
    StreamingQuery,
    swapping,
)
from penstock.serve.change import Change

SOON_S = 20.0
SQL = "SELECT symbol, price FROM trades WHERE price > 1"
# Nothing is committed before it is asked for.
LAZY = BatchPolicy(max_rows=1_000, max_delay=60.0)


class Surface(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with database(tmp_path, monkeypatch) as made:
        made.run("CREATE SOURCE trades (symbol STRING, price BIGINT); CREATE SOURCE quotes (symbol STRING, bid BIGINT)")
        made.engine.start()
        yield Surface(_engine=made.engine, fake=made)


def query(db: Any, sql: str = SQL, **config: Any) -> StreamingQuery:
    return StreamingQuery.compile(sql, QueryConfig(**({"batch_policy": LAZY} | config)), db=db)


def code(error: Any) -> str:
    assert isinstance(error.value, PenstockError)
    return error.value.code


# Compile


def test_metadata_has_the_time_of_every_phase_and_the_pipelines(db: Any) -> None:
    found = query(
        db, "SELECT symbol, count(*) AS n FROM trades WHERE price > 1 GROUP BY symbol HAVING count(*) > 1"
    ).metadata
    assert min(found.parse_time, found.plan_time, found.extract_time, found.compile_time) > 0
    assert (found.compiled_pipeline_count, found.fallback_pipeline_count, found.jit_enabled) == (2, 0, True)


def test_a_join_has_a_pipeline_for_each_input(db: Any) -> None:
    sql = "SELECT t.symbol FROM trades t JOIN quotes q ON t.symbol = q.symbol WITH (unbounded_state = true)"
    assert query(db, sql).metadata.native_pipelines == 3


def test_without_code_generation_every_pipeline_is_a_fallback_with_its_reason(db: Any) -> None:
    found = query(db, jit=False).metadata
    assert (found.compiled_pipeline_count, found.fallbacks) == (0, ("code generation is off",))
    assert not found.jit_enabled


def test_a_python_function_is_a_fallback(db: Any) -> None:
    db._engine._functions["twice"] = (lambda x: 2 * x, "bigint")
    found = query(db, "SELECT Twice(price) AS p FROM trades").metadata
    assert found.fallbacks == ("Twice is a Python function",)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT FROM", "PSK-1001"),
        ("SELECT x FROM trades", "PSK-1004"),
        ("SELECT symbol FROM nothing", "PSK-1002"),
        ("SELECT symbol FROM trades; DROP SOURCE trades", "PSK-1001"),
        ("SELECT symbol FROM trades ERRORS TO bad", "PSK-1012"),
        ("SELECT t.symbol FROM trades t JOIN quotes q ON t.symbol = q.symbol", "PSK-3001"),
    ],
)
def test_what_cannot_run_is_refused_when_it_is_compiled(db: Any, sql: str, expected: str) -> None:
    with pytest.raises(PenstockError) as error:
        query(db, sql)
    assert code(error) == expected


def test_queries_that_mean_the_same_have_one_id_and_one_entry_in_the_cache(db: Any) -> None:
    cache = CompilerCache()
    texts = [
        SQL,
        "select  T.symbol, t.price from TRADES t where (t.price > 1)",
        "SELECT symbol, price FROM trades WHERE price > 2",
    ]
    made = [StreamingQuery.compile(t, db=db, cache=cache) for t in texts]
    assert made[0].id == made[1].id != made[2].id
    assert [q.metadata.cached for q in made] == [False, True, False]
    assert made[1].metadata.compile_time == 0.0
    assert (len(cache), cache.hits, cache.misses, cache.hit_rate) == (2, 1, 2, 1 / 3)


def test_the_cache_keeps_the_plans_that_were_used_last(db: Any) -> None:
    cache, small = CompilerCache(), QueryConfig(max_cache_entries=2)
    for limit in (1, 2, 1, 3):
        StreamingQuery.compile(f"SELECT symbol FROM trades WHERE price > {limit}", small, db=db, cache=cache)
    assert StreamingQuery.compile(
        "SELECT symbol FROM trades WHERE price > 1", small, db=db, cache=cache
    ).metadata.cached
    assert not StreamingQuery.compile(
        "SELECT symbol FROM trades WHERE price > 2", small, db=db, cache=cache
    ).metadata.cached


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"state_store": StateStore.IN_MEMORY}, "PSK-1012"),
        ({"state_store": StateStore.MMAP}, "PSK-1012"),
        ({"max_cache_entries": -1}, "PSK-0009"),
        ({"max_pending": 0}, "PSK-0009"),
        ({"pause_timeout": -1.0}, "PSK-0009"),
    ],
)
def test_a_configuration_that_cannot_be_met_is_refused(config: dict[str, Any], expected: str) -> None:
    with pytest.raises(PenstockError) as error:
        QueryConfig(**config)
    assert code(error) == expected
    with pytest.raises(PenstockError):
        BatchPolicy(max_rows=0)


# Lifecycle


def test_illegal_steps_name_the_state(db: Any) -> None:
    q = query(db)
    steps = {
        s: getattr(q, s)
        for s in ("start", "pause", "resume", "checkpoint", "finish", "flush", "poll_output", "metrics")
    }
    steps["submit"] = lambda: q.submit(("a", 2))
    allowed = {
        QueryState.READY: {"start", "metrics"},
        QueryState.RUNNING: {"pause", "checkpoint", "finish", "flush", "poll_output", "submit", "metrics"},
        QueryState.PAUSED: {"resume", "poll_output", "metrics"},
        QueryState.STOPPED: {"metrics"},
    }

    def refused() -> None:
        for name, step in steps.items():
            if name in allowed[q.state]:
                continue
            with pytest.raises(PenstockError) as error:
                step()
            assert code(error) == "PSK-0006" and q.state.value in str(error.value)

    refused()
    q.start()
    refused()
    q.pause()
    refused()
    q.resume()
    q.stop()
    q.stop()
    refused()


def test_nothing_is_left_of_a_query(db: Any) -> None:
    fake: Database = db.fake
    before = fake.state()
    for end in ("stop", "finish"):
        q = query(db)
        q.start()
        q.submit([("a", 2), ("b", 3)])
        getattr(q, end)()
    after = fake.state()
    assert {k: v for k, v in after.items() if k != "log"} == {k: v for k, v in before.items() if k != "log"}


def test_what_was_submitted_before_a_pause_is_processed_after_it(db: Any) -> None:
    with query(db) as q:
        q.start()
        q.submit(("a", 2))
        q.flush()
        assert [r["symbol"] for c in q.poll_output() for r in c.rows()] == ["a"]
        q.submit(("b", 2))
        q.pause()
        q.poll_output()
        q.resume()
        q.flush(SOON_S)
        assert [r["symbol"] for c in q.poll_output() for r in c.rows()] in (["b"], [])
        assert q.metrics().ring1_events_out == 2


def test_the_pipeline_does_not_start_a_query_that_is_paused(db: Any) -> None:
    with query(db) as q:
        q.start()
        q.pause()
        db._engine.stop()
        db._engine.start()
        assert q._job is None and q.state is QueryState.PAUSED
        db._engine.stop()
        q.resume()
        assert q._job is None
        db._engine.start()
        q.submit(("a", 2))
        q.flush(SOON_S)
        assert [r["symbol"] for c in q.poll_output() for r in c.rows()] == ["a"]


def test_a_new_jvm_does_not_start_a_query_that_is_paused(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, gone = db._engine, fail("PSK-7005", "The JVM exited.")
    with query(db) as q, query(db) as other:
        q.start()
        other.start()
        q.submit([("a", 2), ("b", 3)])
        q.flush(SOON_S)
        before = q.metrics()
        engine._died(gone)
        # The figures of a JVM that has exited are those that were known.
        with monkeypatch.context() as dead:
            dead.setattr(type(db.fake.world.made[0]), "rows_passed", lambda self: (_ for _ in ()).throw(gone))
            assert q.metrics() == before
        engine.start()
        q.pause()
        engine._died(gone)
        engine.start()
        assert q._job is None and q.state is QueryState.PAUSED and other._job is not None
        engine.flush(SOON_S)
        q.resume()
        q.submit(("c", 4))
        q.flush(SOON_S)
        assert [r["symbol"] for c in q.poll_output() for r in c.rows()] == ["a", "b"]
        with pytest.raises(PenstockError, match="PSK-7005"):  # Once, in its place.
            q.poll_output()
        assert [r["symbol"] for c in q.poll_output() for r in c.rows()] == ["c"]
        q.pause()
    assert not engine.jobs.paused


# Submit


@pytest.mark.parametrize(
    "data",
    [
        ("a", 2),
        {"symbol": "a", "price": 2},
        [("a", 2)],
        pa.table({"symbol": ["a"], "price": pa.array([2], pa.int64())}),
        pa.RecordBatch.from_pylist([{"symbol": "a", "price": 2}]),
        pa.table({"symbol": ["a"], "price": pa.array([2], pa.int64())}).to_reader(),
    ],
)
def test_a_row_rows_or_a_batch(db: Any, data: object) -> None:
    with query(db) as q:
        q.start()
        q.submit(data)
        q.flush()
        (change,) = q.poll_output()
        assert change.rows() == [{"symbol": "a", "price": 2}]
        assert q.metrics().ring0_events_in == 1


def test_rows_become_commits_by_the_batch_policy(db: Any) -> None:
    with query(db, batch_policy=BatchPolicy(max_rows=10, max_delay=60.0)) as q:
        q.start()
        q.submit([("a", i) for i in range(9)])
        assert q.metrics().bridge_pending == 9 and q.metrics().bridge_batches_flushed == 0
        q.submit(("a", 9))
        assert [r["price"] for c in q.poll_output(1, SOON_S) for r in c.rows()] == list(range(10))
        assert q.metrics().bridge_batches_flushed == 1


def test_several_sources_are_named(db: Any) -> None:
    with query(db, "SELECT symbol FROM trades UNION ALL SELECT symbol FROM quotes") as q:
        q.start()
        with pytest.raises(PenstockError, match="PSK-0009"):
            q.submit(("a", 1))
        with pytest.raises(PenstockError, match="PSK-1002"):
            q.submit(("a", 1), source="other")
        q.submit(("a", 1), source="Trades")
        q.submit(("b", 1), source="quotes")
        q.flush()
        assert sorted(r["symbol"] for c in q.poll_output() for r in c.rows()) == ["a", "b"]


def test_an_invalid_row_is_refused_and_the_others_are_not(db: Any) -> None:
    with query(db) as q:
        q.start()
        q.submit([("a", 2), ("b", "x")])
        with pytest.raises(PenstockError, match="PSK-5003"):
            q.flush()
        q.flush()
        assert [r["symbol"] for c in q.poll_output() for r in c.rows()] == ["a"]
        assert (q.metrics().ring0_events_in, q.metrics().bridge_batches_flushed) == (1, 1)


def test_rows_of_a_query_are_its_own(db: Any) -> None:
    with query(db) as one, query(db) as other:
        one.start()
        other.start()
        one.submit(("a", 2))
        db.fake.insert("trades", ("b", 3))
        one.flush()
        other.flush()
        assert [len(q.poll_output()) for q in (one, other)] == [1, 0]


def test_a_query_that_is_behind_drops_refuses_or_waits(db: Any) -> None:
    with query(db, max_pending=2, backpressure=BackpressureStrategy.DROP_NEWEST) as q:
        q.start()
        for i in range(5):
            q.submit(("a", i))
        q.flush()
        assert q.metrics().bridge_backpressure_drops == 3
        assert [r["price"] for c in q.poll_output() for r in c.rows()] == [0, 1]
    with query(db, max_pending=2, backpressure=BackpressureStrategy.REFUSE) as q:
        q.start()
        q.submit([("a", 1), ("a", 2)])
        with pytest.raises(PenstockError, match="PSK-5021"):
            q.submit(("a", 3))
    with query(db, max_pending=2, pause_timeout=0.05) as q:
        q.start()
        q.submit([("a", 1), ("a", 2)])
        with pytest.raises(PenstockError, match="PSK-0010"):
            q.submit(("a", 3))
        q.flush()
        q.submit(("a", 3))
        assert q.metrics().ring0_events_in == 3


# Observability


def test_figures_add_up(db: Any) -> None:
    with query(db) as q:
        assert q.metrics().ring0_events_in == 0
        q.start()
        q.submit([("a", i) for i in range(7)])
        q.flush()
        q.pause()
        q.resume()
        q.submit(pa.table({"symbol": ["x"], "price": pa.array([1], pa.int64())}))
        q.flush()
        m = q.metrics()
        assert (m.ring0_events_in, m.ring0_events_out, m.ring0_events_dropped) == (8, 8, 0)
        assert (m.bridge_pending, m.bridge_batches_flushed, m.ring1_batches_processed, m.ring1_events_out) == (
            0,
            2,
            2,
            8,
        )
        assert m.ring0_total_ns >= m.ring0_p99_ns > 0 and m.ring1_total_ns >= 2_000_000
        assert (m.pipelines_compiled, m.pipelines_fallback) == (1, 0)


# Hot swap


def test_rows_before_the_swap_are_of_the_old_version_and_later_ones_of_the_new(db: Any) -> None:
    with query(db, "SELECT symbol FROM trades") as q:
        q.start()
        q.submit(("a", 1))
        new = q.compile_new_version("SELECT symbol, price FROM trades")
        q.swap(new)
        assert new.state is QueryState.STOPPED and q.state is QueryState.RUNNING
        q.submit(("b", 2))
        q.flush()
        assert [c.rows() for c in q.poll_output(1)] == [[{"symbol": "a"}]]
        assert [c.rows() for c in q.poll_output()] == [[{"symbol": "b", "price": 2}]]
        assert q.columns == ("symbol", "price")
        assert (q.metrics().ring0_events_in, q.metrics().ring1_events_out) == (2, 2)


def test_submitting_during_swaps_loses_and_repeats_nothing(db: Any) -> None:
    with query(db, batch_policy=BatchPolicy(max_rows=7, max_delay=0.001)) as q:
        q.start()

        def submit() -> None:
            for i in range(200):
                q.submit(("a", i))

        writer = threading.Thread(target=submit)
        writer.start()
        for _ in range(3):
            q.swap(q.compile_new_version("SELECT symbol, price FROM trades WHERE price > 2"))
        writer.join()
        assert sorted(r["price"] for c in q.finish() for r in c.rows()) == list(range(200))


def test_whoever_polls_during_swaps_gets_every_row_once_and_in_order(db: Any) -> None:
    """The poller waits in the output of a version that is replaced, and goes on with the next one."""
    with query(db, batch_policy=BatchPolicy(max_rows=3, max_delay=0.001)) as q:
        q.start()
        got: list[int] = []
        sent: list[int] = []
        swapped = threading.Event()

        def poll() -> None:
            while not swapped.is_set() or len(got) < len(sent):
                got.extend(r["price"] for c in q.poll_output(timeout=0.2) for r in c.rows())

        def submit() -> None:
            while not swapped.is_set() or len(sent) < 120:
                q.submit(("a", len(sent)))
                sent.append(len(sent))
                if len(sent) % 30 == 0:
                    time.sleep(0.001)  # Lets the others have their turn.

        threads = [threading.Thread(target=poll), threading.Thread(target=submit)]
        for t in threads:
            t.start()
        for _ in range(5):
            q.swap(q.compile_new_version("SELECT symbol, price FROM trades WHERE price > 2"))
        swapped.set()
        for t in reversed(threads):
            t.join(SOON_S)
            assert not t.is_alive()
        assert got == sent
        q.flush(SOON_S)
        m = q.metrics()
        assert {m.ring0_events_in, m.ring0_events_out, m.ring1_events_out} == {len(sent)}
        assert q.poll_output() == [] and not q._output.replaced


def test_the_output_of_an_old_version_can_be_polled_much_later(db: Any) -> None:
    """More of it than fits into the buffer of a reader."""
    limits = db._engine.settings.subscribe
    db._engine.storage.settings = db._engine.settings.model_copy(
        update={"subscribe": limits.model_copy(update={"buffer_messages": 2})}
    )
    before = {k: v for k, v in db.fake.state().items() if k != "log"}
    with query(db, batch_policy=BatchPolicy(max_rows=1, max_delay=60.0)) as q:
        q.start()
        for version in range(3):
            for i in range(6):
                q.submit(("a", 10 * version + i))
                q.flush(SOON_S)
            q.swap(q.compile_new_version(f"SELECT symbol, price FROM trades WHERE price > {version}"))
        assert [r["price"] for c in q.poll_output(4) for r in c.rows()] == [0, 1, 2, 3]
        rest = [r["price"] for c in q.poll_output() for r in c.rows()]
        while more := [r["price"] for c in q.poll_output() for r in c.rows()]:
            rest += more
        assert rest == [4, 5, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25]
    assert {k: v for k, v in db.fake.state().items() if k != "log"} == before


def test_a_query_over_a_stream_that_others_write_cannot_be_swapped(db: Any) -> None:
    db.fake.run("CREATE STREAM prices AS SELECT symbol, price FROM trades")
    with query(db, "SELECT symbol, price FROM prices") as q:
        q.start()
        with pytest.raises(PenstockError, match=r"(?s)PSK-6018.*prices, which others write"):
            q.swap(q.compile_new_version("SELECT symbol, price FROM prices WHERE price >= 0"))
        db.fake.insert("trades", ("a", 1))
        q.flush(SOON_S)
        assert [r["price"] for c in q.poll_output() for r in c.rows()] == [1]


def folded(changes: list[Change], have: Counter[tuple[Any, ...]], last: Change | None = None) -> Change | None:
    """Adds up changes, of one sequence without a gap."""
    for change in changes:
        if last is not None:
            assert (change.seq, change.prev_lsn) == (last.seq + 1, last.lsn)
            assert change.epoch > last.epoch and change.lsn >= last.lsn
        last = change
        for row in change.rows():
            weight = row.pop("__weight", 1)
            have[tuple(row.items())] += weight
            assert have[tuple(row.items())] >= 0, "retracted before it was there"
    return last


TWO = "CREATE TABLE one (k BIGINT PRIMARY KEY, v STRING); CREATE TABLE two (k BIGINT PRIMARY KEY, v STRING)"


def test_results_that_change_become_those_of_the_new_version(db: Any) -> None:
    db.fake.run(TWO)
    db.fake.insert("one", (1, "a"), (2, "b"))
    db.fake.insert("two", (2, "b"), (3, "c"))
    have: Counter[tuple[Any, ...]] = Counter()
    with query(db, "SELECT k, v FROM one") as q:
        q.start()
        q.flush(SOON_S)
        last = folded(q.poll_output(), have)
        q.swap(q.compile_new_version("SELECT k, v FROM two"))
        (change,) = q.poll_output(timeout=SOON_S)
        assert sorted((r["k"], r["__weight"]) for r in change.rows()) == [(1, -1), (3, 1)]
        last = folded([change], have, last)
        db.fake.insert("one", (9, "x"))
        db.fake.insert("two", (4, "d"))
        q.flush(SOON_S)
        last = folded(q.poll_output(), have, last)
        # Other columns: all old rows end, and the new ones begin.
        q.swap(q.compile_new_version("SELECT k FROM two"))
        end, begin = q.poll_output(timeout=SOON_S)
        assert {r["__weight"] for r in end.rows()} == {-1} and {r["__weight"] for r in begin.rows()} == {1}
        last = folded([end, begin], have, last)
        db.fake.insert("two", (5, "e"))
        q.flush(SOON_S)
        folded(q.poll_output(), have, last)
        assert +have == Counter({(("k", k),): 1 for k in (2, 3, 4, 5)})
        assert q.metrics().ring1_events_out == 2 + 1 + 1


def test_swaps_beside_a_writer_and_a_reader_that_never_stop(db: Any) -> None:
    db.fake.run(TWO)
    have: Counter[tuple[Any, ...]] = Counter()
    ended = threading.Event()
    with query(db, "SELECT k, v FROM one") as q:
        q.start()
        problems: list[BaseException] = []

        def write() -> None:
            for n in itertools.count():
                if ended.is_set():
                    break
                db.fake.insert(("one", "two")[n % 2], (n % 7, str(n)))

        def poll() -> None:
            last: Change | None = None
            more: list[Change] = []
            try:
                while not ended.is_set() or q._output.replaced or last is None or more:
                    more = q.poll_output(timeout=0.05)
                    last = folded(more, have, last)
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=write), threading.Thread(target=poll)]
        for t in threads:
            t.start()
        for n in range(6):
            q.swap(q.compile_new_version(f"SELECT k, v FROM {('two', 'one')[n % 2]}"))
        ended.set()
        for t in threads:
            t.join(SOON_S)
            assert not t.is_alive()
        assert problems == []
        q.flush(SOON_S)
        folded(q.poll_output(), have)
        want = {tuple(zip(("k", "v"), row, strict=True)): n for row, n in db.fake.rows("one").items()}
        assert +have == Counter(want)
    assert not db._engine.jobs.paused


def test_a_version_whose_history_is_gone_is_refused(db: Any) -> None:
    db.fake.run("CREATE TABLE one (symbol STRING, price BIGINT)")
    both = "SELECT symbol, price FROM one UNION ALL SELECT symbol, price FROM trades"
    with query(db, both) as q:
        q.start()
        for i in range(3):
            q.submit(("a", i))
            q.flush(SOON_S)
        engine = db._engine
        (source,) = q._sources.values()
        engine.log.trim({source._id: engine.log.head})
        with pytest.raises(PenstockError, match=r"(?s)PSK-5011.*rows of trades"):
            q.swap(q.compile_new_version(both))
        q.submit(("a", 3))
        q.flush(SOON_S)
        engine.log.trim({q._info.id: engine.log.head})  # type: ignore[union-attr]
        assert [r["price"] for c in q.poll_output() for r in c.rows()] == [0, 1, 2, 3]


def test_one_swap_at_a_time_and_none_of_a_query_that_ends(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    db.fake.run(TWO)
    before = {k: v for k, v in db.fake.state().items() if k != "log"}
    building, go_on = threading.Event(), threading.Event()
    found: list[PenstockError] = []

    def built(*_: Any) -> None:
        building.set()
        assert go_on.wait(SOON_S)

    monkeypatch.setattr(swapping, "check_computed", built)
    with query(db, "SELECT k, v FROM one") as q:
        q.start()
        new = q.compile_new_version("SELECT k, v FROM two")

        def swap() -> None:
            try:
                q.swap(new)
            except PenstockError as error:
                found.append(error)

        swapping_thread = threading.Thread(target=swap)
        swapping_thread.start()
        assert building.wait(SOON_S)
        with pytest.raises(PenstockError, match="PSK-6017"):
            q.swap(q.compile_new_version("SELECT k, v FROM two"))
        with pytest.raises(PenstockError, match="PSK-6017"):
            q.swap(new)
        assert q.metrics().ring0_events_in == 0  # It answers meanwhile.
        q.stop()
        go_on.set()
        swapping_thread.join(SOON_S)
        assert not swapping_thread.is_alive()
        assert [e.code for e in found] == ["PSK-0006"] and new.state is QueryState.READY
    assert {k: v for k, v in db.fake.state().items() if k != "log"} == before


@pytest.mark.parametrize("moment", ["built", "still"])
def test_a_jvm_that_exits_during_a_swap_leaves_the_old_version(
    db: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    db.fake.run(TWO)
    db.fake.insert("one", (1, "a"))
    engine, gone = db._engine, fail("PSK-7005", "The JVM exited.")
    before = {k: v for k, v in db.fake.state().items() if k != "log"}
    with query(db, "SELECT k, v FROM one") as q:
        q.start()
        q.flush(SOON_S)
        have: Counter[tuple[Any, ...]] = Counter()
        last = folded(q.poll_output(), have)
        checks = iter([moment == "built", moment == "still"])

        def check(*_: Any) -> None:
            if next(checks, False):
                engine._died(gone)
                engine.check_open()

        new = q.compile_new_version("SELECT k, v FROM two")
        with monkeypatch.context() as patch:
            patch.setattr(swapping, "check_computed", check)
            with pytest.raises(PenstockError, match="PSK-7005"):
                q.swap(new)
        engine.start()
        assert q.state is QueryState.RUNNING and new.state is QueryState.READY
        db.fake.insert("one", (2, "b"))
        q.flush(SOON_S)
        with pytest.raises(PenstockError, match="PSK-7005"):  # Once, in its place.
            q.poll_output()
        last = folded(q.poll_output(), have, last)
        assert +have == Counter({(("k", k), ("v", v)): 1 for k, v in ((1, "a"), (2, "b"))})
        q.swap(new)
        folded(q.poll_output(timeout=SOON_S), have, last)
        assert not +have
    assert {k: v for k, v in db.fake.state().items() if k != "log"} == before


def test_a_swap_resumes_a_query_and_brings_its_batch_policy(db: Any) -> None:
    with query(db) as q:
        q.start()
        q.submit(("a", 2))
        q.pause()
        q.swap(q.compile_new_version(SQL, QueryConfig(batch_policy=BatchPolicy(max_rows=2, max_delay=60.0))))
        assert q.state is QueryState.RUNNING
        q.submit([("a", 3), ("a", 4)])
        rows: list[int] = []
        while len(rows) < 3:
            rows += [r["price"] for c in q.poll_output(1, SOON_S) for r in c.rows()]
        assert rows == [2, 3, 4]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (SQL, "SELECT symbol FROM quotes", "PSK-1016"),
        (SQL, "SELECT symbol FROM trades UNION ALL SELECT symbol FROM quotes", "PSK-1016"),
        (SQL, "SELECT symbol, count(*) AS n FROM trades GROUP BY symbol", "PSK-6018"),
        ("SELECT symbol, count(*) AS n FROM trades GROUP BY symbol", SQL, "PSK-6018"),
    ],
)
def test_a_version_that_cannot_take_over_is_refused_and_the_old_one_runs_on(
    db: Any, old: str, new: str, expected: str
) -> None:
    with query(db, old) as q:
        q.start()
        other = query(db, new)
        with pytest.raises(PenstockError) as error:
            q.swap(other)
        assert code(error) == expected and other.state is QueryState.READY
        q.submit(("a", 2))
        q.flush()
        assert len(q.poll_output()) == 1
    with pytest.raises(PenstockError, match="PSK-0006"):
        q.swap(other)


def test_figures_for_prometheus_have_the_names_of_the_metrics(db: Any) -> None:
    with query(db) as one, query(db) as other:
        one.start()
        other.start()
        one.submit([("a", 2), ("b", 3)])
        one.flush(SOON_S)
        text = generate_latest(registry(db._engine)).decode()
        names = [f.name for f in fields(QueryMetrics)]
        assert len(names) == 14
        for name in names:
            assert len([line for line in text.splitlines() if line.startswith(f"penstock_query_{name}{{")]) == 2
        assert f'penstock_query_ring0_events_in{{query="{one.label}"}} 2.0' in text
        # A scrape does not wait for a query that is being swapped or finished.
        one._lock.acquire()
        waiting = threading.Thread(target=one.figures)
        waiting.start()
        waiting.join(SOON_S)
        assert not waiting.is_alive()
        one._lock.release()
    assert "penstock_query_" not in generate_latest(registry(db._engine)).decode()
