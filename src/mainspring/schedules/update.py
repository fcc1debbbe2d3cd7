"""Changing a schedule's row: look, decide, exchange; and look again if somebody else was first."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mainspring.client.client import ENQUEUE_PATIENCE
from mainspring.client.patience import EnqueueRetry
from mainspring.errors import InvalidOption, StoreConflict, StoreUnavailable
from mainspring.jobs.actions import store_now
from mainspring.schedules import plan as planning
from mainspring.schedules.plan import SchedulePlan, ScheduleStep, look_of
from mainspring.schedules.records import ScheduleRow, ScheduleSwap, SwapResult
from mainspring.schedules.service import exchange
from mainspring.stores.base import Store

TRIES = 50
_PAUSE = 0.05


class CurrentSchedule(NamedTuple):
    """A schedule as it was found."""

    plan: SchedulePlan | None
    now: int
    again: bool
    """An earlier exchange may have arrived, and its reply been lost."""
    taken: int = 0
    """A moment that has a run already, and was to get another."""


class DeletedSchedule(NamedTuple):
    """The decision that a schedule goes."""


Decide = Callable[[CurrentSchedule], Awaitable[ScheduleStep | DeletedSchedule | None]]
"""What is to be exchanged for what was found; None: it is as it should be."""


class ScheduleChange(NamedTuple):
    """What came of it."""

    made: ScheduleStep | DeletedSchedule | None
    said: SwapResult | None
    row: ScheduleRow
    """The row that was exchanged, or that is as it should be."""


async def change(store: Store, name: str, decide: Decide) -> ScheduleChange:
    """Carry out the decision once, whoever else changes the schedule meanwhile."""
    again, trouble, taken = False, None, 0
    for _ in range(TRIES):
        try:
            rows = await store.schedules([name])
            row = rows[0] if rows else ScheduleRow(name=name, rev=0, look=None, doc=b"")
            plan = decoded(row) if rows else None
            made = await decide(CurrentSchedule(plan, await store_now(store), again, taken))
            if made is None:
                return ScheduleChange(None, None, row)
            said = await _exchanged(store, row, made)
        except StoreUnavailable as error:
            again, trouble = True, trouble or EnqueueRetry(ENQUEUE_PATIENCE)
            await asyncio.sleep(trouble.pause(error))
            continue
        if said.ok:
            return ScheduleChange(made, said, row)
        taken = max(taken, said.taken or 0)
        await asyncio.sleep(random.uniform(0, _PAUSE))
    hint = "Try again; app.schedules.history() shows what its runs do."
    raise StoreConflict(f"schedule {name!r} was changed by others {TRIES} times in a row", hint=hint)


def decoded(row: ScheduleRow) -> SchedulePlan:
    """What stands in a row, or ``InvalidOption`` if this version cannot read it."""
    try:
        return planning.decode(row.doc)
    except ValueError as error:
        hint = "A newer version of Mainspring may have stored it: upgrade this process."
        raise InvalidOption("schedule", row.name, f"cannot be read here: {error}", hint=hint) from error


def kept(plan: SchedulePlan, now: int) -> ScheduleStep:
    """A row that is written as it is, without runs."""
    return ScheduleStep(plan, look_of(plan, now))


async def _exchanged(store: Store, row: ScheduleRow, made: ScheduleStep | DeletedSchedule) -> SwapResult:
    if isinstance(made, DeletedSchedule):
        return await store.swap_schedule(ScheduleSwap(name=row.name, rev=row.rev, doc=None))
    return await exchange(store, row, made)
