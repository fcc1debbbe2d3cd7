"""What a worker waits for while it runs: wake-ups from the store, and the end of the work with ``until_empty``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mainspring.jobs.query import Query
from mainspring.states import State
from mainspring.worker.eligibility import meets_terms, runnable_tasks
from mainspring.worker.retry_log import RetryLog

if TYPE_CHECKING:
    from mainspring.stores.base import Store
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.loop.turn_loop import TurnLoop
    from mainspring.worker.retry_log import Outage

log = logging.getLogger("mainspring.worker")

_RELISTEN = 2.0  # most seconds until a worker that cannot listen tries again
_BREATH = 0.002  # seconds between two wake-ups: the turn of the first one is in flight
_EMPTY_CHECK = 0.02  # seconds between two looks at the worker's own state
_COUNT_PAUSE = 0.2  # seconds between two counts in the store
_LIVE = (State.READY, State.RUNNING, State.SCHEDULED, State.RETRYING)


async def wake_on_new_jobs(store: Store, turn_loop: TurnLoop, config: WorkerConfig, outage: Outage) -> None:
    """Wake the turn loop when there may be work, and at each poll in case a wake-up was lost. Runs until cancelled."""
    poll, environment = config.settings.poll / 1e6, turn_loop.environment
    retry_log = RetryLog("listening for jobs", log, outage)
    while True:
        worker, listens = environment.worker, False
        try:
            listener = await store.listen(worker, config.settings.queues)
            listens = True
            try:
                turn_loop.wake()  # jobs may have come before the worker listened
                while worker == environment.worker:
                    await listener.wait(poll)
                    retry_log.record_success()
                    turn_loop.wake()
                    await asyncio.sleep(_BREATH)
            finally:
                listener.close()
        except Exception as error:  # noqa: BLE001 - without wake-ups the worker polls
            await asyncio.sleep(max(retry_log.record_failure(error), min(poll / 2, _RELISTEN)))
            if listens:
                turn_loop.resync()  # the connection was cut; the next turn may succeed and not show it
            else:
                turn_loop.wake()


async def wait_until_empty(
    store: Store, turn_loop: TurnLoop, config: WorkerConfig, outage: Outage, on_empty: Callable[[], None]
) -> None:
    """Call ``on_empty`` when no job is left that could still run here.

    Ready, running, scheduled and retrying jobs count, if they are in a queue of this worker and of a task that it can
    run. These jobs do not count, because the worker would wait for them for ever: jobs of other tasks, jobs pinned to
    another version, and blocked jobs whose parents are not among the counted jobs.
    """
    live = Query.where(states=_LIVE, queues=config.settings.queues, tasks=runnable_tasks(config) or None)
    retry_log = RetryLog("counting the jobs that are left", log, outage)
    while True:
        await asyncio.sleep(_EMPTY_CHECK)
        if not (turn_loop.is_empty and turn_loop.is_out_of_work):
            continue
        try:
            left = await _has_jobs_left(store, live, config)
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            await asyncio.sleep(retry_log.record_failure(error))
            continue
        retry_log.record_success()
        if not left:
            on_empty()
            return
        await asyncio.sleep(_COUNT_PAUSE)


async def _has_jobs_left(store: Store, live: Query, config: WorkerConfig) -> bool:
    if config.tasks and not live.tasks:
        return False  # this worker cannot run any of the tasks that it knows
    counts = await store.count(live)
    if not any(counts[state] for state in _LIVE):
        return False
    if not any(config.tasks[task].pinned or config.tasks[task].needs for task in live.tasks):
        return True
    cursor = None
    while True:  # only the lane of a job tells which labels and version it needs
        found = await store.find(live, cursor=cursor)
        if any(meets_terms(row.lane, config) for row in found.jobs):
            return True
        if (cursor := found.cursor) is None:
            return False
