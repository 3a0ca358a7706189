"""Reads the progress of a job from its checkpoint, whether or not the job is running."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import NamedTuple

import google_crc32c

# magic, crc32c of everything before, as the kernel's `Sealed` writes them
_SEAL = struct.Struct(">4sI")
_MAGIC = b"PSKc"


class Reached(NamedTuple):
    """The progress of a job: it has read everything up to an LSN, and members of a shared job up to slot `roster` have started."""

    lsn: int
    roster: int


def unsealed(data: bytes) -> bytes:
    """The content of a checkpoint file. Raises ValueError if its checksum does not match; files of an earlier version have none."""
    if len(data) >= _SEAL.size:
        magic, crc = _SEAL.unpack_from(data, len(data) - _SEAL.size)
        if magic == _MAGIC:
            content = data[: -_SEAL.size]
            if google_crc32c.value(content) != crc:
                raise ValueError("its checksum does not match")
            return content
    return data


def recorded_file(job: Path) -> Path:
    """The file with the LSN that the log must have reached to contain everything that Spark's query has recorded."""
    return job / "checkpoint" / "recorded"


def recorded_in(epoch: dict[str, object]) -> int:
    """The same LSN, from the newest epoch of a shared job."""
    return int(str(epoch.get("recorded", 0)))


def numbered(folder: Path) -> list[int]:
    """The epochs that have a file in a folder."""
    return sorted(int(f.name) for f in folder.glob("*") if f.name.isdecimal())


def offset_in(data: bytes) -> str | None:
    """The offset of the job in a file of Spark's offset log."""
    # A header, settings, and the offset of each scan, which are all the same within an epoch.
    lines = unsealed(data).decode().splitlines()
    return next((line for line in lines[2:] if line.startswith("{")), None)


def epoch_in(data: bytes) -> dict[str, object]:
    """The newest epoch of a shared job, from the kernel's `EpochFile`. Raises ValueError if the file is damaged."""
    first, *rest = data.decode().split("\n")
    epoch = json.loads(first)
    if not isinstance(epoch, dict) or "version" not in epoch:
        raise ValueError("it is not one of ours")
    sound = not rest if epoch["version"] == 1 else rest == [str(google_crc32c.value(first.encode()))]
    if not sound:
        raise ValueError("its checksum does not match")
    return epoch


def reached_in(epoch: dict[str, object], *, done: bool) -> Reached:
    """The progress of a shared job, before its newest epoch or, if `done`, after it."""
    offset = json.loads(str(epoch["end" if done else "start"]))
    return Reached(int(offset["lsn"]), int(offset.get("roster", 0)))


def check_ledger(data: bytes, *, sealed: bool) -> None:
    """Raises ValueError if the checksum of the kernel's `StateLedger` file does not match. Without `sealed`, an earlier version may have written it without one."""
    content, mark, crc = data.decode().rpartition("crc32c ")
    if crc != str(google_crc32c.value(content.encode())) if mark else sealed or not data:
        raise ValueError("its checksum does not match")
