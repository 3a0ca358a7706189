"""How the tests start the command."""

from __future__ import annotations

import os
import sys

COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "LINES": "40", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
# a cold JVM on a loaded machine
TIMEOUT_S = 180
