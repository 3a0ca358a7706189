"""The layout of a database folder."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.catalog.objects import Hosting

_HOSTED = "hosted-"


@dataclass(frozen=True)
class Layout:
    root: Path

    @property
    def catalog(self) -> Path:
        return self.root / "catalog.json"

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
