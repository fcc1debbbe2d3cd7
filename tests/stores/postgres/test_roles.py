"""The shipped role script: the owner migrates, the app works and can change nothing but rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio

from mainspring.errors import StoreReadOnly
from mainspring.stores.door import Door
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver import roles
from mainspring.testing.contract.hands import Hand, one


class Parties:
    """The two roles of the shipped script; only their names and passwords were changed."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self.namespace = namespace
        self.owner, self.app = f"o{uuid4().hex[:8]}", f"a{uuid4().hex[:8]}"
        self.schema = PostgresStore(url, namespace=namespace).schema
        self.run(roles.roles_script(self.schema, owner=self.owner, app=self.app))

    def run(self, text: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as administrator:
            administrator.execute(text.encode())

    def store(self, role: str) -> PostgresStore:
        return PostgresStore(self.url(role), namespace=self.namespace)

    def url(self, role: str) -> str:
        parts = urlsplit(self._url)
        password = "choose%20one" if role == self.owner else "choose%20another"
        return urlunsplit(parts._replace(netloc=f"{role}:{password}@{parts.netloc.rpartition('@')[2]}"))


@pytest_asyncio.fixture
async def parties(postgres_owner_url: str, namespace: str) -> AsyncIterator[Parties]:
    parties = Parties(postgres_owner_url, namespace)
    yield parties
    for role in (parties.owner, parties.app):
        parties.run(f"drop owned by {role} cascade; drop role {role}")


async def test_the_owner_migrates_and_the_app_role_works(parties: Parties) -> None:
    owner = parties.store(parties.owner)
    assert (await owner.migrate())[0] == 0
    app = parties.store(parties.app)
    await app.open()
    made = await one(app)
    hand = await Hand(app).join()
    claims = await hand.take(1)
    assert [claim.id for claim in claims] == [made.id]
    await hand.succeed(*claims)
    await app.close()


async def test_the_app_role_cannot_migrate(parties: Parties) -> None:
    app = Door(parties.store(parties.app))
    with pytest.raises(StoreReadOnly):
        await app.migrate()


@pytest.mark.parametrize(
    "forbidden",
    [
        "create table {schema}.more (n integer)",
        "drop table {schema}.jobs",
        "alter table {schema}.jobs add column more integer",
        "truncate {schema}.jobs",
        "drop function {schema}.now_v1",
        "create schema more",
    ],
)
async def test_the_app_role_cannot_change_the_schema(parties: Parties, forbidden: str) -> None:
    await parties.store(parties.owner).migrate()
    with (
        psycopg.connect(parties.url(parties.app)) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(forbidden.format(schema=parties.schema).encode())


async def test_other_roles_cannot_read(parties: Parties) -> None:
    await parties.store(parties.owner).migrate()
    stranger = f"s{uuid4().hex[:8]}"
    parties.run(f"create role {stranger} login password 'choose another'")
    try:
        with psycopg.connect(parties.url(stranger)) as connection:
            for wish in (f"table {parties.schema}.jobs", f"select {parties.schema}.now_v1(null)"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(wish.encode())
                connection.rollback()
    finally:
        parties.run(f"drop role {stranger}")
