"""A closed breaker costs no extra statements on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.breakers.counting import BreakerEnd
from mainspring.breakers.swap import count_now
from mainspring.limits.records import Limit
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing.contract.hands import Hand, Sized, job, put_in

from .test_limits import FREE, statements

WRITE = "update mainspring_breakers"
LIMITS = (
    Limit(name="gate", size=100),
    Limit(name="api:breaker", kind="breaker", size=1, per=1_000_000, burst=5),
    Limit(name="api:breaker", kind="breaker", size=1, per=1_000_000, burst=5, share=500_000, span=60_000_000),
)


async def cost(path: Path, limit: Limit, fail_first: bool = False) -> tuple[list[str], list[str]]:
    """The statements of a claim, and of the turn that acks its success."""
    store = SqliteStore(str(path), durability="normal")
    hand = await Hand(store).join()
    hand.reports_successes = False
    await put_in(store, *(job(buckets=[Sized(limit.name, declared=limit)]) for _ in range(4)))
    await hand.succeed(*await hand.take(1))
    if fail_first:
        await count_now(store, limit.name, [BreakerEnd("failure", 0, error="x")])
    with statements(store) as claiming:
        claims = await hand.take(1)
    with statements(store) as acking:
        await hand.succeed(*claims)
    await store.close()
    return claiming, acking


@pytest.mark.asyncio
@pytest.mark.parametrize("guard", LIMITS[1:], ids=["in a row", "share"])
async def test_a_success_costs_one_read_in_its_turn(tmp_path: Path, guard: Limit) -> None:
    limited = await cost(tmp_path / "limited.db", LIMITS[0])
    guarded = await cost(tmp_path / "guarded.db", guard)
    assert len(guarded[0]) < len(limited[0])
    assert len(guarded[1]) == len(limited[1]) + 1, "the claim may be a probe, so the turn of its ack reads the row"
    assert not [each for each in guarded[1] if "breakers" in each and not each.startswith(("select", FREE))]


@pytest.mark.asyncio
async def test_the_first_success_after_a_failure_writes(tmp_path: Path) -> None:
    _, acking = await cost(tmp_path / "guarded.db", LIMITS[1], fail_first=True)
    assert len([each for each in acking if each.startswith(WRITE)]) == 1


@pytest.mark.asyncio
async def test_jobs_without_a_breaker_do_not_read_breakers(tmp_path: Path) -> None:
    claiming, acking = await cost(tmp_path / "limited.db", LIMITS[0])
    assert not [each for each in claiming + acking if "breakers" in each and not each.startswith(FREE)]
