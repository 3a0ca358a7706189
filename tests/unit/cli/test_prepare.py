"""`penstock prepare` starts no JVM if there is nothing to do, and says when it could do nothing."""

from __future__ import annotations

import pytest

from penstock.cli import prepare


@pytest.mark.parametrize(("kept", "code", "said"), [(True, 0, "is prepared"), (False, 1, "Nothing was prepared")])
def test_nothing_to_do(
    kept: bool, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK__SPARK__CLASS_ARCHIVE", "false")
    monkeypatch.setattr(prepare, "classes_kept", lambda: kept)
    assert prepare.run_prepare() == code
    assert said in capsys.readouterr().out
