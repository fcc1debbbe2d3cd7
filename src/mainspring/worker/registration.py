"""How a worker gets its row in the store and lets it go, and what it asks of whoever keeps its lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from mainspring.common.clock import boottime
from mainspring.common.ids import worker_id
from mainspring.jobs.outcomes import Outcome
from mainspring.queues.records import QueueSettings
from mainspring.schedules.sync import sync
from mainspring.worker.loop.retry_log import RetryLog
from mainspring.worker.records import Beat, Registration

if TYPE_CHECKING:
    from mainspring.limits.records import Limit
    from mainspring.queues.records import QueueRow
    from mainspring.schedules.sync import CodeSchedules
    from mainspring.stores.base import Store
    from mainspring.worker.lease.shared_state import SharedState
    from mainspring.worker.loop.outage import Outage
    from mainspring.worker.loop.turn_loop import TurnLoop

log = logging.getLogger("mainspring.worker")


class Heartbeats(Protocol):
    """What the worker asks of its beater."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def wake(self) -> None: ...
    async def wait_registered(self) -> None: ...


class MakeHeartbeats(Protocol):
    def __call__(
        self,
        registration: Callable[[], Registration],
        worker_id: Callable[[], str],
        *,
        on_lost: Callable[[], None],
        on_lease_low: Callable[[], None],
        outage: Outage,
    ) -> Heartbeats: ...


async def enrol(
    turner: TurnLoop,
    store: Store,
    registration: Callable[[], Registration],
    board: SharedState,
    beater: Heartbeats | None,
    outage: Outage,
) -> None:
    """Register the turner's current id, however long it takes."""
    if beater is not None:
        beater.wake()  # it learns the new name from now on; which of us registers it first does not matter
    trouble = RetryLog("registering the worker", log, outage)
    while True:
        sent, said = boottime(), registration()
        try:
            (reply,) = await store.beat([Beat(turner.id, said)])
        except Exception as error:  # noqa: BLE001 - said sparingly, and tried again
            await asyncio.sleep(trouble.failed(error))
            continue
        trouble.over()
        if reply.alive:
            break
        turner.id = worker_id()  # that name is taken
    board.extend(sent + said.lease / 1e6)


async def declare_limits(store: Store, limits: Sequence[Limit], outage: Outage) -> None:
    """The limits as this code wants them, however long it takes: the code that was started last decides."""
    trouble = RetryLog("declaring limits", log, outage)
    while limits:
        try:
            await store.declare_limits(limits)
        except Exception as error:  # noqa: BLE001 - said sparingly, and tried again
            await asyncio.sleep(trouble.failed(error))
        else:
            trouble.over()
            return


async def declare_queues(store: Store, queues: Mapping[str, QueueSettings], outage: Outage) -> list[QueueRow]:
    """The same for queues; what the store keeps of all of them."""
    trouble = RetryLog("declaring queues", log, outage)
    while True:
        try:
            known = {row.name: row.declared for row in await store.queues()}
            changed = {name: wanted for name, wanted in queues.items() if wanted != known.get(name, QueueSettings())}
            for name, wanted in changed.items():
                await store.configure_queue(name, wanted, declared=True)
            rows = await store.queues()
        except Exception as error:  # noqa: BLE001 - said sparingly, and tried again
            await asyncio.sleep(trouble.failed(error))
        else:
            trouble.over()
            return rows


async def declare_schedules(store: Store, code: CodeSchedules, outage: Outage) -> None:
    """The same for schedules; those that newer code declared are left alone."""
    trouble = RetryLog("storing schedules", log, outage)
    while True:
        try:
            await sync(store, code)
        except Exception as error:  # noqa: BLE001 - said sparingly, and tried again
            await asyncio.sleep(trouble.failed(error))
        else:
            trouble.over()
            return


async def say_goodbye(store: Store, worker: str, limit: float) -> None:
    """Take the worker's row away, within ``limit`` seconds or not at all."""
    try:
        async with asyncio.timeout(limit):
            await store.retire(worker, Outcome.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - its lease will end by itself
        log.warning("worker %s could not say goodbye: %s", worker, error)
