"""The format of a database folder as a whole, and the steps from earlier ones.

Each file has a format of its own as well, which says how it is read. This one says which files there must be, so that one that is missing is noticed.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.catalog.file import read_catalog
from penstock.catalog.objects import Kind
from penstock.disk import link, make_folder, read_json, sync_file, sync_folder, write_json
from penstock.errors import fail
from penstock.runtime.storage.layout import Layout
from penstock.runtime.storage.position import Position, position_file

_logger = logging.getLogger(__name__)

FORMAT = 1
FORMAT_FILE = "format.json"
_FILE_FORMAT = 1
_SMALL = 1 << 20
"""Files up to this size are copied to a backup, larger ones linked."""
_LEFT_OUT = frozenset({"checkpoints", "spill", "logs", "lock", "jvm.lock"})
"""A checkpoint is of no use to an earlier version that is not in its own folder; the others are of a process."""


def _positions(root: Path) -> None:
    """Format 1: a sink has the file of its position from its creation on, and not from its first epoch on."""
    layout = Layout(root)
    content = read_catalog(layout.catalog)
    for info in content.objects if content is not None else ():
        if info.kind is Kind.SINK and not (file := position_file(layout, info)).exists():
            file.write(Position())


STEPS: Mapping[int, Callable[[Path], None]] = {0: _positions}
"""What makes a folder of each earlier format one of the next. A step can be repeated: a crash may have come in the middle of it."""


def bring_up_to_date(root: Path) -> int | None:
    """Makes a folder that an earlier version wrote one of this version, with a backup beside its files; returns the earlier format if it did.

    Raises PSK-6002 if a newer version wrote it, PSK-6001 if its format is unknown, PSK-7004.
    """
    found = format_of(root)
    if found is None:
        make_folder(root)
        write_format(root, FORMAT)
        return None
    if found > FORMAT:
        raise fail("PSK-6002", f"{root} has format {found}; this version reads up to {FORMAT}.")
    if found == FORMAT:
        return None
    kept = _back_up(root, found)
    for number in range(found, FORMAT):
        STEPS[number](root)
    write_format(root, FORMAT)
    _logger.warning("%s had format %d, and has format %d now; %s has its files as they were", root, found, FORMAT, kept)
    return found


def format_of(root: Path) -> int | None:
    """The format of a folder; None if it has no database. Folders without the file have format 0."""
    path = root / FORMAT_FILE
    try:
        return int(
            read_json(
                path,
                _FILE_FORMAT,
                lost="Which version wrote the folder is unknown.",
                hint="Restore the file from a backup. If this version wrote the folder last, remove the file.",
            )
        )
    except FileNotFoundError:
        return 0 if Layout(root).catalog.exists() or any((root / "log").glob("*.seg")) else None


def write_format(root: Path, format: int) -> None:
    write_json(root / FORMAT_FILE, format, _FILE_FORMAT)


def _back_up(root: Path, format: int) -> Path:
    """Keeps the files as they are, durably. Large files never change in place, except for the end of the log."""
    target = root / f"backup-format-{format}"
    if target.exists():
        return target
    beside = target.with_name(f"{target.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    make_folder(beside)
    newest = max((p.name for p in (root / "log").glob("*.seg")), default="")
    for folder, folders, files in os.walk(root):
        at = Path(folder)
        if at == root:
            folders[:] = [f for f in folders if f not in _LEFT_OUT and not f.startswith(("backup-format-", "damaged-"))]
        to = beside / at.relative_to(root)
        to.mkdir(exist_ok=True)
        for name in files:
            if at == root and name in _LEFT_OUT:
                continue
            if name == newest or (at / name).stat().st_size <= _SMALL:
                shutil.copy2(at / name, to / name)
                sync_file(to / name)
            else:
                link(at / name, to / name)
        sync_folder(to)
    os.replace(beside, target)
    sync_folder(root)
    return target


__all__ = ["FORMAT", "FORMAT_FILE", "STEPS", "bring_up_to_date", "format_of", "write_format"]
