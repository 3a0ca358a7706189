"""Settings: their definitions, how they are loaded, and `${NAME}` in option values."""

from __future__ import annotations

from penstock.config.change import changed
from penstock.config.load import FILE_NAME, load_settings
from penstock.config.settings import (
    EngineSettings,
    LoggingSettings,
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
    "LoggingSettings",
    "SecuritySettings",
    "ServeSettings",
    "Settings",
    "SparkSettings",
    "SubscribeSettings",
    "changed",
    "load_settings",
    "substitute",
]
