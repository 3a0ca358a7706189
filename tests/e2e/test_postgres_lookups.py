"""Lookup tables of a real PostgreSQL server, without Spark."""

from __future__ import annotations

import socket
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.lookups import make, refused, rows
from tests.postgres import PASSWORD, PostgresServer

from penstock.catalog.objects import Column
from penstock.errors import PenstockError


def at(postgres: PostgresServer, **options: str) -> dict[str, str]:
    return {"url": postgres.url, "password": PASSWORD, **options}


def test_postgres_tables_and_queries(postgres: PostgresServer) -> None:
    postgres.execute(
        "CREATE TABLE kinds (k uuid, n int, Label varchar(9), amount numeric(9, 2), at timestamptz, day date, flags text[], "
        "extra jsonb, PRIMARY KEY (k, n))",
        "INSERT INTO kinds SELECT ('00000000-0000-0000-0000-00000000000' || i)::uuid, i, 'label ' || i, i + 0.5, "
        "'2026-01-01 01:00+01'::timestamptz, '2026-02-03', ARRAY['x'], '{\"a\": 1}' FROM generate_series(1, 3) i",
    )
    columns = (
        Column("k", "string", False), Column("n", "bigint", False), Column("label", "string"),
        Column("amount", "decimal(9,2)"), Column("at", "timestamp"), Column("day", "date"),
        Column("flags", "array<string>"), Column("extra", "string"),
    )  # fmt: skip
    source = make("POSTGRES", at(postgres, table="public.kinds"), columns, "n k")
    source.check()
    one = "00000000-0000-0000-0000-000000000001"
    first = {
        "k": one, "n": 1, "label": "label 1", "amount": Decimal("1.50"), "at": datetime(2026, 1, 1, tzinfo=UTC),
        "day": date(2026, 2, 3), "flags": ["x"], "extra": '{"a": 1}',
    }  # fmt: skip
    assert sorted(source.scan().to_pylist(), key=lambda r: r["n"])[0] == first
    # Keys that do not fit the types on the server have no row there, and keep no other from being found.
    keys = {"n": [1, 2, 3, 1 << 40, 2], "k": [one, one, "no uuid", one, one.replace("1", "2")]}
    assert {(r["n"], r["label"]) for r in source.fetch(pa.table(keys)).to_pylist()} == {(1, "label 1"), (2, "label 2")}
    assert source.fetch(pa.table({"n": [1 << 40], "k": [one]})).num_rows == 0
    source.close()

    postgres.execute(
        "CREATE TABLE codes (a char(2), b varchar(3), PRIMARY KEY (a, b))", "INSERT INTO codes VALUES ('ab', 'cde')"
    )
    source = make(
        "POSTGRES", at(postgres, table="codes"), (Column("a", "string", False), Column("b", "string", False)), "a b"
    )
    assert rows(source.fetch(pa.table({"a": ["ab", "a"], "b": ["cde", "cde"]}))) == {("ab", "cde")}
    source.close()

    query = "SELECT n AS id, label AS name, at AS since FROM kinds WHERE label LIKE '%el%' AND n % 2 = 1 -- odd"
    source = make("POSTGRES", at(postgres, query=query + ";"))
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    assert rows(source.scan()) == {(1, "label 1", midnight), (3, "label 3", midnight)}
    assert rows(source.fetch(pa.table({"id": [3, 2]}))) == {(3, "label 3", midnight)}
    source.close()


def test_a_broken_connection_is_made_again(postgres: PostgresServer) -> None:
    postgres.execute("CREATE TABLE again (id bigint, name text, since timestamp)", "INSERT INTO again VALUES (1, 'a')")
    source = make("POSTGRES", at(postgres, table="again"))
    assert source.scan().num_rows == 1
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock'")
    with pytest.raises(PenstockError) as e:
        source.scan()
    assert e.value.code == "PSK-5002"
    assert source.scan().num_rows == 1
    source.close()


def test_what_postgres_cannot_do_is_refused(postgres: PostgresServer) -> None:
    postgres.execute("CREATE TABLE narrow (id bigint, nam text, since timestamp)")
    assert refused("POSTGRES", at(postgres, table="narow")).code == "PSK-5002"
    assert refused("POSTGRES", at(postgres, table="narrow")).hint == "Did you mean nam?"
    assert refused("POSTGRES", at(postgres, query="SELECT 1 AS")).code == "PSK-5002"
    assert refused("POSTGRES", at(postgres)).code == "PSK-1011"
    assert refused("POSTGRES", at(postgres, table="a", query="b")).code == "PSK-1011"
    assert refused("POSTGRES", at(postgres, table="a", tabel="b")).hint == "Did you mean 'table'?"
    assert refused("POSTGRES", {"url": "localhost", "table": "t"}).code == "PSK-1011"
    assert refused("POSTGRES", {"table": "t"}).code == "PSK-1011"
    written = make("POSTGRES", at(postgres, query="DELETE FROM narrow RETURNING id, nam AS name, since"))
    with pytest.raises(PenstockError):
        written.check()


def test_errors_show_no_secret(postgres: PostgresServer) -> None:
    wrong = f"postgresql://tester:quite%20wrong@127.0.0.1:{postgres.port}/postgres"
    error = refused("POSTGRES", {"url": wrong, "table": "t"})
    assert "authentication failed" in error.detail
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        unreachable = wrong.replace(str(postgres.port), str(free.getsockname()[1]))
        nobody = refused("POSTGRES", {"url": unreachable, "table": "t"})
    for e in (error, nobody, refused("POSTGRES", {"url": wrong.replace("gresql:", "gres;"), "table": "t"})):
        assert "wrong" not in str(e)
        assert e.hint
    assert (error.code, nobody.code) == ("PSK-5002", "PSK-5002")
