"""Names of files that come from outside."""

from __future__ import annotations

from pathlib import PurePosixPath


def inner(name: str) -> str:
    """The name of a file below a folder. Raises ValueError if it leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} leads out of its folder")
    return name
