"""The examples in the documentation of every function of the installed Spark: through Penstock, as in Spark itself.

`make test` has Spark's parser compare all of them with what would reach it, and runs a part; `make test-long` runs all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp
from tests.effort import times
from tests.spark.conftest import CONFIG, opening
from tests.spark.following import SOON_S

import penstock
from penstock.spark.batch import arrow
from penstock.spark.results import exchange
from penstock.spark.sameness import Sameness
from penstock.sql.bind.aggregates import has_aggregate
from penstock.sql.functions import generator_name, name_of
from penstock.sql.programs import FORBIDDEN
from penstock.sql.script import parse_script
from penstock.sql.statements import Select
from penstock.sql.written import written

REFUSED = {
    "SET ": "a setting of Spark: penstock.open(config=…)",
}
"""The beginnings of examples that are refused, with the reason."""
CHANGING = frozenset(
    {
        "aes_encrypt", "current_time", "current_timestamp", "curdate", "current_date", "localtime", "localtimestamp", "now", "rand", "randn",
        "random", "shuffle", "uuid", "unix_timestamp", "to_unix_timestamp", "monotonically_increasing_id", "current_user", "session_user", "user",
    }
)  # fmt: skip
"""Functions that give another value each time."""
MOST_REFUSED = 15
TOGETHER = 40


@pytest.fixture(scope="module")
def db(first_database: penstock.Database) -> Iterator[penstock.Database]:
    with opening(CONFIG) as opener:
        yield opener()


@pytest.fixture(scope="module")
def examples(spark: SparkSession) -> list[tuple[str, str]]:
    """Names of functions and their examples, each example once."""
    found: dict[str, str] = {}
    for (name,) in spark.newSession().sql("SHOW FUNCTIONS").collect():
        rows = spark.newSession().sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect()
        for text in re.findall(r"^\s*> (.*?);\s*$", "\n".join(r[0] for r in rows), re.MULTILINE | re.DOTALL):
            found.setdefault(text.strip(), name)
    assert len(found) > 1200
    return [(name, text) for text, name in found.items()]


def _refused(text: str) -> bool:
    return any(text.startswith(start) for start in REFUSED)


def _forbidden(text: str) -> bool:
    return any(re.search(rf"\b{name} ?\(", text) for name in FORBIDDEN)


def _item(text: str) -> exp.Expression | None:
    """The expression of an example that is a single one and reads nothing, so that it can be computed with others."""
    try:
        (statement,) = parse_script(text)
    except penstock.PenstockError:
        return None
    tree = statement.query.ast if isinstance(statement, Select) else None
    if not isinstance(tree, exp.Select) or {k for k, v in tree.args.items() if v} - {"expressions", "kind"}:
        return None
    item = tree.expressions[0] if len(tree.expressions) == 1 else None
    single = item is not None and not isinstance(item, (exp.Alias, exp.Star)) and not has_aggregate(item)
    several = item is not None and (generator_name(item) or name_of(item) in ("inline_outer", "json_tuple"))
    return item if single and not several else None


def _values(table: pa.Table) -> list[Any]:
    return [[_type(c.type), [repr(v) for v in c.to_pylist()]] for c in table.columns]


def _type(given: pa.DataType) -> str:
    """Arrow's name of a type, whatever DuckDB or Spark call the elements of a list."""
    return re.sub(r"list<\w+: ", "list<element: ", str(given).replace(" not null", ""))


def _spark(spark: SparkSession, text: str) -> list[Any] | None:
    """The answer of Spark; None if it has none."""
    try:
        with exchange(spark) as folder:
            return _values(arrow(spark.sql(text), folder))
    except (PySparkException, penstock.PenstockError, pa.ArrowException, ValueError):
        return None


def _penstock(db: penstock.Database, text: str) -> list[Any] | str:
    try:
        return _values(db.sql(text).arrow())
    except penstock.PenstockError as error:
        return error.code


def test_few_examples_are_refused(spark: SparkSession, examples: list[tuple[str, str]]) -> None:
    """Those of functions that reach out of the database are refused with the reasons that `FORBIDDEN` gives; some have no answer in Spark either."""
    refused = [t for _, t in examples if _refused(t) or (_forbidden(t) and _spark(spark.newSession(), t) is not None)]
    assert len(refused) <= MOST_REFUSED, refused


def test_every_example_reaches_spark_as_it_is_written(db: penstock.Database, examples: list[tuple[str, str]]) -> None:
    sameness = Sameness(db.spark)
    for _, text in examples:
        if _refused(text) or _forbidden(text):
            assert isinstance(_penstock(db, text), str), text
            continue
        (statement,) = parse_script(text)
        assert isinstance(statement, Select)
        assert sameness.difference(written(text, statement.query.ast)) is None, text


