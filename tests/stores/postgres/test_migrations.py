"""Migrations: run once, planned and printed as they would run, refused when they are newer."""

from __future__ import annotations

import psycopg
import pytest

from mainspring.errors import SchemaOutdated
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.migrations import VERSION
from mainspring.testing.contract.hands import one

_OBJECTS = """
select c.relkind::text, replace(c.relname::text, %(schema)s, 's') from pg_class c
where c.relnamespace = to_regnamespace(%(schema)s)
union all
select 'f', replace(p.oid::regprocedure::text, %(schema)s, 's') from pg_proc p
where p.pronamespace = to_regnamespace(%(schema)s)
order by 1, 2
"""


def objects(url: str, schema: str) -> list[tuple[str, str]]:
    with psycopg.connect(url) as looker:
        return looker.execute(_OBJECTS, {"schema": schema}).fetchall()


async def test_the_plan_changes_nothing(postgres_owner_url: str, namespace: str) -> None:
    store = PostgresStore(postgres_owner_url, namespace=namespace)
    plan = await store.migration_plan()
    assert (plan.before, plan.after) == (0, VERSION)
    assert objects(postgres_owner_url, store.schema) == []
    assert await store.migrate() == (0, VERSION)
    after = await store.migration_plan()
    assert (after.before, after.after, after.script) == (VERSION, VERSION, "")


async def test_the_printed_script_makes_the_same_schema(postgres_owner_url: str, namespace: str) -> None:
    by_hand = PostgresStore(postgres_owner_url, namespace=namespace + "_hand")
    by_us = PostgresStore(postgres_owner_url, namespace=namespace)
    with psycopg.connect(postgres_owner_url, autocommit=True) as administrator:
        administrator.execute((await by_hand.migration_plan()).script.encode())
    await by_us.migrate()
    made = objects(postgres_owner_url, by_hand.schema)
    assert made == objects(postgres_owner_url, by_us.schema)
    assert made
    assert await by_hand.migrate() == (VERSION, VERSION)
    await by_hand.open()
    await one(by_hand)
    await by_hand.close()


async def test_the_script_for_a_schema_that_an_administrator_created(postgres_owner_url: str, namespace: str) -> None:
    store = PostgresStore(postgres_owner_url, namespace=namespace)
    with psycopg.connect(postgres_owner_url, autocommit=True) as administrator:
        administrator.execute(f"create schema {store.schema}".encode())
    assert "create schema" not in (await store.migration_plan()).script
    assert await store.migrate() == (0, VERSION)


async def test_a_migration_that_fails_leaves_nothing_behind(postgres_owner_url: str, namespace: str) -> None:
    store = PostgresStore(postgres_owner_url, namespace=namespace)
    with psycopg.connect(postgres_owner_url, autocommit=True) as administrator:
        administrator.execute(f"create schema {store.schema}; create table {store.schema}.edges ()".encode())
    with pytest.raises(psycopg.Error, match="already exists"):
        await store.migrate()
    assert objects(postgres_owner_url, store.schema) == [("r", "edges")]


async def test_a_newer_schema_is_refused_every_time(postgres_owner_url: str, namespace: str) -> None:
    store = PostgresStore(postgres_owner_url, namespace=namespace)
    await store.migrate()
    with psycopg.connect(postgres_owner_url, autocommit=True) as newer:
        newer.execute(f"update {store.schema}.schema_version set version = {VERSION + 1}".encode())
    for _ in range(2):
        with pytest.raises(SchemaOutdated, match="Upgrade"):
            await store.open()
    with pytest.raises(SchemaOutdated, match="Upgrade"):
        await store.migrate()
    plan = await store.migration_plan()
    assert (plan.before, plan.script) == (VERSION + 1, "")
