from __future__ import annotations

import pickle
import re
import runpy
from pathlib import Path

import pytest

from penstock import errors
from penstock.errors import CODES, Position, SqlError, fail

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_well_formed(code: str) -> None:
    assert re.fullmatch(r"PSK-[0-8]\d{3}", code)
    entry = CODES[code]
    assert entry.title and not entry.title.endswith(".")
    assert entry.hint is None or entry.hint.endswith(".")


@pytest.mark.parametrize("code", CODES)
def test_the_first_digit_chooses_the_class(code: str) -> None:
    kind = type(fail(code, ""))
    assert kind is not errors.PenstockError
    assert kind.__doc__ is not None and kind.__doc__.startswith(f"{code[4]}: ")


def test_codes_are_in_order() -> None:
    assert list(CODES) == sorted(CODES)


def test_every_code_in_the_sources_is_in_the_catalogue() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "kernel").rglob("*.java")]
    used = {code for file in files for code in re.findall(r"PSK-\d{4}", file.read_text(encoding="utf-8"))}
    assert used - set(CODES) == set()


def test_text_has_code_place_and_hint() -> None:
    error = fail("PSK-1002", "There is no stream 'tradse'.", hint="Did you mean 'trades'?", position=Position(2, 15, 6))
    assert isinstance(error, SqlError)
    assert str(error) == "PSK-1002: There is no stream 'tradse'. (line 2, column 15)\nHint: Did you mean 'trades'?"


def test_the_hint_of_the_catalogue_is_the_default() -> None:
    assert fail("PSK-0004", "It is closed.").hint == CODES["PSK-0004"].hint
    assert str(fail("PSK-1001", "No.")) == "PSK-1001: No."


def test_render_underlines_the_span() -> None:
    sql = "SELECT *\nFROM   tradse"
    error = fail("PSK-1002", "There is no 'tradse'.", position=Position(2, 8, 6), sql=sql)
    assert error.render().splitlines() == [
        "PSK-1002: There is no 'tradse'.",
        "2 | FROM   tradse",
        "           ^^^^^^",
    ]


def test_render_past_the_end_and_without_text() -> None:
    assert fail("PSK-1001", "More is wanted.", position=Position(9, 1), sql="").render().endswith("9 | \n    ^")
    error = fail("PSK-1001", "More is wanted.", position=Position(1, 1))
    assert error.render() == str(error)


def test_errors_can_be_pickled() -> None:
    error = fail("PSK-1002", "There is no 'x'.", hint="Make it.", position=Position(1, 2), sql="x")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is SqlError
    assert vars(copy) == vars(error)


PAGES = runpy.run_path(str(ROOT / "docs" / "generate.py"))["PAGES"]


@pytest.mark.parametrize("page", PAGES)
def test_reference_pages_are_up_to_date(page: str) -> None:
    committed = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    assert committed == PAGES[page](), "`make docs` rebuilds it"


def test_there_are_no_other_reference_pages() -> None:
    assert {p.name for p in (ROOT / "docs" / "reference").iterdir()} == set(PAGES)
