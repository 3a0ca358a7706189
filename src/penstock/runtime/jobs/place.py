"""Places outside of the database folder: a folder, or a part of an object store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import pyarrow as pa
from pyarrow import fs

from penstock.disk import make_folder, write_durably
from penstock.errors import PenstockError, fail

_CHUNK = 8 << 20
_SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
_OF_BUCKETS = ("s3", "gs", "gcs")
_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]+):/(/?)")


def prefix_of(url: str) -> str:
    """The prefix of objects under a URL: nothing for file://, whose file system already begins there, and what follows the bucket otherwise, with a slash at its end."""
    _, scheme, rest = url.partition("://")
    if url.startswith("file://"):
        return ""
    _, slash, prefix = (rest if scheme else url).partition("/")
    if not slash or not prefix:
        return ""
    return prefix if prefix.endswith("/") else f"{prefix}/"


def _nothing() -> None:
    """Does not end the work."""


class Place:
    """A folder: a path, `file://…`, or `s3://bucket/prefix`. Raises PSK-6008 for anything else, and if it cannot be used.

    A file has its name when all of it is there, and in a folder when it is on disk. `go_on` is called for every few megabytes; what it raises ends the work.
    """

    def __init__(self, url: str, go_on: Callable[[], None] = _nothing) -> None:
        # Parameters, such as the endpoint, may be secrets, as may be what precedes the host.
        scheme, there, rest = url.partition("?")[0].partition("://")
        self.url = f"{scheme}://{rest.rpartition('@')[2]}" if there else url
        self.folder: Path | None = None
        """Of a place that is no object store."""
        self._go_on = go_on
        _check_form(url, self.url)
        try:
            self._files, path = fs.FileSystem.from_uri(url if there else Path(url).absolute().as_uri())
        except (pa.ArrowException, OSError, ValueError) as why:
            # It may quote the URL, with its secrets.
            raise _unusable(self.url, str(why).replace(url, self.url)) from None
        self._root = path
        if not there or scheme == "file":
            self.folder = Path(path)
        elif scheme in _OF_BUCKETS:
            self._root = f"{path.partition('/')[0]}/{prefix_of(self.url)}".rstrip("/")

    def write(self, name: str, source: Path, size: int) -> int:
        """Copies the first bytes of a file; returns their checksum. Raises FileNotFoundError if it is gone."""
        crc = 0

        def copy(out: BinaryIO | pa.NativeFile) -> None:
            nonlocal crc
            crc = 0
            for chunk in _chunks(data, size):
                self._go_on()
                out.write(chunk)
                crc = int(google_crc32c.extend(crc, chunk))

        with source.open("rb") as data:
            self._write(name, copy)
        return crc

    def put(self, name: str, data: bytes) -> None:
        """Writes a small file."""
        self._write(name, lambda out: out.write(data))

    def _write(self, name: str, write: Callable[[BinaryIO | pa.NativeFile], object]) -> None:
        try:
            if self.folder is not None:
                path = self.folder / name
                make_folder(path.parent)
                write_durably(path, write)
            else:
                with self._files.open_output_stream(f"{self._root}/{name}") as out:
                    write(out)
        except (pa.ArrowException, OSError) as why:
            raise _unusable(f"{self.url}/{name}", why) from why
        except PenstockError as why:
            if why.code != "PSK-7004":
                raise
            raise fail("PSK-6008", why.detail) from why

    def read(self, name: str, target: Path | None) -> tuple[int, int]:
        """Reads a file, and copies it to `target`, durably; returns its size and checksum. Raises PSK-7004 if it cannot be written."""
        size = crc = 0

        def copy(out: BinaryIO | None) -> None:
            nonlocal size, crc
            try:
                with self._files.open_input_stream(f"{self._root}/{name}") as data:
                    while chunk := data.read(_CHUNK):
                        self._go_on()
                        size, crc = size + len(chunk), int(google_crc32c.extend(crc, chunk))
                        if out is not None:
                            out.write(chunk)
            except (pa.ArrowException, OSError) as why:
                raise _unusable(f"{self.url}/{name}", why) from why

        if target is None:
            copy(None)
        else:
            write_durably(target, copy)
        return size, crc

    def get(self, name: str) -> bytes | None:
        """The content of a small file; None if there is none."""
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as data:
                return bytes(data.read())
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError) as why:
            raise _unusable(f"{self.url}/{name}", why) from why

    def has(self, name: str) -> bool:
        try:
            found = self._files.get_file_info(f"{self._root}/{name}")
        except (pa.ArrowException, OSError) as why:
            raise _unusable(self.url, why) from why
        return bool(found.type == fs.FileType.File)

    def sizes(self, folder: str) -> dict[str, int]:
        """All files below a folder, by their names in it; without a name, of the whole place."""
        start = f"{self._root}/{folder}" if folder else self._root
        try:
            found = self._files.get_file_info(fs.FileSelector(start, allow_not_found=True, recursive=True))
        except (pa.ArrowException, OSError) as why:
            raise _unusable(f"{self.url}/{folder}", why) from why
        return {f.path.removeprefix(f"{start}/"): f.size for f in found if f.type == fs.FileType.File}

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        try:
            if self.folder is not None:
                (self.folder / name).unlink(missing_ok=True)
            else:
                self._files.delete_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return
        except (pa.ArrowException, OSError) as why:
            raise _unusable(f"{self.url}/{name}", why) from why


def _chunks(data: BinaryIO, size: int) -> Iterator[bytes]:
    while size and (chunk := data.read(min(size, _CHUNK))):
        size -= len(chunk)
        yield chunk


def _check_form(url: str, shown: str) -> None:
    """Refuses what Arrow would ignore, or take for something else."""
    found = _SCHEME.match(url)
    if not url or "\0" in url:
        raise _unusable(repr(shown), "it is no place")
    if found is None:
        return
    if found[1] not in _SCHEMES or not found[2]:
        raise _unusable(
            shown, f"it begins with {found[0]}, which is not one of {', '.join(f'{s}://' for s in _SCHEMES)}"
        )
    if "#" in url or (found[1] == "file" and "?" in url):
        raise _unusable(
            shown, "it has parameters or a fragment, which mean nothing here; write %23 and %3F for # and ?"
        )


def _unusable(what: str, why: object) -> PenstockError:
    return fail("PSK-6008", f"{what} cannot be used: {why}.")


__all__ = ["Place", "prefix_of"]
