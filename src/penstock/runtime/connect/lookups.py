"""Lookup tables that are fed from elsewhere: their options, their source, and how they fare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.catalog.objects import Connector, ObjectInfo
from penstock.connect import Access, LookupSource, find_lookup
from penstock.errors import PenstockError, fail
from penstock.runtime.durations import duration_ms, size_bytes
from penstock.runtime.lifecycle import LOOKUP_STEPS, Lifecycle, LookupState, wait_s
from penstock.runtime.storage.storage import Storage
from penstock.serve.zset import consolidate, negated, weighted

_MAX_ENTRIES = 65_536
_MAX_BYTES = 64 << 20
_TTL_MS = 300_000


@dataclass(frozen=True)
class LookupOptions:
    """WITH (…) of a lookup table, checked. `refresh_ms` is None where it is refreshed by REFRESH alone."""

    on_demand: bool = False
    refresh_ms: int | None = None
    max_entries: int = _MAX_ENTRIES
    max_bytes: int = _MAX_BYTES
    ttl_ms: int = _TTL_MS
    negative_ttl_ms: int = _TTL_MS


@dataclass
class LookupFigures:
    """Counted since the database was opened. A request is one read of the source: of all rows, or of all missing keys of an epoch."""

    requests: int = 0
    failures: int = 0
    rows_read: int = 0
    keys_asked: int = 0
    hits: int = 0
    misses: int = 0
    entries: int = 0
    bytes: int = 0


def lookup_options(options: Mapping[str, str], connector: Connector | None) -> LookupOptions:
    """PSK-1012 for an option that would have no effect, PSK-1011 for a bad value."""
    on_demand = options.get("strategy", "replicated").lower() == "on-demand"
    caching = [o for o in options if o.startswith("cache.")]
    if connector is None:
        unused = [*caching, *(["refresh"] if "refresh" in options else []), *(["strategy"] if on_demand else [])]
        if unused:
            raise fail(
                "PSK-1012",
                f"{unused[0]} has no meaning for a lookup table that is filled with INSERT.",
                hint="Leave it out, or write FROM POSTGRES (…) or FROM FILES (…).",
            )
        return LookupOptions()
    if not on_demand and caching:
        raise fail(
            "PSK-1012",
            f"{caching[0]} has no meaning for a replicated lookup table: all of it is kept.",
            hint="Leave it out, or use strategy = 'on-demand'.",
        )
    if on_demand and "refresh" in options:
        raise fail(
            "PSK-1012", "refresh has no meaning for strategy = 'on-demand'.", hint="Use cache.ttl for the age of rows."
        )
    if on_demand and not find_lookup(connector.name).by_key:
        raise fail(
            "PSK-1012",
            f"{connector.name.upper()} cannot be asked for single rows.",
            hint="Use strategy = 'replicated'.",
        )
    ttl = _time(options, "cache.ttl", _TTL_MS)
    return LookupOptions(
        on_demand,
        _time(options, "refresh", 0) or None,
        _count(options, "cache.max_entries", _MAX_ENTRIES),
        _size(options, "cache.max_bytes", _MAX_BYTES),
        ttl,
        _time(options, "cache.negative_ttl", ttl),
    )


def _time(options: Mapping[str, str], name: str, default: int) -> int:
    if name not in options:
        return default
    millis = duration_ms(options[name])
    if millis <= 0:
        raise fail("PSK-1011", f"{name} = '{options[name]}' is not above zero.")
    return millis


def _count(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise fail("PSK-1011", f"{name} = '{text}' is not a whole number above zero.")
    return int(text)


def _size(options: Mapping[str, str], name: str, default: int) -> int:
    if name not in options:
        return default
    size = size_bytes(options[name])
    if not size:
        raise fail("PSK-1011", f"{name} = '{options[name]}' is not a size.", hint="Write it like '64mb'.")
    return size


def check_asked(info: ObjectInfo) -> None:
    """PSK-1012 for a key by which no rows can be asked for."""
    for name in info.key:
        column = info.column(name)
        if column is not None and column.type.startswith(("array", "map", "struct", "float", "double")):
            raise fail(
                "PSK-1012",
                f"strategy = 'on-demand' cannot ask for rows by {name}, which is {column.type}.",
                hint="Use strategy = 'replicated'.",
            )


def make_lookup(info: ObjectInfo, access: Access) -> LookupSource:
    assert info.connector is not None
    return find_lookup(info.connector.name).factory(info.connector, info.columns, info.key, access)


class FedLookup:
    """What both strategies share. The source is made when it is first asked, so that a database opens without it."""

    def __init__(self, storage: Storage, info: ObjectInfo, access: Callable[[], Access]) -> None:
        self.info = info
        self.error: str | None = None
        self.figures = LookupFigures()
        self.options = lookup_options(info.options, info.connector)
        self._life = Lifecycle(f"Lookup table {info.name}", LookupState.READY, LOOKUP_STEPS)
        self._storage = storage
        self._access = access
        self._source: LookupSource | None = None
        self._fails = 0

    @property
    def state(self) -> LookupState:
        return self._life.state

    def start(self) -> None:
        """The pipeline runs."""

    def stop(self) -> None:
        """The pipeline stops; the table can still be read and refreshed."""

    def close(self) -> None:
        self.stop()
        self._life.to(LookupState.CLOSED)
        if self._source is not None:
            self._source.close()

    def read_all(self) -> pa.Table:
        """All rows as they are at the source now, no key twice."""
        return self._asked(lambda s: unique(self.info, s.scan()))

    @property
    def source(self) -> LookupSource:
        if self._source is None:
            self._source = self.new_source()
        return self._source

    @source.setter
    def source(self, source: LookupSource) -> None:
        self._source = source

    def new_source(self) -> LookupSource:
        return make_lookup(self.info, self._access())

    def _asked(self, ask: Callable[[LookupSource], pa.Table]) -> pa.Table:
        """One request, counted; what goes wrong is shown in the status until a request succeeds."""
        try:
            table = ask(self.source)
        except PenstockError as error:
            self.figures.failures += 1
            self._fails += 1
            self._say(LookupState.RETRYING, str(error))
            raise
        self.figures.requests += 1
        self.figures.rows_read += table.num_rows
        self._fails = 0
        self._say(LookupState.READY, None)
        return table

    def _say(self, state: LookupState, error: str | None) -> None:
        self._life.to(state)
        self.error = error

    def _wait_s(self) -> float:
        return wait_s(self._fails)


def unique(info: ObjectInfo, rows: pa.Table) -> pa.Table:
    """PSK-5006 if two rows have one key."""
    keys = rows.select(list(info.key))
    if keys.num_rows > 1:
        counted = keys.group_by(list(info.key)).aggregate([([], "count_all")])
        if counted.num_rows < keys.num_rows:
            twice = next(r for r in counted.to_pylist() if r["count_all"] > 1)
            named = ", ".join(f"{n} = {twice[n]!r}" for n in info.key)
            raise fail(
                "PSK-5006",
                f"{info.name}: the source has more than one row with {named}.",
                hint="Choose a key that is unique at the source.",
            )
    return rows


def difference(old: pa.Table, new: pa.Table) -> pa.Table:
    """What turns one collection into another, consolidated."""
    return consolidate(pa.concat_tables([negated(old), weighted(new).cast(weighted(old).schema)]))
