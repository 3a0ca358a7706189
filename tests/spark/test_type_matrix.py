"""Every type at every place: right, as in Spark itself, or refused when the statement is submitted.

All types are columns of one table, and all types that a place accepts are in one view.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.postgres import PASSWORD, PostgresServer
from tests.spark.conftest import CONFIG, Opener

import penstock
from penstock import PenstockError
from penstock.catalog.kinds import KINDS, TypeKind
from penstock.spark.batch import arrow

TYPES: dict[str, tuple[str, str, str, str]] = {
    "boolean": ("BOOLEAN", "BOOLEAN", "true", "false"),
    "tinyint": ("TINYINT", "TINYINT", "CAST(-128 AS TINYINT)", "CAST(7 AS TINYINT)"),
    "smallint": ("SMALLINT", "SMALLINT", "CAST(-3 AS SMALLINT)", "CAST(7 AS SMALLINT)"),
    "int": ("INT", "INT", "-5", "7"),
    "bigint": ("BIGINT", "BIGINT", "-9007199254740991", "7"),
    "float": ("FLOAT", "FLOAT", "CAST(-1.25 AS FLOAT)", "CAST(1.5 AS FLOAT)"),
    "double": ("DOUBLE", "DOUBLE", "CAST('-Infinity' AS DOUBLE)", "2.5D"),
    "decimal": ("DECIMAL", "DECIMAL(30, 4)", "CAST('12345678901234567890.1234' AS DECIMAL(30, 4))", "CAST(-1 AS DECIMAL(30, 4))"),
    "string": ("STRING", "STRING", "'é'", "''"),
    "varchar": ("VARCHAR", "VARCHAR(3)", "'ab'", "'abc'"),
    "char": ("CHAR", "CHAR(3)", "'ab'", "'abc'"),
    "binary": ("BINARY", "BINARY", "X'00FF'", "X''"),
    "date": ("DATE", "DATE", "DATE'0001-01-01'", "DATE'2026-02-03'"),
    "timestamp": ("TIMESTAMP", "TIMESTAMP", "TIMESTAMP'1969-12-31 23:59:59.999999'", "TIMESTAMP'2026-02-03 04:05:06'"),
    "ntz": ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ", "TIMESTAMP_NTZ'1969-12-31 23:59:59'", "TIMESTAMP_NTZ'2026-02-03 04:05:06'"),
    "time": ("TIME", "TIME", "TIME'23:59:59.999999'", "TIME'00:00:00'"),
    "time0": ("TIME", "TIME(0)", "CAST(TIME'23:59:59' AS TIME(0))", "CAST(TIME'01:00:00' AS TIME(0))"),
    "months": ("INTERVAL YEAR TO MONTH", "INTERVAL YEAR TO MONTH", "INTERVAL '-1-2' YEAR TO MONTH", "INTERVAL '3-4' YEAR TO MONTH"),
    "years": ("INTERVAL YEAR TO MONTH", "INTERVAL YEAR", "INTERVAL '3' YEAR", "INTERVAL '-4' YEAR"),
    "micros": ("INTERVAL DAY TO SECOND", "INTERVAL DAY TO SECOND", "INTERVAL '-1 02:03:04.000005' DAY TO SECOND", "INTERVAL '1 00:00:00' DAY TO SECOND"),
    "hours": ("INTERVAL DAY TO SECOND", "INTERVAL DAY TO HOUR", "INTERVAL '1 02' DAY TO HOUR", "INTERVAL '-1 00' DAY TO HOUR"),
    "array": ("ARRAY", "ARRAY<INTERVAL MONTH>", "array(INTERVAL '3' MONTH, NULL)", "CAST(array() AS ARRAY<INTERVAL MONTH>)"),
    "struct": ("STRUCT", "STRUCT<t: TIME, d: INTERVAL SECOND, l: ARRAY<DECIMAL(5, 2)>>",
        "named_struct('t', TIME'01:00:00', 'd', INTERVAL '1.5' SECOND, 'l', array(CAST(1.25 AS DECIMAL(5, 2))))",
        "named_struct('t', CAST(NULL AS TIME), 'd', INTERVAL '-7' SECOND, 'l', CAST(NULL AS ARRAY<DECIMAL(5, 2)>))"),
    "map": ("MAP", "MAP<STRING, INTERVAL DAY>", "map('a', INTERVAL '3' DAY, 'b', NULL)", "map('value', INTERVAL '-3' DAY)"),
    "variant": ("VARIANT", "VARIANT", "parse_json('{\"a\": [1, \"x\", null]}')", "parse_json('1.5')"),
    "nested": ("VARIANT", "ARRAY<STRUCT<v: VARIANT, m: MAP<INT, VARIANT>>>",
        "array(named_struct('v', parse_json('[]'), 'm', map(1, parse_json('true'))), NULL)",
        "CAST(array() AS ARRAY<STRUCT<v: VARIANT, m: MAP<INT, VARIANT>>>)"),
}  # fmt: skip
NAMES = tuple(TYPES)
KIND = {k.name: k for k in KINDS}
ROWS = "SELECT {id} AS id, {g} AS g, " + ", ".join(f"{{{n}}} AS {n}" for n in NAMES)
LISTED = ", ".join(NAMES)


def each(text: str, names: tuple[str, ...], between: str = ", ") -> str:
    return between.join(text.format(c=n) for n in names)


def where(holds: str) -> tuple[str, ...]:
    """The columns whose type may appear at a place."""
    return tuple(n for n in NAMES if getattr(KIND[TYPES[n][0]], holds))


# A place: which flag of TypeKind allows a type there, the view over all of these, the query of Spark if it is another one, and the view over a single type.
VARIANT = {"a": [1, "x", None]}
"""The first value of the variant."""

PLACES: dict[str, tuple[str, str, str | None, str]] = {
    "GROUP BY": ("grouped", "SELECT {each}, count(*) AS n FROM t GROUP BY {each}", None, "SELECT {c}, count(*) AS n FROM t GROUP BY {c}"),
    "DISTINCT": ("equal", "SELECT DISTINCT {each} FROM t", None, "SELECT DISTINCT {c} FROM t"),
    "UNION": ("equal", "SELECT {each} FROM t WHERE id > 1 UNION SELECT {each} FROM t", None, "SELECT {c} FROM t UNION SELECT {c} FROM t"),
    "join": ("equal", "SELECT a.id, b.id AS other FROM t a JOIN t b ON {joined}", None, "SELECT a.id FROM t a JOIN t b ON a.{c} = b.{c}"),
    "top": ("ordered", "SELECT id, {each} FROM t ORDER BY {each}, id DESC LIMIT 3", None, "SELECT id FROM t ORDER BY {c} LIMIT 1"),
    "MIN, MAX": ("ordered", "SELECT g, {least}, {most} FROM t GROUP BY g", None, "SELECT min({c}) AS m FROM t"),
    "array_agg ORDER BY": (
        "ordered", "SELECT {sorted} FROM t", "SELECT {arrays} FROM t", "SELECT array_agg({c} ORDER BY {c}) AS l FROM t"
    ),
    "PARTITION BY": (
        "equal", "SELECT id, row_number() OVER (PARTITION BY {each} ORDER BY id) AS n FROM t", None,
        "SELECT row_number() OVER (PARTITION BY {c} ORDER BY id) AS n FROM t"
    ),
    "kept": ("name", "SELECT id, {lags} FROM t", None, "SELECT id, {c} FROM t"),
    "literal": ("name", "SELECT id, {literals} FROM t", None, "SELECT id, {c} FROM t"),
    "column": ("name", "SELECT *, NULL AS nothing, array() AS nil FROM t WHERE id > 0", None, "SELECT {c} FROM t"),
}  # fmt: skip


def filled(text: str, names: tuple[str, ...]) -> str:
    return text.format(
        each=each("{c}", names),
        joined=each("a.{c} = b.{c}", names, " AND "),
        least=each("min({c}) AS min_{c}", names),
        most=each("max({c}) AS max_{c}", names),
        sorted=each("array_agg({c} ORDER BY {c} DESC) AS {c}", names),
        arrays=each("reverse(array_sort(collect_list({c}))) AS {c}", names),
        lags=each("lag({c}) OVER (PARTITION BY g ORDER BY id) AS {c}", names),
        literals=", ".join(f"{TYPES[n][3]} AS {n}" for n in names),
        c=names[0],
    )


def selects() -> list[str]:
    """The rows of the table: two values of each type, the first again, and NULL."""
    first, second = ({n: TYPES[n][i] for n in NAMES} for i in (2, 3))
    nulls = dict.fromkeys(NAMES, "NULL")
    return [
        ROWS.format(id=i, g=g, **values)
        for i, g, values in ((1, 1, first), (2, 1, second), (3, 2, first), (4, 2, nulls))
    ]


def rows_of(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(r.values())) for r in table.to_pylist())


@pytest.fixture
def given(opener: Opener, plain_spark: SparkSession) -> penstock.Database:
    db = opener(config={**CONFIG, "variables.PG_PASSWORD": PASSWORD})
    columns = ", ".join(f"{n} {TYPES[n][1]}" for n in NAMES)
    for name in ("t", "from_rows", "from_arrow", "from_pandas", "from_polars"):
        db.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, g INT, {columns})")
    typed = ", ".join(f"CAST({n} AS {TYPES[n][1]}) AS {n}" for n in NAMES if n != "char")
    plain_spark.sql(f"SELECT id, g, {typed}, rpad(char, 3, ' ') AS char FROM ({' UNION ALL '.join(selects())})").select(
        "id", "g", *NAMES
    ).createOrReplaceTempView("t")
    return db


def test_every_type_at_every_place(
    given: penstock.Database, plain_spark: SparkSession, tmp_path: Path, postgres: PostgresServer
) -> None:
    db = given
    views = {}
    for i, (place, (flag, text, _, _)) in enumerate(PLACES.items()):
        views[place] = f"v{i}"
        db.execute(f"CREATE MATERIALIZED VIEW v{i} AS {filled(text, where(flag))}")
    for text in selects():
        db.execute(f"INSERT INTO t {text}")
    db.execute("INSERT INTO t SELECT 9, g, " + LISTED + " FROM t WHERE id = 2")
    db.execute("DELETE FROM t WHERE id = 9")
    db.flush()
    for place, view in views.items():
        flag, text, other, _ = PLACES[place]
        expected = arrow(plain_spark.sql(filled(other or text, where(flag))), tmp_path)
        found = db.sql(f"SELECT * FROM {view}").arrow()
        assert rows_of(found) == rows_of(expected), place
        assert found.schema.types == expected.schema.types, place
    _check_ways_in(db)
    _check_subscriptions(db)
    _check_files(db, tmp_path)
    _check_postgres(db, postgres)


def _check_ways_in(db: penstock.Database) -> None:
    """Rows of every form that Python has are the same rows."""
    whole = db.sql("SELECT * FROM t ORDER BY id").arrow()
    db.insert("from_rows", db.sql("SELECT * FROM t").arrow().to_pylist())
    db.insert("from_arrow", whole)
    db.insert("from_pandas", whole.to_pandas())
    db.insert("from_polars", pl.from_arrow(whole))
    for name in ("from_rows", "from_arrow", "from_pandas", "from_polars"):
        assert rows_of(db.sql(f"SELECT * FROM {name}").arrow()) == rows_of(whole), name
    one = db.sql("SELECT * FROM t WHERE id = 1").df()
    assert isinstance(one, pd.DataFrame) and one["variant"][0] == VARIANT
    assert db.sql("SELECT variant FROM t WHERE id = 1").fetchall() == [(VARIANT,)]
    db.execute("DELETE FROM from_pandas")
    db.insert("from_pandas", db.sql("SELECT * FROM t").df())
    assert rows_of(db.sql("SELECT * FROM from_pandas").arrow()) == rows_of(whole)
    parameters = {n: whole[n][0].as_py() for n in ("int", "decimal", "string", "date", "time", "micros", "binary")}
    asked = db.sql("SELECT count(*) AS n FROM t WHERE " + " AND ".join(f"{n} = :{n}" for n in parameters), parameters)
    assert asked.fetchall() == [(2,)]


def _check_subscriptions(db: penstock.Database) -> None:
    whole = db.sql("SELECT * FROM t").arrow()
    for envelope in ("diff", "upsert", "debezium"):
        with db.subscribe("t", snapshot=True, envelope=envelope) as subscription:
            change = next(iter(subscription))
        found = change.arrow()
        if envelope == "debezium":
            found = pa.Table.from_struct_array(found["after"])
        assert rows_of(found.select(whole.column_names)) == rows_of(whole), envelope
        assert len(change.rows()) == whole.num_rows
        if envelope == "diff":
            assert [r["variant"] for r in change.rows() if r["id"] == 1] == [VARIANT]


def _check_files(db: penstock.Database, tmp_path: Path) -> None:
    texts = tuple(n for n in NAMES if "INTERVAL" not in TYPES[n][1])
    flat = tuple(n for n in texts if "CSV" in KIND[TYPES[n][0]].text and "<" not in TYPES[n][1])
    got: list[pa.Table] = []
    db.register_callable("take_types", lambda epoch, table: got.append(table))
    db.execute(f"""
        CREATE SOURCE s (id INT, {", ".join(f"{n} {TYPES[n][1]}" for n in NAMES)});
        CREATE SINK p FROM s INTO FILES (path = '{tmp_path}/p') FORMAT PARQUET;
        CREATE SINK j INTO FILES (path = '{tmp_path}/j') FORMAT JSON AS SELECT id, {", ".join(texts)} FROM s;
        CREATE SINK c INTO FILES (path = '{tmp_path}/c') FORMAT CSV AS SELECT id, {", ".join(flat)} FROM s;
        CREATE SINK y FROM s INTO PYTHON (callable = 'take_types');
        INSERT INTO s SELECT id, {LISTED} FROM t;
    """)
    db.flush()
    whole = db.sql("SELECT * FROM s").arrow()
    assert rows_of(pq.read_table(tmp_path / "p")) == rows_of(whole)
    assert rows_of(pa.concat_tables(got)) == rows_of(whole)
    written = [json.loads(line) for f in (tmp_path / "j").glob("*.json") for line in f.read_text().splitlines()]
    assert len(written) == whole.num_rows and [r["variant"] for r in written if r["id"] == 1] == [VARIANT]
    assert '"{""a"":[1,""x"",null]}"' in "".join(f.read_text() for f in (tmp_path / "c").glob("*.csv"))
    for format, allowed in (("JSON", texts), ("CSV", flat)):
        for n in set(NAMES) - set(allowed):
            with pytest.raises(PenstockError, match=r"PSK-(2012|5002)"):
                db.execute(f"CREATE SINK x INTO FILES (path = '{tmp_path}/{n}') FORMAT {format} AS SELECT {n} FROM s")


POSTGRES = {
    "tinyint": "smallint", "smallint": "smallint", "float": "real", "double": "double precision", "decimal": "numeric(30, 4)", "string": "text",
    "varchar": "varchar(3)", "char": "char(3)", "binary": "bytea", "timestamp": "timestamptz", "ntz": "timestamp", "time0": "time(0)",
    "variant": "jsonb", "nested": "jsonb",
}  # fmt: skip
"""The types there, where they have other names."""


def _check_postgres(db: penstock.Database, server: PostgresServer) -> None:
    """The table of a server has the rows, and gives them back to a lookup table; other types are refused."""
    held = tuple(n for n in NAMES if "<" not in TYPES[n][1] or "INTERVAL" not in TYPES[n][1])
    intervals = tuple(n for n in held if "INTERVAL" in TYPES[n][1])
    plain = tuple(n for n in held if n not in (*intervals, "variant", "nested"))
    types = {n: "interval" if n in intervals else POSTGRES.get(n, TYPES[n][1]) for n in held}
    columns = ", ".join(f'"{n}" {t}' for n, t in types.items())
    server.execute(f"CREATE TABLE matrix (id int, {columns})")
    address = f"url = '{server.url}', password = '${{PG_PASSWORD}}', table = 'matrix'"
    for n in set(NAMES) - set(held):
        with pytest.raises(PenstockError, match="PSK-2012"):
            db.execute(f"CREATE SINK x INTO POSTGRES ({address}) AS SELECT id, {n} FROM s")
    db.execute(f"CREATE SINK g INTO POSTGRES ({address}) AS SELECT id, {', '.join(held)} FROM s")
    db.flush()
    months = "CAST(extract(year FROM {c}) * 12 + extract(month FROM {c}) AS int)"
    read = (months.format(c=n) if TYPES[n][0] == "INTERVAL YEAR TO MONTH" else f'"{n}"' for n in held)
    found = server.execute(f"SELECT id, {', '.join(read)} FROM matrix")
    sent = db.sql(f"SELECT id, {', '.join(held)} FROM s").fetchall()
    assert sorted(_stored(row, held) for row in found) == sorted(_stored(row, held) for row in sent)
    for n in (*intervals, "variant", "nested"):
        with pytest.raises(PenstockError, match="PSK-2010"):
            db.execute(f"CREATE LOOKUP TABLE x (id INT PRIMARY KEY, {n} {TYPES[n][1]}) FROM POSTGRES ({address})")
    columns = ", ".join(f"{n} {TYPES[n][1]}" for n in plain)
    db.execute(f"CREATE LOOKUP TABLE from_postgres (id INT PRIMARY KEY, {columns}) FROM POSTGRES ({address})")
    given, back = (db.sql(f"SELECT id, {', '.join(plain)} FROM {name}").arrow() for name in ("s", "from_postgres"))
    assert rows_of(back) == rows_of(given)


def _stored(row: tuple[Any, ...], names: tuple[str, ...]) -> str:
    """A row as text: moments are in UTC, and what is stored as JSON has text for keys, in order, and one kind of number."""
    values = (
        json.dumps(v, sort_keys=True, default=float) if n in ("variant", "nested") and v is not None
        else v.astimezone(UTC) if isinstance(v, datetime) and v.tzinfo is not None
        else v
        for n, v in zip(names, row[1:], strict=True)
    )  # fmt: skip
    return repr((row[0], *values))


def test_what_spark_refuses_is_refused_at_create(given: penstock.Database, plain_spark: SparkSession) -> None:
    """The flags of `TypeKind` are Spark's own answers."""
    for place, (flag, _, other, single) in PLACES.items():
        for n in NAMES:
            kind: TypeKind = KIND[TYPES[n][0]]
            text = filled(single, (n,))
            if other is None:
                try:
                    plain_spark.sql(text)
                    accepted = True
                except AnalysisException:
                    accepted = False
                assert accepted == bool(getattr(kind, flag)), (place, n)
            if not getattr(kind, flag):
                with pytest.raises(PenstockError, match=r"PSK-(1007|2011)"):
                    given.execute(f"CREATE MATERIALIZED VIEW refused AS {text}")


