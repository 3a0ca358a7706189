"""Reads the settings of a database, layer by layer, and remembers which layer each value came from."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from penstock.config.folder import check_from_folder
from penstock.config.keys import Key, flatten, is_map, leaves, parse_key, unknown_key
from penstock.config.settings import Settings
from penstock.errors import fail

FILE_NAME = "penstock.toml"
ENV_PREFIX = "PENSTOCK__"

# A value and where it came from.
Value = tuple[Key, Any, str]


def load_settings(
    folder: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of the database in `folder`. A later layer wins, key by key:

    1. the defaults,
    2. `penstock.toml` in `folder`, if it is there; it cannot set what could run code or open the database (PSK-0012),
    3. the environment: `PENSTOCK__SECTION__KEY`,
    4. `config`: nested or with dotted keys.

    An unknown key is refused with PSK-0001, a value that does not fit with PSK-0002.
    """
    values: dict[Key, Any] = {}
    origins: dict[str, str] = {}
    for key, value, origin in (
        *_from_file(folder),
        *_from_environment(os.environ if environ is None else environ),
        *((key, value, "config") for key, value in flatten(Settings, config or {}, "config")),
    ):
        values[key] = value
        origins[str(key)] = origin

    tree: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.path if key.entry is None else (*key.path, key.entry)
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        detail = f"{name} = {first['input']!r} (from {origins.get(name, 'config')}) does not fit: {reason}."
        raise fail("PSK-0002", detail) from problem
    settings._origins.update(origins)
    return settings


def _from_file(folder: str | os.PathLike[str] | None) -> Iterator[Value]:
    if folder is None:
        return
    path = Path(folder, FILE_NAME)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as problem:
        raise fail("PSK-0002", f"{path} cannot be read: {problem}.") from problem
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise fail("PSK-0002", f"{path} is not TOML: {problem}.") from problem
    for key, value in flatten(Settings, tree, str(path)):
        check_from_folder(key, value, path)
        yield key, value, str(path)


def _from_environment(environ: Mapping[str, str]) -> Iterator[Value]:
    known = {"__".join(path).upper(): (path, field) for path, field in leaves(Settings)}
    for variable in sorted(environ):
        if not variable.upper().startswith(ENV_PREFIX):
            continue
        value = environ[variable]
        name = variable[len(ENV_PREFIX) :]
        if name.upper() in known:
            path, field = known[name.upper()]
            if is_map(field):
                for entry, inner in _json_object(variable, value).items():
                    yield Key(path, entry), inner, variable
            else:
                yield Key(path), value, variable
            continue
        # An entry of a map: its name keeps its case.
        prefix = next((p for p, (_, f) in known.items() if is_map(f) and name.upper().startswith(f"{p}__")), None)
        if prefix is None:
            raise unknown_key(Settings, name.lower().replace("__", "."), variable)
        yield parse_key(Settings, f"{'.'.join(known[prefix][0])}.{name[len(prefix) + 2 :]}", variable), value, variable


def _json_object(variable: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise fail("PSK-0002", f"{variable} = {text!r} is not a JSON object, which a map is given as.")
    return value