def test_answers_are_those_of_spark(db: penstock.Database, examples: list[tuple[str, str]]) -> None:
    asked = [text for name, text in examples if name not in CHANGING and not _refused(text) and not _forbidden(text)]
    alone = [t for t in asked if _item(t) is None]
    items = [t for t in asked if _item(t) is not None]
    parts = [items[i : i + TOGETHER] for i in range(0, len(items), TOGETHER)]
    if times(1) == 1:
        alone, parts = alone[::12], parts[::6]
    for part in parts:
        alone += _compared_together(db, part)
    different = [(t, s, p) for t in alone if (s := _spark(db.spark, t) or "refused") != (p := _told(_penstock(db, t)))]
    assert different == []


def _told(answer: list[Any] | str) -> list[Any] | str:
    return "refused" if isinstance(answer, str) else answer


def _compared_together(db: penstock.Database, part: Sequence[str]) -> list[str]:
    """Compares examples in one SELECT; returns them if there is an error in one, which has to be found."""
    text = "SELECT " + ", ".join(f"{t.partition(' ')[2]} AS c{i}" for i, t in enumerate(part))
    expected, found = _spark(db.spark, text), _penstock(db, text)
    return [] if expected is not None and expected == found else list(part)


def test_a_view_over_the_literals_of_an_example(db: penstock.Database, examples: list[tuple[str, str]]) -> None:
    """Literals become columns of a table, where Spark gives the same answer with them as with the literals."""
    chosen = [
        t
        for name, t in examples
        if name not in CHANGING and not _refused(t) and not _forbidden(t) and _item(t) is not None
    ]
    if times(1) == 1:
        chosen = chosen[::25]
    for number, start in enumerate(range(0, len(chosen), TOGETHER)):
        _compare_views(db, chosen[start : start + TOGETHER], number)
    assert len(_left_out) <= MOST_REFUSED, _left_out


def _compare_views(db: penstock.Database, part: Sequence[str], number: int) -> None:
    values: list[str] = []
    items: list[tuple[str, str]] = []
    for text in part:
        given = _over_columns(text.partition(" ")[2], len(values))
        if given is None:
            continue
        item, literals = given
        source = ", ".join(f"{v} AS l{len(values) + i}" for i, v in enumerate(literals))
        expected = _spark(db.spark, f"{text} AS v")
        if expected is not None and expected == _spark(db.spark, f"SELECT {item} AS v FROM (SELECT {source})"):
            values += literals
            items.append((item, repr(expected)))
    if not items:
        return
    columns = ", ".join(f"{v} AS l{i}" for i, v in enumerate(values))
    types = [c[1] for c in db.spark.sql(f"SELECT {columns}").dtypes]
    db.execute(f"CREATE TABLE l{number} ({', '.join(f'l{i} {t}' for i, t in enumerate(types))})")
    views = _views(db, f"v{number}", f"l{number}", [item for item, _ in items])
    db.execute(f"INSERT INTO l{number} SELECT {columns}")
    db.flush(timeout=SOON_S)
    found = [c for view in views for c in _values(db.sql(f"SELECT * FROM {view}").arrow())]
    kept = [answer for item, answer in items if item in _made]
    assert [repr([f]) for f in found] == kept


_made: set[str] = set()
"""The expressions that are in a view."""
_left_out: list[str] = []
"""Those that no view can have, because of their type."""


def _views(db: penstock.Database, name: str, table: str, items: Sequence[str]) -> list[str]:
    """Creates views of expressions, several in one if all of them can be; returns their names. A type that no column can have is refused."""
    chosen = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
    try:
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS SELECT {chosen} FROM {table}")
    except penstock.PenstockError as error:
        if len(items) > 1:
            half = len(items) // 2
            return _views(db, f"{name}a", table, items[:half]) + _views(db, f"{name}b", table, items[half:])
        if error.code not in ("PSK-1012", "PSK-1013"):
            raise
        _left_out.append(f"{items[0]}: {error.detail}")
        return []
    _made.update(items)
    return [name]


def _over_columns(item: str, first: int) -> tuple[str, list[str]] | None:
    """The item with its strings and whole numbers replaced by columns, and these literals."""
    if not re.fullmatch(r"[A-Za-z0-9_'(), .:-]+", item) or "DATE" in item.upper() or "TIME" in item.upper():
        return None
    literals: list[str] = []

    def column(found: re.Match[str]) -> str:
        literals.append(found[0])
        return f"l{first + len(literals) - 1}"

    made = re.sub(r"'[^']*'|(?<![\w.'])\d+(?![\w.'])", column, item)
    return (made, literals) if literals and not re.search(r"INTERVAL|\bAS\b|->", item, re.IGNORECASE) else None
