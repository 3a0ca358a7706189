"""A hub with one object, and a timeline of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from tests.unit.serve.timeline import Timeline

from penstock.serve.hub import Hub


@pytest.fixture
def hub() -> Iterator[Hub]:
    # A test that looks for garbage need not look through all that earlier tests have left.
    gc.freeze()
    hub = Hub(tick_seconds=0.02)
    hub.open(1, "v")
    yield hub
    hub.close()


@pytest.fixture
def timeline(hub: Hub) -> Timeline:
    return Timeline(hub)
