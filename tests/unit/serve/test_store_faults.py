"""Faults of the view store: interrupts, errors of DuckDB, lack of memory, closing. It stays usable and correct."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.effort import times
from tests.unit.ducks import reuse

from penstock.errors import PenstockError
from penstock.serve import gathered
from penstock.serve.duck import size_of
from penstock.serve.store import ViewStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
SOON_S = 60.0
ROUNDS = times(12, quick=5)


def changes(rows: dict[int, int]) -> pa.Table:
    return pa.table({"k": list(rows), "v": [f"v{k}" for k in rows], "__weight": list(rows.values())})


def contents(store: ViewStore, name_id: int) -> tuple[Counter[int], int, int]:
    """The rows, the epoch and the count, which must all agree."""
    table, epoch, _ = store.snapshot(name_id)
    rows = Counter(table["k"].to_pylist())
    assert store.count(name_id) == rows.total()
    assert store.position(name_id)[0] == epoch
    return rows, epoch, rows.total()


def code_of(call: Callable[[], object]) -> str | None:
    """The code of the error that a call raises; None if it works."""
    try:
        call()
    except PenstockError as error:
        return error.code
    return None


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ViewStore]:
    reuse(monkeypatch)
    # Each change goes to DuckDB at once.
    monkeypatch.setattr(gathered, "_SMALL_CHANGE", -1)
    store = ViewStore(min_delta_rows=20)
    for i in (1, 2):
        store.create(i, SCHEMA, append_only=False)
    yield store
    store.close()


# Interrupts


@pytest.mark.parametrize("seed", range(1))
def test_ctrl_c_at_any_moment_leaves_the_store_usable_and_right(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interrupting.py")), str(seed), str(ROUNDS)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0].removeprefix("strikes=")) >= ROUNDS * 3 // 4


# An interrupt that strikes while something is being freed is reported there, and goes no further.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_threads_that_are_struck_leave_the_store_usable_and_right(store: ViewStore) -> None:
    """Interrupts are raised in threads that write and read."""
    written = [Counter[int]()]
    stop = threading.Event()
    at_work: set[int] = set()
    wrong: list[BaseException] = []

    def apply(epoch: int) -> None:
        change = Counter({epoch % 50: 1, **({(epoch - 25) % 50: -1} if epoch > 25 else {})})
        if epoch == len(written):
            after = written[-1].copy()
            after.update(change)
            written.append(+after)
        store.apply_many([(i, changes(dict(change)), epoch) for i in (1, 2)], epoch)

    def until_stopped(step: Callable[[], None]) -> None:
        while not stop.is_set():
            try:
                # From here on only an interrupt leads out of the block.
                at_work.add(threading.get_ident())
                while not stop.is_set():
                    step()
            except KeyboardInterrupt:
                continue
            except BaseException as why:
                wrong.append(why)
                return

    def write() -> None:
        # An epoch whose caller was struck is applied again, as the engine does; that changes nothing if it was applied.
        apply(store.position(1)[0] + 1)

    def read() -> None:
        store.snapshot(2)
        store.lookup(1, pa.table({"k": pa.array([3], pa.int64())}))
        store.query("SELECT count(*) FROM a", {"a": 1})

    threads = [threading.Thread(target=until_stopped, args=(step,)) for step in (write, read)]
    for t in threads:
        t.start()
    rng = random.Random(7)
    strikes = 0
    deadline = time.monotonic() + SOON_S
    wanted = times(60, quick=30)
    while (strikes < wanted or store.position(1)[0] <= 10) and time.monotonic() < deadline:
        stop.wait(rng.random() * 0.01)
        for ident in list(at_work):
            at_work.discard(ident)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt))
            strikes += 1
    assert strikes >= wanted
    while len(at_work) < len(threads) and time.monotonic() < deadline:
        stop.wait(0.01)
    stop.set()
    for t in threads:
        t.join(SOON_S)
    assert not any(t.is_alive() for t in threads)
    assert wrong == []
    store.drop(99)
    for i in (1, 2):
        rows, epoch, _ = contents(store, i)
        assert rows == written[epoch]
        assert epoch > 10
    store.apply(1, changes({77: 1}), epoch=10**6, lsn=1)
    assert contents(store, 1)[0][77] == 1


# Errors of DuckDB


class Faulty:
    """A connection whose n-th call fails: before it does anything, or after it has done it."""

    def __init__(self, real: Any, fault: Fault) -> None:
        self._real, self._fault = real, fault

    def cursor(self) -> Faulty:
        return Faulty(self._real.cursor(), self._fault)

    def execute(self, text: str, *rest: Any) -> Any:
        return self._fault.around(text, lambda: self._real.execute(text, *rest))

    def register(self, name: str, table: Any) -> Any:
        return self._fault.around("register", lambda: self._real.register(name, table))

    def sql(self, text: str, **rest: Any) -> Any:
        return self._fault.around(text, lambda: self._real.sql(text, **rest))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Fault:
    def __init__(self) -> None:
        self.at, self.after, self.calls = -1, False, 0
        self.error: Exception = duckdb.InternalException("struck")

    def around(self, text: str, call: Callable[[], Any]) -> Any:
        number, self.calls = self.calls, self.calls + 1
        # A COMMIT that fails has not committed.
        if number == self.at and (not self.after or text == "COMMIT"):
            raise self.error
        result = call()
        if number == self.at:
            raise self.error
        return result


@pytest.mark.parametrize("after", [False, True])
def test_an_error_at_any_point_of_a_write_leaves_nothing_of_it(store: ViewStore, after: bool) -> None:
    fault = Fault()
    store._duck._db = Faulty(store._duck._db, fault)
    model: list[Counter[int]] = [Counter()]
    epoch = failures = point = 0
    while failures < times(30, quick=15):
        fault.at, fault.after, fault.calls = point, after, 0
        change = {epoch * 10 + i: 1 for i in range(8)}
        commit = [(i, changes(change), epoch + 1) for i in (1, 2)]
        code = code_of(lambda commit=commit, lsn=epoch + 1: store.apply_many(commit, lsn))  # type: ignore[misc]
        fault.at = -1
        if code is None:
            epoch, point = epoch + 1, 0
            model.append(model[-1] + Counter(change))
        else:
            assert code == "PSK-8001"
            failures, point = failures + 1, point + 1
        store.settle()
        for i in (1, 2):
            assert contents(store, i) == (model[-1], epoch, model[-1].total())
    # A write was struck at each of its points, and then succeeded.
    assert epoch >= 1


@pytest.mark.parametrize("point", range(12))
def test_an_error_while_an_object_is_made_filled_or_dropped(store: ViewStore, tmp_path: Path, point: int) -> None:
    store.apply(1, changes({1: 1, 2: 2}), epoch=4, lsn=9)
    store.save(1, tmp_path / "one.arrow")
    fault = Fault()
    store._duck._db = Faulty(store._duck._db, fault)
    for call in (
        lambda: store.create(3, SCHEMA, append_only=False),
        lambda: store.load(3, tmp_path / "one.arrow"),
        lambda: store.drop(3),
    ):
        fault.at, fault.calls = point, 0
        code = code_of(call)
        fault.at = -1
        if code is not None:
            assert code in ("PSK-8001", "PSK-6001")
            call()
    assert store.ids() == [1, 2]
    store.create(3, SCHEMA, append_only=False)
    assert store.load(3, tmp_path / "one.arrow") == (4, 9)
    assert contents(store, 3) == (Counter({1: 1, 2: 2}), 4, 3)


@pytest.mark.parametrize("point", range(6))
def test_an_error_while_reading_has_a_code_and_is_over(store: ViewStore, tmp_path: Path, point: int) -> None:
    store.apply(1, changes({1: 1}), epoch=1, lsn=1)
    fault = Fault()
    store._duck._db = Faulty(store._duck._db, fault)
    for call in (
        lambda: store.snapshot(1),
        lambda: store.query("FROM a", {"a": 1}),
        lambda: store.lookup(1, pa.table({"k": pa.array([1, 2], pa.int64())})),
        lambda: store.save(1, tmp_path / "one.arrow"),
    ):
        fault.at, fault.calls = point, 0
        assert code_of(call) in (None, "PSK-7001")
        fault.at = -1
        call()


def test_a_snapshot_that_does_not_fit_is_named(store: ViewStore, tmp_path: Path) -> None:
    store.apply(1, changes({1: 1}), epoch=1, lsn=1)
    store.save(1, tmp_path / "one.arrow")
    store.create(3, pa.schema([("other", pa.int64())]), append_only=False)
    with pytest.raises(PenstockError, match=r"PSK-6001.*one\.arrow"):
        store.load(3, tmp_path / "one.arrow")
    whole = (tmp_path / "one.arrow").read_bytes()
    for cut in range(8, len(whole), 97):
        (tmp_path / "cut.arrow").write_bytes(whole[:cut])
        store.create(4, SCHEMA, append_only=False)
        with pytest.raises(PenstockError, match="PSK-6001"):
            store.load(4, tmp_path / "cut.arrow")
        store.drop(4)


def test_names_in_sql_are_not_variables_of_the_program(store: ViewStore) -> None:
    secret = pa.table({"a": [1]})
    assert secret.num_rows == 1
    with pytest.raises(PenstockError, match="PSK-7001"):
        store.query("SELECT * FROM secret", {})


def test_timestamps_are_read_in_utc(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT hour(TIMESTAMPTZ '2024-01-01 12:00:00+00') AS h, current_setting('TimeZone') AS z"
    assert store.query(text, {}).to_pylist() == [{"h": 12, "z": "UTC"}]


# Damage


def test_an_object_that_contradicts_itself_is_damaged_and_the_others_work(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathered, "_SMALL_CHANGE", -1)
    damaged: list[tuple[int, PenstockError]] = []
    store = ViewStore(min_delta_rows=20, on_damage=lambda i, e: damaged.append((i, e)))
    for i in (1, 2):
        store.create(i, SCHEMA, append_only=False)
    store.apply(1, changes({1: -1}), epoch=1, lsn=1)
    many = changes(dict.fromkeys(range(2, 40), 1))
    store.apply_many([(1, many, 2), (2, many, 2)], 2)
    store.settle()
    for read in (lambda: store.snapshot(1), lambda: store.query("FROM a", {"a": 1}), lambda: store.count(1)):
        with pytest.raises(PenstockError, match=r"PSK-8001.*less than zero"):
            read()
    assert [(i, e.code) for i, e in damaged] == [(1, "PSK-8001")]
    assert "damaged" in caplog.text
    store.apply_many([(1, changes({90: 1}), 3), (2, changes({90: 1}), 3)], 3)
    assert contents(store, 2)[1:] == (3, 39)
    store.drop(1)
    store.create(1, SCHEMA, append_only=False)
    store.apply(1, changes({5: 1}), epoch=1, lsn=4)
    assert contents(store, 1) == (Counter({5: 1}), 1, 1)
    store.close()


@pytest.mark.parametrize("error", [duckdb.InternalException("struck"), SystemExit("gone"), ValueError("odd")])
def test_a_compaction_that_fails_is_not_silent(store: ViewStore, error: BaseException) -> None:
    """Whatever happens on its thread: the object says so, and the thread goes on with the next one."""

    def broken(*_: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store._objects.compactor, "_replace", broken)
        store.apply(1, changes(dict.fromkeys(range(30), 1)), epoch=1, lsn=1)
        store.settle()
    with pytest.raises(PenstockError, match=rf"PSK-.*{error.args[0]}"):
        store.snapshot(1)
    store.apply(2, changes(dict.fromkeys(range(30), 1)), epoch=1, lsn=1)
    store.settle()
    assert contents(store, 2)[2] == 30
    assert store._objects.layouts[2].base_rows == 30


def test_a_compaction_that_lacks_memory_is_tried_again(store: ViewStore, caplog: pytest.LogCaptureFixture) -> None:
    fault = Fault()
    fault.error = duckdb.OutOfMemoryException("Out of Memory Error: no room")

    def full(*_: object) -> None:
        with store._duck.cursor():
            raise fault.error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store._objects.compactor, "_replace", full)
        store.apply(1, changes(dict.fromkeys(range(30), 1)), epoch=1, lsn=1)
        store.settle()
    assert "not compacted" in caplog.text
    assert contents(store, 1)[2] == 30
    store.apply(1, changes(dict.fromkeys(range(30, 60), 1)), epoch=2, lsn=2)
    store.settle()
    assert store._objects.layouts[1].base_rows == 60
    assert contents(store, 1) == (Counter(range(60)), 2, 60)


# Memory


def test_sizes() -> None:
    assert size_of("2gb") == 2_000_000_000
    assert size_of(" 512 MiB ") == 512 << 20
    for text in ("", "2", "gb", "-1gb", "0mb", "2pb"):
        with pytest.raises(PenstockError, match="PSK-0002"):
            size_of(text)


def test_a_result_beyond_the_limit_is_refused_and_the_store_goes_on() -> None:
    store = ViewStore(memory_limit="50mb")
    before = psutil.Process().memory_info().rss
    for text in (
        "SELECT * FROM range(100000000000)",
        "SELECT list(i) FROM range(100000000) t(i)",
        "SELECT a.i FROM range(10000000) a(i), range(10000000) b(i) ORDER BY a.i * b.i",
    ):
        with pytest.raises(PenstockError, match=r"PSK-7009.*memory") as raised:
            store.query(text, {})
        assert "serve.memory_limit" in str(raised.value)
        assert store.query("SELECT 42 AS a", {}).to_pylist() == [{"a": 42}]
    assert psutil.Process().memory_info().rss - before < 400 << 20
    store.close()


def test_contents_beyond_the_limit_are_spilled_or_refused_as_a_whole(tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    numbers = pa.array(np.arange(200_000))
    rows = pa.table({"k": numbers, "v": pc.utf8_lpad(numbers.cast(pa.string()), 40, "0")})
    refused = ViewStore(memory_limit="30mb")
    refused.create(1, SCHEMA, append_only=True)
    refused.create(2, SCHEMA, append_only=True)
    refused.apply(2, rows.slice(0, 10), epoch=1, lsn=1)
    epoch = 0
    while (code := code_of(lambda e=epoch + 1: refused.apply(1, rows, epoch=e, lsn=e))) is None:  # type: ignore[misc]
        epoch += 1
    assert code == "PSK-7009"
    assert refused.position(1) == (epoch, epoch)
    assert refused.query("SELECT count(*) AS n FROM a", {"a": 1}).to_pylist() == [{"n": epoch * 200_000}]
    assert refused.snapshot(2)[0].num_rows == 10
    refused.drop(1)
    refused.apply(2, rows.slice(10, 10), epoch=2, lsn=2)
    assert refused.count(2) == 20
    refused.close()

    store = ViewStore(memory_limit="30mb", spill=spill)
    store.create(1, SCHEMA, append_only=True)
    for e in range(1, epoch + 4):
        store.apply(1, rows, epoch=e, lsn=e)
    assert spill.is_dir()
    assert store.query("SELECT count(*) AS n, max(v) AS v FROM a", {"a": 1}).to_pylist() == [
        {"n": (epoch + 3) * 200_000, "v": f"{199_999:040}"}
    ]
    store.save(1, tmp_path / "big.arrow")
    store.close()
    assert not spill.exists()
    again = ViewStore(memory_limit="30mb", spill=spill)
    again.create(1, SCHEMA, append_only=True)
    assert again.load(1, tmp_path / "big.arrow") == (epoch + 3, epoch + 3)
    assert again.count(1) == (epoch + 3) * 200_000
    again.close()


def test_what_a_killed_process_has_spilled_is_removed(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill" / "left.tmp").write_bytes(b"x" * 100)
    store = ViewStore(spill=tmp_path / "spill")
    assert not (tmp_path / "spill" / "left.tmp").exists()
    store.close()


# The end


def test_close_ends_what_goes_on() -> None:
    store = ViewStore(min_delta_rows=5)
    store.create(1, SCHEMA, append_only=False)
    outcomes: list[str] = []
    ready = threading.Barrier(4)

    def work(call: Callable[[], object]) -> None:
        ready.wait(SOON_S)
        try:
            while True:
                call()
        except PenstockError as error:
            outcomes.append(error.code)

    epochs = iter(range(1, 10**9))
    calls: list[Callable[[], object]] = [
        lambda: store.query("SELECT count(*) FROM range(100000000) a, range(100000) b", {}),
        lambda: store.apply(1, changes({1: 1, 2: 1, 3: 1}), epoch=next(epochs), lsn=1),
        lambda: store.snapshot(1),
    ]
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for t in threads:
        t.start()
    ready.wait(SOON_S)
    threading.Event().wait(0.05)
    store.close()
    for t in threads:
        t.join(SOON_S)
    assert outcomes == ["PSK-0004"] * 3
    assert not {"penstock-store", "penstock-compactor"} & {t.name for t in threading.enumerate()}


def test_close_may_be_interrupted_and_called_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ViewStore(spill=tmp_path / "spill")
    store.create(1, SCHEMA, append_only=False)
    (tmp_path / "spill").mkdir(exist_ok=True)

    def struck(timeout: float) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store._worker, "close", struck)
        with pytest.raises(KeyboardInterrupt):
            store.close()
    with pytest.raises(PenstockError, match="PSK-0004"):
        store.snapshot(1)
    store.close()
    store.close()
    assert not (tmp_path / "spill").exists()
    assert "penstock-store" not in [t.name for t in threading.enumerate()]
