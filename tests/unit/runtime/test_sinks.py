from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.storing import Rows, added, eventually, fresh, in_contents, make, opened, part, summed

from penstock.catalog.objects import Connector, Kind
from penstock.connect import Capabilities, Opening, Sink
from penstock.connect.access import Access
from penstock.errors import PenstockError, fail
from penstock.runtime.connect import sinks as sinks_module
from penstock.runtime.connect.delivery import AT_LEAST_ONCE, Delivery
from penstock.runtime.connect.sinks import SinkRunner, check_start
from penstock.runtime.lifecycle import SinkState
from penstock.runtime.storage import position as position_module
from penstock.runtime.storage.storage import Storage

AWAY = fail("PSK-5002", "The server is away.")
PLAIN = Capabilities(changelog=True)
RECORDS = Capabilities(changelog=True, exactly_once=True)
PREPARES = Capabilities(changelog=True, exactly_once=True, prepares=True)
KINDS = (PLAIN, RECORDS, PREPARES)


STEPS = ("make", "open", "begin", "write", "pre_commit", "commit", "rollback")


class Away:
    """What is delivered to, over all sinks that write there; it can fail, and be slow.

    `prepares`: what is pre-committed stays for another sink to commit. Otherwise it is lost when the sink is closed, and the last epoch is part of the commit.
    """

    def __init__(self, can: Capabilities) -> None:
        self.can = can
        self.written: list[tuple[int, int, Rows]] = []
        self.waiting: list[tuple[int, int, Rows]] = []
        self.opened: list[int] = []
        self.commits: list[int] = []
        self.closed = 0
        self.cancelled = 0
        self.fails: dict[str, deque[BaseException | None]] = {n: deque() for n in STEPS}
        self.fails_after: dict[str, deque[BaseException | None]] = {n: deque() for n in STEPS}
        self.gate = threading.Event()
        self.gate.set()

    def due(self, step: str, after: bool = False) -> None:
        fails = (self.fails_after if after else self.fails)[step]
        error = fails.popleft() if fails else None
        if error is not None:
            raise error

    @property
    def epochs(self) -> list[int]:
        return [epoch for epoch, _, _ in self.written]

    @property
    def rows(self) -> Rows:
        """What has come, each epoch once."""
        return summed({e: r for e, _, r in self.written}.values())


class Writer(Sink):
    """One open sink."""

    def __init__(self, away: Away) -> None:
        self.away = away
        self.capabilities = away.can
        self.own: list[tuple[int, int, Rows]] = []

    def open(self, opening: Opening) -> int:
        self.away.due("open")
        self.away.opened.append(opening.committed)
        assert opening.identity.startswith("object-") and opening.exactly_once is self.away.can.exactly_once
        if self.away.can.exactly_once and not self.away.can.prepares:
            return max(self.away.epochs, default=0)
        return opening.committed

    def begin(self, epoch: int) -> None:
        self.away.due("begin")

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        assert self.away.gate.wait(10)
        self.away.due("write")
        into = self.own if self.away.can.exactly_once else self.away.written
        into.append((epoch, lsn, added(table)))

    def pre_commit(self, epoch: int) -> None:
        self.away.due("pre_commit")
        if self.away.can.prepares:
            self.away.waiting += self.own
            self.own = []

    def commit(self, epoch: int) -> None:
        self.away.due("commit")
        for kept in (self.away.waiting, self.own):
            self.away.written += [w for w in kept if w[0] <= epoch]
            kept[:] = [w for w in kept if w[0] > epoch]
        self.away.commits.append(epoch)
        self.away.due("commit", after=True)

    def has(self, epoch: int) -> bool:
        return epoch in self.away.epochs

    def rollback(self, epoch: int) -> None:
        self.away.due("rollback")
        self.own = []
        self.away.waiting = [w for w in self.away.waiting if w[0] < epoch]

    def cancel(self) -> None:
        self.away.cancelled += 1
        self.away.gate.set()

    def close(self) -> None:
        self.away.closed += 1
        raise ValueError("nobody wants to know")


