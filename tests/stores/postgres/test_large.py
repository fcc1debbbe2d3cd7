"""Much at once: large records to a client that does not read, and large batches."""

from __future__ import annotations

import asyncio

import psycopg

from mainspring.common.ids import new_id, new_ids
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch, NewJob, UniqueKey
from mainspring.queues.records import QueueMode
from mainspring.states import State
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.connections import add_session_settings, parse_url
from mainspring.testing import chaos
from mainspring.testing.contract.hands import LANE, Hand, job, put_in
from mainspring.worker.records import Turn, Want

PATIENCE = 30.0
KEY = UniqueKey(b"k" * 16)


async def claimed(store: PostgresStore) -> int:
    """How many jobs run, once the claim has been committed."""
    async with asyncio.timeout(PATIENCE):
        while not (running := (await store.count(Query.everything()))[State.RUNNING]):  # noqa: ASYNC110  # the event is the server's
            await asyncio.sleep(0.02)
    return running


class TestClientThatDoesNotRead:
    async def test_a_claim_that_the_client_does_not_read_holds_no_locks(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        """A worker is stopped or cut off while a large reply is sent to it: others take its jobs and pause its
        queue.
        """
        await put_in(store, *(job(record=b"x" * 50_000) for _ in range(64)))
        with chaos.Proxy(postgres_url) as wire:
            far = PostgresStore(wire.url, namespace=namespace)
            await far.open()
            hand = await Hand(far).join()
            wire.set(chaos.Stall("reply"))
            turn = asyncio.create_task(hand.take(64))
            running = await claimed(store)
            async with asyncio.timeout(PATIENCE):
                assert len((await store.rescue(hand.name, hand.beats, Outcome.LOST)).ready) == running
                await store.set_queue_mode(["q"], QueueMode.PAUSED)
            turn.cancel()
            await asyncio.wait([turn])
            await far.close()

    async def test_a_job_taken_away_before_its_record_was_read_is_not_claimed(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        await put_in(store, job(record=b"x" * 300_000), job())
        hand = await Hand(store).join()
        read = store._db.sessions.rows

        async def robbed(sql, params, **how):  # type: ignore[no-untyped-def]  # as the one it stands before
            rows = await read(sql, params, **how)
            if "turn_v1" in sql:
                await store.rescue(hand.name, hand.beats, Outcome.LOST)
            return rows

        store._db.sessions.rows = robbed  # type: ignore[method-assign]
        said = await store.turn(Turn(worker=hand.name, number=1, seen=0, wants=(Want((LANE,), 2),)))
        assert [claim.record for claim in said.claims] == [b"{}"]

    def test_the_server_disconnects_a_client_that_reads_nothing(self, postgres_url: str) -> None:
        """On TCP: time limits of the server do not end a statement whose reply is being sent."""
        said = add_session_settings(parse_url(postgres_url))["options"]
        assert "-c tcp_user_timeout=9s" in said
        with psycopg.connect(postgres_url, options=said) as link:
            assert link.execute("show statement_timeout").fetchone() == ("10s",)


class TestLargeBatches:
    async def test_one_held_key_among_very_many_jobs(self, store: PostgresStore) -> None:
        """The call has 10 s. A search through a list for each job would take longer."""
        (held,) = await put_in(store, job(unique=KEY))
        jobs = [NewJob(id=each.bytes, task="t", queue="q", kind="any") for each in new_ids(40_000)]
        batch = JobBatch(id=new_id().bytes, jobs=(*jobs, job(unique=KEY)))
        said = store.enqueue_now(batch)
        assert [each.created for each in said] == [True] * len(jobs) + [False]
        assert said[-1].id == held.id
