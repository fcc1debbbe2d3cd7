"""The server is killed, stopped, frozen, or ends its connections: workers go on as if nothing had been."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.jobs.job import Job
from mainspring.states import State
from mainspring.stores.connect import sqlite_path
from tests.plugins.outside import OutsideSqlite
from tests.processes.fleet import Fleet, until
from tests.soak.arena import Arena

BACK = 50.0
"""Ten times the seconds within which workers claim again once their store answers."""
DEFAULT: dict[str, Any] = {"lease": "15s", "sweep": "3s", "poll": "1s"}


def assert_each_ran_once(fleet: Fleet, jobs: list[Job[Any]]) -> None:
    """0 rescued, 0 blamed, 0 interrupted, 0 doubled."""
    infos = fleet.ended(jobs, limit=BACK)
    assert {info.state for info in infos} == {State.SUCCEEDED}
    assert [info.attempts for info in infos] == [()] * len(jobs)
    assert [len(fleet.journal(job, word="START")) for job in jobs] == [1] * len(jobs)


def living(fleet: Fleet) -> set[str]:
    return {row.id for row in fleet.workers() if not row.lost}


@pytest.mark.row("R12")
@pytest.mark.stores("postgres", "redis")
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_jobs_and_workers_survive_a_server_that_goes_and_comes_back(
    fleet: Fleet, ground: Arena, tmp_path: Path, how: str
) -> None:
    """fault-9, fault-13: no confirmed job is lost, running bodies run on, and workers claim again by themselves."""
    assert ground.server is not None
    for _ in range(2):
        fleet.start().wait_ready()
    before, gate = living(fleet), tmp_path / "gate"
    held = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(6)]
    fleet.started(*held)
    flow: list[Job[Any]] = []
    for _ in range(2):
        flow += [fleet.tasks.quick.enqueue(n) for n in range(20)]
        getattr(ground.server, how)()
        ground.server.start()
        flow.append(fleet.tasks.quick.enqueue())
        fleet.ended(flow[-1:], limit=BACK)
    gate.touch()
    assert_each_ran_once(fleet, held + flow)
    assert living(fleet) == before


@pytest.mark.row("R12", "B21")
@pytest.mark.stores("postgres", "redis")
def test_jobs_and_workers_survive_connections_that_the_server_ends_at_random(
    fleet: Fleet, ground: Arena, tmp_path: Path
) -> None:
    """fault-14: all connections, again and again, under load."""
    for _ in range(2):
        fleet.start().wait_ready()
    before, gate = living(fleet), tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(4)]
    fleet.started(*jobs)
    for _ in range(6):
        jobs += [fleet.tasks.quick.enqueue(n) for n in range(10)]
        ground.end_connections()
        jobs += [fleet.tasks.nap.enqueue(0.1) for _ in range(4)]
        fleet.started(jobs[-1])
    gate.touch()
    assert_each_ran_once(fleet, jobs)
    assert living(fleet) == before


@contextlib.contextmanager
def frozen(ground: Arena) -> Iterator[None]:
    """The store answers no call inside the block."""
    if ground.server is None:
        with OutsideSqlite(sqlite_path(ground.url)).hold():
            yield
        return
    ground.server.freeze()
    try:
        yield
    finally:
        ground.server.thaw()


@pytest.mark.row("B22")
def test_no_job_is_lost_when_the_store_freezes_for_longer_than_the_default_lease(
    fleet: Fleet, ground: Arena, tmp_path: Path
) -> None:
    """fault-18 with the default settings: 17 s, 8 ordinary jobs, and half of them end meanwhile."""
    for _ in range(2):
        fleet.start(async_slots=4, **DEFAULT).wait_ready()
    before, gates = living(fleet), [tmp_path / "during", tmp_path / "after"]
    jobs = [fleet.tasks.wait_for.enqueue(str(gates[n % 2])) for n in range(8)]
    fleet.started(*jobs)
    with frozen(ground):
        began = time.monotonic()
        gates[0].touch()
        until(lambda: len(fleet.journal(word="END")) == 4, what="bodies end while the store is frozen")
        until(lambda: time.monotonic() - began > 17, what="longer than a lease")
    gates[1].touch()
    assert_each_ran_once(fleet, jobs)
    assert living(fleet) == before
