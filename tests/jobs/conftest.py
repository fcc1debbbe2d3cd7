"""Workers inside the test's process, on a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.jobs.world import World


@pytest.fixture
async def world(store_url: str) -> AsyncIterator[World]:
    made = World(store_url)
    await made.store.open()
    yield made
    await made.close()
