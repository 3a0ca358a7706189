"""The operating system calls that durability depends on."""

from __future__ import annotations

from penstock.disk.crash import crash_point
from penstock.disk.growing import datasync, reserve, write_all
from penstock.disk.whole import TEMPORARY, make_folder, sync_file, sync_folder, unwritable, write_durably

__all__ = [
    "TEMPORARY",
    "crash_point",
    "datasync",
    "make_folder",
    "reserve",
    "sync_file",
    "sync_folder",
    "unwritable",
    "write_all",
    "write_durably",
]
