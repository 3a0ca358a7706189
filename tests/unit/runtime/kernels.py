"""Fakes of Spark and the kernel: queries that copy the rows of their input, have a checkpoint, and can be made to fail."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.catalog.types import stored_schema
from penstock.errors import PenstockError, fail
from penstock.log import Covered
from penstock.runtime.storage.contents import read_entry
from penstock.runtime.storage.storage import Storage
from penstock.spark.offsets import Reached

POISON = "poison"
"""A row with this value makes the queries fail that cannot take it."""

LATE = "late"
"""A row with this value is late for members of a shared job that have a stream of late rows."""


@dataclass(frozen=True)
class Epoch:
    number: int
    lsn: int
    batches: tuple[tuple[pa.RecordBatch, ...], ...]
    watermark: int | None = None
    files: tuple[Path, ...] = ()
    errors: tuple[pa.Table | None, ...] = ()
    idle: bool = False
    objects: tuple[int, ...] | None = None
    slots: tuple[int, ...] | None = None
    after: int = 0
    beat: int = 0
    ms: float = 2.0
    late: Mapping[int, int] = field(default_factory=dict)

    @property
    def before(self) -> tuple[tuple[int, ...], ...]:
        """Nothing is known of the arrival of the rows."""
        return tuple(() for _ in self.batches)

    def of(self, *own: int) -> Epoch:
        return replace(self, batches=tuple(self.batches[i] for i in own), errors=(self.errors[own[0]],))


@dataclass(frozen=True)
class Output:
    changelog: bool = True
    consolidated: bool = False


@dataclass
class Compiled:
    """A job over one or several queries, which all read the same objects."""

    names: tuple[str, ...]
    objects: list[int]
    outputs: list[Output]
    event_time: bool = False
    operators: tuple[object, ...] = ()
    timed: tuple[object, ...] = ()
    fallible: bool = False
    times: tuple[object, ...] = ()
    root: object = None


@dataclass
class World:
    """What all kernels of a test share: the log that they read, what is to go wrong, and which of them run."""

    storage: Storage
    starts: deque[BaseException | None] = field(default_factory=deque)
    """What the next starts come to; None, or nothing, is a success."""
    epochs: deque[BaseException | None] = field(default_factory=deque)
    """What the next epochs come to."""
    sensitive: set[str] = field(default_factory=set)
    """Queries that fail on a poisoned row."""
    made: list[Kernel] = field(default_factory=list)
    at_start: Callable[[], None] = lambda: None
    """Called in every start, before it succeeds."""

    def kernel(
        self,
        spark: object,
        uid: object,
        job: str,
        compiled: Any,
        *,
        folder: Path,
        schemas: Any,
        start: int = 0,
        recorded: Covered | None = None,
        **_: Any,
    ) -> Any:
        made = Kernel(self, job, compiled, folder, schemas, start)
        made.recorded(recorded)
        self.made.append(made)
        return made

    def host(
        self,
        spark: object,
        uid: object,
        job: str,
        compiled: Any,
        *,
        folder: Path,
        start: int,
        places: Any,
        recorded: Covered | None = None,
        **_: Any,
    ) -> Any:
        made = HostKernel(self, job, compiled, folder, start, places)
        made.recorded(recorded)
        self.made.append(made)
        return made

    @property
    def running(self) -> list[Kernel]:
        return [k for k in self.made if k.active]


class Kernel:
    """One attempt of one job."""

    def __init__(
        self, world: World, job: str, compiled: Compiled, folder: Path, schemas: Sequence[pa.Schema], start: int
    ) -> None:
        self.job = job
        self.folder = folder
        self.error: PenstockError | None = None
        self.refused: list[str] = []
        self.limits: list[int] = []
        self.stops = 0
        self.resting = False
        """It makes no epochs."""
        self._world = world
        self._compiled = compiled
        self._schemas = schemas
        self._offsets, self._commits = folder / "checkpoint" / "offsets", folder / "checkpoint" / "commits"
        self._started = self._closed = False
        self._changed = threading.Condition()
        self._number, self._lsn, self._until = 0, start, None
        self._taken: tuple[int, int] | None = None
        self._ends: set[int] = set()
        self._held: int | None = None
        self._durable = start

    def start(self) -> None:
        error = self._world.starts.popleft() if self._world.starts else None
        if error is not None:
            raise error
        self._world.at_start()
        for folder in (self._offsets, self._commits):
            folder.mkdir(parents=True, exist_ok=True)
        (self._offsets.parent / "metadata").write_text('{"id":"8a3e4b9e-3f0c-4a55-9a8e-222222222222"}')
        self._resume()
        # One that was stopped before it was started runs all the same.
        self._started, self._closed = True, False

    def recorded(self, covered: Covered | None) -> None:
        """Epochs end where this one began and ended."""
        if covered is not None:
            self._ends = {covered.after, covered.reach}

    def hold(self, lsn: int | None) -> None:
        with self._changed:
            self._held = lsn

    def _limit(self) -> int:
        """How far the next epoch may go."""
        if self._until is not None:
            return self._until
        held = [] if self._held is None else [self._held]
        return min([self._world.storage.log.head, *held, *(end for end in self._ends if end > self._lsn)])

    def limit(self, rows: int) -> None:
        self.limits.append(rows)

    def durable(self, reached: Reached) -> None:
        self._durable = max(self._durable, reached.lsn)

    def _resume(self) -> None:
        """Reads its checkpoint."""
        done = [int(f.name) for f in self._commits.iterdir()]
        if done:
            self._number, self._lsn = max(done) + 1, _offset(self._offsets / str(max(done)))
        planned = self._offsets / str(self._number)
        # An epoch that was begun and not committed comes again as it was.
        self._until = _offset(planned) if planned.exists() else None

    @property
    def active(self) -> bool:
        return self._started and not self._closed and self.error is None

    def take(self, recorded: int | None, timeout_ms: int) -> Epoch | None:
        if recorded is not None:
            self._commit(recorded)
        deadline = time.monotonic() + timeout_ms / 1000
        while self.active and time.monotonic() < deadline:
            epoch = self._next()
            if epoch is not None or not self.active:
                return epoch
            with self._world.storage.commits:
                self._world.storage.commits.wait(0.002)
        return None

    def _commit(self, recorded: int) -> None:
        with self._changed:
            assert self._taken is not None, "nothing was taken"
            number, self._lsn = self._taken
            self._done(number, recorded)
            self._number, self._taken, self._until = number + 1, None, None
            self._changed.notify_all()

    def _done(self, number: int, recorded: int) -> None:
        (self._commits / str(number)).touch()

    def _next(self) -> Epoch | None:
        log = self._world.storage.log
        with self._changed:
            if self.resting:
                return None
            entries = [e for i in self._compiled.objects for e in log.entries(i, after=self._lsn, up_to=self._limit())]
            if not entries:
                return None
            lsn = max(e.lsn for e in entries)
            self._taken = self._number, lsn
        # As Spark writes it.
        (self._offsets / str(self._number)).write_text(f'v1\n{{"conf":{{}}}}\n{{"lsn":{lsn},"wm":-1,"beat":0}}')
        rows = []
        for e in entries:
            schema = stored_schema(self._world.storage.info(e.object_id))
            rows += read_entry(log, e, schema).to_pylist() if e.rows else []
        self.rows_in += len(rows)
        error = self._world.epochs.popleft() if self._world.epochs else None
        if any(r.get("v") == POISON for r in rows) and self._world.sensitive & set(
            getattr(self._compiled, "names", ())
        ):
            error = fail("PSK-7001", "A poisoned row.")
        if isinstance(error, PenstockError):
            self.error = error
            return None
        if error is not None:
            raise error
        return Epoch(self._number, lsn, tuple(self._output(rows, s) for s in self._schemas), after=self._lsn)

    def _output(self, rows: list[dict[str, Any]], schema: pa.Schema) -> tuple[pa.RecordBatch, ...]:
        made = [{n: r.get(n, 1) for n in schema.names} for r in rows]
        return tuple(pa.Table.from_pylist(made, schema).to_batches()) if made else ()

    def refuse(self, message: str) -> None:
        self.refused.append(message)

    def settled(self, lsn: int, timeout_ms: int) -> bool:
        deadline = time.monotonic() + timeout_ms / 1000
        log = self._world.storage.log
        while any(e.lsn > self._lsn for i in self._compiled.objects for e in log.entries(i, up_to=lsn)):
            with self._changed:
                if not self._changed.wait(max(0.0, min(0.01, deadline - time.monotonic()))) and (
                    time.monotonic() >= deadline
                ):
                    return False
        return True

    @property
    def durable_lsn(self) -> int:
        return self._durable

    @property
    def position(self) -> tuple[int, int | None, int]:
        return self._lsn, None, self._number

    def state(self) -> list[Any]:
        return []

    def late_rows(self) -> int:
        return 0

    rows_in = 0
    """Rows that its epochs have read, all of which pass."""

    def rows_passed(self) -> int:
        return self.rows_in

    def durations(self) -> dict[int, int]:
        return dict.fromkeys(range(self._number), 1)

    def stop(self) -> None:
        self.stops += 1
        self._closed = True


class HostKernel(Kernel):
    """One attempt of a shared job, whose members have the slots of `places`."""

    def __init__(self, world: World, job: str, compiled: Any, folder: Path, start: int, places: Any) -> None:
        super().__init__(world, job, compiled, folder, (), start)
        self._file = folder / "checkpoint" / "epoch"
        self.places = dict(places)
        self.left: set[int] = set()
        self._roster = 0
        self._until_roster: int | None = None

    def _resume(self) -> None:
        if self._file.exists():
            epoch = json.loads(self._file.read_text())
            done = "after" in epoch
            now, end = json.loads(epoch["end" if done else "start"]), json.loads(epoch["end"])
            self._number, self._lsn, self._roster = epoch["epoch"] + done, now["lsn"], now["roster"]
            # An epoch that was begun and is not done comes again as it was.
            self._until, self._until_roster = (None, None) if done else (end["lsn"], end["roster"])

    def join(self, slot: int, place: Any) -> None:
        with self._changed:
            self.places[slot] = place

    def become(self, slot: int, place: Any) -> None:
        self.join(slot, place)

    def _write(self, epoch: dict[str, Any]) -> None:
        """Replaces the file as a whole: others may read it at any time."""
        whole = self._file.with_name("epoch.new")
        whole.write_text(json.dumps(epoch))
        whole.replace(self._file)

    def leave(self, slot: int) -> None:
        with self._changed:
            self.places.pop(slot, None)
            self.left.add(slot)

    def _done(self, number: int, recorded: int) -> None:
        epoch = json.loads(self._file.read_text())
        self._write(epoch | {"after": [], "recorded": recorded})
        self._roster, self._until_roster = json.loads(epoch["end"])["roster"], None

    def _next(self) -> Epoch | None:
        log = self._world.storage.log
        with self._changed:
            if self.resting:
                return None
            places = dict(self.places)
            roster = self._until_roster or max([self._roster, *places])
            head = self._limit()
            entries = [e for i in self._compiled.objects for e in log.entries(i, up_to=head)]
            fresh = [e for e in entries if e.lsn > self._lsn]
            if not fresh and roster <= self._roster:
                return None
            lsn = max([self._lsn, *(e.lsn for e in fresh)])
            self._taken = self._number, lsn
        start = json.dumps({"lsn": self._lsn, "roster": self._roster})
        end = json.dumps({"lsn": lsn, "roster": roster})
        self._write({"version": 1, "partitions": 1, "before": [], "epoch": self._number, "start": start, "end": end})
        error = self._world.epochs.popleft() if self._world.epochs else None
        batches, objects, slots = [], [], []
        late: dict[int, int] = {}
        for slot, place in sorted(places.items()):
            if slot > roster:
                continue
            begins = [e for e in entries if e.lsn > max([0, *(s.lsn for s in place.seeds)])]
            rows = self._rows(fresh) if slot <= self._roster else self._seeded(place.seeds) + self._rows(begins)
            if any(r.get("v") == POISON for r in rows) and self._name(place) in self._world.sensitive:
                error = fail("PSK-7001", f"Job aborted: member {slot} of a shared job failed: a poisoned row")
            behind = [r for r in rows if r.get("v") == LATE] if len(place.schemas) > 1 else []
            if behind:
                late[slot] = len(behind)
            parts = [[r for r in rows if r not in behind], behind]
            for sign, of, schema, part in zip((1, -1), place.object_ids, place.schemas, parts, strict=False):
                batches.append(self._output(part, schema))
                objects.append(of)
                slots.append(sign * slot)
        if isinstance(error, PenstockError):
            self.error = error
            return None
        if error is not None:
            raise error
        errors = tuple(None for _ in batches)
        return Epoch(
            self._number,
            lsn,
            tuple(batches),
            errors=errors,
            objects=tuple(objects),
            slots=tuple(slots),
            after=self._lsn,
            late=late,
        )

    def _seeded(self, seeds: Sequence[Any]) -> list[dict[str, Any]]:
        """The contents that a member begins with."""
        rows: list[dict[str, Any]] = []
        for seed in (s for s in seeds if s.path):
            schema = stored_schema(self._world.storage.info(seed.object_id))
            data = pa.py_buffer(Path(seed.path).read_bytes())
            for offset, length, _ in seed.batches:
                rows += pa.ipc.read_record_batch(data.slice(offset, length), schema).to_pylist()
        return rows

    def _name(self, place: Any) -> str:
        return self._world.storage.info(place.object_id).name

    def _rows(self, entries: Sequence[Any]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for e in entries:
            schema = stored_schema(self._world.storage.info(e.object_id))
            rows += read_entry(self._world.storage.log, e, schema).to_pylist() if e.rows else []
        return rows

    def settled(self, lsn: int, timeout_ms: int) -> bool:
        deadline = time.monotonic() + timeout_ms / 1000
        while self._roster < max([0, *self.places]):
            if time.monotonic() >= deadline:
                return False
            with self._changed:
                self._changed.wait(0.01)
        return super().settled(lsn, max(0, int((deadline - time.monotonic()) * 1000)))

    def kept(self) -> dict[int, Any]:
        return {}

    def remains(self) -> dict[int, Any]:
        return {}

    @property
    def complete(self) -> bool:
        return False


def _offset(path: Path) -> int:
    return int(json.loads(path.read_text().splitlines()[2])["lsn"])
