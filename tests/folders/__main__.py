"""`python -m tests.folders [ARCHIVE]`: writes a folder with this version, as an archive."""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from tests.folders import write


def main() -> None:
    archive = Path(sys.argv[1] if len(sys.argv) > 1 else "folder.tar.xz")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write(root, **{"spark.heap": "1g", "spark.master": "local[2]", "spark.class_archive": False})
        for left in ("db/lock", "db/jvm.lock"):
            (root / left).unlink(missing_ok=True)
        with tarfile.open(archive, "w:xz") as packed:
            for part in ("db", "out"):
                packed.add(root / part, part)


if __name__ == "__main__":
    main()
