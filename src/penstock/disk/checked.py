"""Small JSON files with a format version and a checksum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import google_crc32c

from penstock.disk.whole import write_durably
from penstock.errors import fail


def pack_json(content: object, format: int) -> bytes:
    """The content as the bytes of a file."""
    return json.dumps({"format": format, "crc": _checksum(content), "content": content}).encode()


def unpack_json(data: bytes, format: int, file: Path) -> Any:
    """The content of a file. Raises ValueError if it is damaged, PSK-6002 if a newer version wrote it."""
    try:
        whole = json.loads(data)
        written, content, crc = int(whole["format"]), whole["content"], whole["crc"]
    except (KeyError, TypeError, RecursionError) as why:
        raise ValueError("it is not one of ours") from why
    if written > format:
        raise fail("PSK-6002", f"{file} has format {written}; this version reads up to {format}.")
    if crc != _checksum(content):
        raise ValueError("its checksum does not match")
    return content


def write_json(path: Path, content: object, format: int) -> None:
    """Replaces a file durably. Raises PSK-7004."""
    write_durably(path, pack_json(content, format))


def read_json(path: Path, format: int, *, lost: str, hint: str) -> Any:
    """The content of a file; raises FileNotFoundError if there is none, PSK-6001 with what is `lost` if it is damaged, PSK-6002 if a newer version wrote it."""
    try:
        return unpack_json(path.read_bytes(), format, path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as why:
        reason = why.strerror if isinstance(why, OSError) and why.strerror else str(why)
        raise fail("PSK-6001", f"{path} is damaged: {reason}. {lost}", hint=hint) from why


def _checksum(content: object) -> int:
    return int(google_crc32c.value(json.dumps(content, sort_keys=True).encode()))
