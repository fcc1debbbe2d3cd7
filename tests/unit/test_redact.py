"""Secrets are taken out of text and of mappings; ordinary text stays as it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.common.redact import HIDDEN, KNOWN_LIMIT, hide, looks_secret, redact, remember, remember_url


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("at postgresql://shop:hunter2@db:5432/shop now", "at postgresql://shop:***@db:5432/shop now"),
        ("redis://:hunter2@cache", "redis://:***@cache"),
        ("amqp://u:p@ss/word@host/x", "amqp://u:***@host/x"),
        ("password=hunter2 user=ann", "password=*** user=ann"),
        ("DB_PASSWORD='a b c', x", "DB_PASSWORD='***', x"),
        ('{"apiKey": "abc", "n": 1}', '{"apiKey": "***", "n": 1}'),
        ("{'api_key': 'it\\'s', 'n': 1}", "{'api_key': '***', 'n': 1}"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: ***"),
        ("Authorization: Basic dXNlcjpwYXNz\nHost: x", "Authorization: ***\nHost: x"),
        ("Cookie: a=b; session=c\nHost: x", "Cookie: ***\nHost: x"),
        ("sent Bearer abcdefgh123 to it", "sent Bearer *** to it"),
        ("?token=abc&page=2", "?token=***&page=2"),
        ("secret_key = xyz", "secret_key = ***"),
        ("private-key: xyz", "private-key: ***"),
    ],
)
def test_values_that_look_secret_are_hidden(text: str, hidden: str) -> None:
    assert redact(text) == hidden
    assert redact(hidden) == hidden


@pytest.mark.parametrize(
    "word",
    ["password", "passwords", "passwd", "passphrase", "pwd", "secret", "token", "api_key", "api-keys", "apikey",
     "authorization", "cookie", "credentials", "private_key", "privatekey", "access-key", "accesskey"],
)  # fmt: skip
def test_every_secret_word_is_found_in_any_case(word: str) -> None:
    assert redact(f"{word}=abcdef") == f"{word}=***"
    assert redact(f"X_{word.upper()}: abcdef") == f"X_{word.upper()}: ***"


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////var/lib/jobs.db", "http://localhost:8080/path", "max_tokens=500", "tokenize: yes", "a: b = c",
        "the secretary said: hello", "12:30:01 INFO x: y", "mail ann@example.org: hello", "",
    ],
)  # fmt: skip
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_a_remembered_value_is_hidden_in_every_encoding() -> None:
    value = 'two\nlines & "quotes" é'
    remember(value)
    for text in (
        value,
        repr(value),
        f"{[value]}",
        'two\\nlines & \\"quotes\\" \\u00e9',
        "two%0Alines%20%26%20%22quotes%22%20%C3%A9",
    ):
        assert HIDDEN in redact(f"<{text}>")
        assert "lines" not in redact(f"<{text}>")


@pytest.mark.parametrize("secret", ["grünesHaus9", "two lines\nhère 'quoted' \"twice\"", "snow ☃ man"])
def test_a_value_outside_of_ascii_is_hidden_in_every_encoding(secret: str) -> None:
    remember(secret)
    for form in (
        secret,
        repr(secret),
        json.dumps(secret),
        repr(secret.encode()),
        quote(secret, safe=""),
        quote(secret),
    ):
        assert secret[-3:] not in redact(f"x {form} y"), form
        assert form.strip("b'\"") not in redact(f"x {form} y")


def test_short_values_are_not_searched() -> None:
    remember("abc")
    assert redact("the abc of it") == "the abc of it"


def test_each_text_of_a_container_is_remembered() -> None:
    remember({"a": ["inner-canary-1", {"b": b"inner-canary-2"}], "n": 70011234})
    assert redact("inner-canary-1 inner-canary-2 70011234") == "*** *** ***"


def test_a_secret_of_the_job_that_contains_a_remembered_value_is_hidden_whole() -> None:
    @dataclass(frozen=True)
    class Job:
        secrets: tuple[str, ...]

    remember("contained-canary")
    assert redact("it is contained-canary-9", Job(("contained-canary-9",))) == "it is ***"
    assert redact("it is contained-canary", Job(("canary",))) == "it is ***"


def test_only_the_newest_values_are_remembered_up_to_the_limit() -> None:
    for number in range(KNOWN_LIMIT + 10):
        remember(f"filler{number:06}")
    assert redact("filler000000") == "filler000000"
    assert redact(f"filler{KNOWN_LIMIT + 9:06}") == HIDDEN


def test_the_password_of_a_url_is_hidden_outside_the_url_too() -> None:
    remember_url("postgresql://shop:hunter%402x@db/shop")
    assert redact("password hunter@2x was refused; hunter%402x") == "password *** was refused; ***"


def test_a_password_equal_to_the_user_name_is_not_hidden_everywhere() -> None:
    remember_url("postgresql://postgres:postgres@db/postgres")
    assert redact("the postgres server") == "the postgres server"


@pytest.mark.parametrize(
    "name", ["password", "PASSWD", "db_password", "apiKey", "api_key", "X-Api-Key", "DB_TOKEN", "client_secret",
             "Authorization", "set-cookie", "aws_credentials", "privateKey", "AWS_SECRET_ACCESS_KEY"],
)  # fmt: skip
def test_names_that_look_secret_are_recognised(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "author", "key", "secretary", "cookieless", "passenger"])
def test_names_that_do_not_look_secret_are_not_recognised(name: str) -> None:
    assert not looks_secret(name)


def test_hide_works_at_any_depth_and_by_given_names() -> None:
    given = {"card": 1, "to": "ann", "list": [{"token": "x", "n": (1, 2)}], "deep": {"card": {"a": 1}}}
    assert hide(given, ["card"]) == {
        "card": "***", "to": "ann", "list": [{"token": "***", "n": [1, 2]}], "deep": {"card": "***"},
    }  # fmt: skip
    assert given["card"] == 1, "the original is as it was"


def test_a_value_that_contains_itself_can_be_hidden() -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    assert isinstance(hide(loop), dict)


@given(st.text())
def test_any_text_can_be_redacted(text: str) -> None:
    assert isinstance(redact(text), str)


@pytest.mark.parametrize("text", ["password" * 20_000, "a" * 200_000, "://" * 50_000, "token='" * 20_000, "=" * 200_000,
                                  "https://" + "a:" * 50_000, "cookie: " * 20_000])  # fmt: skip
def test_redact_takes_linear_time(text: str) -> None:
    """Milliseconds. Quadratic work would reach the time limit of the whole run."""
    assert redact(text)
