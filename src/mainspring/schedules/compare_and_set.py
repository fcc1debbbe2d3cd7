"""Changes the row of a schedule: read, decide, swap; and read again if another process changed the row first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mainspring.client.patience import EnqueueRetry
from mainspring.common.pause import jittered
from mainspring.errors import InvalidOption, StoreConflict, StoreUnavailable
from mainspring.schedules import plan as planning
from mainspring.schedules.plan import SchedulePlan, ScheduleStep, next_look
from mainspring.schedules.records import ScheduleRow, ScheduleSwap, SwapResult
from mainspring.schedules.swap import swap_row
from mainspring.stores.base import Store

TRIES = 50
PATIENCE = 10.0
"""Seconds during which a change is repeated, after its first failure, while the store cannot be reached."""
_PAUSE = 0.05


class CurrentSchedule(NamedTuple):
    """A schedule as the store returned it."""

    plan: SchedulePlan | None
    """None: the store has no schedule of this name."""
    now: int
    """The time of the store."""
    again: bool
    """An earlier swap of this change may have succeeded, because its reply was lost."""
    taken: int = 0
    """The latest moment that had a run already when this change tried to add one."""


class DeletedSchedule(NamedTuple):
    """The decision to delete the schedule."""


Decide = Callable[[CurrentSchedule], Awaitable[ScheduleStep | DeletedSchedule | None]]
"""Decides the next row. None: the row needs no change."""


class ScheduleChange(NamedTuple):
    """The result of :func:`change_schedule`."""

    made: ScheduleStep | DeletedSchedule | None
    """The decision; None if the row needed no change."""
    said: SwapResult | None
    """The reply of the store; None if nothing was swapped."""
    row: ScheduleRow
    """The row before the change."""


async def change_schedule(store: Store, name: str, decide: Decide) -> ScheduleChange:
    """Carry out the decision exactly once, also while other processes change the schedule.

    ``decide`` is called again after each swap that the store refused. ``StoreConflict`` after 50 refused swaps.
    """
    again, trouble, taken = False, None, 0
    for _ in range(TRIES):
        try:
            rows = await store.schedules([name])
            row = rows[0] if rows else ScheduleRow(name=name, rev=0, look=None, doc=b"")
            plan = read_plan(row) if rows else None
            made = await decide(CurrentSchedule(plan, await store.now(), again, taken))
            if made is None:
                return ScheduleChange(None, None, row)
            said = await _swap(store, row, made)
        except StoreUnavailable as error:
            again, trouble = True, trouble or EnqueueRetry(f"schedule {name!r}", PATIENCE, time.monotonic())
            await asyncio.sleep(trouble.pause(error))
            continue
        if said.ok:
            return ScheduleChange(made, said, row)
        taken = max(taken, said.taken or 0)
        await asyncio.sleep(jittered(_PAUSE, least=0.0))
    hint = "Try again. app.schedules.history() shows the latest runs."
    raise StoreConflict(f"other processes changed schedule {name!r} {TRIES} times in a row", hint=hint)


def read_plan(row: ScheduleRow) -> SchedulePlan:
    """Decode a row; ``InvalidOption`` if this version cannot read it."""
    try:
        return planning.decode(row.doc)
    except ValueError as error:
        hint = "A newer version of Mainspring may have stored the schedule: upgrade this process."
        raise InvalidOption("schedule", row.name, f"cannot be read here: {error}", hint=hint) from error


def write_plan(plan: SchedulePlan, now: int) -> ScheduleStep:
    """Return a step that writes this plan and makes no runs."""
    return ScheduleStep(plan, next_look(plan, now))


async def _swap(store: Store, row: ScheduleRow, made: ScheduleStep | DeletedSchedule) -> SwapResult:
    if isinstance(made, DeletedSchedule):
        return await store.swap_schedule(ScheduleSwap(name=row.name, rev=row.rev, doc=None))
    return await swap_row(store, row, made)