def test_every_type_as_key_default_and_parameter(given: penstock.Database, tmp_path: Path) -> None:
    db = given
    for text in selects()[:2]:
        db.execute(f"INSERT INTO t {text}")
    whole = db.sql("SELECT * FROM t ORDER BY id").arrow()
    _check_keys(db, whole)
    defaults = ", ".join(f"{n} {TYPES[n][1]} DEFAULT {TYPES[n][2]}" for n in NAMES)
    db.execute(
        f"CREATE TABLE filled (id INT PRIMARY KEY, g INT DEFAULT 1, {defaults}); INSERT INTO filled (id) VALUES (1)"
    )
    assert rows_of(db.sql("SELECT * FROM filled").arrow()) == rows_of(whole.slice(0, 1))
    row = db.sql("SELECT * FROM t WHERE id = 1").fetchone()
    assert row is not None
    # A number of months is an INT as a parameter, and Spark casts none to an interval; a dict may be a struct, a map or a variant.
    months, dicts = ("months", "years", "array"), ("struct", "map", "variant", "nested")
    asked = [c for c in whole.column_names if c not in (*months, *dicts)]
    for n in dicts:
        with pytest.raises(PenstockError, match="PSK-1018"):
            db.execute(f"INSERT INTO from_rows (id, {n}) VALUES (9, ?)", [row[whole.column_names.index(n)]])
    values = [v for c, v in zip(whole.column_names, row, strict=True) if c in asked]
    marks = ", ".join("?" for _ in asked)
    db.execute(f"INSERT INTO from_rows ({', '.join(asked)}) VALUES ({marks})", values)
    assert rows_of(db.sql("SELECT * FROM from_rows").arrow().select(asked)) == rows_of(whole.slice(0, 1).select(asked))
    _check_back(db, tmp_path, whole)


