"""Which words can be names without quotes."""

from __future__ import annotations

import pytest
from sqlglot.dialects.spark import Spark
from tests.unit.sql.conftest import Catalog

from penstock.errors import PenstockError
from penstock.sql.names import KEYWORDS
from penstock.sql.script import parse_script

WORDS = sorted({w.lower() for w in Spark.tokenizer_class.KEYWORDS if w.isalpha()} | KEYWORDS)


def test_a_word_is_accepted_as_a_name_only_if_queries_can_read_it(new_catalog: type[Catalog]) -> None:
    for word in WORDS:
        made = f"CREATE SOURCE {word} ({word} INT)"
        if word in KEYWORDS:
            with pytest.raises(PenstockError) as caught:
                parse_script(made)
            assert caught.value.code == "PSK-1015", word
            assert new_catalog(f"CREATE SOURCE `{word}` (`{word}` INT)").plan(f"SELECT `{word}` FROM `{word}`").names
        else:
            assert new_catalog(made).plan(f"SELECT {word} FROM {word} WHERE {word} = 1").names == (word,), word
