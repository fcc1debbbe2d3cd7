"""Workers on a server that is full, restored from a backup, or without its replica."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import redis.asyncio

from mainspring.jobs.query import Query
from mainspring.states import Action, State
from mainspring.testing import servers
from tests.jobs.world import World, eventually

KEPT = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-percentage": "0"}


@pytest.fixture
def server() -> servers.Valkey:
    made = servers.valkey(own=True, settings=KEPT)
    assert isinstance(made, servers.Valkey)
    return made


def log_of(server: servers.Valkey) -> Path:
    (file,) = Path(server.home).glob("appendonlydir/*.incr.aof")
    return file


@pytest_asyncio.fixture
async def world(server: servers.Valkey) -> AsyncIterator[World]:
    with server:
        world = World(server.url)
        await world.store.open()
        yield world
        await world.close()


async def test_a_full_store_takes_acks_and_gives_cancel_orders(
    world: World, server: servers.Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """With free slots: a request for more jobs must not stop the worker from sending acks."""
    go, never = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        await go.wait()
        return "done"

    async def endless() -> None:
        await never.wait()

    first, second = await world.enqueue(world.task(wait)), await world.enqueue(world.task(endless))
    running = await world.worker().started()
    await world.until(first, State.RUNNING)
    await world.until(second, State.RUNNING)
    async with redis.asyncio.Redis.from_url(server.url, protocol=2) as client:
        await client.config_set("maxmemory", "1mb")

        async def said() -> bool | None:
            return "claiming failed" in caplog.text or None

        await eventually(said, "a worker that says why it claims nothing")
        go.set()
        assert (await world.final(first)).state is State.SUCCEEDED
        await world.store.act(Action.CANCEL, Query.of(second))
        assert (await world.final(second)).state is State.CANCELLED
        await client.config_set("maxmemory", "0")
    last = await world.enqueue("wait")
    assert (await world.final(last)).state is State.SUCCEEDED
    assert "claiming works again" in caplog.text
    await running.drained()


async def test_a_job_whose_ack_the_server_lost_runs_again(
    world: World, server: servers.Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut between two syncs: for the store the job runs, under a live worker that does not have it."""
    runs, go = [], asyncio.Event()

    async def work() -> None:
        runs.append(1)
        await go.wait()

    made = await world.enqueue(world.task(work))
    await world.worker(poll=20_000_000).started()
    await world.until(made, State.RUNNING)
    file = log_of(server)
    synced = file.stat().st_size
    go.set()
    await world.final(made)
    server.kill()
    os.truncate(file, synced)
    server.start()

    async def again() -> bool | None:
        return len(runs) == 2 or None

    await eventually(again, "a second run")
    await world.final(made)
    assert len(runs) == 2
    assert "the store has lost the ends of these jobs" in caplog.text
