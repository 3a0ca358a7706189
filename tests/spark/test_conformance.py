"""SQL in, rows out: every case of `conformance/cases.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.conformance.cases import Case, load
from tests.spark.conformance.run import Run
from tests.spark.conftest import Opener


@pytest.mark.parametrize("case", load(), ids=str)
def test_case(case: Case, opener: Opener, tmp_path: Path) -> None:
    Run(case, lambda: opener(tmp_path / "data")).run()
