"""Databases of older versions are migrated with all their data, while old workers go on working."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.queues.records import QueueMode
from mainspring.schedules.records import ScheduleRun, ScheduleSwap
from mainspring.states import State
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.migrations import VERSION
from mainspring.testing.contract.hands import LANE, Hand, ids, job, lease, one, put_in
from tests.migrations.stored import HERE, IDS, NAMESPACE

OLD = sorted(int(file.stem.partition("-")[2]) for file in HERE.glob("postgres-*.sql"))


class OldWorker:
    """The statements that a worker of version 1 sends. After the release of version 1 nothing here may change."""

    def __init__(self, url: str, version: int) -> None:
        self.calls: dict[str, Any] = json.loads((HERE / f"postgres-{version}.json").read_text())
        self.connection = psycopg.connect(url, autocommit=True)
        self.name = f"old-{new_id().hex[-6:]}"
        self.number = 0

    def close(self) -> None:
        self.connection.close()

    def say(self, call: str, given: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self.connection.execute(self.calls[call], given, binary=True).fetchall()

    def beat(self) -> int:
        said = self.say("beat", {
            "worker": [self.name], "new": [self.name], "queues": ['["q"]'], "tasks": ['["shop.tasks.send"]'],
            "lease": "{15000000}", "info": [b"{}"], "now": None,
        })  # fmt: skip
        return int(said[0][1])

    def enqueue(self) -> bytes:
        made = new_id().bytes
        self.say("enqueue", {
            "batch": new_id().bytes, "now": None, "id": [made], "task": ["shop.tasks.send"], "queue": ["q"],
            "home": [LANE], "priority": "{0}", "delay": "{0}", "run_at": "{NULL}", "expires_in": "{NULL}",
            "crashes": "{3}", "early": "{f}", "record": [b"{}"],
        })  # fmt: skip
        return made

    def turn(self, done: list[tuple[bytes, int]], n: int) -> list[tuple[bytes, int]]:
        """The claimed jobs with their tokens."""
        self.number += 1
        said = self.say("turn", {
            "worker": self.name, "number": self.number, "seen": self.number - 1, "now": None, "suspects": 1,
            "done": [each for each, _ in done], "token": "{" + ",".join(str(token) for _, token in done) + "}",
            "result": [], "error": [], "ran": "{}", "want": "{1}", "lane": [LANE], "n": f"{{{n}}}",
            "ahead": "{f}",
            "held": None, "held_token": None, "inline": 1000, "max_bytes": 1_000_000,
        })  # fmt: skip
        return [(row[1], row[2]) for row in said if row[0] == "claim"]


@pytest.fixture(params=OLD)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest_asyncio.fixture
async def store(version: int, postgres_owner_url: str) -> AsyncIterator[PostgresStore]:
    """The stored database, restored and migrated."""
    with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
        owner.execute((HERE / f"postgres-{version}.sql").read_text().encode())
    store = PostgresStore(postgres_owner_url, namespace=NAMESPACE)
    try:
        assert await store.migrate() == (version, VERSION)
        await store.open()
        yield store
        await store.close()
    finally:
        with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
            owner.execute(f"drop schema {store.schema} cascade".encode())


@pytest.fixture
def old(store: PostgresStore, postgres_owner_url: str, version: int) -> Iterator[OldWorker]:
    worker = OldWorker(postgres_owner_url, version)
    yield worker
    worker.close()


def test_the_newest_schema_has_a_stored_database() -> None:
    assert list(range(1, VERSION + 1)) == OLD, "python -m tests.migrations.stored"


async def test_every_job_is_migrated_with_its_state(store: PostgresStore) -> None:
    states = {name: State.READY if name == "keyed" else State(name) for name in IDS}
    found = await store.find(Query.everything())
    assert {each.id: each.state for each in found.jobs} == {IDS[name]: state for name, state in states.items()}
    assert [each.outcome for each in await store.attempts(IDS["dead"])] == [Outcome.FAILED]
    (done,) = (await store.find(Query.of(IDS["succeeded"]))).jobs
    assert done.result == b'"done"'
    assert [(row.name, row.mode) for row in await store.queues()] == [("slow", QueueMode.PAUSED)]
    assert [doc.name for doc in await store.documents("schedules")] == ["nightly"]


async def test_schedules_are_migrated_and_due(store: PostgresStore) -> None:
    (due,) = (await store.due_schedules()).rows
    assert (due.name, due.look, due.doc) == ("nightly", 10, b"{}")
    assert await store.schedule_runs("nightly") == [ScheduleRun(at=5, job=IDS["succeeded"])]
    said = await store.swap_schedule(ScheduleSwap(name="nightly", rev=due.rev, doc=b"{}", runs=(ScheduleRun(at=6),)))
    assert (said.ok, len(await store.schedule_runs("nightly"))) == (True, 2)


async def test_migrated_jobs_run_to_their_end(store: PostgresStore) -> None:
    """Also the running jobs of an old worker: it comes back, or is rescued."""
    hand = await Hand(store).join()
    claims = await hand.take(10)
    assert ids(claims) == [IDS["ready"], IDS["keyed"]]
    await hand.succeed(*claims)
    (left,) = [row for row in await store.workers() if row.id != hand.name]
    rescued = await store.rescue(left.id, left.number, Outcome.LOST)
    assert rescued.ready == (IDS["running"],)
    (again,) = await hand.take(10)
    await hand.turn(Ack.succeeded(lease(again)))
    assert ids(await hand.take(10)) == [IDS["blocked"]]


async def test_old_and_new_workers_run_side_by_side(store: PostgresStore, old: OldWorker) -> None:
    hand = await Hand(store).join()
    await hand.succeed(*await hand.take(10))
    assert old.beat() == 1
    theirs, ours = old.enqueue(), await one(store)
    (mine,) = await hand.take(1)
    assert mine.id == theirs
    claimed = old.turn([], 5)
    assert [each for each, _ in claimed] == [ours.id]
    more = await put_in(store, job(), job())
    again = old.turn(claimed, 1)
    assert [each for each, _ in again] == [more[0].id]
    await hand.succeed(mine, *await hand.take(5))
    old.turn(again, 0)
    assert old.beat() == 2
    found = await store.find(Query.of(theirs, ours.id, *(each.id for each in more)))
    assert {each.state for each in found.jobs} == {State.SUCCEEDED}