class World:
    """A stream with a sink, which is made and stopped again and again."""

    def __init__(
        self,
        storage: Storage,
        kind: Kind = Kind.STREAM,
        can: Capabilities = PLAIN,
        sink_options: dict[str, str] | None = None,
    ) -> None:
        self.storage = storage
        self.stream = make(storage, fresh("s"), kind)
        self.info = make(
            storage,
            fresh("out"),
            Kind.SINK,
            depends_on=(self.stream.id,),
            connector=Connector("fake"),
            options=sink_options or {},
        )
        self.away = Away(can)
        self.held: PenstockError | None = None
        self.runners: list[SinkRunner] = []
        self.count = 0

    def run(self, opened: tuple[Sink, Delivery] | None = None) -> SinkRunner:
        runner = SinkRunner(self.storage, self.info, Access, lambda: self.held, opened)
        self.runners.append(runner)
        return runner

    def emit(self, times: int = 1) -> int:
        for _ in range(times):
            self.count += 1
            lsn = self.storage.commit([part(self.stream, (self.count, "x", 1))]).lsn
        return lsn

    @property
    def position(self) -> Path:
        return self.storage.layout.job(self.info.id) / "position.json"


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    with opened(tmp_path_factory.mktemp("sinks")) as storage:
        yield storage


