"""Settings of the tests without a JVM."""

from __future__ import annotations

import gc

# By default Python looks for garbage whenever there are 700 more objects. Parsing and planning make many, which a tenth of the time went into.
gc.set_threshold(10_000, 20, 50)