def _check_keys(db: penstock.Database, whole: pa.Table) -> None:
    """As keys of tables a row replaces that of its key, as keys of lookup tables a row is found; other types are refused."""
    keyed = where("key")
    for n in NAMES:
        for kind in ("TABLE", "LOOKUP TABLE"):
            statement = f"CREATE {kind} {kind[0]}_{n} (k {TYPES[n][1]} PRIMARY KEY, v INT)"
            if n in keyed and "MAP<" not in TYPES[n][1]:
                db.execute(statement)
            else:
                with pytest.raises(PenstockError, match=r"PSK-(2010|2011)"):
                    db.execute(statement)
    found = ", ".join(f"L_{n}.v AS {n}" for n in keyed)
    joins = " ".join(f"LEFT JOIN L_{n} ON p.{n} = L_{n}.k" for n in keyed)
    db.execute(f"""
        CREATE SOURCE p (id INT, {", ".join(f"{n} {TYPES[n][1]}" for n in NAMES)});
        CREATE MATERIALIZED VIEW looked AS SELECT id, {found} FROM p {joins};
    """)
    for n in keyed:
        keys = whole[n].to_pylist()
        for name in (f"T_{n}", f"L_{n}"):
            db.insert(name, [{"k": keys[0], "v": 1}, {"k": keys[1], "v": 2}])
            db.insert(name, [{"k": keys[0], "v": 3}])
            assert sorted(db.sql(f"SELECT v FROM {name}").fetchall()) == [(2,), (3,)], name
    db.insert("p", whole.drop_columns(["g"]))
    db.flush()
    expected = [(i, *([v] * len(keyed))) for i, v in ((1, 3), (2, 2))]
    assert sorted(db.sql("SELECT * FROM looked").fetchall()) == expected


