"""Checks of the machine: memory, disk space, and durable writes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from penstock.cli.doctor.check import Check

MIN_MEMORY = 2 * 2**30
MIN_DISK = 1 * 2**30


def check_memory() -> Check:
    """There is enough memory for the JVM."""
    available = available_memory()
    if available is None:
        return Check("memory", None, "unknown on this system")
    ok = available >= MIN_MEMORY
    return Check(
        "memory",
        ok,
        f"{gib(available)} available",
        "" if ok else f"Free some memory: Spark needs about {gib(MIN_MEMORY)}.",
    )


def check_disk(folder: Path) -> Check:
    """There is enough free space in the folder."""
    try:
        free = shutil.disk_usage(existing(folder)).free
    except OSError as error:
        return Check("disk", False, f"{folder}: {error.strerror}", "Choose another folder.")
    ok = free >= MIN_DISK
    return Check(
        "disk", ok, f"{gib(free)} free in {folder}", "" if ok else "Free some space, or choose another folder."
    )


def check_sync(folder: Path) -> Check:
    """A small file can be written and synced in the folder. The time it takes is a lower bound for a durable insert."""
    try:
        took = sync_time(existing(folder))
    except OSError as error:
        return Check("write and sync", False, f"{folder}: {error.strerror}", "Choose a writable folder.")
    return Check("write and sync", True, f"{took * 1000:.1f} ms")


def sync_time(folder: Path) -> float:
    """Seconds for one 4 KiB write with fsync: the median of five."""
    times = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".penstock-doctor-") as file:
        for _ in range(5):
            began = time.perf_counter()
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return sorted(times)[2]


def available_memory() -> int | None:
    """Bytes available to a new process, or None if the system does not report it."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return None


def existing(folder: Path) -> Path:
    """The folder, or its nearest existing parent: `open` creates the rest."""
    path = folder.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def gib(size: int) -> str:
    """`3.2 GiB`."""
    return f"{size / 2**30:.1f} GiB"
