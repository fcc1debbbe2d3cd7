"""Shares the services between the workers: one worker does them for the fleet, the others watch that they are done.

Each worker calls ``Store.lead`` about once a second: the call of the leader renews its lead, the calls of the others
only read. A worker that leads nothing learns two moments from it: when a promotion and when a schedule is due. If one
of them is late by ``LATE``, the leader has died or is stuck, and the worker does the work itself. Until there is
another leader, jobs and schedules start within a second of their moment, and no worker has to know which other worker
leads.

A schedule that waits for something without a known moment (``ALWAYS_DUE``) is never late. Its leader takes it up each
second. The other workers leave it to the leader, whose lead ends soon after its death, and only now and then take it up
themselves.

In a large fleet each worker looks less often. The looks come at random moments, so that some worker looks every few
milliseconds.

Two services have a leader each: ``JOBS`` (promotion, rescue, the warning of queues without workers) and, among the
workers with the role scheduler, ``SCHEDULES`` (schedules, retention).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence

from mainspring.common.pause import jittered
from mainspring.stores.base import Store
from mainspring.worker.records import LeadResult
from mainspring.worker.services.base import Service

JOBS, SCHEDULES = "jobs", "schedules"
"""The services that have a leader."""
LATE = 0.25
"""Seconds after which work of the leader counts as late."""
MOST_LOOKS = 40.0
"""Looks per second in the whole fleet, above which its workers look less often."""
SLOWEST = 2.5
"""The most seconds between two looks of one worker."""
OWN_LOOK = 30.0
"""Seconds, or one for each worker of a larger fleet, after which a worker takes up the schedules that are always due
although another worker leads: the leader may be of an older version that cannot read them, or fail."""
_SET_BACK = 1.0
"""Seconds that the store's clock must fall behind ours to count as set back."""


class Leader(Service):
    """Asks for the lead of each service in ``led``, and tells their parts what this worker leads.

    ``promoter`` and ``scheduler`` are the services that a promotion and a schedule wait for. ``sweep``: seconds between
    two sweeps of the rescuer; a lead lasts as long, so that a dead leader is replaced before the next sweep.
    ``watch_host`` is called before each look: every worker does it, whichever worker leads.
    """

    jitter = 0.0  # workers that only look have one of their own

    def __init__(
        self,
        store: Store,
        worker: Callable[[], str],
        led: Mapping[str, Sequence[Service]],
        *,
        promoter: Service,
        scheduler: Service | None,
        sweep: float = 3.0,
        now: Callable[[], float] = time.monotonic,
        watch_host: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(store)
        self.every = min(1.0, sweep / 3)
        self.fleet = 1
        """About how many workers the store has."""
        self._worker = worker
        self._led = led
        self._promoter = promoter
        self._scheduler = scheduler
        self._span = int(sweep * 1e6)
        self._now = now
        self._watch_host = watch_host
        self._ahead: float | None = None
        self._own_look_at = math.inf
        for parts in led.values():
            for part in parts:
                part.set_leads(False)

    async def tick(self) -> float:
        self._watch_host()
        lead = await self.store.lead(self._worker(), tuple(self._led), self._span)
        self.fleet = lead.fleet
        for name, parts in self._led.items():
            for part in parts:
                part.set_leads(name in lead.services)
        waiting = ((self._promoter, lead.next_due), (self._scheduler, lead.next_look))
        set_back = self._was_set_back(lead)
        pause = self.every if lead.services else pause_between_looks(self.every, self.fleet)
        for waits, moment in waiting:
            if waits is not None and waits.leads and set_back:
                waits.tick_now()
            if waits is not None and moment is not None:
                pause = min(pause, self._start_due(waits, (moment - lead.now) / 1e6))
        if self._scheduler is not None:
            self._take_up_always_due(self._scheduler, lead)
        return pause

    def _start_due(self, part: Service, left: float) -> float:
        """Start the part when its work is due in ``left`` seconds. Returns the seconds until the next look at it."""
        if part.leads:
            if left <= self.every:
                part.tick_in(left)
            return self.every
        if left <= -LATE:
            part.tick_now()
            return SLOWEST
        if self.fleet > MOST_LOOKS:
            return SLOWEST
        return max(self.every / 2, left + LATE * random.uniform(1.0, 2.0))  # not all workers at once

    def _take_up_always_due(self, scheduler: Service, lead: LeadResult) -> None:
        """The leader takes up the schedules that are always due at each look, the other workers seldom."""
        now = self._now()
        if not lead.always_due:
            self._own_look_at = math.inf
        elif scheduler.leads or now >= self._own_look_at:
            self._own_look_at = math.inf
            scheduler.tick_now()
        elif self._own_look_at == math.inf:
            self._own_look_at = now + jittered(max(OWN_LOOK, self.fleet), least=0.9)

    def _was_set_back(self, lead: LeadResult) -> bool:
        """Whether the store's clock was set back since the last call."""
        ahead, last = lead.now / 1e6 - self._now(), self._ahead
        back = last is not None and ahead < last - _SET_BACK
        self._ahead = ahead if last is None or back else max(ahead, last)
        return back


def pause_between_looks(every: float, fleet: int) -> float:
    """Seconds until the next look of a worker that leads nothing."""
    return jittered(min(SLOWEST * every, max(every, fleet / MOST_LOOKS)), least=0.9)
