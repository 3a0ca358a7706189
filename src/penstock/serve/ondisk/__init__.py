"""Contents that are larger than memory: immutable sorted files, and the newest changes in memory."""

from __future__ import annotations

from penstock.serve.ondisk.contents import DiskContents, Workers
from penstock.serve.ondisk.form import Form
from penstock.serve.ondisk.manifest import MANIFEST, files_of
from penstock.serve.ondisk.snapshot import Snapshot

__all__ = ["MANIFEST", "DiskContents", "Form", "Snapshot", "Workers", "files_of"]
