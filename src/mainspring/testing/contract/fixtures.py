"""The fixtures of the contract suite. All are made from the fixture ``make_store`` of the author of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pkgutil import iter_modules
from typing import Protocol
from uuid import uuid4

import pytest
import pytest_asyncio

from mainspring.common.clock import Clock, MovableClock
from mainspring.stores.base import Store
from mainspring.testing import contract

__all__ = ["clock", "elsewhere", "namespace", "second_store", "store"]

pytest.register_assert_rewrite(
    *(f"{__package__}.{module.name}" for module in iter_modules(contract.__path__) if module.name != "fixtures")
)


class MakeStore(Protocol):
    """The value of the fixture ``make_store``: makes a client of the test's database, not yet open."""

    def __call__(self, *, namespace: str, clock: Clock) -> Store: ...


@pytest.fixture
def clock() -> MovableClock:
    """The store's clock. It does not move until the test moves it."""
    return MovableClock()


@pytest.fixture
def namespace() -> str:
    """A new one for each test, so that a shared server appears empty."""
    return f"c{uuid4().hex[:12]}"


@pytest_asyncio.fixture
async def store(make_store: MakeStore, namespace: str, clock: MovableClock) -> AsyncIterator[Store]:
    opened = make_store(namespace=namespace, clock=clock)
    await opened.open()
    await opened.migrate()
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def second_store(
    store: Store,  # noqa: ARG001  # the first client makes the schema
    make_store: MakeStore,
    namespace: str,
    clock: MovableClock,
) -> AsyncIterator[Store]:
    """Another client of the same database."""
    opened = make_store(namespace=namespace, clock=clock)
    await opened.open()
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def elsewhere(make_store: MakeStore, clock: MovableClock) -> AsyncIterator[Store]:
    """The same database, another namespace."""
    opened = make_store(namespace=f"e{uuid4().hex[:12]}", clock=clock)
    await opened.open()
    await opened.migrate()
    yield opened
    await opened.close()
