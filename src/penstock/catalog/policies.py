"""Row rules of an object, stored in its options."""

from __future__ import annotations

from dataclasses import replace

from penstock.catalog.objects import ObjectInfo

_PREFIX = "policy."


def policies(info: ObjectInfo) -> dict[str, str]:
    """The conditions of an object's row rules, by name. A row is visible if any of them holds."""
    return {k.removeprefix(_PREFIX): v for k, v in info.options.items() if k.startswith(_PREFIX)}


def with_policy(info: ObjectInfo, name: str, condition: str | None) -> ObjectInfo:
    """The object with a rule set or, with `condition` None, removed."""
    options = {k: v for k, v in info.options.items() if k != _PREFIX + name}
    return replace(info, options=options if condition is None else options | {_PREFIX + name: condition})
