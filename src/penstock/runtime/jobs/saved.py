"""The files of a job as they were at one moment, from which it can go on."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.disk import inner, link, make_folder, sync_folder, write_durably
from penstock.errors import fail
from penstock.spark.offsets import Reached, epoch_in, numbered, offset_in, reached_in

_LARGE = 128 << 10
"""A larger file is linked and not copied."""
LEDGER = "state"
_NUMBERED = re.compile(r"(\d+)(?:_[^.]+)?\.(?:changelog|zip|delta|snapshot)")
_RETAINED = 8
"""Spark keeps the state of ten epochs: what is listed is whole if fewer have passed meanwhile."""
_ATTEMPTS = 5


@dataclass(frozen=True)
class Saved:
    """How far the job had come, its small files as one archive, and the large ones by their names."""

    reached: Reached
    small: bytes
    large: Mapping[str, Path]


def capture(job: Path) -> Saved | None:
    """The newest epoch of a job that may be running; None if it has none yet. Names are relative to the folder of the job."""
    for _ in range(_ATTEMPTS):
        try:
            return _capture(job)
        except FileNotFoundError:
            # Spark has removed it meanwhile.
            continue
        except ValueError:
            # It is damaged. Earlier checkpoints have the job as it was.
            return None
    return None


def _capture(job: Path) -> Saved | None:
    checkpoint = job / "checkpoint"
    small: dict[str, bytes] = {}
    # First of all: it has the sizes of epochs, and must not have those of later ones alone.
    if (job / LEDGER).exists():
        small[LEDGER] = (job / LEDGER).read_bytes()
    if (checkpoint / "epoch").exists():
        data = (checkpoint / "epoch").read_bytes()
        epoch = epoch_in(data)
        small["checkpoint/epoch"] = data
        reached, newest = reached_in(epoch, done="after" in epoch), _number(epoch)
        made = _versions(epoch)
    else:
        committed = numbered(checkpoint / "commits")
        if not committed:
            return None
        newest = committed[-1]
        # Spark reads the offsets of the epoch before, too.
        earlier = [n for n in numbered(checkpoint / "offsets") if newest - _RETAINED < n <= newest]
        files = [f"{kind}/{n}" for n in earlier for kind in ("offsets", "commits")]
        for name in ("metadata", *files):
            small[f"checkpoint/{name}"] = (checkpoint / name).read_bytes()
        offset = offset_in(small[f"checkpoint/offsets/{newest}"])
        if offset is None:
            return None
        reached = Reached(int(json.loads(offset)["lsn"]), 0)
        made = None
    large: dict[str, Path] = {}
    for path in _state(checkpoint / "state"):
        name = path.relative_to(job).as_posix()
        # Spark's number of a version is that of the epoch after it.
        last = newest + 1 if made is None else made.get(path.parent.relative_to(checkpoint).as_posix(), 0)
        if _version(path) > last:
            continue
        if path.stat().st_size > _LARGE:
            large[name] = path
        else:
            small[name] = path.read_bytes()
    now = (
        numbered(checkpoint / "commits")[-1] if made is None else _number(epoch_in((checkpoint / "epoch").read_bytes()))
    )
    if now - newest > _RETAINED:
        raise FileNotFoundError
    return Saved(reached, _packed(small), large)


def _number(epoch: Mapping[str, object]) -> int:
    return int(str(epoch["epoch"]))


def _versions(epoch: Mapping[str, object]) -> dict[str, int]:
    """The version of each part of the state that an epoch of a shared job has made, or reads if it is not done, by its folder."""
    names, partitions = epoch.get("after", epoch["before"]), int(str(epoch["partitions"]))
    assert isinstance(names, list)
    return {
        f"state/{i // partitions + 1}/{i % partitions}": int(str(name).partition(":")[0] or 0)
        for i, name in enumerate(names)
    }


def _version(file: Path) -> int:
    """The version of a change log or snapshot of state; 0 of any other file."""
    found = _NUMBERED.fullmatch(file.name)
    return int(found[1]) if found is not None else 0


def _state(folder: Path) -> Iterator[Path]:
    """All files of state. Those of later versions than that of the epoch are left out: Spark keeps the newest that it finds, and would remove those that the epoch needs."""
    for parent, _, files in os.walk(folder):
        for file in sorted(files):
            if not file.endswith(".tmp"):
                yield Path(parent) / file


def _packed(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def put_back(job: Path, small: bytes, large: Mapping[str, Path]) -> None:
    """Replaces the checkpoint of a job that is not running. After a crash in between it has none, and is put back again."""
    made = job / "checkpoint.new"
    shutil.rmtree(made, ignore_errors=True)
    make_folder(made)
    folders = {made}
    with zipfile.ZipFile(io.BytesIO(small)) as archive:
        for name in archive.namelist():
            if name == LEDGER:
                continue
            target = made / Path(_inner(name)).relative_to("checkpoint")
            make_folder(target.parent)
            write_durably(target, archive.read(name))
        ledger = archive.read(LEDGER) if LEDGER in archive.namelist() else None
    for name, path in large.items():
        target = made / Path(name).relative_to("checkpoint")
        make_folder(target.parent)
        link(path, target)
        folders.add(target.parent)
    for folder in folders:
        sync_folder(folder)
    discard(job)
    if ledger is not None:
        write_durably(job / LEDGER, ledger)
    os.replace(made, job / "checkpoint")
    sync_folder(job)


def _inner(name: str) -> str:
    """A savepoint may come from anywhere."""
    try:
        return inner(name)
    except ValueError as why:
        raise fail("PSK-6001", f"A checkpoint of a query is damaged: {why}.") from why


def discard(job: Path) -> None:
    """Removes the checkpoint of a job that is not running, and leaves what it began with."""
    shutil.rmtree(job / "checkpoint", ignore_errors=True)
    (job / LEDGER).unlink(missing_ok=True)
