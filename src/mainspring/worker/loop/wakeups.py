"""What a worker waits for while it runs: wake-ups from the store, and the end of the work with ``until_empty``."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mainspring.common.pause import jittered
from mainspring.worker.loop import left_jobs
from mainspring.worker.loop.turn_loop import IDLE_EVERY
from mainspring.worker.retry_log import RetryLog

if TYPE_CHECKING:
    from mainspring.stores.base import Store
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.loop.left_jobs import LeftJobs
    from mainspring.worker.loop.turn_loop import TurnLoop
    from mainspring.worker.retry_log import Outage

log = logging.getLogger("mainspring.worker")

MANY = 40
"""Workers of a fleet, above which each polls less often."""
_RELISTEN = 2.0  # most seconds until a worker that cannot listen tries again
_BREATH = 0.002  # seconds between two wake-ups: the turn of the first one is in flight
_EMPTY_CHECK = 0.02  # seconds between two looks at the worker's own state
_COUNT_PAUSE = 0.2  # seconds between two counts in the store
_COUNT_SHARE = 10  # a count that takes long is repeated less often


async def wake_on_new_jobs(
    store: Store, turn_loop: TurnLoop, config: WorkerConfig, outage: Outage, fleet: Callable[[], int] = lambda: 1
) -> None:
    """Wake the turn loop when there may be work, and at each poll in case a wake-up was lost. Runs until cancelled.

    ``fleet`` returns about how many workers the store has.
    """
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
                    await listener.wait(poll_pause(poll, fleet()) if listener.is_always_woken else poll)
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


def poll_pause(poll: float, fleet: int) -> float:
    """Seconds until a worker that wake-ups reach looks for jobs by itself.

    In a fleet of more than ``MANY`` workers each polls less often, so that the fleet together polls as often as before.
    The longest pause is the time between two turns of an idle worker, which are made in any case.
    """
    if fleet <= MANY:
        return poll
    return jittered(max(poll, min(IDLE_EVERY, poll * fleet / MANY)), least=0.9)


async def wait_until_empty(
    store: Store,
    turn_loop: TurnLoop,
    config: WorkerConfig,
    outage: Outage,
    runs_settled: Callable[[], bool] | None = None,
) -> LeftJobs:
    """Wait until no job is left that could still run here; see ``left_jobs``. Returns what is left, in words.

    ``runs_settled``: the end of a run may start a run of another schedule, so the scheduler must have seen it.
    """
    retry_log = RetryLog("counting the jobs that are left", log, outage)
    while True:
        await asyncio.sleep(_EMPTY_CHECK)
        if not (turn_loop.is_empty and turn_loop.is_out_of_work) or not (runs_settled is None or runs_settled()):
            continue
        began = time.monotonic()
        try:
            if not await left_jobs.has_jobs_to_wait_for(store, config):
                return await left_jobs.describe_left_jobs(store, config)
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            await asyncio.sleep(retry_log.record_failure(error))
            continue
        retry_log.record_success()
        await asyncio.sleep(max(_COUNT_PAUSE, _COUNT_SHARE * (time.monotonic() - began)))
