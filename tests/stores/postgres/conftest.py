"""A store of the test's own schema, by the server's own clock; and sides that hold their transactions open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
import pytest_asyncio

from mainspring.stores.postgres import PostgresStore
from tests.plugins.clean import CleanSchemas
from tests.stores.postgres.sides import Sides


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "new_schema: looks at what deleted rows leave behind, or at statistics")


@pytest.fixture
def namespace(request: pytest.FixtureRequest, clean_schemas: CleanSchemas) -> Iterator[str]:
    """The namespace of the test's store, migrated and empty; without a store or with `new_schema` a new one."""
    if "store" in request.fixturenames and not request.node.get_closest_marker("new_schema"):
        clean_schemas.clean("stores")
        yield "stores"
    else:
        name = f"t{uuid4().hex[:12]}"
        yield name
        clean_schemas.drop(name)


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
