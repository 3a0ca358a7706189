"""The catalogue as a file: JSON with a format version and a checksum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

import google_crc32c

from penstock.catalog.objects import (
    Column,
    Connector,
    Hosting,
    Kind,
    ObjectInfo,
    Role,
    Slot,
    Solo,
    Watermark,
)
from penstock.catalog.upgrade import with_roles
from penstock.disk import write_durably
from penstock.errors import fail
from penstock.plan.nodes import SortTerm, TimeAttr

FORMAT = 2


@dataclass(frozen=True)
class Content:
    """The content of the file. Objects are in creation order; `Catalog` documents the other fields."""

    next_id: int
    objects: tuple[ObjectInfo, ...]
    plans: Mapping[int, str]
    solo: Mapping[int, Solo]
    hosted: Mapping[str, Hosting]
    home: str | None
    serial: int = 0


def write_catalog(path: Path, content: Content) -> None:
    """Raises PSK-7004 if the write fails; the file is then unchanged."""
    catalog = {
        "next_id": content.next_id,
        "objects": content.objects,
        "plans": {str(i): p for i, p in content.plans.items()},
        "solo": {str(i): s for i, s in content.solo.items()},
        "hosted": {key: _hosting_to_json(h) for key, h in content.hosted.items()},
        "home": content.home,
        "serial": content.serial,
    }
    text = _text(catalog)
    # Every DDL statement writes all objects, so encode them only once.
    whole = f'{{"catalog": {text}, "crc": {google_crc32c.value(text.encode())}, "format": {FORMAT}}}'
    write_durably(path, whole.encode())


def read_catalog(path: Path) -> Content | None:
    """Returns None if there is no file. Raises PSK-6001 if it is damaged or unreadable, PSK-6002 if a newer version wrote it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise fail("PSK-6001", f"{path} cannot be read: {error.strerror or error}.") from error
    try:
        whole = json.loads(data)
        written = int(whole["format"])
        if written <= FORMAT:
            return _first_format(whole) if written == 1 else _content(whole)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise fail("PSK-6001", f"{path} is damaged: {error or type(error).__name__}.") from error
    raise fail("PSK-6002", f"{path} has format {written}; this version reads up to {FORMAT}.")


def _content(whole: dict[str, Any]) -> Content:
    catalog = whole["catalog"]
    if whole["crc"] != _checksum(catalog):
        raise ValueError("its checksum does not match")
    return Content(
        next_id=int(catalog["next_id"]),
        objects=tuple(_object(o) for o in catalog["objects"]),
        plans={int(i): str(p) for i, p in catalog["plans"].items()},
        solo={int(i): Solo(**s) for i, s in catalog["solo"].items()},
        hosted={key: _hosting(h) for key, h in catalog.get("hosted", {}).items()},
        home=catalog["home"],
        serial=int(catalog.get("serial", 0)),
    )


def _first_format(whole: dict[str, Any]) -> Content:
    """Format 1 had no checksum and no roles, and stored everything except the objects under `facts`."""
    if "crc" in whole:
        raise ValueError("its format version does not match its content")
    stored = whole["facts"]
    return Content(
        next_id=int(whole["next_id"]),
        objects=with_roles([_object(o) for o in whole["objects"]]),
        plans={int(i): str(p) for i, p in stored.get("plans", {}).items()},
        solo={int(i): Solo(*s) for i, s in stored.get("solo", {}).items()},
        hosted={},
        home=None,
    )


def _hosting_to_json(hosting: Hosting) -> dict[str, Any]:
    members = {str(i): slot for i, slot in hosting.members.items()}
    return {"number": hosting.number, "start": hosting.start, "last": hosting.last, "members": members}


def _hosting(one: dict[str, Any]) -> Hosting:
    members = {int(i): Slot(**slot) for i, slot in one["members"].items()}
    return Hosting(one["number"], one["start"], one["last"], members)


def _object(one: dict[str, Any]) -> ObjectInfo:
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
        role=Role(one.get("role", Role.USER.value)),
        owner_id=one.get("owner_id"),
        lookup_id=one.get("lookup_id"),
        expands=tuple(one.get("expands", ())),
        order=tuple(SortTerm(**t) for t in one.get("order", ())),
        identity=one.get("identity"),
        comment=one.get("comment"),
        column_comments=one.get("column_comments", {}),
    )


def _text(catalog: dict[str, Any]) -> str:
    """The text that the checksum covers. A dataclass becomes a JSON object."""
    return json.dumps(catalog, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else {f.name: getattr(value, f.name) for f in fields(value)}


def _checksum(catalog: dict[str, Any]) -> int:
    return int(google_crc32c.value(_text(catalog).encode()))
