"""What a breaker costs on PostgreSQL while it is closed."""

from __future__ import annotations

import psycopg
import pytest

from mainspring.breakers.counting import BreakerEnd
from mainspring.breakers.swap import count_now
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
    hand.reports_successes = False
    await put_in(store, *(job(buckets=[Sized(guard.name, declared=guard)]) for _ in range(5)))
    await hand.succeed(*await hand.take(1))  # a worker reports its first success of a breaker with a share at once
    versions = f"select name, xmin::text from {store.schema}.breakers"
    with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
        before = owner.execute(versions).fetchall()
        for _ in range(4):
            await hand.succeed(*await hand.take(1))
        assert owner.execute(versions).fetchall() == before
        assert len(before) == (1 if guard.share else 0)


async def test_a_success_after_a_failure_writes_once(store: PostgresStore, postgres_owner_url: str) -> None:
    await store.declare_limits([ROW])
    await count_now(store, ROW.name, [BreakerEnd("failure", 0, error="x")])
    hand = await Hand(store).join()
    await put_in(store, *(job(buckets=[Sized(ROW.name, declared=ROW)]) for _ in range(3)))
    for _ in range(3):
        await hand.succeed(*await hand.take(1))
    with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
        [(doc, version)] = owner.execute(f"select doc, xmin::text from {store.schema}.breakers").fetchall()
        assert doc == "", "no failure is left"
        [(last,)] = owner.execute(f"select max(xmin::text::bigint) from {store.schema}.finished").fetchall()
    assert int(version) < last, "later successes have left it alone"
