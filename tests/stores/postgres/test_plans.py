"""The hot paths cost what they touch, not what waits: counted by the server itself on 100,000 jobs.

The plans inside the functions are made while the tables are empty and are never made anew, which is how a
worker that starts on an empty queue lives through a flood.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from mainspring.common.ids import new_ids
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.records import Edge, NewJob
from mainspring.queues.records import FairKey
from mainspring.states import Action
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver import statements
from mainspring.testing.contract.hands import HOUR, LANE, SECOND, Hand, bucket, ids, job, lease, one, put_in
from mainspring.worker.records import Claim, Turn, Want
from tests.stores.postgres.sides import Side, Sides

R = TypeVar("R")
BACKLOG = 100_000
TABLES = (
    "jobs", "finished", "dead", "attempts", "edges", "bucket_uses", "keyed_lanes", "rate_starts", "holders",
    "holder_tokens", "schedules", "schedule_runs",
)  # fmt: skip
WANTS = (Want((LANE, "q/async", "empty/any"), 100),)

pytestmark = pytest.mark.new_schema


class Meter:
    """Runs calls on one connection and asks the server what each of them read."""

    def __init__(self, side: Side, hand: Hand) -> None:
        self.side = side
        self.hand = hand
        self.number = 0
        self.read: dict[str, Any] = {}

    async def turn(self, *acks: Ack, wants: tuple[Want, ...] = ()) -> tuple[Claim, ...]:
        self.number += 1
        turn = Turn(worker=self.hand.name, number=self.number, seen=self.number - 1, acks=acks, wants=wants)
        return (await self._metered(lambda: self.side.turn(turn))).claims

    async def act(self, action: Action, *ids: bytes) -> None:
        await self._metered(lambda: self.side.act(action, *ids))

    async def enqueue(self, made: NewJob) -> None:
        await self._metered(lambda: self.side.enqueue(made))

    async def call(self, sql: str, *params: Any) -> None:
        await self._metered(lambda: self.side.run(sql.replace("{schema}", self.side.schema), params))

    async def _metered(self, step: Callable[[], Awaitable[R]]) -> R:
        before = await self._counters()  # of the session; they are moved on only between transactions
        done = await step()
        after = await self._counters()
        await self.side.commit()
        self.read = {name: fetched - before[name][1] for name, (_, fetched) in after.items()}
        scanned = [name for name, (scans, _) in after.items() if scans > before[name][0]]
        assert not scanned, f"sequential scan of {scanned}"
        return done

    async def _counters(self) -> dict[str, tuple[int, int]]:
        rows = await self.side.run(
            """
            select relname, seq_scan, coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables
            where schemaname = %s and relname = any(%s)
            """,
            (self.side.schema, list(TABLES)),
        )
        return {name: (scans, fetched) for name, scans, fetched in rows}


async def fill(store: PostgresStore) -> None:
    """Plain jobs in two lanes and three priorities, limited ones, scheduled ones, expiring ones."""
    kinds = ("any", "async")
    gate = (bucket("gate", 3),)
    for start in range(0, BACKLOG, 5_000):
        made = new_ids(5_000)
        jobs = [
            NewJob(
                id=each.bytes, task="shop.tasks.send", queue="q", kind=kinds[n % 2], priority=n % 3,
                delay=HOUR if n % 10 == 0 else 0, expires_in=HOUR if n % 7 == 0 else None,
                buckets=gate if n % 20 == 1 else (),
            )
            for n, each in enumerate(made, start=start)
        ]  # fmt: skip
        await put_in(store, *jobs)


@pytest.fixture(params=["no statistics", "statistics of a few rows"])
async def meter(request: pytest.FixtureRequest, store: PostgresStore, sides: Sides, postgres_owner_url: str) -> Meter:
    """A connection whose plans were made on tables that were, or were said to be, nearly empty; then the backlog."""
    if request.param != "no statistics":
        await put_in(store, *(job(delay=HOUR) for _ in range(3)))
        tables = ", ".join(f"{store.schema}.{name}" for name in TABLES)
        with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
            owner.execute(f"alter table {store.schema}.jobs set (autovacuum_enabled = off)")
            owner.execute(f"analyze {tables}")
    hand = await Hand(store).join()
    meter = Meter(await sides.open(), hand)
    for _ in range(8):  # past the point where a plan would become generic by itself
        made = await one(store, job(buckets=[bucket("warm", 1)]))
        await one(store, job(after=[Edge(made.id)], delay=SECOND))
        claims = await meter.turn(wants=WANTS)
        await meter.turn(*(Ack.failed(lease(claim), b"", retry_in=0) for claim in claims))
        await meter.call("select * from {schema}.promote_v1(10, null)")
    await fill(store)
    return meter


async def test_no_statement_reads_the_backlog(store: PostgresStore, meter: Meter) -> None:
    """Claims of 100 from three lanes with limits and ageing, acks of 100, promotion, cancel, rescue."""
    for _ in range(3):
        claims = await meter.turn(wants=WANTS)
        assert len(claims) == 100
        # candidates of each lane and of each level by age, their locks, their update and their reply
        assert meter.read["jobs"] < 2_500, meter.read
        await meter.turn(*(Ack.succeeded(lease(claim)) for claim in claims))
        assert meter.read["jobs"] < 1_500, meter.read
        assert meter.read.get("finished", 0) < 10, meter.read

    claims = await meter.turn(wants=(Want(("q/any",), 100),))
    await meter.turn(*(Ack.failed(lease(claim), b"", retry_in=0) for claim in claims))
    assert meter.read["jobs"] < 1_500, meter.read
    await meter.call("select * from {schema}.promote_v1(100, null)")
    assert meter.read["jobs"] < 1_000, meter.read

    claims = await meter.turn(wants=WANTS)
    await meter.act(Action.CANCEL, *ids(claims)[:50])
    assert meter.read["jobs"] < 500, meter.read
    await meter.call("select * from {schema}.rescue_v1(%s::text, %s, 'crashed', '{0}', null)", meter.hand.name, 1)
    assert meter.read["jobs"] < 2_500, meter.read


async def test_a_lock_is_found_among_many(store: PostgresStore, sides: Sides) -> None:
    """Taken, renewed, read and released while 20,000 others are held."""
    meter = Meter(await sides.open(), await Hand(store).join())
    hold = "select * from {schema}.hold_v1(%s::bytea, %s::text[], %s::bigint[], 10, null, 0, '', true, null)"
    mine = (b"mine", ["lock=mine"], [1])
    others = """
        with made as (
            insert into {schema}.holder_tokens select 'lock=' || n, n from generate_series(1, 20000) n
            returning bucket, token
        )
        insert into {schema}.holders (holder, bucket, cost, until, token)
        select convert_to(m.bucket, 'UTF8'), m.bucket, 1, 9000000000000000, m.token from made m
    """
    for n in range(9):
        if n == 8:  # past the point where a plan would become generic by itself
            await meter.side.connection.execute(others.replace("{schema}", meter.side.schema).encode())
            await meter.side.commit()
        await meter.call(hold, *mine)
        await meter.call(hold, mine[0], [], [])
        for after in (None, "lock=mine~"):
            await meter.call("select * from {schema}.holders_v1('lock=mine', %s::text, 9, null)", after)
        await meter.call("select * from {schema}.release_v1(%s::bytea, null, 0, null)", mine[0])
        assert meter.read.get("guests", 0) < 20, meter.read


async def test_an_idle_turn_reads_few_rows(store: PostgresStore, meter: Meter) -> None:
    await meter.turn(wants=(Want(("empty/any", "empty/async"), 100),))
    assert meter.read.get("jobs", 0) < 10, meter.read


async def test_a_turn_reads_as_many_lanes_as_it_wants_jobs(store: PostgresStore, meter: Meter) -> None:
    """Of ten thousand keys a turn reads few, whether or not most of them are parked."""
    for start in range(0, 20_000, 5_000):
        keys = [str(n % 10_000) for n in range(start, start + 5_000)]
        await put_in(store, *(job(queue="k", buckets=[bucket("tenant", 1, key=key)]) for key in keys))
    wants = (Want(("k/any",), 10),)
    for _ in range(2):
        claims = await meter.turn(wants=wants)
        assert len(claims) == 10
        assert meter.read["keyed_lanes"] < 200, meter.read
        assert meter.read["jobs"] < 200, meter.read
        await meter.turn(*(Ack.succeeded(lease(claim)) for claim in claims))
        assert meter.read["keyed_lanes"] < 100, meter.read
        assert meter.read["jobs"] < 100, meter.read
        await meter.side.run(
            f"update {store.schema}.keyed_lanes set waits_for = 'tenant=9' where id % 10 > 0 returning 1"
        )
        await meter.side.commit()


async def test_a_turn_reads_as_many_fair_lanes_as_it_wants_jobs(store: PostgresStore, meter: Meter) -> None:
    """Of ten thousand keys a turn reads few, and of a key with many jobs as many as its share."""
    for start in range(0, 20_000, 5_000):
        keys = [str(n % 10_000) for n in range(start, start + 5_000)]
        await put_in(store, *(job(queue="f", fair=FairKey(key)) for key in keys))
    await put_in(store, *(job(queue="f", fair=FairKey("flood", 1000)) for _ in range(5_000)))
    wants = (Want(("f/any",), 10),)
    for _ in range(2):
        claims = await meter.turn(wants=wants)
        assert len(claims) == 10
        assert meter.read["keyed_lanes"] < 200, meter.read
        assert meter.read["jobs"] < 300, meter.read
        await meter.turn(*(Ack.succeeded(lease(claim)) for claim in claims))
        assert meter.read.get("lanes", 0) < 10, meter.read
        assert meter.read["jobs"] < 100, meter.read


async def test_a_check_of_schedules_reads_only_the_due_ones(store: PostgresStore, sides: Sides) -> None:
    """A swap reads one schedule and its runs, of a hundred thousand, with plans made when the table was empty."""
    meter = Meter(await sides.open(), await Hand(store).join())
    look = "select * from {schema}.due_schedules_v1(10, null)"
    swap = "select * from {schema}.swap_schedule_v1(%s::text, %s, '', %s, '{1,2}', '{}', '{\"\",\"\"}', 100, null)"
    for n in range(8):
        await meter.call(swap, f"warm {n}", 0, 9 * 10**17)
        await meter.call(look)
    many = "select n::text, 1, n + 8 * 10 ^ 17, '' from generate_series(1, %s) n"
    await meter.call("insert into {schema}.schedules " + many + " returning 1", BACKLOG)
    for n in (50, 5_000, 50_000):
        await meter.call(swap, str(n), 1, n)
        assert max(meter.read.values()) < 10, meter.read
    await meter.call(look)
    assert meter.read["schedules"] == 4, meter.read


def test_positions_are_given_in_order_with_any_join() -> None:
    """A planner can scan the table and read the list again for each row, and each reading would give new positions.
    So an update takes positions from a part that is computed once.
    """
    for file in (Path(statements.__file__).parents[1] / "sql").rglob("*.sql"):
        for text in file.read_text(encoding="utf-8").split(";"):
            if "nextval(" in text and "update {schema}" in text:
                before = text.partition("nextval(")[0]
                assert "as materialized (" in before, f"{file.name}: {text}"
                assert "update {schema}" not in before, f"{file.name}: {text}"
