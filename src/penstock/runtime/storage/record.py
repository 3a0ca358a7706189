"""Records an epoch of a job in the database: as one commit, exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.catalog.check import Unfit, check_memory
from penstock.catalog.objects import Kind, ObjectInfo
from penstock.catalog.types import stored_schema
from penstock.disk import crash_point
from penstock.errors import PenstockError, fail
from penstock.log import Covered, Log, Part
from penstock.log.state import NO_WATERMARK, NOTHING_COVERED
from penstock.runtime.storage.storage import Storage
from penstock.serve.zset import canonical, consolidate, retractions_first

if TYPE_CHECKING:
    from penstock.spark.bridge import Epoch
    from penstock.spark.compile import Output
    from penstock.spark.operators import StateFigures


class Guard(Protocol):
    """Watches how much a query keeps."""

    def check(self, state: Sequence[StateFigures]) -> None: ...

    def warning(self, state: Sequence[StateFigures]) -> str | None: ...

    def forget(self) -> None: ...


class Answers(Protocol):
    """An on-demand lookup table that answers the rows of an epoch."""

    info: ObjectInfo

    def asked(self, rows: pa.Table) -> pa.Table:
        """The keys that rows of a probe need."""

    def answer(
        self, keys: pa.Table, stopping: Callable[[], bool], commit: Callable[[pa.Table | None], None]
    ) -> None: ...


@dataclass(frozen=True)
class Parts:
    """What an epoch adds to the log, the rows of its outputs, and whether errors of a query have changed."""

    parts: list[Part]
    tables: list[pa.Table]
    failed: bool


GENERATION = 1 << 40
"""A multiple of this is added to the numbers of epochs when a query begins again: nothing that was recorded before is a replay of what comes then."""


def last_covered(log: Log, object_ids: Iterable[int], base: int) -> Covered | None:
    """What the last recorded epoch of a job has read; None if nothing of this generation is recorded."""
    of = [log.covered(i) for i in object_ids if log.job_epoch(i) >= base]
    return max(of, key=lambda c: c.position, default=None)


def covered_by(epoch: Epoch) -> Covered:
    """What an epoch has read."""
    watermark = NO_WATERMARK if epoch.watermark is None else epoch.watermark
    return Covered(epoch.after, epoch.lsn, watermark, epoch.beat)


class Recorder:
    """Records the epochs of one job into `objects`, one per output.

    An epoch that reaches no further than the last one that is recorded is a replay: of an epoch that was recorded before a crash, or, after one, of several. `base` names the generation.
    `asks` is the on-demand lookup table that answers the rows of an epoch; the answers are recorded with the epoch. `errors` are the objects that
    receive the rows that could not be computed, one for each query of the job that can have such rows.
    """

    def __init__(
        self,
        storage: Storage,
        objects: Sequence[ObjectInfo],
        outputs: Sequence[Output],
        base: int = 0,
        asks: Answers | None = None,
        errors: Sequence[ObjectInfo | None] = (),
    ) -> None:
        self._storage = storage
        self._objects = objects
        self._outputs = outputs
        self._schemas = [stored_schema(o) for o in objects]
        self._base = base
        self._asks = asks
        self._errors = errors
        self._owned = [o.id for o in (*objects, *errors) if o is not None]

    def record(self, epoch: Epoch, stopping: Callable[[], bool]) -> bool:
        """Commits an epoch; True if the errors of a query have changed."""
        made = self.parts(epoch)
        if not made.parts:
            return False
        asks = self._asks
        if asks is None or not made.tables[0].num_rows:
            self._storage.commit(made.parts)
            crash_point("epoch.recorded")
            return made.failed

        def commit(found: pa.Table | None) -> None:
            answered = [] if found is None else [change_part(asks.info, found)]
            self._storage.commit([*answered, *made.parts])

        asks.answer(asks.asked(made.tables[0]), stopping, commit)
        return made.failed

    @property
    def head(self) -> int:
        """The last commit of the log: everything that was recorded comes before it."""
        return self._storage.log.head

    def objects(self, epoch: Epoch) -> Sequence[int | None]:
        """The objects of the outputs of an epoch."""
        return [o.id for o in self._objects]

    def recorded(self) -> Covered | None:
        """What the last recorded epoch has read; None if none is recorded."""
        return last_covered(self._storage.log, self._owned, self._base)

    def _number(self) -> int:
        return max(self._storage.log.job_epoch(i) for i in self._owned)

    def repeats(self, epoch: Epoch, beyond: Covered | None = None) -> bool:
        """Whether an epoch is recorded already."""
        last = self.recorded()
        if last is None:
            return False
        last = max(last, beyond or last, key=lambda c: c.position)
        # Before format 3 the log had numbers alone.
        earlier = not last.reach and self._base + epoch.number <= self._number()
        return covered_by(epoch).position <= last.position or earlier

    def parts(self, epoch: Epoch, beyond: Covered | None = None) -> Parts:
        """What an epoch adds to the log; nothing if it is there already. `beyond` is the last epoch that is recorded of the whole job."""
        number = self._base + epoch.number
        covers = covered_by(epoch)
        if self.repeats(epoch, beyond):
            return Parts([], [], False)
        tables = [
            _ordered(pa.Table.from_batches(b, s), o)
            for b, s, o in zip(epoch.batches, self._schemas, self._outputs, strict=True)
        ]
        for info, table in zip(self._objects, tables, strict=True):
            _check_storable(info, table)
        inputs = self._input_lsn(epoch.lsn)
        parts = [
            Part(
                object_id=info.id,
                # Unchanged batches keep the watermarks that were in force when their rows arrived.
                batches=tuple(t.to_batches() if output.changelog and t.num_rows else batches if t.num_rows else ()),
                before=() if output.changelog or not t.num_rows or set(before) <= {NO_WATERMARK} else before,
                watermark=epoch.watermark,
                idle=epoch.idle,
                job_epoch=number,
                input_lsn=inputs,
                column_count=len(t.schema),
                covers=covers,
            )
            for info, t, output, batches, before in zip(
                self._objects, tables, self._outputs, epoch.batches, epoch.before, strict=True
            )
            if t.num_rows or epoch.watermark is not None or epoch.idle
        ]
        failed = self._failed(epoch, number, inputs, covers)
        return Parts([*parts, *failed], tables, bool(failed))

    def _failed(self, epoch: Epoch, number: int, input_lsn: int, covers: Covered) -> list[Part]:
        """The changes of each query's errors."""
        parts = []
        for info, changes in zip(self._errors, epoch.errors, strict=False):
            if changes is None:
                continue
            if info is None:
                row = changes.slice(0, 1).to_pylist()[0]
                raise fail("PSK-7001", f"{row['expression']}: {row['error']} Row {row['row']}")
            table = consolidate(changes)
            if table.num_rows:
                part = change_part(info, table.cast(stored_schema(info)))
                parts.append(replace(part, job_epoch=number, input_lsn=input_lsn, covers=covers))
        return parts

    def _input_lsn(self, lsn: int) -> int:
        """The last commit to a source or table that is reflected in everything up to `lsn`."""
        return min((self._origin(i, lsn) for o in self._objects for i in o.depends_on), default=lsn)

    def _origin(self, object_id: int, lsn: int) -> int:
        catalog, log = self._storage.catalog, self._storage.log
        if not catalog.has_id(object_id) or catalog.by_id(object_id).kind not in (Kind.STREAM, Kind.VIEW):
            return lsn
        last = log.last_entry(object_id, up_to=lsn)
        return min(lsn, last.input_lsn) if last is not None else lsn


