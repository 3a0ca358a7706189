"""Which values are secrets, and how they are masked."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.secrets import blanked, has_clear_secret, hidden, is_secret, redact


@pytest.mark.parametrize(
    "name",
    [
        "password", "PASSWORD", "db.password", "sasl.password", "ssl.key.password", "token", "auth_token", "accessToken", "secret",
        "client-secret", "api_key", "apiKey", "apikey", "X-Api-Key", "access_key", "aws.access_key_id", "secret_access_key", "credentials",
        "private_key", "authorization", "sasl.jaas.config", "pwd",
    ],
)  # fmt: skip
def test_secret_by_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["url", "user", "key", "primary_key", "path", "json.column.token", "token.endpoint.url", "password_file", "format", "timeout", "bypass", "keys"],
)  # fmt: skip
def test_no_secret_by_name(name: str) -> None:
    assert not is_secret(name)


CLEAR = [
    ("password", "hunter2", "***", "*******"),
    ("password", "${PW:-hunter2}", "***", "**************"),
    ("password", "a${PW}", "***", "******"),
    ("authorization", "Bearer abc", "Bearer ***", "Bearer ***"),
    ("url", "postgresql://u:pw@h/d", "postgresql://u:***@h/d", "postgresql://u:**@h/d"),
    ("url", "postgresql://u:a@b@h/d", "postgresql://u:***@h/d", "postgresql://u:***@h/d"),
    ("url", "postgresql://u:${PW:-x}y@h/d", "postgresql://u:***@h/d", "postgresql://u:*********@h/d"),
    ("url", "wss://h/f?a=1&api_key=k1&b=2", "wss://h/f?a=1&api_key=***&b=2", "wss://h/f?a=1&api_key=**&b=2"),
    ("url", "wss://h/f?token=${T:-dflt}", "wss://h/f?token=***", "wss://h/f?token=**********"),
]


@pytest.mark.parametrize(("name", "value", "shown", "same_length"), CLEAR)
def test_written_out(name: str, value: str, shown: str, same_length: str) -> None:
    assert has_clear_secret(name, value)
    assert hidden(name, value) == shown
    assert blanked(name, value) == same_length
    assert len(same_length) == len(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password", ""),
        ("password", "${PW}"),
        ("password", "${A}${B}"),
        ("password", "${PW:-}"),
        ("authorization", "Bearer ${TOKEN}"),
        ("url", "postgresql://reader@h:5432/d"),
        ("url", "postgresql://u:${PW}@h/d"),
        ("url", "postgresql://${USER}:${PW}@${HOST:-db.example}/d"),
        ("url", "wss://h/f?token=${TOKEN}&a=b"),
        ("url", "wss://h/feed/user@domain"),
        ("path", "out/a:b@c"),
        ("json.column.token", "data.token"),
        ("query", "SELECT a FROM t WHERE token = 'x'"),
    ],
)
def test_not_written_out(name: str, value: str) -> None:
    assert not has_clear_secret(name, value)
    assert hidden(name, value) == value == blanked(name, value)


@pytest.mark.parametrize(
    ("text", "values", "shown"),
    [
        ("wss://u:pw@h/x?token=abc was refused", (), "wss://u:***@h/x?token=*** was refused"),
        ('connection to "h" failed: password=hunter2 host=h', (), 'connection to "h" failed: password=*** host=h'),
        ('{"password": "hunter2", "user": "u"}', (), '{"password": "***", "user": "u"}'),
        ("header Authorization: Bearer abc.def was refused", (), "header Authorization: Bearer *** was refused"),
        ("wss://h/feed/s3cr3t/x", ("s3cr3t",), "wss://h/feed/***/x"),
        ("got a%2Fb%20c", ("a/b c",), "got ***"),
        ("row 1 of 12 with 1", ("1",), "row *** of 12 with ***"),
        ("password = '${PW}'", (), "password = '${PW}'"),
        ("nothing here", ("",), "nothing here"),
    ],
)
def test_redacted_text(text: str, values: tuple[str, ...], shown: str) -> None:
    assert redact(text, values) == shown
    assert redact(shown, values) == shown


@pytest.mark.parametrize("part", ["x", "x.", "x=", "x ", " ", "'", "'x':", "${", "://", "x://", "?x", "authorization "])
def test_a_long_text_is_redacted_soon(part: str) -> None:
    began = time.process_time()
    redact(part * 50_000)
    hidden("url", part * 50_000)
    assert time.process_time() - began < 5


@given(st.text(min_size=4), st.text(), st.text())
def test_a_known_value_never_stays(value: str, before: str, after: str) -> None:
    shown = redact(before + value + after, [value])
    assert value not in shown or value in "***"
