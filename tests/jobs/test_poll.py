"""The poll finds jobs whose wake-up was lost: here with a store that sends no wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.launch.services import build_services
from mainspring.stores.base import Store
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.worker import Worker
from tests.jobs.world import Running, World


class Deaf:
    """Hears nothing."""

    is_always_woken = False

    async def wait(self, timeout: float) -> bool:
        await asyncio.sleep(timeout)
        return False

    def close(self) -> None: ...


class WakesNobody:
    """A real store whose listeners are never woken."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def listen(self, worker: str, queues: Sequence[str]) -> Deaf:
        return Deaf()


@pytest.mark.option("worker.poll")
async def test_each_poll_claims_jobs(world: World) -> None:
    """The poll interval of the app itself is an hour."""
    app = Mainspring(world.url, poll="1h")

    @app.task(name="one")
    async def one() -> int:
        return 1

    parts = app.parts(poll="100ms")
    world.tasks = dict(parts.tasks)
    store: Any = WakesNobody(world.store)
    running = Running(Worker(parts, store, shared_state=SharedState.create(256), services=build_services))
    world.running.append(running)
    await running.started()
    await world.final(await world.enqueue("one"))
    await world.final(await world.enqueue("one"))
    assert await running.drained() == 0
