"""Where things are in a database folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    root: Path

    @property
    def catalog(self) -> Path:
        return self.root / "catalog.json"

    @property
    def unit(self) -> Path:
        return self.root / "unit.arrow"

    def job(self, object_id: int) -> Path:
        return self.root / "jobs" / str(object_id)

    def snapshot(self, object_id: int) -> Path:
        return self.root / "views" / f"{object_id}.arrow"
