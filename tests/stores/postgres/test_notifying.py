"""An enqueue wakes workers with its own commit, and answers when the commit is worth what was asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import SimpleNamespace

import psycopg
import pytest

from mainspring.common.ids import new_id
from mainspring.jobs.records import Enqueued, JobBatch
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver import wakeups
from mainspring.stores.postgres.driver.wakeups import Notifier, NotifyingEnqueue
from mainspring.testing import servers
from mainspring.testing.contract.hands import Hand, job, one

LONG = 30.0
CALL = ("select 1", {"id": [b""]})

Enqueue = Callable[[PostgresStore, JobBatch], Coroutine[None, None, list[Enqueued]]]


def batch() -> JobBatch:
    return JobBatch(id=new_id().bytes, jobs=(job(queue="q"),))


async def by_loop(store: PostgresStore, given: JobBatch) -> list[Enqueued]:
    return await store.enqueue(given)


async def by_thread(store: PostgresStore, given: JobBatch) -> list[Enqueued]:
    return await asyncio.to_thread(store.enqueue_now, given)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with servers.postgres(own=True) as own:
        yield own.url


@pytest.fixture
async def absent(server: str) -> AsyncIterator[Callable[[bool], None]]:
    """Whether commits that wait have to wait for a replica that is not there."""

    def tell(missing: bool) -> None:
        with psycopg.connect(server, autocommit=True) as link:
            link.execute(f"alter system set synchronous_standby_names = '{'nobody' if missing else ''}'")
            link.execute("select pg_reload_conf()")
            while link.execute("show synchronous_standby_names").fetchone() != ("nobody" if missing else "",):
                pass

    yield tell
    tell(False)


async def wait_for_replica(server: str) -> None:
    """Until a commit waits for the replica."""
    ask = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
    async with asyncio.timeout(LONG), await psycopg.AsyncConnection.connect(server, autocommit=True) as link:
        while await (await link.execute(ask)).fetchone() != (1,):
            pass


@pytest.mark.parametrize("enqueue", [by_loop, by_thread])
@pytest.mark.parametrize("pooler", [False, True])
class TestWaits:
    async def test_workers_are_woken_while_the_commit_waits_for_its_replica(
        self, server: str, absent: Callable[[bool], None], enqueue: Enqueue, pooler: bool
    ) -> None:
        """The enqueue does not return before the replica has the job."""
        store = PostgresStore(server, pooler=pooler, listen_url=server)
        await store.migrate()
        await store.open()
        listener = await store.listen("w", ["q"])
        absent(True)
        asked = asyncio.create_task(enqueue(store, batch()))
        assert await listener.wait(LONG)
        await wait_for_replica(server)
        assert not asked.done()
        absent(False)
        assert len(await asked) == 1
        listener.close()
        await store.close()

    async def test_durability_normal_does_not_wait_for_the_replica(
        self, server: str, absent: Callable[[bool], None], enqueue: Enqueue, pooler: bool
    ) -> None:
        store = PostgresStore(server, durability="normal", pooler=pooler)
        await store.migrate()
        await store.open()
        absent(True)
        assert len(await enqueue(store, batch())) == 1
        await store.close()


class TestTurns:
    async def test_a_turn_that_finds_nothing_waits_neither_for_the_disk_nor_for_a_replica(
        self, server: str, absent: Callable[[bool], None]
    ) -> None:
        """All that it writes is its number. A turn that hands out jobs waits, so does one that takes acks."""
        store = PostgresStore(server)
        await store.migrate()
        await store.open()
        hand = await Hand(store).join()
        absent(True)
        assert await hand.take(5, "nothing/async") == ()
        assert not (await hand.turn()).claims
        absent(False)
        made = await one(store, job(queue="turns"))
        absent(True)
        claiming = asyncio.create_task(hand.take_one(f"turns/{made.kind}"))
        await wait_for_replica(server)
        absent(False)
        claim = await claiming
        absent(True)
        acking = asyncio.create_task(hand.succeed(claim))
        await wait_for_replica(server)
        absent(False)
        await acking
        await store.close()


class TestMoments:
    def test_a_second_enqueue_in_the_quiet_time_notifies_only_if_it_took_long(self) -> None:
        """Listeners wake a second time for commits in the moment after a notification, not for later commits."""
        notifier = Notifier("s")
        notifier.note(["q"], time.monotonic() + LONG)
        enqueue = NotifyingEnqueue(notifier, batch())
        assert enqueue.step(CALL) == CALL
        assert not enqueue.unsettled
        assert enqueue.take_due([]) == []
        notifier.note(["q"], 0.0)
        assert enqueue.take_due([]) == ["s:q"]

    def test_an_enqueue_that_failed_did_not_notify(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wakeups, "time", SimpleNamespace(monotonic=lambda: LONG))  # no stall ends the quiet time
        notifier = Notifier("s")
        assert NotifyingEnqueue(notifier, batch()).unsettled
        again = NotifyingEnqueue(notifier, batch())
        assert again.unsettled
        again.own_rows([])
        assert again.take_due([]) == []
        assert not NotifyingEnqueue(notifier, batch()).unsettled

    def test_queues_in_which_older_jobs_became_ready_are_kept_beside_a_notification(self) -> None:
        enqueue = NotifyingEnqueue(Notifier("s"), batch())
        assert enqueue.unsettled
        assert enqueue.own_rows([(None, None, None)]) == []
        assert enqueue.own_rows([(None, None, "freed")]) == [(None, None, "freed")]

    async def test_a_repeated_enqueue_gets_the_same_reply(self, store: PostgresStore) -> None:
        """With a notification and without one."""
        given = batch()
        first = await store.enqueue(given)
        said = await store.enqueue(given)
        store._db.notifier.note(["q"], 0.0)
        assert await store.enqueue(given) == said
        assert [each.id for each in first] == [each.id for each in said]
        assert not said[0].created
