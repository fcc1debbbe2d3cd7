"""A store whose clock the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from tests.unit.schedule_samples import T0


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(to_datetime(T0))


@pytest.fixture
async def store(store_url: str, clock: MovableClock) -> AsyncIterator[Store]:
    opened = connect(store_url, durability="normal", clock=clock)
    await opened.open()
    yield opened
    await opened.close()
