"""Where LaminarDB is installed, if it can be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / ".venv"
PACKAGES = ("laminardb", "numpy", "psutil", "pyarrow")


def interpreter() -> tuple[str | None, str]:
    """A Python that has LaminarDB, and its version; or None, and why there is none."""
    own = FOLDER / "bin" / "python"
    for python in (sys.executable, str(own)):
        version = _version(python)
        if version is not None:
            return python, version
    try:
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True, capture_output=True)
        pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"cannot be installed ({type(error).__name__})"
    version = _version(str(own))
    return (str(own), version) if version is not None else (None, "cannot be imported")


def _version(python: str) -> str | None:
    program = "import laminardb, psutil, pyarrow; from importlib.metadata import version; print(version('laminardb'))"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
