"""Disks whose power can be cut: an ext4 file system in an image, mounted so that the kernel writes nothing by itself for a long time.

The image has what was synced, and a copy of it is the disk after a power cut.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

MEBIBYTE = 1 << 20
LARGE, SMALL = 768 * MEBIBYTE, 96 * MEBIBYTE
# The kernel would write metadata every 5 s.
OPTIONS = "loop,noatime,commit=3600"


def possible() -> bool:
    """Whether this process may mount images."""
    tools = all(shutil.which(t) for t in ("mkfs.ext4", "mount", "umount", "unshare"))
    return sys.platform == "linux" and os.geteuid() == 0 and tools and Path("/dev/loop-control").exists()


def run(*command: object) -> None:
    subprocess.run([str(c) for c in command], check=True, capture_output=True)


class Disk:
    """An image, and the folder where it is mounted."""

    def __init__(self, folder: Path, size: int) -> None:
        self.image, self.mounted = folder / "disk", folder / "mounted"
        self.mounted.mkdir()
        with self.image.open("wb") as file:
            file.truncate(size)
        run("mkfs.ext4", "-q", self.image)
        run("mount", "-o", OPTIONS, self.image, self.mounted)

    def cut(self) -> None:
        """From now on it has what was synced. Nobody may use it meanwhile."""
        after = self.image.with_name("after")
        run("cp", "--sparse=always", self.image, after)
        run("umount", "-l", self.mounted)
        os.replace(after, self.image)
        run("mount", "-o", OPTIONS, self.image, self.mounted)

    def remove(self) -> None:
        run("umount", "-l", self.mounted)
