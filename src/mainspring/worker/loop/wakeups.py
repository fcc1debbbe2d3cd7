"""What a worker listens for while it runs: wake-ups from the store, and the end of the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mainspring.jobs.query import Query
from mainspring.states import State
from mainspring.worker.loop.eligibility import fits, runnable
from mainspring.worker.loop.retry_log import RetryLog

if TYPE_CHECKING:
    from mainspring.stores.base import Store
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.loop.outage import Outage
    from mainspring.worker.loop.turn_loop import TurnLoop

log = logging.getLogger("mainspring.worker")

_DEAF = 2.0  # most seconds until one who cannot listen tries again
_BREATH = 0.002  # between two wake-ups: the first of them is under way
_LIVE = (State.READY, State.RUNNING, State.SCHEDULED, State.RETRYING)


async def hear_of_work(store: Store, turner: TurnLoop, parts: WorkerConfig, outage: Outage) -> None:
    """Wake the turner when there may be work; the poll is the net. Never ends by itself."""
    poll = parts.settings.poll / 1e6
    trouble = RetryLog("listening for jobs", log, outage)
    while True:
        worker, listens = turner.id, False
        try:
            listener = await store.listen(worker, parts.settings.queues)
            listens = True
            try:
                turner.wake()  # for what came before anybody listened
                while worker == turner.id:
                    await listener.wait(poll)
                    trouble.over()
                    turner.wake()
                    await asyncio.sleep(_BREATH)
            finally:
                listener.close()
        except Exception as error:  # noqa: BLE001 - then there is the poll alone
            await asyncio.sleep(max(trouble.failed(error), min(poll / 2, _DEAF)))
            if listens:
                turner.review()  # the line was cut, and a turn that goes through now would not tell
            else:
                turner.wake()


async def hear_of_the_end(
    store: Store, turner: TurnLoop, parts: WorkerConfig, outage: Outage, over: Callable[[], None]
) -> None:
    """Call ``over`` when no job is left that could still run here.

    Counted are ready, running, scheduled and retrying jobs of the worker's queues and of the tasks
    that it can run: jobs of other tasks, those pinned to another version, and blocked ones whose
    parents are not among them, would keep it for ever.
    """
    live = Query.where(states=_LIVE, queues=parts.settings.queues, tasks=runnable(parts) or None)
    trouble = RetryLog("counting the jobs that are left", log, outage)
    while True:
        await asyncio.sleep(0.02)
        if not (turner.empty and turner.thirsty):
            continue
        try:
            left = await _is_left(store, live, parts)
        except Exception as error:  # noqa: BLE001 - said sparingly, and tried again
            await asyncio.sleep(trouble.failed(error))
            continue
        trouble.over()
        if not left:
            over()
            return
        await asyncio.sleep(0.2)


async def _is_left(store: Store, live: Query, parts: WorkerConfig) -> bool:
    if parts.tasks and not live.tasks:
        return False  # of all that it knows it can run nothing
    counts = await store.count(live)
    if not any(counts[state] for state in _LIVE):
        return False
    if not any(parts.tasks[task].pinned or parts.tasks[task].needs for task in live.tasks):
        return True
    cursor = None
    while True:  # only their lanes tell what they ask of a worker
        found = await store.find(live, cursor=cursor)
        if any(fits(row.lane, parts) for row in found.jobs):
            return True
        if (cursor := found.cursor) is None:
            return False
