"""Breakers. Their state is in ``lua/_breakers.lua``; what outcomes do to it is in ``lua/_breakers_outcomes.lua``."""

from __future__ import annotations

from typing import Any

from mainspring.breakers.records import BreakerRow

from .driver.client import RedisClient


async def trip_breaker(client: RedisClient, breaker: str, span: int | None) -> bool:
    return bool(await client.run("trip_breaker", breaker, "" if span is None else span))


async def reset_breaker(client: RedisClient, breaker: str) -> bool:
    return await trip_breaker(client, breaker, 0)


async def report_breaker(client: RedisClient, breaker: str, started: int, good: int, fault: str) -> BreakerRow | None:
    changed = await client.run("report_breaker", breaker, started, good, fault)
    return breaker_row(changed[-1]) if changed else None


def breaker_row(described: list[Any]) -> BreakerRow:
    """From ``describe_breaker`` in ``lua/_breakers.lua``."""
    name, state, failures, calls, opened, until, error, tripped = described
    return BreakerRow(
        name=name.decode(),
        state=state.decode(),
        failures=failures,
        calls=calls,
        opened=opened,
        until=until,
        error=error.decode("utf-8", "replace"),
        tripped=tripped == 1,
    )
