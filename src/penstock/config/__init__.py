"""Settings: what they are, where they come from, and `${NAME}` in option values."""

from __future__ import annotations

from penstock.config.change import changed
from penstock.config.load import FILE_NAME, load_settings
from penstock.config.settings import (
    EngineSettings,
    LogSettings,
    SecuritySettings,
    ServeSettings,
    Settings,
    SparkSettings,
    SubscribeSettings,
)
from penstock.config.substitute import substitute

__all__ = [
    "FILE_NAME",
    "EngineSettings",
    "LogSettings",
    "SecuritySettings",
    "ServeSettings",
    "Settings",
    "SparkSettings",
    "SubscribeSettings",
    "changed",
    "load_settings",
    "substitute",
]
