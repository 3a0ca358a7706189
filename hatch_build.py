"""Builds the kernel jar before the wheel is put together, and puts it into the wheel."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        kernel = runpy.run_path(str(Path(self.root, "kernel", "build.py")))
        try:
            kernel["build"]()
        except kernel["BuildError"] as problem:
            # The message says it all; a traceback would hide it.
            sys.exit(f"\n{problem}\n")
        # The jar is git-ignored, so it has to be asked for by name.
        build_data["artifacts"].append("/src/penstock/spark/penstock-kernel.jar")