@pytest.fixture
def make_world(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def world(kind: Kind = Kind.STREAM, can: Capabilities = PLAIN, **more: Any) -> World:
        one = World(storage, kind, can, **more)
        made.append(one)

        def sink(connector: Connector, *, changelog: bool, access: Access) -> Any:
            assert connector.name == "fake" and changelog
            one.away.due("make")
            return Writer(one.away)

        monkeypatch.setattr(sinks_module, "make_sink", sink)
        return one

    monkeypatch.setattr(sinks_module, "wait_s", lambda failures: 0.001)
    monkeypatch.setattr(sinks_module, "_LOOK_S", 0.02)
    yield world
    for one in made:
        one.away.gate.set()
        for runner in one.runners:
            runner.stop()
            assert not runner._thread.is_alive() and runner.state is SinkState.STOPPED


def settled(runner: SinkRunner) -> bool:
    return runner.settle(time.monotonic() + 10)


def test_every_epoch_is_delivered_in_order(make_world: Callable[..., World]) -> None:
    w = make_world()
    w.emit(3)
    runner = w.run()
    assert settled(runner) and w.away.epochs == [1, 2, 3]
    w.storage.commit([part(w.stream, (1, "x", -1), (9, "y", 2))])
    # Otherwise it may be in one transaction with the next.
    assert settled(runner)
    w.storage.commit([part(w.stream)])
    lsn = w.emit()
    assert settled(runner)
    # An epoch without rows is passed over.
    assert w.away.epochs == [1, 2, 3, 4, 6] and w.away.written[3][2] == {(1, "x"): -1, (9, "y"): 2}
    assert [n for _, n, _ in w.away.written] == [e.lsn for e in w.storage.log.entries(w.stream.id) if e.rows]
    assert w.storage.totals.of(w.info.id).delivered == 6 and runner.durable_lsn == lsn and w.away.opened == [0]
    assert json.loads(w.position.read_text())["content"] == {"epoch": 6, "lsn": lsn, "committed": 6, "before": 4}
    assert runner.state is SinkState.RUNNING and runner.error is None


def test_a_sink_that_is_open_already_is_used(make_world: Callable[..., World]) -> None:
    w = make_world()
    w.away.fails["make"].append(ValueError("nobody must make another"))
    w.emit()
    assert settled(w.run((Writer(w.away), Delivery(AT_LEAST_ONCE)))) and w.away.epochs == [1] and w.away.opened == []


def test_delivery_goes_on_after_what_was_acknowledged(make_world: Callable[..., World]) -> None:
    w = make_world()
    first = w.run()
    w.emit(2)
    assert settled(first)
    first.stop()
    w.emit(2)
    second = w.run()
    assert second.durable_lsn >= first.durable_lsn
    assert settled(second)
    assert w.away.epochs == [1, 2, 3, 4] and w.away.opened == [0, 2] and w.away.closed == 1


@pytest.mark.parametrize("can", KINDS, ids=["at least once", "records", "prepares"])
@pytest.mark.parametrize("step", ["make", "open", "begin", "write", "pre_commit", "commit", "rollback", "after commit"])
@pytest.mark.parametrize("error", [AWAY, OSError("a defect")], ids=["coded", "raw"])
def test_a_sink_that_fails_is_opened_again_and_nothing_is_lost_or_doubled(
    make_world: Callable[..., World], can: Capabilities, step: str, error: Exception
) -> None:
    w = make_world(can=can)
    fails = w.away.fails_after["commit"] if step == "after commit" else w.away.fails[step]
    fails.extend([error, None, error, error])
    w.emit(4)
    runner = w.run()
    for _ in range(3):
        eventually(lambda: runner.durable_lsn == w.storage.log.head, "the delivery")
        w.emit()
    eventually(lambda: runner.durable_lsn == w.storage.log.head, "the delivery")
    assert w.away.rows == {(k, "x"): 1 for k in range(1, 8)}
    # Each attempt goes on after the last position, so epochs come again, but no epoch before one that is older.
    assert list(dict.fromkeys(w.away.epochs)) == [1, 2, 3, 4, 5, 6, 7]
    if can.exactly_once:
        assert w.away.epochs == [1, 2, 3, 4, 5, 6, 7]
    assert len(w.away.epochs) <= 7 + 3 * 4
    assert runner.error is None and runner.state is SinkState.RUNNING


def test_epochs_share_a_transaction_when_a_sink_catches_up(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = make_world(can=RECORDS)
    w.emit(5)
    runner = w.run()
    assert settled(runner)
    w.emit()
    assert settled(runner)
    assert w.away.commits == [5, 6]
    runner.stop()
    monkeypatch.setattr(sinks_module, "_ROWS", 2)
    w.emit(5)
    assert settled(w.run())
    assert w.away.commits == [5, 6, 8, 10, 11]


def test_a_target_that_knows_more_than_the_position_is_believed(make_world: Callable[..., World]) -> None:
    w = make_world(can=RECORDS)
    w.emit(3)
    old = w.position.read_bytes()
    runner = w.run()
    assert settled(runner)
    runner.stop()
    w.position.write_bytes(old)
    w.emit()
    assert settled(w.run())
    assert w.away.epochs == [1, 2, 3, 4]


@pytest.mark.parametrize("can", KINDS, ids=["at least once", "records", "prepares"])
def test_a_position_that_is_missing_is_reported(make_world: Callable[..., World], can: Capabilities) -> None:
    w = make_world(can=can)
    w.emit(3)
    first = w.run()
    assert settled(first)
    first.stop()
    data = w.position.read_bytes()
    w.position.unlink()
    runner = w.run()
    eventually(lambda: runner.error is not None, "the report")
    assert runner.error is not None and runner.error.code == "PSK-6001" and "is missing" in runner.error.detail
    assert w.away.epochs == [1, 2, 3] and not w.position.exists()
    w.position.write_bytes(data)
    eventually(lambda: runner.error is None, "the recovery")
    assert settled(runner) and w.away.epochs == [1, 2, 3]


def test_what_was_prepared_and_has_disappeared_is_delivered_again(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    w = make_world(can=PREPARES)
    w.emit()
    first = w.run()
    assert settled(first)
    first.stop()
    w.emit(3)
    # It stops between the decision and the commit, for good; then two of three files are removed.
    w.away.fails["commit"].extend([None, *[AWAY] * 99])
    second = w.run()
    eventually(lambda: second.error is not None, "the failure")
    second.stop()
    w.away.fails["commit"].clear()
    assert [e for e, _, _ in w.away.waiting] == [2, 3, 4] and w.away.epochs == [1]
    w.away.waiting = w.away.waiting[1:2]
    third = w.run()
    w.emit()
    assert settled(third)
    assert sorted(w.away.epochs) == [1, 2, 3, 4, 5] and w.away.rows == {(k, "x"): 1 for k in range(1, 6)}
    assert "epochs 2, 4 were prepared and have disappeared" in caplog.text


def test_what_was_prepared_and_is_in_no_log_either_is_reported(make_world: Callable[..., World]) -> None:
    w = make_world(can=PREPARES)
    w.emit(3)
    w.away.fails["commit"].extend([None, *[AWAY] * 99])
    first = w.run()
    eventually(lambda: first.error is not None, "the failure")
    first.stop()
    w.away.fails["commit"].clear()
    w.away.waiting.clear()
    w.storage.log.trim({w.stream.id: w.emit()})
    w.emit()
    second = w.run()
    eventually(lambda: second.error is not None, "the report")
    assert second.error is not None and second.error.code in ("PSK-5011", "PSK-5017")
    assert w.away.epochs == []


def test_a_sink_that_has_more_than_the_log_is_refused(make_world: Callable[..., World]) -> None:
    w = make_world(can=RECORDS)
    w.away.written.append((9, 9, Counter()))
    w.emit(3)
    runner = w.run()
    eventually(lambda: runner.error is not None, "the refusal")
    assert runner.error is not None and runner.error.code == "PSK-6001"
    assert "has delivered epoch 9" in runner.error.detail and "ended with epoch 3" in runner.error.detail


@pytest.mark.parametrize("can", KINDS, ids=["at least once", "records", "prepares"])
def test_lost_epochs_are_not_those_that_get_their_numbers(make_world: Callable[..., World], can: Capabilities) -> None:
    """The folder is that of a backup, and its target is not, or only its sink is as it was."""
    w = make_world(can=can)
    if can is RECORDS:
        w.away.written.append((5, 5, Counter()))
    else:
        w.position.write_text('{"epoch": 5, "lsn": 99}')
    w.emit(3)

    def refused() -> None:
        runner = w.run()
        eventually(lambda: runner.error is not None, "the refusal")
        assert runner.error is not None and runner.error.code == "PSK-6001"
        assert "has delivered epoch 5" in runner.error.detail and "ended with epoch 3" in runner.error.detail
        runner.stop()

    refused()
    w.emit(120)
    # The log has an epoch 5 now, and it is another one.
    refused()
    if can is RECORDS:
        # The target was taken back, too.
        w.away.written.clear()
        assert settled(w.run()) and w.away.epochs == list(range(1, 124))


def test_a_call_that_takes_too_long_is_cancelled_and_repeated(make_world: Callable[..., World]) -> None:
    w = make_world(can=PREPARES, sink_options={"write_timeout": "10 milliseconds"})
    w.away.gate.clear()
    runner = w.run()
    w.emit(2)
    eventually(lambda: runner._call is not None and runner._call[0] == "write", "the call")

    def cancelled() -> bool:
        runner.look()
        return w.away.cancelled == 1

    # The write is let go by the cancellation, and fails all the same.
    w.away.fails["begin"].extend([AWAY] * 2)
    eventually(cancelled, "the cancellation")
    eventually(lambda: runner.durable_lsn == w.storage.log.head, "the delivery")
    assert w.away.epochs == [1, 2] and w.away.closed >= 3


def test_a_call_that_never_returns_is_reported(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, "cancel", lambda self: None)
    w = make_world(sink_options={"write_timeout": "10 milliseconds"})
    w.away.gate.clear()
    runner = w.run()
    w.emit()

    def stuck() -> bool:
        runner.look()
        return runner.state is SinkState.STUCK

    eventually(stuck, "the report")
    assert runner.error is not None and runner.error.code == "PSK-5016"
    with pytest.raises(PenstockError, match=r"PSK-7006: Sink \w+ cannot deliver: .* write took longer than 0.01 s"):
        settled(runner)
    w.away.gate.set()
    eventually(lambda: runner.durable_lsn == w.storage.log.head, "the delivery")
    assert runner.state is SinkState.RUNNING and runner.error is None


def test_each_attempt_that_takes_too_long_gives_the_next_one_more_time(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an epoch that is too large for the timeout would be tried for ever."""
    allowed: list[float] = []

    def write(self: Writer, epoch: int, lsn: int, table: pa.Table) -> None:
        allowed.append(runner._timeout_s)
        if len(allowed) < 8:
            runner._call = ("write", time.monotonic() - runner._timeout_s)
            runner.look()
        self.away.written.append((epoch, lsn, added(table)))

    monkeypatch.setattr(Writer, "write", write)
    w = make_world(sink_options={"write_timeout": "60 seconds"})
    runner = w.run()
    w.emit()
    eventually(lambda: runner.durable_lsn == w.storage.log.head, "the delivery")
    assert allowed == [60, 120, 240, 480, 960, 960, 960, 960]
    w.emit()
    eventually(lambda: runner.durable_lsn == w.storage.log.head, "the delivery")
    assert runner._timeouts == 0 and runner.error is None


def test_a_write_timeout_of_zero_is_refused(make_world: Callable[..., World]) -> None:
    w = make_world(sink_options={"write_timeout": "0 seconds"})
    runner = w.run()
    eventually(lambda: runner.error is not None, "the refusal")
    assert runner.error is not None and runner.error.code == "PSK-1011"


def test_a_position_that_cannot_be_written_is_not_one(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = make_world()
    full = deque([fail("PSK-7004", "The disk is full.")] * 2)
    write = position_module.write_json

    def refusing(path: Path, content: object, format: int) -> None:
        if full:
            raise full.popleft()
        write(path, content, format)

    monkeypatch.setattr(position_module, "write_json", refusing)
    w.emit()
    runner = w.run()
    eventually(lambda: runner.durable_lsn == w.storage.log.head, "the delivery")
    assert w.away.epochs == [1, 1, 1]


def test_failures_show_until_the_sink_works_again(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_module, "wait_s", lambda failures: 60.0)
    w = make_world()
    w.away.fails["open"].append(AWAY)
    runner = w.run()
    eventually(lambda: runner.state is SinkState.RETRYING, "the failure")
    assert runner.error is AWAY
    # Nothing is to be delivered, and the sink is open: that is all that can be asked of it.
    runner._wake.set()
    eventually(lambda: runner.state is SinkState.RUNNING and runner.error is None, "the recovery")


def test_settle_has_a_waiting_sink_try_now_and_says_why_it_cannot(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_module, "wait_s", lambda failures: 60.0)
    w = make_world()
    runner = w.run()
    assert settled(runner)
    w.away.fails["write"].extend([AWAY] * 4)
    w.emit()
    eventually(lambda: runner.state is SinkState.RETRYING, "the failure")
    with pytest.raises(PenstockError, match=r"PSK-7006: Sink \w+ cannot deliver: The server is away"):
        settled(runner)
    w.away.fails["write"].clear()
    assert settled(runner) and w.away.epochs == [1]


def test_settle_waits_no_longer_than_it_may(make_world: Callable[..., World]) -> None:
    w = make_world()
    w.away.gate.clear()
    runner = w.run()
    w.emit()
    begin = time.monotonic()
    assert runner.settle(begin + 0.05) is False and time.monotonic() - begin < 5
    w.away.gate.set()
    assert settled(runner)


def test_settle_waits_for_what_was_decided_before_a_crash(make_world: Callable[..., World]) -> None:
    w = make_world(can=PREPARES)
    w.emit()
    w.away.fails["commit"].extend([None, *[AWAY] * 10_000])
    first = w.run()
    eventually(lambda: first.error is not None, "the failure after the decision")
    first.stop()
    w.away.fails["commit"].clear()
    w.away.fails["make"].extend([AWAY] * 10_000)
    assert json.loads(w.position.read_text())["content"]["epoch"] == 1 and not w.away.epochs
    second = w.run()
    with pytest.raises(PenstockError, match="cannot deliver: The server is away"):
        settled(second)
    w.away.fails["make"].clear()
    assert settled(second) and w.away.epochs == [1]


def test_a_held_sink_delivers_nothing_until_it_is_let_go(make_world: Callable[..., World]) -> None:
    w = make_world()
    runner = w.run()
    w.emit()
    assert settled(runner)
    w.held = fail("PSK-7007", "s has a row that could not be computed.", hint="Correct it.")
    w.emit(2)
    eventually(lambda: runner.state is SinkState.HELD, "the hold")
    with pytest.raises(PenstockError, match="could not be computed") as refused:
        settled(runner)
    assert refused.value.hint == "Correct it." and w.away.epochs == [1] and runner.error is w.held
    w.held = None
    assert settled(runner)
    assert w.away.epochs == [1, 2, 3] and runner.state is SinkState.RUNNING and runner.error is None


def test_a_sink_begins_with_contents_where_the_beginning_of_the_log_is_gone(make_world: Callable[..., World]) -> None:
    w = make_world(Kind.VIEW)
    w.emit(3)
    w.storage.commit([part(w.stream, (1, "x", -1), (2, "x", 1))])
    w.storage.log.trim({w.stream.id: w.storage.log.head - 2})
    w.held = fail("PSK-7007", "s has a row that could not be computed.")
    runner = w.run()
    eventually(lambda: runner.state is SinkState.HELD, "the hold")
    assert w.away.written == []
    w.held = None
    assert settled(runner)
    assert w.away.written == [(4, w.storage.log.head, Counter({(2, "x"): 2, (3, "x"): 1}))]
    w.emit()
    assert settled(runner)
    assert w.away.rows == in_contents(w.storage, w.stream) and w.away.epochs == [4, 5]


def test_contents_that_are_damaged_are_not_delivered(make_world: Callable[..., World]) -> None:
    w = make_world(Kind.VIEW)
    w.emit(2)
    w.storage.log.trim({w.stream.id: w.storage.log.head - 1})
    w.storage.damage[w.stream.id] = fail("PSK-6004", "The contents of s are damaged.")
    runner = w.run()
    eventually(lambda: runner.error is not None, "the refusal")
    assert runner.error is not None and runner.error.code == "PSK-6004" and w.away.written == []
    del w.storage.damage[w.stream.id]
    assert settled(runner) and w.away.epochs == [2]


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"[1, 2]", b'{"epoch": 1}', b'{"epoch": null, "lsn": 1}', b"\xff\xfe", None]
)
def test_a_damaged_position_is_refused_and_holds_the_log(
    make_world: Callable[..., World], content: bytes | None
) -> None:
    w = make_world()
    w.emit(2)
    runner = w.run()
    assert settled(runner)
    runner.stop()
    if content is None:
        w.position.unlink()
        w.position.mkdir()
    else:
        w.position.write_bytes(content)
    runner = w.run()
    eventually(lambda: runner.error is not None, "the refusal")
    assert runner.error is not None and runner.error.code == "PSK-6001"
    assert runner.durable_lsn == 0 and w.away.epochs == [1, 2]


def test_a_position_before_what_is_left_of_the_log_is_refused(make_world: Callable[..., World]) -> None:
    w = make_world()
    w.emit(3)
    runner = w.run()
    assert settled(runner)
    runner.stop()
    head = w.storage.log.head
    w.position.write_text(f'{{"epoch": 1, "lsn": {head - 2}}}')
    w.storage.log.trim({w.stream.id: head - 1})
    runner = w.run()
    eventually(lambda: runner.error is not None, "the refusal")
    assert runner.error is not None and runner.error.code == "PSK-5011" and w.away.epochs == [1, 2, 3]


def test_a_new_sink_is_refused_where_it_would_miss_the_beginning(storage: Storage) -> None:
    stream, view = make(storage, fresh("s"), Kind.STREAM), make(storage, fresh("v"), Kind.VIEW)
    for k in (1, 2):
        storage.commit([part(o, (k, "x", 1)) for o in (stream, view)])
    for info in (stream, view):
        check_start(storage, info)
    storage.log.trim({o.id: storage.log.head - 1 for o in (stream, view)})
    check_start(storage, view)
    with pytest.raises(PenstockError, match="PSK-5011"):
        check_start(storage, stream)


def stops_at_once(runner: SinkRunner) -> None:
    begin = time.monotonic()
    runner.stop()
    assert time.monotonic() - begin < 5 and not runner._thread.is_alive()
    assert runner.state is SinkState.STOPPED


def test_a_stop_is_prompt(make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks_module, "wait_s", lambda failures: 60.0)
    monkeypatch.setattr(sinks_module, "_LOOK_S", 60.0)
    w = make_world()
    idle = w.run()
    eventually(lambda: idle.state is SinkState.RUNNING, "the opening")
    stops_at_once(idle)
    w.away.fails["open"].append(AWAY)
    waiting = w.run()
    eventually(lambda: waiting.state is SinkState.RETRYING, "the failure")
    stops_at_once(waiting)
    w.held = AWAY
    held = w.run()
    w.emit()
    eventually(lambda: held.state is SinkState.HELD, "the hold")
    stops_at_once(held)


def test_a_stop_in_the_middle_of_epochs_repeats_them_and_loses_none(make_world: Callable[..., World]) -> None:
    w = make_world()
    w.emit(5)
    w.away.gate.clear()
    runner = w.run()
    eventually(lambda: runner.state is SinkState.RUNNING, "the opening")
    stop = threading.Thread(target=runner.stop)
    stop.start()
    assert runner._stop.wait(10)
    w.away.gate.set()
    stop.join(10)
    assert not stop.is_alive() and len(w.away.epochs) <= 1
    assert settled(w.run())
    assert w.away.rows == {(k, "x"): 1 for k in range(1, 6)}


def test_many_epochs_are_acknowledged_in_between(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_module, "_ENTRIES", 3)
    w = make_world()
    w.emit(8)
    w.away.fails["write"].extend([None] * 4 + [AWAY])
    runner = w.run()
    eventually(lambda: runner.durable_lsn == w.storage.log.head, "the delivery")
    assert w.away.epochs == [1, 2, 3, 4, 4, 5, 6, 7, 8]
