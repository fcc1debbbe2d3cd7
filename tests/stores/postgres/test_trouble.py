"""Trouble that passes: a lost reply, a server that takes no writes, a locked row, an old snapshot."""

from __future__ import annotations

import asyncio
import logging

import psycopg
import pytest

from mainspring import Concurrency, Mainspring
from mainspring.common.ids import new_id
from mainspring.errors import StoreConflict, StoreError, StoreUnavailable
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch, NewJob, UniqueKey
from mainspring.states import State
from mainspring.stores.connect import StoreAddress
from mainspring.stores.door import Door
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.migrations import VERSION
from mainspring.testing import chaos
from mainspring.testing.contract.hands import job, one, running
from mainspring.worker.lease.heartbeat import HeartbeatSender
from mainspring.worker.records import Beat, Registration
from mainspring.worker.retry_log import Outage
from mainspring.worker.services.rescuer import Rescuer
from tests.stores.postgres.sides import Sides
from tests.timing import patience

KEY = UniqueKey(b"k" * 16)
SWEEP = 3.0


def batch(*jobs: NewJob) -> JobBatch:
    return JobBatch(id=new_id().bytes, jobs=jobs)


class TestSilence:
    async def test_an_enqueue_whose_reply_never_comes_is_repeated(self, fresh_postgres_url: str) -> None:
        """The first try cannot use all the time of the call."""
        with chaos.Proxy(fresh_postgres_url) as wire:
            app = Mainspring(wire.url, enqueue_patience=patience(6))

            @app.task(name="silence.work")
            async def work() -> None: ...

            await work.aenqueue()
            wire.set(chaos.HalfOpen())
            wire.heal()  # helps new connections only
            again = await work.aenqueue()
            assert (await again.ainfo()).state is State.READY
            assert (await app.jobs.acount())[State.READY] == 2
            await app.aclose()

    async def test_a_limiter_that_cannot_release_its_capacity_logs_it(
        self, fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with chaos.Proxy(fresh_postgres_url) as wire:
            app = Mainspring(wire.url)
            async with app.limiter("one", Concurrency(1)):
                wire.set(chaos.Reset())
            assert "could not release its capacity" in caplog.text
            wire.heal()
            await app.aclose()

    async def test_a_repeated_enqueue_waits_for_space_too(self, fresh_postgres_url: str) -> None:
        with chaos.Proxy(fresh_postgres_url) as wire:
            app = Mainspring(wire.url)
            app.queue("mail", max_depth=1, on_full="wait")

            @app.task(name="silence.work", queue="mail")
            async def work() -> None: ...

            await work.aenqueue()
            wire.set(chaos.Reset())
            waiting = asyncio.create_task(work.aenqueue())
            await asyncio.sleep(0.2)
            wire.heal()
            await asyncio.sleep(0.5)
            assert not waiting.done()
            await app.queues.aconfigure("mail", max_depth=2, create=True)
            assert (await (await waiting).ainfo()).state is State.READY
            await app.aclose()


class TestNoWrites:
    async def test_a_read_only_server_is_unavailable_and_its_connections_are_closed(
        self, store: PostgresStore, postgres_url: str, namespace: str
    ) -> None:
        """As in a failover: the primary is elsewhere, and a new connection may find it."""
        await store.open()
        shut = PostgresStore(f"{postgres_url}&options=-cdefault_transaction_read_only%3Don", namespace=namespace)
        await shut.open()
        door = Door(shut)
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            await door.enqueue(batch(job()))
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            door.enqueue_now(batch(job()))
        assert shut._db.sessions._pool is not None
        assert not shut._db.sessions._pool._idle
        assert not shut._db.sessions._idle
        await shut.close()

    async def test_heartbeats_continue_whatever_error_the_store_raises(
        self, store: PostgresStore, postgres_owner_url: str, postgres_url: str, namespace: str
    ) -> None:
        """A worker without heartbeats loses its jobs, although the store may work again soon."""
        role = psycopg.conninfo.conninfo_to_dict(postgres_url)["user"]
        pulse = HeartbeatSender(
            StoreAddress(url=postgres_url, namespace=namespace), 15.0, Outage(logging.getLogger("test"))
        )
        beats = [Beat("w", Registration(queues=("q",)))]
        assert await pulse.send(beats)
        with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
            owner.execute(f"revoke usage on schema {store.schema} from {role}".encode())
            assert await pulse.send(beats) is None
            owner.execute(f"grant usage on schema {store.schema} to {role}".encode())
        assert await pulse.send(beats)
        await pulse.close()


class TestHeldRows:
    async def test_a_worker_whose_row_is_locked_does_not_stop_the_rescue_of_others(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        hands = [await running(store) for _ in range(3)]
        names = [row.id for row in await store.workers()]
        holder = await sides.open()
        await holder.beat(names[0])
        await store.beat([Beat("witness", Registration(lease=1))])
        moments = iter(range(0, 1000, 3))
        door = Door(store, deadline=patience(1.0))  # a tick that waits for the row ends with it, the others must not
        rescuer = Rescuer(door, lambda: "witness", sweep=SWEEP, now=lambda: float(next(moments)))
        for _ in range(5):  # a lease of 15 s, witnessed
            await rescuer.tick()
        with pytest.raises(StoreError):
            await rescuer.tick()
        lost = {row.id for row in await store.workers() if row.lost}
        await holder.rollback()
        assert lost == {hand.name for hand, _ in hands} - {names[0]}


class TestOldSnapshots:
    @pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
    async def test_a_key_holder_that_ended_after_the_snapshot_is_not_returned(
        self, store: PostgresStore, postgres_url: str, level: psycopg.IsolationLevel
    ) -> None:
        """In a caller's transaction with an old snapshot: the job would be lost without an error."""
        hand, claim = await running(store, job(unique=KEY))
        door = Door(store)
        with psycopg.connect(postgres_url) as connection:
            connection.isolation_level = level
            connection.execute("select count(*) from pg_class")
            await hand.succeed(claim)
            with pytest.raises(StoreConflict):
                door.enqueue_now(batch(job(unique=KEY)), connection)
            connection.rollback()
            (said,) = door.enqueue_now(batch(job(unique=KEY)), connection)
        assert said.created
        assert (await store.count(Query.everything()))[State.READY] == 1

    async def test_a_key_holder_that_still_waits_is_returned(self, store: PostgresStore, postgres_url: str) -> None:
        held = await one(store, job(unique=KEY))
        with psycopg.connect(postgres_url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            (said,) = store.enqueue_now(batch(job(unique=KEY)), connection)
        assert (said.id, said.created) == (held.id, False)


class TestMigrations:
    async def test_a_migration_can_take_longer_than_a_call(
        self, store: PostgresStore, postgres_owner_url: str, namespace: str, sides: Sides
    ) -> None:
        """It waits for its lock, or creates an index on a large table: no deadline of a call ends it."""
        holder = await sides.open()
        await holder.run(f"select pg_advisory_xact_lock(hashtextextended('mainspring migrate {store.schema}', 0))")
        migration = asyncio.create_task(
            Door(PostgresStore(postgres_owner_url, namespace=namespace), deadline=0.2).migrate()
        )
        done, _ = await asyncio.wait([migration], timeout=1.0)
        assert not done
        await holder.rollback()
        assert await migration == (VERSION, VERSION)
