"""What a breaker costs on PostgreSQL while it is closed."""

from __future__ import annotations

import psycopg
import pytest

from mainspring.limits.records import Limit
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract.hands import Hand, Sized, job, put_in

ROW = Limit(name="api:breaker", kind="breaker", size=1, per=1_000_000, burst=5)
SHARE = Limit(name="api:breaker", kind="breaker", size=1, per=1_000_000, burst=5, share=500_000, span=60_000_000)


@pytest.mark.parametrize("guard", [ROW, SHARE], ids=["in a row", "share"])
async def test_successes_write_nothing_for_a_breaker(
    store: PostgresStore, postgres_owner_url: str, guard: Limit
) -> None:
    hand = await Hand(store).join()
    await put_in(store, *(job(buckets=[Sized(guard.name, declared=guard)]) for _ in range(5)))
    for _ in range(5):
        await hand.succeed(*await hand.take(1))
    with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
        assert owner.execute(f"select count(*) from {store.schema}.breakers").fetchone() == (0,)


async def test_a_success_after_a_failure_writes_once(store: PostgresStore, postgres_owner_url: str) -> None:
    await store.declare_limits([ROW])
    await store.report_breaker(ROW.name, 0, fault="x")
    hand = await Hand(store).join()
    await put_in(store, *(job(buckets=[Sized(ROW.name, declared=ROW)]) for _ in range(3)))
    for _ in range(3):
        await hand.succeed(*await hand.take(1))
    with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
        [(failures, version)] = owner.execute(f"select failures, xmin::text from {store.schema}.breakers").fetchall()
        assert failures == 0
        [(last,)] = owner.execute(f"select max(xmin::text::bigint) from {store.schema}.finished").fetchall()
    assert int(version) < last, "later successes have left it alone"