class MemberRecorder:
    """Records the epochs of a shared job: the rows of all its members are one commit. A member of whose epoch nothing can be made, or whose state is too large,
    is told to `evict`, and the others go on. Members are known by their slots, and change under `lock`: nobody is gone whose rows are being committed, and what was under way of another version
    of a query is not taken for rows of the present one.
    """

    Evict = Callable[[int, PenstockError], None]

    @dataclass(frozen=True)
    class Member:
        object_id: int
        recorder: Recorder
        guard: Guard | None
        late_id: int | None = None
        """The stream of its late rows."""

    def __init__(
        self,
        storage: Storage,
        evict: Evict,
        kept: Callable[[], Mapping[int, Sequence[StateFigures]]],
        recorded: Callable[[], None],
    ) -> None:
        self.members: dict[int, MemberRecorder.Member] = {}
        self.lock = threading.RLock()
        self._storage = storage
        self._kept = kept
        self._recorded = recorded
        self._evict = evict
        self._last: Covered | None = None

    def resume(self) -> Covered | None:
        """What the last epoch has read that is recorded of any member: the rows of all members are one commit. To be called before a job goes on."""
        known = (last for m in self.members.values() if (last := m.recorder.recorded()) is not None)
        self._last = max(known, key=lambda c: c.position, default=None)
        return self._last

    def record(self, epoch: Epoch, stopping: Callable[[], bool]) -> bool:
        """Commits an epoch; True if the errors of a query have changed."""
        with self.lock:
            self._check()
            failed = self._commit(epoch)
        self._recorded()
        return failed

    def _commit(self, epoch: Epoch) -> bool:
        parts: list[Part] = []
        failed = False
        places = {slot: i for i, slot in enumerate(epoch.slots or ())}
        for slot, i in places.items():
            member = self.members.get(slot)
            if member is None:
                continue
            own = epoch.of(i, *([places[-slot]] if -slot in places else []))
            if not (any(own.batches) or any(own.errors) or own.watermark is not None or own.idle):
                continue
            try:
                made = member.recorder.parts(own, self._last)
            except Exception as why:
                error = why if isinstance(why, PenstockError) else fail("PSK-8001", f"{type(why).__name__}: {why}")
                self._evict(member.object_id, error)
                continue
            parts += made.parts
            failed = failed or made.failed
        if parts:
            self._storage.commit(parts)
            crash_point("epoch.recorded")
            self._last = max(self._last or NOTHING_COVERED, covered_by(epoch), key=lambda c: c.position)
        return failed

    @property
    def head(self) -> int:
        """The last commit of the log: everything that was recorded comes before it."""
        return self._storage.log.head

    def objects(self, epoch: Epoch) -> Sequence[int | None]:
        """The objects of the outputs of an epoch; None of those that are no members any more."""
        known = ((slot, self.members.get(abs(slot))) for slot in epoch.slots or ())
        return [None if m is None else m.object_id if slot > 0 else m.late_id for slot, m in known]

    def guard(self, object_id: int) -> Guard | None:
        """What watches the state of a member."""
        return next((m.guard for m in list(self.members.values()) if m.object_id == object_id), None)

    def _check(self) -> None:
        guarded = {m.object_id: m.guard for m in list(self.members.values()) if m.guard is not None}
        kept = self._kept() if guarded else {}
        for object_id, guard in guarded.items():
            try:
                guard.check(kept.get(object_id, []))
            except PenstockError as error:
                self._evict(object_id, error)


def change_part(info: ObjectInfo, delta: pa.Table, rows: int | None = None) -> Part:
    """A change of a table as a part of a commit, in batches of at most `rows`."""
    batches = delta.combine_chunks().to_batches(max_chunksize=rows) if delta.num_rows else []
    return Part(object_id=info.id, batches=tuple(batches), column_count=len(delta.schema))


def _check_storable(info: ObjectInfo, table: pa.Table) -> None:
    """Refuses what the log would take and the view store would not, while the epoch can still be refused."""
    # Columns of a stream may have the same name.
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            check_memory(column)
        except Unfit as why:
            raise fail(
                "PSK-7001", f"Column {name} of {info.name} has a value that cannot be stored: {why.reason}."
            ) from why


def _ordered(table: pa.Table, output: Output) -> pa.Table:
    """One epoch of a changelog: each row once, retractions before insertions."""
    if not output.changelog or not table.num_rows:
        return table
    if not output.consolidated:
        return consolidate(table)
    return retractions_first(canonical(table))
