"""The supervisor's beats: for every worker that lives and moves, over connections of its own.

One connection for each store and lease length; in all but odd cases that is one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from mainspring.common.clock import boottime
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.stores.connect import StoreAddress
from mainspring.worker.lease.heartbeat import PASSING, HeartbeatSender
from mainspring.worker.loop.outage import Outage
from mainspring.worker.loop.retry_log import RetryLog
from mainspring.worker.records import Beat, RescueResult
from mainspring.worker.supervise.child import Child
from mainspring.worker.supervise.child_pipe import Hello

log = logging.getLogger("mainspring.supervisor")


class SupervisorHeartbeats:
    """Beats for the wards that ``wards`` lists. Belongs to one event loop."""

    def __init__(self, wards: Callable[[], Sequence[Child]]) -> None:
        self._wards = wards
        self._outage = Outage(log)
        self._pulses: dict[tuple[StoreAddress, int], HeartbeatSender] = {}
        self._since: dict[tuple[StoreAddress, int], float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def serve(self, hello: Hello) -> None:
        """Beat for workers such as this one from now on."""
        key = (hello.store, hello.lease)
        if key not in self._pulses:
            self._pulses[key] = HeartbeatSender(hello.store, hello.lease / 1e6, self._outage, who=" for the workers")
            self._since[key] = math.inf
            self._tasks.append(asyncio.create_task(self._go(key)))

    def beating_since(self, hello: Hello | None) -> float:
        """Since when beats for this worker succeed; infinite while they do not."""
        return self._since.get((hello.store, hello.lease), math.inf) if hello else math.inf

    async def retire(self, hello: Hello, cause: Outcome, acks: Sequence[Ack]) -> RescueResult:
        """Give back a dead worker's jobs; tries until the store answers."""
        self.serve(hello)
        pulse = self._pulses[hello.store, hello.lease]
        trouble = RetryLog(f"giving back the jobs of worker {hello.worker}", log, self._outage)
        while True:
            try:
                given = await (await pulse.store()).retire(hello.worker, cause, acks)
            except PASSING as error:
                await asyncio.sleep(trouble.failed(error))
            else:
                trouble.over()
                return given

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pulse in self._pulses.values():
            await pulse.close()

    async def _go(self, key: tuple[StoreAddress, int]) -> None:
        pulse = self._pulses[key]
        while True:
            try:
                wait = await self._beat(key, pulse)
            except Exception:
                log.exception("the supervisor cannot beat; its workers beat alone")
                self._since[key] = math.inf
                wait = pulse.period
            await asyncio.sleep(wait)

    async def _beat(self, key: tuple[StoreAddress, int], pulse: HeartbeatSender) -> float:
        """Beat once for all; returns the seconds until the next."""
        wards = {
            ward.hello.worker: ward
            for ward in self._wards()
            if ward.hello is not None and (ward.hello.store, ward.hello.lease) == key and ward.may_beat()
        }
        if not wards:
            return pulse.period
        sent = await pulse.send([Beat(worker) for worker in wards])
        if sent is None:
            self._since[key] = math.inf
            return pulse.retry_in()
        self._since[key] = min(self._since[key], sent.at)
        for reply in sent.replies:
            if reply.alive and wards[reply.worker].board.fd >= 0:
                wards[reply.worker].board.extend(sent.at + pulse.lease)
        return max(0.0, sent.at + pulse.period - boottime())
