"""The layout of a database folder."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.catalog.objects import Hosting
from penstock.errors import fail

_HOSTED = "hosted-"


@dataclass(frozen=True)
class Layout:
    root: Path

    @property
    def has_database(self) -> bool:
        """Whether the folder has a database, whole or damaged. A savepoint has the same files, and a manifest. Raises PSK-0009 if that is unknown."""
        try:
            return not self.is_savepoint and any(
                (self.root / n).exists() for n in ("catalog.json", "log", "format.json", "restore.json")
            )
        except OSError as why:
            raise fail("PSK-0009", f"{self.root} cannot be read: {why.strerror or why}.") from why

    @property
    def is_savepoint(self) -> bool:
        made = all((self.root / n).is_file() for n in ("manifest.json", "body"))
        return made and not (self.root / "format.json").exists()

    @property
    def catalog(self) -> Path:
        return self.root / "catalog.json"

    @property
    def serial(self) -> Path:
        """Attests to the last change of the catalogue."""
        return self.root / "catalog.serial"

    @property
    def totals(self) -> Path:
        return self.root / "totals.json"

    @property
    def unit(self) -> Path:
        return self.root / "unit.arrow"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def job(self, object_id: int) -> Path:
        return self.jobs / str(object_id)

    def hosted(self, key: str, number: int) -> Path:
        """The folder of a shared job."""
        return self.jobs / f"{_HOSTED}{key}" / str(number)

    def job_folders(self) -> set[str]:
        """The folders of all jobs, relative to the database, also of those that nobody knows any more."""
        found = (*self.jobs.glob("[0-9]*/"), *self.jobs.glob(f"{_HOSTED}*/*/"))
        return {folder.relative_to(self.root).as_posix() for folder in found}

    def snapshot(self, object_id: int) -> Path:
        return self.root / "views" / f"{object_id}.arrow"

    def contents(self, object_id: int) -> Path:
        """The folder of contents that are larger than memory."""
        return self.root / "views" / str(object_id)

    def sweep(self, objects: Collection[int], hosted: Mapping[str, Hosting]) -> None:
        """Deletes what belongs to no object: a crash may have come between a change of the catalogue and of the folder."""
        for folder in self.jobs.glob("*/"):
            if folder.name.startswith(_HOSTED):
                key = folder.name.removeprefix(_HOSTED)
                self.sweep_hosted(key, hosted.get(key))
            elif folder.name.isdecimal() and int(folder.name) not in objects:
                remove(folder)
        for file in self.root.glob("views/*"):
            of = file.name.lstrip(".").partition(".")[0]
            # A partially written snapshot is useless, even if its object exists.
            known = of.isdecimal() and file in (self.snapshot(int(of)), self.contents(int(of)))
            if of.isdecimal() and (int(of) not in objects or not known):
                remove(file)

    def sweep_hosted(self, key: str, now: Hosting | None) -> None:
        """Deletes the folders of all shared jobs over some objects but the one that there is now."""
        folder = self.hosted(key, 0).parent
        if now is None:
            remove(folder)
            return
        for old in folder.glob("*"):
            if old.name != str(now.number):
                remove(old)


def remove(path: Path) -> None:
    """Removes a file or folder that is no longer needed. The next open removes what cannot be removed now."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
