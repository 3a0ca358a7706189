"""Objects of a catalogue of format 1, in which only their names and texts said what they were for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from penstock.catalog.objects import ObjectInfo, Role

_PROBE = re.compile(r"__probe_\d+_(.*)", re.DOTALL)
_SINK = "__sink_"
_SUBSCRIPTION = "__subscription_"
_LATE = "LATE DATA"


def with_roles(objects: Sequence[ObjectInfo]) -> tuple[ObjectInfo, ...]:
    """The same objects with their roles and owners."""
    ids = {o.name: o.id for o in objects}
    return tuple(_with_role(o, ids) for o in objects)


def _with_role(info: ObjectInfo, ids: dict[str, int]) -> ObjectInfo:
    if info.sql.startswith(_LATE):
        return replace(info, role=Role.LATE_ROWS, owner_id=info.depends_on[0])
    probe = _PROBE.fullmatch(info.name)
    if probe is not None:
        lookup = int(info.options["lookup"])
        return replace(info, role=Role.PROBE, owner_id=ids.get(probe[1]), lookup_id=lookup)
    if info.name.startswith(_SINK):
        return replace(info, role=Role.SINK_QUERY, owner_id=ids.get(info.name.removeprefix(_SINK)))
    if info.name.startswith(_SUBSCRIPTION):
        return replace(info, role=Role.SUBSCRIPTION)
    return info
