"""What every tier shares."""

from __future__ import annotations

import os

import hypothesis
import pytest

# A shared machine may be slow at any moment; that is not a failure of the property under test.
hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PENSTOCK__"):
            monkeypatch.delenv(name)
