"""The PostgreSQL sink against a real server, without Spark."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.postgres import PASSWORD, PostgresServer
from tests.unit.runtime.storing import eventually, make, opened, part

from penstock.catalog.objects import Connector, Kind
from penstock.connect import Access, Opening, Sink, make_sink
from penstock.errors import PenstockError
from penstock.runtime.connect.sinks import SinkRunner
from penstock.runtime.lifecycle import SinkState

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("__weight", pa.int64())])
_numbers = itertools.count(1)

Table = Callable[..., str]


@pytest.fixture
def table(postgres: PostgresServer) -> Table:
    """Creates a table with a fresh name."""

    def make(columns: str = "k bigint PRIMARY KEY, v text") -> str:
        name = f"target{next(_numbers)}"
        postgres.execute(f"CREATE TABLE {name} ({columns})")
        return name

    return make


def sink_of(postgres: PostgresServer, table: str, *, changelog: bool = False, **options: str) -> Sink:
    address = {"url": postgres.url, "password": PASSWORD, "table": table}
    return make_sink(Connector("postgres", address | options), changelog=changelog)


def opening(table: str, schema: pa.Schema = SCHEMA, **more: Any) -> Opening:
    return Opening(**({"identity": f"sink of {table}", "schema": schema, "exactly_once": True} | more))


def changes(*rows: tuple[int | None, str | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in rows], SCHEMA)


def deliver(sink: Sink, epochs: dict[int, pa.Table], *, commit: bool = True) -> None:
    first, last = min(epochs), max(epochs)
    sink.begin(first)
    for epoch, rows in epochs.items():
        sink.write(epoch, epoch, rows)
    sink.pre_commit(last)
    if commit:
        sink.commit(last)


def rows_of(postgres: PostgresServer, table: str) -> list[tuple[Any, ...]]:
    return postgres.execute(f"SELECT * FROM {table} ORDER BY 1, 2")


def epoch_of(postgres: PostgresServer, table: str) -> int:
    ((epoch,),) = postgres.execute(f"SELECT epoch FROM penstock_sinks WHERE sink = 'sink of {table}'")
    return int(epoch)


def test_rows_and_epoch_are_committed_together(postgres: PostgresServer, table: Table) -> None:
    name = table("k bigint, v text")
    sink = sink_of(postgres, name)
    assert sink.open(opening(name)) == 0
    deliver(sink, {1: changes((1, "a", 1), (2, None, 2)), 3: changes((3, "", 1))})
    assert rows_of(postgres, name) == [(1, "a"), (2, None), (2, None), (3, "")]
    deliver(sink, {4: changes((4, "d", 1))}, commit=False)
    assert len(rows_of(postgres, name)) == 4 and epoch_of(postgres, name) == 3
    sink.rollback(4)
    deliver(sink, {4: changes((4, "e", 1))})
    sink.close()
    assert rows_of(postgres, name)[-1] == (4, "e") and epoch_of(postgres, name) == 4
    # A crash before the position was written down: the server knows better.
    again = sink_of(postgres, name)
    assert again.open(opening(name, committed=1)) == 4
    again.close()


def test_a_transaction_that_is_not_committed_is_gone(postgres: PostgresServer, table: Table) -> None:
    name = table()
    sink = sink_of(postgres, name)
    sink.open(opening(name))
    deliver(sink, {1: changes((1, "a", 1))}, commit=False)
    sink.close()
    assert rows_of(postgres, name) == [] and epoch_of(postgres, name) == 0


def test_every_type_arrives(postgres: PostgresServer, table: Table) -> None:
    name = table(
        "i int, f real, d double precision, b boolean, s text, n numeric(20, 3), day date, at timestamptz, local timestamp, "
        "raw bytea, list jsonb, map json, item text"
    )
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "i": (pa.int32(), [-5, None]),
        "f": (pa.float32(), [0.1, float("inf")]),
        "d": (pa.float64(), [0.1 + 0.2, float("nan")]),
        "b": (pa.bool_(), [True, None]),
        "s": (pa.string(), ['quo"te, comma\nand \\. line', "\\N"]),
        "n": (pa.decimal128(20, 3), [Decimal("12345678901234567.891"), None]),
        "day": (pa.date32(), [date(1969, 7, 20), None]),
        "at": (pa.timestamp("us", tz="UTC"), [datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), None]),
        "local": (pa.timestamp("us"), [datetime(1900, 1, 2, 3, 4, 5), None]),
        "raw": (pa.binary(), [b"\x00\xff\\", b""]),
        "list": (pa.list_(pa.int64()), [[1, None], []]),
        "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None]),
        "item": (pa.struct([("x", pa.string())]), [{"x": "y"}, None]),
    }
    batch = pa.table({n: pa.array(v, t) for n, (t, v) in values.items()})
    sink = sink_of(postgres, name)
    sink.open(opening(name, batch.schema))
    deliver(sink, {1: batch})
    sink.close()
    first, second = postgres.execute(f"SELECT * FROM {name} ORDER BY i NULLS LAST")
    expected = [v[0] for _, v in values.values()]
    expected[1] = first[1]
    expected[11], expected[12] = {"a": 1}, '{"x":"y"}'
    assert list(first) == expected and first[1] == pytest.approx(0.1)
    assert second[4] == "\\N" and second[9] == b"" and second[10] == [] and second[11:] == (None, None)
    assert str(second[2]) == "nan" and second[1] == float("inf") and second[5:9] == (None, None, None, None)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_changelog_is_applied(postgres: PostgresServer, table: Table, exactly_once: bool) -> None:
    name = table()
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'before'), (9, 'mine')")
    sink = sink_of(postgres, name, changelog=True, mode="upsert")
    sink.open(opening(name, exactly_once=exactly_once))
    # The first transaction takes over what is there.
    deliver(sink, {1: changes((1, "a", 1), (2, "b", 1), (3, "c", 1))})
    deliver(
        sink,
        {
            2: changes((1, "a", -1), (1, "A", 1), (2, "b", -1), (4, "d", 1)),
            3: changes((4, "d", -1), (4, "D", 1), (5, "e", 1)),
            4: changes((5, "e", -1)),
        },
    )
    assert rows_of(postgres, name) == [(1, "A"), (3, "c"), (4, "D"), (9, "mine")]
    deliver(sink, {5: changes((3, "c", -1), (8, "x", -1))})
    sink.close()
    assert rows_of(postgres, name) == [(1, "A"), (4, "D"), (9, "mine")]


def test_two_rows_with_one_key_are_an_error(postgres: PostgresServer, table: Table) -> None:
    name = table()
    sink = sink_of(postgres, name, changelog=True, mode="upsert", key="k")
    sink.open(opening(name))
    for bad in (
        {1: changes((1, "a", 1), (1, "b", 1))},
        {1: changes((1, "a", 2))},
        {1: changes((1, "a", 1)), 2: changes((1, "b", 1))},
    ):
        with pytest.raises(PenstockError, match=r"PSK-5006.*more than one row with k = 1"):
            deliver(sink, bad)
        sink.rollback(1)
    with pytest.raises(PenstockError, match=r"PSK-5006.*NULL in its key"):
        deliver(sink, {1: changes((None, "a", 1))})
    sink.rollback(1)
    deliver(sink, {1: changes((1, "a", 1))})
    with pytest.raises(PenstockError, match=r"PSK-5006.*more than one row with k = 1"):
        deliver(sink, {2: changes((1, "b", 1))})
    sink.close()
    assert rows_of(postgres, name) == [(1, "a")] and epoch_of(postgres, name) == 1


def test_a_repeated_epoch_is_no_error_without_exactly_once(postgres: PostgresServer, table: Table) -> None:
    name = table("K bigint, v text, UNIQUE (k)")
    sink = sink_of(postgres, name, changelog=True, mode="upsert", key="K")
    sink.open(opening(name, exactly_once=False, committed=1))
    for _ in range(2):
        deliver(sink, {2: changes((1, "a", 1), (2, "b", 1))})
    sink.close()
    assert rows_of(postgres, name) == [(1, "a"), (2, "b")]


def test_a_key_may_be_the_whole_row_and_have_several_columns(postgres: PostgresServer, table: Table) -> None:
    name = table("v text, k bigint, PRIMARY KEY (v, k)")
    sink = sink_of(postgres, name, changelog=True, mode="upsert")
    sink.open(opening(name))
    deliver(sink, {1: changes(*((k, "x", 1) for k in range(3000)))})
    deliver(sink, {2: changes((1, "x", -1), (1, "y", 1), *((k, "x", -1) for k in range(2, 3000)))})
    sink.close()
    assert rows_of(postgres, name) == [("x", 0), ("y", 1)]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("k bigint", {}, "there is no column v"),
        ("k bigint, v text", {"mode": "upsert"}, "has no primary key"),
        ("k bigint, v text", {"mode": "upsert", "key": "k"}, r"has no unique index on \(k\)"),
        ("k bigint PRIMARY KEY, v text", {"mode": "upsert", "key": "nix"}, "no key column nix"),
        ("k bigint, v text", {"epochs": "no_schema.epochs"}, "no_schema"),
    ],
)
def test_what_does_not_fit_is_refused(
    postgres: PostgresServer, table: Table, columns: str, options: dict[str, str], message: str
) -> None:
    name = table(columns)
    sink = sink_of(postgres, name, **options)
    with pytest.raises(PenstockError, match=message):
        sink.open(opening(name))
    sink.close()


def test_nested_values_are_json_whatever_they_hold(postgres: PostgresServer, table: Table) -> None:
    name = table("v jsonb")
    inner = pa.struct(
        [("x", pa.list_(pa.float64())), ("m", pa.map_(pa.string(), pa.binary())), ("n", pa.decimal128(5, 2))]
    )
    row = {"x": [float("nan"), float("-inf"), 0.5], "m": [("a", b"\x00\xff")], "n": Decimal("1.25")}
    batch = pa.table({"v": pa.array([row], inner)})
    sink = sink_of(postgres, name)
    sink.open(opening(name, batch.schema))
    deliver(sink, {1: batch})
    sink.close()
    assert postgres.execute(f"SELECT v FROM {name}") == [
        ({"x": ["NaN", "-Infinity", 0.5], "m": {"a": "AP8="}, "n": 1.25},)
    ]


def test_nested_values_need_a_column_for_json(postgres: PostgresServer, table: Table) -> None:
    name = table("l bigint[]")
    sink = sink_of(postgres, name)
    with pytest.raises(PenstockError, match="nested column l"):
        sink.open(opening(name, pa.schema([("l", pa.list_(pa.int64()))])))
    sink.close()
    with pytest.raises(PenstockError, match="there is no table nowhere"):
        sink_of(postgres, "nowhere").open(opening("nowhere"))


def test_a_server_that_has_lost_epochs_is_refused(postgres: PostgresServer, table: Table) -> None:
    name = table()
    sink = sink_of(postgres, name)
    sink.open(opening(name))
    deliver(sink, {5: changes((1, "a", 1))})
    sink.close()
    for told in (f"UPDATE penstock_sinks SET epoch = 4 WHERE sink = 'sink of {name}'", "DELETE FROM penstock_sinks"):
        postgres.execute(told)
        with pytest.raises(PenstockError, match="PSK-5017"):
            sink_of(postgres, name).open(opening(name, committed=5))


def test_a_second_copy_of_the_database_is_kept_out(postgres: PostgresServer, table: Table) -> None:
    name = table()
    one, other = sink_of(postgres, name), sink_of(postgres, name)
    for sink in (one, other):
        sink.open(opening(name))
    deliver(one, {1: changes((1, "a", 1))})
    with pytest.raises(PenstockError, match="PSK-5015"):
        deliver(other, {1: changes((1, "a", 1))})
    for sink in (one, other):
        sink.close()
    assert rows_of(postgres, name) == [(1, "a")]


def test_a_call_that_waits_for_a_lock_can_be_cancelled(postgres: PostgresServer, table: Table) -> None:
    name = table()
    sink = sink_of(postgres, name)
    sink.open(opening(name))
    with psycopg.connect(postgres.url, password=PASSWORD) as holder:
        holder.execute(f"LOCK TABLE {name}")
        sink.begin(1)
        caught: list[PenstockError] = []

        def write() -> None:
            try:
                sink.write(1, 1, changes((1, "a", 1)))
            except PenstockError as error:
                caught.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        while not holder.execute("SELECT FROM pg_locks WHERE NOT granted").rowcount:
            pass
        sink.cancel()
        thread.join(30)
        assert not thread.is_alive() and caught[0].code == "PSK-5002"
    sink.close()
    # The lock on the record was released with the connection.
    again = sink_of(postgres, name)
    assert again.open(opening(name)) == 0
    deliver(again, {1: changes((1, "a", 1))})
    again.close()
    assert rows_of(postgres, name) == [(1, "a")]


def test_secrets_are_not_shown(postgres: PostgresServer) -> None:
    sink = sink_of(postgres, "t", user="nobody_here")
    with pytest.raises(PenstockError, match="PSK-5002") as refused:
        sink.open(opening("t"))
    assert PASSWORD not in str(refused.value)


def test_a_server_that_goes_away_gets_every_row_once(postgres: PostgresServer, table: Table, tmp_path: Path) -> None:
    name = table("k bigint, v text")
    address = {"url": postgres.url, "password": PASSWORD, "table": name}
    with opened(tmp_path) as storage:
        stream = make(storage, "s", Kind.STREAM, changelog=False)
        sink = make(
            storage,
            "out",
            Kind.SINK,
            changelog=False,
            depends_on=(stream.id,),
            connector=Connector("postgres", address),
            identity="away",
        )
        runner = SinkRunner(storage, sink, Access, lambda: None)
        keys = itertools.count()
        for _ in range(2):
            for _ in range(5):
                storage.commit([part(stream, (next(keys), "x"))])
            postgres.stop()
            storage.commit([part(stream, (next(keys), "x"))])
            eventually(lambda: runner.state is SinkState.RETRYING, "the failure", 30)
            assert runner.error is not None and runner.error.code == "PSK-5002"
            postgres.start()
            assert runner.settle(time.monotonic() + 60)
        runner.stop()
    assert [k for k, _ in rows_of(postgres, name)] == list(range(next(keys)))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_server_that_is_killed_at_a_step_gets_every_row_once(
    postgres: PostgresServer, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    armed: list[str] = []

    def kill(step: str) -> None:
        if step in armed:
            postgres.stop()
            armed.clear()

    name = table()
    changelog = mode == "upsert"
    connector = Connector("postgres", {"url": postgres.url, "password": PASSWORD, "table": name, "mode": mode})
    with opened(tmp_path) as storage:
        stream = make(storage, "s", Kind.VIEW if changelog else Kind.STREAM, changelog=changelog)
        more: dict[str, Any] = {"depends_on": (stream.id,), "connector": connector, "identity": f"killed {mode}"}
        sink = make(storage, "out", Kind.SINK, changelog=changelog, **more)
        runner = SinkRunner(storage, sink, Access, lambda: None)
        assert runner.settle(time.monotonic() + 60)
        monkeypatch.setattr("penstock.runtime.connect.sinks.crash_point", kill)
        for k, step in enumerate(("begun", "written", "prepared", "committed", "announced")):
            armed.append(f"sink.{step}")
            storage.commit([part(stream, (k, "x", 1) if changelog else (k, "x"))])
            eventually(lambda: not armed, "the kill", 30)
            postgres.start()
            assert runner.settle(time.monotonic() + 60)
            assert rows_of(postgres, name) == [(i, "x") for i in range(k + 1)]
        runner.stop()


def test_a_commit_whose_answer_is_lost_is_not_repeated(
    postgres: PostgresServer, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = table("k bigint, v text")
    commit, lost = psycopg.Connection.commit, [True]

    def cut(connection: psycopg.Connection[Any]) -> None:
        commit(connection)
        found = connection.execute(f"SELECT FROM {name} LIMIT 1").rowcount
        commit(connection)
        if found and lost:
            lost.clear()
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    connector = Connector("postgres", {"url": postgres.url, "password": PASSWORD, "table": name})
    with opened(tmp_path) as storage:
        stream = make(storage, "s", Kind.STREAM, changelog=False)
        more: dict[str, Any] = {"depends_on": (stream.id,), "connector": connector, "identity": "in doubt"}
        sink = make(storage, "out", Kind.SINK, changelog=False, **more)
        monkeypatch.setattr(psycopg.Connection, "commit", cut)
        runner = SinkRunner(storage, sink, Access, lambda: None)
        for k in range(3):
            storage.commit([part(stream, (k, "x"))])
            assert runner.settle(time.monotonic() + 60)
        runner.stop()
    assert not lost and rows_of(postgres, name) == [(k, "x") for k in range(3)]


def test_exactly_once_needs_a_table_that_survives_a_crash(postgres: PostgresServer, table: Table) -> None:
    name = table()
    postgres.execute(f"ALTER TABLE {name} SET UNLOGGED", "ALTER ROLE tester SET synchronous_commit = off")
    try:
        sink = sink_of(postgres, name)
        with pytest.raises(PenstockError, match=rf"PSK-5031.*{name} is unlogged"):
            sink.open(opening(name))
        assert sink.open(opening(name, exactly_once=False)) == 0
        sink.close()
        postgres.execute(f"ALTER TABLE {name} SET LOGGED")
        assert sink.open(opening(name)) == 0
        assert sink._open.execute("SHOW synchronous_commit").fetchone() == ("on",)  # type: ignore[attr-defined]
        sink.close()
    finally:
        postgres.execute("ALTER ROLE tester RESET synchronous_commit")


def test_epochs_are_taken_back(postgres: PostgresServer, table: Table) -> None:
    name = table("k bigint, v text, part bigint")
    refused = sink_of(postgres, name, epoch_column="none")
    with pytest.raises(PenstockError) as error:
        refused.open(opening(name))
    assert error.value.code == "PSK-1004" and not sink_of(postgres, name).capabilities.takes_back
    sink = sink_of(postgres, name, epoch_column="part")
    assert sink.capabilities.takes_back
    sink.open(opening(name))
    for epoch in (3, 4, 6):
        deliver(sink, {epoch: changes((epoch, "x", 1), (epoch, "y", 1))})
    for _ in range(2):
        sink.take_back(3, 9)
        assert postgres.execute(f"SELECT DISTINCT k, part FROM {name}") == [(3, 3)]
    deliver(sink, {11: changes((11, "z", 1))})
    sink.close()
    again = sink_of(postgres, name, epoch_column="part")
    assert again.open(opening(name, committed=3)) == 11
    again.close()
    assert postgres.execute(f"SELECT k, part FROM {name} ORDER BY k") == [(3, 3), (3, 3), (11, 11)]
