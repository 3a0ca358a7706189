"""The files that make up the contents of an object on disk, and the position of these contents."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.disk import inner, read_json, unpack_json, write_json
from penstock.errors import fail
from penstock.serve.ondisk.form import Form
from penstock.serve.ondisk.segment import Facts

MANIFEST = "contents.json"
_FORMAT = 2
_LOST = "The contents of its object are unknown."
_HINT = "An older checkpoint may be whole: penstock checkpoint verify says which are."


@dataclass(frozen=True)
class Manifest:
    """`epoch`, `lsn` and `count` (of rows) are the object's with everything in `files`, the newest last; `next` numbers the next file."""

    epoch: int
    lsn: int
    count: int
    next: int
    kind: str
    keys: tuple[str, ...]
    files: tuple[Facts, ...]


def read_manifest(folder: Path, form: Form) -> Manifest:
    """Raises PSK-6001 if it is missing, damaged, or of another object."""
    path = folder / MANIFEST
    try:
        found = read_json(path, _FORMAT, lost=_LOST, hint=_HINT)
    except FileNotFoundError as why:
        raise fail("PSK-6001", f"{path} is missing. {_LOST}", hint=_HINT) from why
    try:
        files = tuple(Facts(**f) for f in found.pop("files"))
        manifest = Manifest(**found | {"keys": tuple(found["keys"]), "files": files})
    except (KeyError, TypeError, AttributeError) as why:
        raise fail("PSK-6001", f"{path} is damaged: {why!r}. {_LOST}", hint=_HINT) from why
    if (manifest.kind, manifest.keys) != (form.kind.value, form.keys):
        raise fail("PSK-6001", f"{path} is of an object with another key. {_LOST}", hint=_HINT)
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replaces it durably. Raises PSK-7004."""
    write_json(folder / MANIFEST, asdict(manifest), _FORMAT)


def files_of(data: bytes, folder: Path) -> list[str]:
    """The names of the files that a manifest lists. Raises PSK-6001 if it is damaged."""
    path = folder / MANIFEST
    try:
        return [inner(str(f["name"])) for f in unpack_json(data, _FORMAT, path)["files"]]
    except (KeyError, TypeError, ValueError) as why:
        raise fail("PSK-6001", f"{path} is damaged: {why}. {_LOST}", hint=_HINT) from why
