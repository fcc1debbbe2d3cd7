"""The wire between a worker and its store is cut, slow, or loses a reply."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.client.blocking import run as blocking
from mainspring.common.clock import boottime
from mainspring.jobs.job import Job
from mainspring.states import State
from mainspring.stores.redis.driver.scripts import script
from mainspring.testing import chaos
from tests.faults.test_servers import assert_each_ran_once, living
from tests.processes.fleet import Fleet, Supervised, alive, until
from tests.processes.playground import Playground
from tests.processes.test_stopped import assert_second_owner_stands, row_ids

pytestmark = pytest.mark.stores("postgres", "redis")


def by_wire(fleet: Fleet, wire: chaos.Proxy, **options: Any) -> Supervised:
    """A supervised worker whose only way to the store is this wire."""
    supervised = fleet.start(env={"MAINSPRING_URL": wire.url}, **options)
    supervised.wait_ready()
    return supervised


@pytest.mark.row("B21")
def test_an_ack_whose_reply_is_lost_counts_once(fleet: Fleet, wire: chaos.Proxy, tmp_path: Path) -> None:
    """fault-15: the store applied the ack. The repeated ack is answered with "already"."""
    by_wire(fleet, wire)
    before, gate = living(fleet), tmp_path / "gate"
    job = fleet.tasks.wait_for.enqueue(str(gate))
    fleet.started(job)
    drop = wire.set(chaos.DropReply(to=job.id.bytes))
    gate.touch()
    until(lambda: drop.dropped, what="the reply is dropped")
    assert_each_ran_once(fleet, [job, fleet.tasks.quick.enqueue()])
    assert living(fleet) == before


@pytest.mark.row("B21", "Q1")
@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_an_enqueue_whose_reply_is_lost_makes_one_job(fleet: Fleet, wire: chaos.Proxy, colour: str) -> None:
    """fault-15 for producers: each call makes one job, whatever the caller was answered."""
    app = Mainspring(wire.url)
    tasks = Playground(app)
    jobs = [tasks.quick.enqueue()]

    async def one() -> Job[Any]:
        return await tasks.quick.aenqueue()

    for _ in range(3):
        drop = wire.set(chaos.DropReply())
        jobs.append(tasks.quick.enqueue() if colour == "blocking" else blocking("one", one()))
        assert drop.dropped == 1
    app.close()
    assert sorted(info.id for info in fleet.tasks.app.jobs.iterate()) == sorted(job.id for job in jobs)


@pytest.mark.row("B22", "W4")
@pytest.mark.parametrize("fault", [chaos.Stall(), chaos.Reset(), chaos.HalfOpen()], ids=repr)
def test_a_worker_cut_off_alone_is_replaced_and_its_late_writes_are_refused(
    fleet: Fleet, wire: chaos.Proxy, tmp_path: Path, fault: chaos.Fault
) -> None:
    """fault-16: another worker takes its job. When the network is back it gets a new id, and its late writes change
    nothing.
    """
    cut_off = by_wire(fleet, wire)
    (pid,) = cut_off.worker_pids()
    gate = tmp_path / "gate"
    job = fleet.tasks.wait_first.enqueue(str(gate))
    fleet.started(job)
    (old,) = row_ids(fleet, pid)
    fleet.start().wait_ready()
    with wire.suffering(fault):
        assert fleet.ended([job])[0].state is State.SUCCEEDED
        gate.touch()
    new = until(lambda: [row for row in row_ids(fleet, pid) if row != old], what="it takes a new id")
    assert len(new) == 1
    assert_second_owner_stands(fleet, job)
    until(lambda: ran_on(fleet, pid), what="it works again")
    assert_second_owner_stands(fleet, job)
    assert pid in cut_off.worker_pids(), "nobody had a reason to kill it"


@pytest.mark.row("B22")
def test_a_strict_body_that_is_cut_off_ends_before_its_job_runs_elsewhere(
    fleet: Fleet, wire: chaos.Proxy, tmp_path: Path
) -> None:
    """fault-16: the body holds the GIL, so its supervisor, which is cut off too, must end it."""
    by_wire(fleet, wire)
    gate = tmp_path / "gate"
    job = fleet.tasks.strict.enqueue(str(gate))
    (first,) = fleet.started(job)
    fleet.start().wait_ready()
    with wire.suffering(chaos.Stall()):
        gate.touch()
        seen_alive = until_gone(first.pid)
        (info,) = fleet.ended([job])
    assert (info.state, info.attempt, info.crashes) == (State.SUCCEEDED, 1, 0)
    second = fleet.journal(job, word="START")[1]
    assert second.at > seen_alive


def until_gone(pid: int) -> float:
    """Wait for its end; the last moment at which it was seen alive."""
    seen = boottime()

    def gone() -> bool:
        nonlocal seen
        now = boottime()
        if alive(pid):
            seen = now
            return False
        return True

    until(gone, what="the fenced worker is killed")
    return seen


def ran_on(fleet: Fleet, pid: int) -> bool:
    """Whether one of some jobs was run by this process."""
    jobs = [fleet.tasks.nap.enqueue(0.2) for _ in range(8)]
    return pid in {line.pid for line in fleet.started(*jobs)}


class Deaf(chaos.Fault):
    """No bytes pass on connections that have sent turns. Connections with heartbeats only are served."""

    async def meet(self, link: chaos.ProxiedConnection, side: chaos.Side, data: bytes) -> None:
        if link.said:
            await link.changed()
            await link.meet(side, data)
        else:
            await link.send(side, data)


def test_a_worker_with_heartbeats_and_without_turns_ends_no_job(fleet: Fleet, ground: Any, tmp_path: Path) -> None:
    """fault-17: the worker reports that it claims nothing, runs its jobs on, and acks them when turns work again."""
    words = (b"turn_v1", script("turn").sha.encode())
    with chaos.Proxy(ground.url, words=words) as wire:
        by_wire(fleet, wire, target="tests.faults.impatient:app")
        gate = tmp_path / "gate"
        job = fleet.tasks.wait_first.enqueue(str(gate))
        (first,) = fleet.started(job)
        workers = fleet.tasks.app.workers
        with wire.suffering(Deaf()):
            gate.touch()
            until(lambda: not all(each.claiming for each in workers.list()), what="it says so")
        (info,) = fleet.ended([job])
        assert (info.state, info.token, info.crashes) == (State.SUCCEEDED, first.token, 0)


@pytest.mark.row("B22")
def test_a_slow_network_loses_no_job(fleet: Fleet, wire: chaos.Proxy, tmp_path: Path) -> None:
    """fault-18: half a second on every call, then stalls that are shorter than a lease."""
    for _ in range(2):
        by_wire(fleet, wire)
    before, gate = living(fleet), tmp_path / "gate"
    jobs = [fleet.tasks.wait_for.enqueue(str(gate)) for _ in range(4)]
    fleet.started(*jobs)
    with wire.suffering(chaos.Delay(0.5)):
        jobs += [fleet.tasks.quick.enqueue(n) for n in range(10)]
        fleet.ended(jobs[4:])
    for _ in range(3):
        with wire.suffering(chaos.Stall()):
            began = time.monotonic()
            jobs.append(fleet.tasks.quick.enqueue())
            until(lambda began=began: time.monotonic() - began > 1, what="a third of a lease")  # type: ignore[misc]
        fleet.ended(jobs[-1:])
    gate.touch()
    assert_each_ran_once(fleet, jobs)
    assert living(fleet) == before
