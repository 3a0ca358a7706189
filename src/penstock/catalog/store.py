"""The catalogue: all objects of a database, by name and by id, kept in one small file."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.catalog.objects import Column, Connector, Kind, ObjectInfo, Watermark
from penstock.errors import fail
from penstock.plan.nodes import TimeAttr

FORMAT = 1


class Catalog:
    """Thread-safe. Every change is on disk when it returns (written beside, synced, renamed)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._by_id: dict[int, ObjectInfo] = {}
        self._by_name: dict[str, int] = {}
        self._next_id = 1
        self.facts: dict[str, Any] = {}
        """What else must survive a restart: checkpoints, plan fingerprints."""
        if path.exists():
            self._load()

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
        """Objects in the order in which they were made, which is an order of dependency."""
        with self._lock:
            return [o for o in self._by_id.values() if not kinds or o.kind in kinds]

    def dependents(self, object_id: int) -> list[ObjectInfo]:
        with self._lock:
            return [o for o in self._by_id.values() if object_id in o.depends_on]

    def new_id(self) -> int:
        with self._lock:
            self._next_id += 1
            return self._next_id - 1

    def add(self, *infos: ObjectInfo) -> None:
        with self._lock:
            for info in infos:
                if info.name.lower() in self._by_name:
                    raise fail("PSK-1003", f"{info.name} already exists.")
                self._by_id[info.id] = info
                self._by_name[info.name.lower()] = info.id
            self.save()

    def replace(self, info: ObjectInfo) -> None:
        with self._lock:
            self._by_id[info.id] = info
            self.save()

    def remove(self, *object_ids: int) -> None:
        with self._lock:
            for object_id in object_ids:
                info = self._by_id.pop(object_id)
                del self._by_name[info.name.lower()]
            self.save()

    def save(self) -> None:
        with self._lock:
            state = {
                "format": FORMAT,
                "next_id": self._next_id,
                "objects": [_to_json(o) for o in self._by_id.values()],
                "facts": self.facts,
            }
            beside = self._path.with_suffix(".new")
            with beside.open("w") as f:
                json.dump(state, f, indent=1)
                f.flush()
                os.fsync(f.fileno())
            beside.replace(self._path)

    def _load(self) -> None:
        state = json.loads(self._path.read_text())
        if state["format"] > FORMAT:
            raise fail("PSK-6002", f"{self._path.parent} was written by a newer version of Penstock.")
        self._next_id = state["next_id"]
        self.facts = state["facts"]
        for one in state["objects"]:
            info = _from_json(one)
            self._by_id[info.id] = info
            self._by_name[info.name.lower()] = info.id


def _to_json(info: ObjectInfo) -> dict[str, Any]:
    return dataclasses.asdict(info) | {"kind": info.kind.value}


def _from_json(one: dict[str, Any]) -> ObjectInfo:
    return ObjectInfo(
        id=one["id"],
        name=one["name"],
        kind=Kind(one["kind"]),
        columns=tuple(Column(**c) for c in one["columns"]),
        key=tuple(one["key"]),
        changelog=one["changelog"],
        times=tuple(TimeAttr(**t) for t in one["times"]),
        watermark=Watermark(**one["watermark"]) if one["watermark"] else None,
        connector=Connector(**one["connector"]) if one["connector"] else None,
        options=one["options"],
        depends_on=tuple(one["depends_on"]),
        sql=one["sql"],
    )
