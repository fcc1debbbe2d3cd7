"""A store of the test's own schema, by the server's own clock; and sides that hold their transactions open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from mainspring.stores.postgres import PostgresStore
from tests.stores.postgres.sides import Sides


@pytest.fixture
def namespace() -> str:
    return f"t{uuid4().hex[:12]}"


@pytest_asyncio.fixture
async def store(postgres_owner_url: str, postgres_url: str, namespace: str) -> AsyncIterator[PostgresStore]:
    await PostgresStore(postgres_owner_url, namespace=namespace).migrate()
    store = PostgresStore(postgres_url, namespace=namespace)
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture
async def sides(postgres_url: str, store: PostgresStore) -> AsyncIterator[Sides]:
    sides = Sides(postgres_url, store)
    yield sides
    await sides.close()