def _check_back(db: penstock.Database, tmp_path: Path, whole: pa.Table) -> None:
    """Files that COPY writes, read again. Text has no form for binaries."""
    for path in ("back.json", "back.csv"):
        with pytest.raises(PenstockError, match="PSK-1021"):
            db.execute(f"COPY (SELECT binary FROM t) TO '{tmp_path / path}'")
    for format in ("parquet", "json", "csv"):
        kept = tuple(
            n for n in NAMES
            if format == "parquet" or (format.upper() in KIND[TYPES[n][0]].text and n not in ("variant", "nested", "binary") and "INTERVAL" not in TYPES[n][1])
        )  # fmt: skip
        if format == "csv":
            kept = tuple(n for n in kept if "<" not in TYPES[n][1])
        listed = ", ".join(f"{n} {TYPES[n][1]}" for n in kept)
        path = tmp_path / f"back.{format}"
        db.execute(f"""
            CREATE TABLE back_{format} (id INT, {listed});
            COPY (SELECT id, {", ".join(kept)} FROM t) TO '{path}';
            COPY back_{format} FROM '{path}';
        """)
        assert rows_of(db.sql(f"SELECT * FROM back_{format}").arrow()) == rows_of(whole.select(["id", *kept])), format


def test_a_type_alone_in_its_table_is_that_type_in_spark(opener: Opener) -> None:
    """Tables get to Spark in two ways, which depends on whether one of their types is one that Arrow does not have."""
    db = opener()
    types = [t[1] for t in TYPES.values()] + ["ARRAY<TIMESTAMP_NTZ>", "STRUCT<a: TIMESTAMP_NTZ, b: TIMESTAMP>"]
    for i, declared in enumerate(types):
        db.execute(f"CREATE TABLE one{i} (c {declared})")
        db.insert(f"one{i}", [(None,)])
    asked = " UNION ALL ".join(f"SELECT {i} AS i, typeof(c) AS t FROM one{i}" for i in range(len(types)))
    plain = ", ".join(f"typeof(CAST(NULL AS {t})) AS t{i}" for i, t in enumerate(types))
    assert [t for _, t in sorted(db.sql(asked).fetchall())] == list(db.sql(f"SELECT {plain}").fetchone() or ())
    ntz = types.index("TIMESTAMP_NTZ")
    assert db.sql(f"SELECT max(c) AS c FROM one{ntz}").arrow().schema.types == [pa.timestamp("us")]
