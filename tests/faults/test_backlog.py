"""A store in which much lies: work that waits, work for later, and what has died.

That a claim costs the same beside any number is shown where reads can be counted: ``test_plans.py`` of PostgreSQL and
SQLite, ``test_entries.py`` of Redis.
"""

from __future__ import annotations

from pathlib import Path

from mainspring.client.blocking import run as blocking
from mainspring.common.ids import new_ids
from mainspring.states import State
from mainspring.stores.connect import connect
from mainspring.testing.contract.hands import Hand, job, put_in
from tests.processes.fleet import Fleet

WAITING, LATER, DEAD = 4_000, 500, 500
SLOTS = 4


def test_a_worker_starts_beside_a_large_backlog_and_runs_urgent_jobs(fleet: Fleet, tmp_path: Path) -> None:
    """fault-27: also jobs that become urgent while the worker is full. Counts and lists work as before."""
    app, gate = fleet.tasks.app, tmp_path / "gate"
    for _ in range(WAITING // 1000):
        fleet.tasks.wait_for.enqueue_many(fleet.tasks.wait_for.s(str(gate)) for _ in range(1000))
    fleet.tasks.quick.enqueue_many(fleet.tasks.quick.s(n).options(delay="1h") for n in range(LATER))
    blocking("die", die(fleet.url))
    urgent = [fleet.tasks.quick.options(priority=9).enqueue()]
    fleet.start(async_slots=SLOTS).wait_ready()
    fleet.ended(urgent)
    urgent.append(fleet.tasks.quick.options(priority=9).enqueue())
    gate.touch()
    fleet.ended(urgent)
    begun = [line.job for line in fleet.journal(word="START")]
    assert begun[0] == str(urgent[0].id)
    assert begun.index(str(urgent[1].id)) < 10 * SLOTS
    counts = app.jobs.count()
    assert (counts[State.SCHEDULED], counts[State.DEAD]) == (LATER, DEAD)
    assert len(app.dead.list(limit=100).jobs) == 100


async def die(url: str) -> None:
    """Jobs of another queue that have failed for good."""
    store = connect(url)
    try:
        await store.open()
        hand = await Hand(store, queues=("past",)).join()
        await put_in(store, *(job(id=each.bytes, queue="past") for each in new_ids(DEAD)))
        while claims := await hand.take(DEAD, "past/any"):
            await hand.kill(*claims)
    finally:
        await store.close()
