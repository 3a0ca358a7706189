"""The catalogue: all objects of a database, by name and by id, in one small file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path

from penstock.catalog.file import Content, read_catalog, write_catalog
from penstock.catalog.objects import Hosting, Kind, ObjectInfo, Solo
from penstock.disk import Witness
from penstock.errors import fail


class Catalog:
    """Thread-safe. A change is on disk when its call returns. If it cannot be written, the call raises PSK-7004 and changes nothing.

    Besides the objects, it stores everything else that must survive a restart: `plans`, by query id, the signature of the plan that produced the
    query's stored state; `solo`, by the id of a query that has left a shared job or
    restarts; `hosted`, the shared jobs, by the objects that they read; and `home`,
    the folder of the database when it last ran. Change these within `edit`.

    `expected`: the folder has a database, so a missing file is damage (PSK-6001) and not a new catalogue. Every write has a serial number, which is also
    recorded in a witness, so an older file than the last is damage too.
    """

    def __init__(self, path: Path, *, expected: bool = False) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._editing = False
        self._by_id: dict[int, ObjectInfo] = {}
        self._by_name: dict[str, int] = {}
        self._next_id = 1
        self.plans: dict[int, str] = {}
        self.solo: dict[int, Solo] = {}
        self.hosted: dict[str, Hosting] = {}
        self.home: str | None = None
        self._witness = Witness(path.with_name("catalog.serial"))
        self._serial = 0
        found = read_catalog(path)
        if found is not None:
            self._next_id = found.next_id
            self._serial = found.serial
            self._restore(found)
        if found is None and (expected or self._witness.number):
            raise fail(
                "PSK-6001",
                f"{path} is missing, but the log next to it has rows.",
                hint="penstock checkpoint list shows what penstock checkpoint restore can go back to. Or restore the file from a backup: without it the rows in the log cannot be interpreted.",
            )
        if self._serial < self._witness.number:
            raise fail(
                "PSK-6001",
                f"{path} is an older one: it has change {self._serial}, and change {self._witness.number} was written. "
                "Objects created or changed since are lost.",
                hint="Restore the newest file: the rows of objects that it does not know would be removed. Or go back with penstock checkpoint restore.",
            )
        self._saved = self._content()

    def get(self, name: str) -> ObjectInfo | None:
        if not isinstance(name, str):
            raise fail("PSK-0009", f"A name is a string, not {type(name).__name__}.")
        with self._lock:
            found = self._by_name.get(name.lower())
            return None if found is None else self._by_id[found]

    def by_id(self, object_id: int) -> ObjectInfo:
        with self._lock:
            return self._by_id[object_id]

    def has_id(self, object_id: int) -> bool:
        with self._lock:
            return object_id in self._by_id

    def names(self) -> Iterable[str]:
        with self._lock:
            return [o.name for o in self._by_id.values()]

    def objects(self, *kinds: Kind) -> list[ObjectInfo]:
        """Objects in creation order, so that dependencies come first."""
        with self._lock:
            return [o for o in self._by_id.values() if not kinds or o.kind in kinds]

    def dependents(self, object_id: int) -> list[ObjectInfo]:
        with self._lock:
            return [o for o in self._by_id.values() if object_id in o.depends_on]

    def imagined(self, info: ObjectInfo) -> Catalog:
        """A read-only copy of the catalogue with one object changed."""
        with self._lock:
            other = copy(self)
            other._by_id = {**self._by_id, info.id: info}
            return other

    def as_read_by(self, info: ObjectInfo) -> Catalog:
        """The catalogue as a query sees it, read-only: its option `rules` maps some names to other objects."""
        stands = json.loads(info.options.get("rules", "{}"))
        if not stands:
            return self
        with self._lock:
            other = copy(self)
            other._by_name = {**self._by_name, **{k.lower(): self._by_name[v.lower()] for k, v in stands.items()}}
            return other

    def new_id(self) -> int:
        """An id that no object has had."""
        with self._lock:
            self._next_id += 1
            return self._next_id - 1

    def reserve(self, object_id: int) -> None:
        """Ensures that `new_id` returns only ids above this one."""
        with self._lock:
            self._next_id = max(self._next_id, object_id + 1)

    def add(self, *infos: ObjectInfo) -> None:
        self.change(add=infos)

    def replace(self, info: ObjectInfo) -> None:
        """Replaces the object with the same id."""
        self.change(replace=[info])

    def remove(self, *object_ids: int) -> None:
        """Removes objects, with their entries in `plans` and `solo`."""
        self.change(remove=object_ids)

    def change(
        self, *, add: Sequence[ObjectInfo] = (), remove: Sequence[int] = (), replace: Sequence[ObjectInfo] = ()
    ) -> None:
        """Removes, replaces and adds objects, in this order, as one change."""
        with self.edit():
            for object_id in remove:
                del self._by_name[self._by_id.pop(object_id).name.lower()]
                self.plans.pop(object_id, None)
                self.solo.pop(object_id, None)
            for info in replace:
                del self._by_name[self._by_id[info.id].name.lower()]
                self._put(info)
            for info in add:
                self._put(info)

    @contextmanager
    def edit(self) -> Iterator[None]:
        """Writes all changes made within it at the end, as one. An error, within or while writing, rolls all of them back.

        Other threads see the changes only once they are on disk. A nested `edit` is part of the outer one.
        """
        with self._lock:
            inner, self._editing = self._editing, True
            before = self._content() if inner else self._saved
            try:
                yield
                if not inner:
                    self._write()
            except BaseException:
                self._restore(before)
                raise
            finally:
                self._editing = inner

    def save(self) -> None:
        """Writes in-place changes to disk. If that fails, restores the last written state."""
        with self.edit():
            pass

    def _put(self, info: ObjectInfo) -> None:
        if info.name.lower() in self._by_name:
            raise fail("PSK-1003", f"{info.name} already exists.")
        self._by_id[info.id] = info
        self._by_name[info.name.lower()] = info.id

    def _content(self) -> Content:
        return Content(
            next_id=self._next_id,
            objects=tuple(self._by_id.values()),
            plans=dict(self.plans),
            solo=dict(self.solo),
            hosted=dict(self.hosted),
            home=self.home,
        )

    @property
    def serial(self) -> int:
        """The number of its last change."""
        return self._serial

    def close(self) -> None:
        self._witness.close()

    def _write(self) -> None:
        content = replace(self._content(), serial=self._serial + 1)
        write_catalog(self._path, content)
        self._serial += 1
        self._witness.attest(self._serial)
        self._saved = content

    def _restore(self, content: Content) -> None:
        """Restores in place, because others may hold references. An id that was handed out is not reused."""
        self._by_id = {o.id: o for o in content.objects}
        self._by_name = {o.name.lower(): o.id for o in content.objects}
        self.plans.clear()
        self.plans.update(content.plans)
        self.solo.clear()
        self.solo.update(content.solo)
        self.hosted.clear()
        self.hosted.update(content.hosted)
        self.home = content.home
