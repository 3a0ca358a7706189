"""The dotted names of settings: `spark.heap`, `spark.conf.<any>`, `variables.<any>`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock.errors import PenstockError, fail


@dataclass(frozen=True)
class Key:
    """A known setting: its path through the sections and, inside a map, the name of the entry."""

    path: tuple[str, ...]
    entry: str | None = None

    def __str__(self) -> str:
        return ".".join(self.path if self.entry is None else (*self.path, self.entry))


def is_map(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is dict


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def leaves(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Path and field of every setting of a model, in order."""
    for name, field in model.model_fields.items():
        section = section_of(field)
        if section is None:
            yield (*prefix, name), field
        else:
            yield from leaves(section, (*prefix, name))


def parse_key(model: type[BaseModel], text: str, origin: str | None = None) -> Key:
    """Resolves a dotted name. Raises PSK-0001, with the nearest known name, if it is unknown."""
    for path, field in leaves(model):
        name = ".".join(path)
        if text == name:
            return Key(path)
        if is_map(field) and text.startswith(f"{name}.") and len(text) > len(name) + 1:
            return Key(path, text[len(name) + 1 :])
    raise unknown_key(model, text, origin)


def unknown_key(model: type[BaseModel], text: str, origin: str | None = None) -> PenstockError:
    names = [".".join(path) for path, _ in leaves(model)]
    near = difflib.get_close_matches(text.lower(), names, n=1, cutoff=0.5)
    if not near:
        # Right key, wrong section (or none): engine.heap, heap.
        last = text.lower().rpartition(".")[2]
        near = [n for n in names if n.rpartition(".")[2] == last]
    hint = f"Did you mean {near[0]!r}?" if near else f"The settings are: {', '.join(names)}."
    place = f" (from {origin})" if origin else ""
    return fail("PSK-0001", f"There is no setting {text!r}{place}.", hint=hint)


def flatten(model: type[BaseModel], tree: Mapping[str, Any], origin: str) -> Iterator[tuple[Key, Any]]:
    """Yields the settings in nested mappings, dotted names, or a mix of both. Raises PSK-0001 for unknown ones."""
    holders = {".".join(path[:i]) for path, _ in leaves(model) for i in range(1, len(path))}
    holders |= {".".join(path) for path, field in leaves(model) if is_map(field)}
    scalars = {".".join(path) for path, field in leaves(model) if not is_map(field)}

    def visit(name: str, value: Any) -> Iterator[tuple[Key, Any]]:
        if name in holders and not isinstance(value, Mapping):
            raise fail("PSK-0002", f"{name} (from {origin}) is a section of settings and cannot be {value!r}.")
        if name in scalars or not isinstance(value, Mapping):
            yield parse_key(model, name, origin), value
            return
        if not value and name not in holders:
            raise unknown_key(model, name, origin)
        for inner_name, inner in value.items():
            yield from visit(f"{name}.{inner_name}", inner)

    for name, value in tree.items():
        yield from visit(str(name), value)
