"""The objects that a statement is about to create: all of them or none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from penstock.catalog.objects import ObjectInfo
from penstock.disk import crash_point
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.planned import Planned
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.runtime.storage.layout import remove

_logger = logging.getLogger(__name__)


class Draft:
    """Collects new objects, with their resources in this process, and the objects that they replace.

    A statement takes effect at the single change of the catalogue. Before it everything can be undone, and the leftovers of a crash
    belong to no object and are removed at the next open. After it only the files of replaced objects remain to be removed.
    """

    def __init__(self, engine: Engine, gone: Sequence[ObjectInfo] = ()) -> None:
        self.engine = engine
        self.gone = list(gone)
        self.accepted = False
        self._ids: list[int] = []
        self._made: list[ObjectInfo] = []
        self._plans: dict[int, str] = {}
        self._starts: list[tuple[ObjectInfo, Planned]] = []
        self._then: list[tuple[ObjectInfo, Callable[[ObjectInfo], None]]] = []
        self._opened: list[Callable[[], None]] = []

    def new_id(self) -> int:
        """An id for an object of the draft. A folder created for it before the object is attached is removed with the draft."""
        self._ids.append(self.engine.catalog.new_id())
        return self._ids[-1]

    def by_id(self, object_id: int) -> ObjectInfo:
        known = next((o for o in self._made if o.id == object_id), None)
        return known or self.engine.catalog.by_id(object_id)

    def taken(self, name: str) -> bool:
        """True if an object has the name and is not replaced."""
        have = self.engine.catalog.get(name)
        drafted = any(o.name.lower() == name.lower() for o in self._made)
        return drafted or (have is not None and all(o.id != have.id for o in self.gone))

    def attach(self, info: ObjectInfo) -> None:
        self._made.append(info)
        self.engine.attach(info)

    def start(self, info: ObjectInfo, planned: Planned) -> None:
        """Starts the query of an object when all objects are attached, if the pipeline runs."""
        self._plans[info.id] = planned.signature.to_text()
        self.engine.jobs.planned[info.id] = planned
        self._starts.append((info, planned))

    def opened(self, close: Callable[[], None]) -> None:
        """Registers a resource to close if the draft is undone."""
        self._opened.append(close)

    def then(self, info: ObjectInfo, start: Callable[[ObjectInfo], None]) -> None:
        """Starts something once the object exists. If that fails, the object exists all the same, and its status says why."""
        self._then.append((info, start))

    def accept(self) -> None:
        if self.engine.running:
            for info, planned in self._starts:
                self.engine.jobs.start(info, planned)
        crash_point("ddl.started")
        with uninterrupted():
            with self.engine.catalog.edit():
                self.engine.catalog.change(remove=[o.id for o in self.gone], add=self._made)
                self.engine.catalog.plans.update(self._plans)
            self.accepted = True
            crash_point("ddl.written")
            for info, start in self._then:
                self.engine.attempt(info, start)
            for o in self.gone:
                remove_remains(self.engine, o)

    def undo(self) -> None:
        with uninterrupted():
            for close in self._opened:
                with suppress(Exception):
                    close()
            for o in reversed(self._made):
                remove_remains(self.engine, o)
            for object_id in self._ids:
                remove(self.engine.storage.layout.job(object_id))


@contextmanager
def drafting(engine: Engine, gone: Sequence[ObjectInfo] = ()) -> Iterator[Draft]:
    """A draft that takes effect at the end of the block, and is undone if anything fails before the catalogue has changed."""
    draft = Draft(engine, gone)
    try:
        yield draft
        draft.accept()
    except BaseException:
        if not draft.accepted:
            draft.undo()
        raise


def remove_remains(engine: Engine, info: ObjectInfo) -> None:
    """Removes the files and state of an object that is not in the catalogue. The next open removes what cannot be removed now."""
    engine.refusals.pop(info.id, None)
    sink, intake = engine.sinks.pop(info.id, None), engine.intakes.pop(info.id, None)
    lookup = engine.lookups.pop(info.id, None)
    steps: list[tuple[str, Callable[[], object] | None]] = [
        ("sink", sink.stop if sink is not None else None),
        ("connector", intake.stop if intake is not None else None),
        ("source", lookup.close if lookup is not None else None),
        ("query", lambda: engine.jobs.forget(info)),
        ("rows", lambda: engine.storage.detach(info.id)),
        ("lock", lambda: engine.writer.forget(info.id)),
    ]
    for what, step in steps:
        crash_point("ddl.removing")
        try:
            if step is not None:
                step()
        except Exception as error:
            _logger.warning("the %s of %s was not removed: %s", what, info.name, error, exc_info=error)
