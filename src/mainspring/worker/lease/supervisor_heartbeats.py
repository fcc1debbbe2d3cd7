"""The supervisor's heartbeats: for every worker process that is alive and not stopped, over its own connections.

It has one connection for each pair of store and lease length; almost always there is one such pair.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mainspring.common.clock import boottime
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.stores.connect import StoreAddress
from mainspring.worker.lease.heartbeat import TEMPORARY, HeartbeatSender
from mainspring.worker.records import Beat, RescueResult
from mainspring.worker.retry_log import Outage, RetryLog

if TYPE_CHECKING:
    from mainspring.worker.supervise.child import Child
    from mainspring.worker.supervise.child_pipe import Hello

log = logging.getLogger("mainspring.supervisor")


class SupervisorHeartbeats:
    """Sends heartbeats for the workers that ``children`` lists. Belongs to one event loop."""

    def __init__(self, children: Callable[[], Sequence[Child]]) -> None:
        self._children = children
        self._outage = Outage(log)
        self._senders: dict[tuple[StoreAddress, int], HeartbeatSender] = {}
        self._succeeding_since: dict[tuple[StoreAddress, int], float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, hello: Hello) -> None:
        """Send heartbeats for workers with this store and lease from now on."""
        key = (hello.store, hello.lease)
        if key not in self._senders:
            self._senders[key] = HeartbeatSender(
                hello.store, hello.lease / 1e6, self._outage, purpose=" for the workers"
            )
            self._succeeding_since[key] = math.inf
            self._tasks.append(asyncio.create_task(self._run(key)))

    def succeeding_since(self, hello: Hello | None) -> float:
        """Since when heartbeats for this worker succeed; infinite while they fail."""
        return self._succeeding_since.get((hello.store, hello.lease), math.inf) if hello else math.inf

    async def retire(self, hello: Hello, cause: Outcome, acks: Sequence[Ack]) -> RescueResult:
        """Give back a dead worker's jobs. Retries until the store answers."""
        self.add(hello)
        sender = self._senders[hello.store, hello.lease]
        retry_log = RetryLog(f"giving back the jobs of worker {hello.worker}", log, self._outage)
        while True:
            try:
                result = await (await sender.store()).retire(hello.worker, cause, acks)
            except TEMPORARY as error:
                await asyncio.sleep(retry_log.record_failure(error))
            else:
                retry_log.record_success()
                return result

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sender in self._senders.values():
            await sender.close()

    async def _run(self, key: tuple[StoreAddress, int]) -> None:
        sender = self._senders[key]
        while True:
            try:
                wait = await self._beat(key, sender)
            except Exception:
                log.exception("the supervisor cannot send heartbeats; its workers still send their own")
                self._succeeding_since[key] = math.inf
                wait = sender.period
            await asyncio.sleep(wait)

    async def _beat(self, key: tuple[StoreAddress, int], sender: HeartbeatSender) -> float:
        """Send one heartbeat for each worker. Returns the seconds until the next ones."""
        children = {
            child.hello.worker: child
            for child in self._children()
            if child.hello is not None and (child.hello.store, child.hello.lease) == key and child.is_moving()
        }
        if not children:
            return sender.period
        sent = await sender.send([Beat(worker) for worker in children])
        if sent is None:
            self._succeeding_since[key] = math.inf
            return sender.retry_in()
        self._succeeding_since[key] = min(self._succeeding_since[key], sent.at)
        for reply in sent.replies:
            shared_state = children[reply.worker].shared_state
            if reply.alive and shared_state.fd >= 0:
                shared_state.extend(sent.at + sender.lease)
        return max(0.0, sent.at + sender.period - boottime())
