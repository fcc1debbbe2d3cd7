"""A schema of PostgreSQL that tests share one after the other looks new to each of them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.plugins.clean import CleanSchemas

SCHEMA = "mainspring_cleaning"


@pytest.fixture
def ask(clean_schemas: CleanSchemas, postgres_owner_url: str) -> Any:
    clean_schemas.clean("cleaning")
    with psycopg.connect(postgres_owner_url, autocommit=True) as connection:
        yield lambda sql: connection.execute(sql.replace("{s}", SCHEMA).encode())


def made(ask: Any) -> int:
    """Which making of the schema this is."""
    return int(ask("select '{s}'::regnamespace::oid").fetchone()[0])


def test_clean_deletes_the_rows_and_keeps_the_schema(clean_schemas: CleanSchemas, ask: Any) -> None:
    before = made(ask)
    ask("insert into {s}.documents select 'kind', 'name', 1, ''::bytea from generate_series(1, 1)")
    clean_schemas.clean("cleaning")
    assert ask("select count(*) from {s}.documents").fetchone() == (0,)
    assert ask("select count(*) from {s}.schema_version").fetchone() == (1,), "what the migration wrote stays"
    assert made(ask) == before


@pytest.mark.parametrize(
    "change",
    ["update {s}.schema_version set version = 99", "create table {s}.orders (n integer)"],
    ids=["row", "table"],
)
def test_a_schema_with_other_changes_is_created_again(clean_schemas: CleanSchemas, ask: Any, change: str) -> None:
    before = made(ask)
    ask(change)
    clean_schemas.clean("cleaning")
    assert made(ask) != before
