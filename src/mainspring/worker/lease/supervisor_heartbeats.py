"""The supervisor's heartbeats: for worker processes that are alive and not stopped and do not send their own.

A worker cannot send heartbeats while one of its bodies holds the GIL, for example. The shared state has the end of the
lease that the last heartbeat confirmed, so the supervisor sees that one is missing a tenth of a period after it was
due. While the workers send theirs, the supervisor asks nothing of the store.

It has one connection for each pair of store and lease length; almost always there is one such pair.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mainspring.breakers.records import BreakerRow
from mainspring.breakers.swap import count_lost_worker
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
        """Look after workers with this store and lease from now on."""
        key = (hello.store, hello.lease)
        if key not in self._senders:
            self._sender(key)
            self._tasks.append(asyncio.create_task(self._run(key)))

    def succeeding_since(self, hello: Hello | None) -> float:
        """Since when heartbeats for this worker succeed, its own or ours; infinite while they fail."""
        return self._succeeding_since.get((hello.store, hello.lease), math.inf) if hello else math.inf

    async def retire(self, hello: Hello, cause: Outcome, acks: Sequence[Ack]) -> tuple[RescueResult, list[BreakerRow]]:
        """Give back a dead worker's jobs, and count them for breakers. Retries until the store answers."""
        self.add(hello)
        sender = self._senders[hello.store, hello.lease]
        retry_log = RetryLog(f"giving back the jobs of worker {hello.worker}", log, self._outage)
        while True:
            try:
                store = await sender.store()
                result = await store.retire(hello.worker, cause, acks)
            except TEMPORARY as error:
                await asyncio.sleep(retry_log.record_failure(error))
            else:
                retry_log.record_success()
                return result, await count_lost_worker(store, result, cause, acks)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sender in self._senders.values():
            await sender.close()

    async def look(self, key: tuple[StoreAddress, int]) -> float:
        """Send heartbeats if a worker with this store and lease has missed its own. Returns the seconds until the next
        look."""
        sender, now = self._sender(key), boottime()
        children = {
            child.hello.worker: child
            for child in self._children()
            if child.hello is not None and (child.hello.store, child.hello.lease) == key and child.is_moving()
        }
        due = min((sender.backup_due(child.shared_state.lease_end) for child in children.values()), default=math.inf)
        if due > now:
            if children:  # the store has answered the heartbeats of these workers
                self._succeeding_since[key] = min(self._succeeding_since[key], now)
                sender.record_answer()
            return min(sender.period, due - now)
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

    def _sender(self, key: tuple[StoreAddress, int]) -> HeartbeatSender:
        sender = self._senders.get(key)
        if sender is None:
            store, lease = key
            sender = HeartbeatSender(store, lease / 1e6, self._outage, purpose=" for the workers")
            self._senders[key], self._succeeding_since[key] = sender, math.inf
        return sender

    async def _run(self, key: tuple[StoreAddress, int]) -> None:
        sender = self._sender(key)
        while True:
            try:
                wait = await self.look(key)
            except Exception:
                log.exception("the supervisor cannot send heartbeats; its workers still send their own")
                self._succeeding_since[key] = math.inf
                wait = sender.period
            await asyncio.sleep(wait)
