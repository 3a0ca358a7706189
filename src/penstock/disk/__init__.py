"""The operating system calls that durability depends on."""

from __future__ import annotations

from penstock.disk.checked import pack_json, read_json, unpack_json, write_json
from penstock.disk.crash import crash_point
from penstock.disk.growing import datasync, reserve, write_all
from penstock.disk.inner import inner
from penstock.disk.lock import LOCK, FolderLock, of_parent
from penstock.disk.whole import TEMPORARY, link, make_folder, sync_file, sync_folder, unwritable, write_durably
from penstock.disk.witness import Witness

__all__ = [
    "LOCK",
    "TEMPORARY",
    "FolderLock",
    "Witness",
    "crash_point",
    "datasync",
    "inner",
    "link",
    "make_folder",
    "of_parent",
    "pack_json",
    "read_json",
    "reserve",
    "sync_file",
    "sync_folder",
    "unpack_json",
    "unwritable",
    "write_all",
    "write_durably",
    "write_json",
]
