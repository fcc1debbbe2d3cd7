"""The loop around ``store.turn``: reports what was finished, asks for work when there is room.

One turn is in flight at a time. A turn whose outcome is unknown is repeated with the same number
and the same content until the store answers; bodies run on meanwhile and their acks gather.

When is a turn made?
- at once, when a slot is idle and there are acks to report or the store may have work for it;
- else when 256 acks have gathered, half of the room ahead is used up, or the oldest ack is 5 ms old;
- at least each second while anything is held, so that cancel orders arrive; else every 5 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from mainspring.common.clock import LONG_AGO, boottime
from mainspring.common.ids import worker_id
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.states import FINAL, State
from mainspring.stores.base import Store
from mainspring.worker.events import failure_log
from mainspring.worker.loop.demand import Demand
from mainspring.worker.loop.send_turn import TurnSender, unstorable
from mainspring.worker.records import CancelOrder, Claim, Turn, TurnResult
from mainspring.worker.run.attempt import NEVER, RunningAttempt

if TYPE_CHECKING:
    from mainspring.worker.events.breaker_counts import BreakerCounts
    from mainspring.worker.events.dispatcher import EventDispatcher
    from mainspring.worker.loop.outage import Outage

log = logging.getLogger("mainspring.worker")

FLUSH_AT = 256
FLUSH_AFTER = 0.005
HEAR_AFTER = 1.0
IDLE_AFTER = 5.0
RATE_PAUSE = 0.005
"""Seconds between two turns that a rate alone is the reason for."""
REVIEW_AFTER = 60.0
"""Seconds after which a worker asks for all that it holds: a store that was set back may have forgotten acks."""
_MOST_ACKS = 1024
_LATER = (State.RETRYING, State.SCHEDULED)
_SOON = 1_000_000


class TurnLoopOwner(Protocol):
    """The worker, as its turner sees it."""

    def accept(self, claim: Claim, now: float) -> RunningAttempt | Ack:
        """Make an attempt of a claim, or the ack that declines it."""
        ...

    def launch(self, attempts: list[RunningAttempt]) -> None: ...

    def ordered(self, attempt: RunningAttempt, order: CancelOrder) -> None: ...

    def taken_away(self, attempt: RunningAttempt) -> None: ...

    def due_soon(self, seconds: float) -> None:
        """A job that this worker put off is due in less than a second."""
        ...

    async def enrol(self) -> None:
        """Register the worker's (new) id; returns when the store knows it."""
        ...


class TurnLoop:
    """Owns the worker's identity in the store: its id, the number of its turns, what it holds."""

    def __init__(self, store: Store, demand: Demand, holder: TurnLoopOwner, outage: Outage) -> None:
        self.id = worker_id()
        self.held: dict[bytes, RunningAttempt] = {}
        self.claiming = True
        self.closing = False
        """End as soon as nothing is held and everything is acked."""
        self.turned_at = 0.0
        self.store_ahead = 0
        """The store's clock minus ours, microseconds."""
        self._demand = demand
        self._holder = holder
        self._number = 0
        self._acks: list[Ack] = []
        self._first_ack = NEVER
        self._flush_at = 1
        self.herald: EventDispatcher | None = None
        """Hears of the acks that were stored, if anybody wants to know."""
        self.runs: dict[bytes, str] = {}
        """Of the jobs that are held, those that are runs of a schedule, each with its name. Any thread adds to it."""
        self.ended: Callable[[Collection[str]], None] | None = None
        """Hears of schedules whose runs have ended."""
        self.tallies: BreakerCounts | None = None
        """Counts successes, if a breaker goes by their share."""
        self._suspects = 0
        self._held_at = LONG_AGO
        self._reviewed_at = boottime()
        self._force = False
        self._waiter: asyncio.Future[None] | None = None
        self._permit: asyncio.TimerHandle | None = None
        self._asker = TurnSender(store, outage)

    # ---- for the worker ----------------------------------------------------------------------

    def report(self, ack: Ack) -> None:
        """An attempt is over. Loop thread only."""
        acks = self._acks
        if not acks:
            self._first_ack = boottime()
        acks.append(ack)
        if self._waiter is not None and (len(acks) in (1, self._flush_at) or self._demand.idle):
            self.poke()

    def poke(self) -> None:
        """Think again about when the next turn is due."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def wake(self) -> None:
        """The store may have work."""
        self._demand.wake()
        self.poke()

    def _wake_in(self, seconds: float) -> None:
        """A rate lets something through then. What comes close together goes in one turn."""
        loop = asyncio.get_running_loop()
        at = loop.time() + max(RATE_PAUSE, seconds)
        if self._permit is not None and not self._permit.cancelled() and loop.time() < self._permit.when() <= at:
            return
        if self._permit is not None:
            self._permit.cancel()
        self._permit = loop.call_at(at, self.wake)

    def hear(self) -> None:
        """Make a turn now, whatever there is to say: the worker may have been given up for lost."""
        self._force = True
        self.poke()

    def review(self) -> None:
        """The store may have been away, and set back: ask for all that it holds."""
        self._reviewed_at = LONG_AGO
        self.wake()
        self.hear()

    @property
    def tried_at(self) -> float:
        """When the store was last asked, with or without success; 0 before the first turn."""
        return self._asker.tried_at

    @property
    def thirsty(self) -> bool:
        """Slots are free, the store had nothing for them, and no turn is due before it may."""
        return self._waiter is not None and self.claiming and self._demand.dry

    @property
    def empty(self) -> bool:
        """Nothing is held and nothing is left to report."""
        return not self.held and not self._acks

    def unreported(self, but: Collection[bytes]) -> bool:
        """Whether anything is still held or unsaid, apart from these jobs."""
        return bool(self._acks) or any(job not in but for job in self.held)

    async def run(self) -> None:
        """Turn until closing and empty. Never ends by a store's error."""
        while True:
            await self._due()
            if self.closing and self.empty:
                return
            await self._turn()

    # ---- when --------------------------------------------------------------------------------

    async def _due(self) -> None:
        loop = asyncio.get_running_loop()
        while (wait := self._wait()) > 0:
            self._waiter = loop.create_future()
            timer = loop.call_later(wait, self.poke)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None

    def _wait(self) -> float:
        """Seconds until the next turn is due."""
        if self._force or (self.closing and self.empty):
            return 0
        demand, acks = self._demand, self._acks
        if acks and (len(acks) >= self._flush_at or not self.claiming or demand.idle):
            return 0
        if self.claiming and demand.urgent:
            return 0
        now = boottime()
        due = self.turned_at + (HEAR_AFTER if self.held else IDLE_AFTER)
        if acks:
            due = min(due, self._first_ack + FLUSH_AFTER)
        return max(0.0, due - now)

    # ---- the turn ----------------------------------------------------------------------------

    async def _turn(self) -> None:
        reply, turn, left = await self._asker.ask(self._next())
        self._acks[:0] = left
        if left or self._asker.recovered:
            self.review()  # at once; wake-ups may have been lost as well
        now = boottime()
        self.turned_at = now
        if reply.lost:
            await self._lost()
            return
        self._compare_clocks(reply.now - int(now * 1e6))
        self._number = turn.number
        if turn.acks or reply.breakers:
            self._tell(turn, reply)
        self._release(turn.acks)
        if reply.unstorable or reply.stale:
            self._refused(turn, reply)
        claims = reply.claims if turn.seen == turn.number - 1 else self._unknown(reply.claims)
        if reply.more:
            self._demand.wake()
        if reply.next_at is not None:
            self._wake_in((reply.next_at - self.store_ahead) / 1e6 - now)  # a turn takes longer than a rate's step
        self._demand.heard(claims, partly=reply.more, held=reply.held)
        if claims:
            self._take(claims, now, reply.short, turn)
        for order in reply.orders:
            if (attempt := self._mine(order.id, order.token)) is not None:
                self._holder.ordered(attempt, order)
        for lease in reply.gone:
            if (attempt := self._mine(*lease)) is not None:
                self._drop(attempt, "the store says that it belongs to somebody else")
        self._flush_at = self._demand.half_ahead or FLUSH_AT

    def _tell(self, turn: Turn, reply: TurnResult) -> None:
        """What was stored, while it is known whose acks they are."""
        if self.herald is not None and turn.acks:
            self.herald.stored(turn.acks, reply, self.held, self.id)
        if self.runs:
            names = {name for ack in turn.acks if (name := self.runs.pop(ack.id, "")) and ack.to in FINAL}
            if names and self.ended is not None:
                self.ended(names)
        if reply.breakers:
            failure_log.changed(reply.breakers)
            if self.herald is not None:
                self.herald.changed(reply.breakers, self.id, reply.now)

    def _compare_clocks(self, ahead: int) -> None:
        """The reply was under way for a while, so each sample is too low: the highest is the nearest to the truth."""
        if not self.store_ahead or ahead >= self.store_ahead:
            self.store_ahead = ahead
        else:
            self.store_ahead -= (self.store_ahead - ahead) // 8  # the store's clock may have been set back

    def _next(self) -> Turn:
        acks: Sequence[Ack] = self._acks[:_MOST_ACKS]
        self._acks = self._acks[_MOST_ACKS:]
        if self.tallies is not None:
            acks = self.tallies.in_a_row(acks, self.held)
        self._first_ack = boottime() if self._acks else NEVER
        self._force = False
        now = boottime()
        seen, holds = self._number, None
        if now - self._reviewed_at >= REVIEW_AFTER:
            self._reviewed_at, self._held_at, seen = now, LONG_AGO, 0
        if self.held and now - self._held_at >= HEAR_AFTER:
            self._held_at = now
            holds = tuple(attempt.lease for attempt in self.held.values())
        return Turn(
            worker=self.id,
            number=self._number + 1,
            seen=seen,
            acks=tuple(acks),
            wants=self._demand.wants() if self.claiming else (),
            suspects=0 if self._suspects else 1,
            holds=holds,
            good=() if self.tallies is None else self.tallies.due(acks, self.held, now),
        )

    # ---- the reply ---------------------------------------------------------------------------

    def _unknown(self, claims: Sequence[Claim]) -> tuple[Claim, ...]:
        """Those that are neither held nor about to be acked: most were only said again."""
        known = {attempt.lease for attempt in self.held.values()} | {ack.lease for ack in self._acks}
        return tuple([claim for claim in claims if (claim.id, claim.token) not in known])

    def _take(self, claims: Sequence[Claim], now: float, short: Collection[bytes], turn: Turn) -> None:
        fresh: list[RunningAttempt] = []
        for claim in claims:
            known = self.held.get(claim.id)
            if known is not None:
                if known.claim.token == claim.token:
                    continue  # said again: the reply before was thought lost
                self._drop(known, "it was claimed anew")
            taken = self._holder.accept(claim, now) if self.claiming else Ack.returned(Lease(claim.id, claim.token))
            if isinstance(taken, Ack):
                self.report(taken)
                continue
            self.held[claim.id] = taken
            self._demand.took(claim.queue)
            if claim.crashes:
                self._suspects += 1
            fresh.append(taken)
        again = self._asker.recovered
        if short or again or turn.seen < turn.number - 1:
            few = frozenset(short)
            for attempt in fresh:
                # Of what is only said again nobody knows whether the place is one of few.
                unsaid = again or attempt.claim.turn < turn.number
                attempt.short = attempt.claim.id in few or (unsaid and attempt.limited)
        self._holder.launch(fresh)

    def _release(self, acks: Sequence[Ack]) -> None:
        for ack in acks:
            attempt = self.held.get(ack.id)
            if attempt is not None and attempt.claim.token == ack.token:
                self._forget(attempt)
            if ack.to in _LATER and ack.delay < _SOON:
                self._holder.due_soon(ack.delay / 1e6)

    def _forget(self, attempt: RunningAttempt) -> None:
        claim = attempt.claim
        del self.held[claim.id]
        if self.runs:
            self.runs.pop(claim.id, None)
        self._demand.released(claim.queue)
        if claim.crashes:
            self._suspects -= 1
            self._demand.wake()  # the next suspect may come, if there is one

    def _refused(self, turn: Turn, reply: TurnResult) -> None:
        """What the store would not take: late acks are dropped, unstorable ones said in plainer words."""
        if reply.stale:
            log.warning("%d acks came too late: their jobs were given to other workers", len(reply.stale))
        poor = set(reply.unstorable)
        for ack in turn.acks:
            if (ack.id, ack.token) not in poor:
                continue
            log.error("the result of job %s cannot be stored; the job is dead", ack.id.hex())
            if (plainer := unstorable(ack)) is not None:
                self.report(plainer)

    def _drop(self, attempt: RunningAttempt, why: str) -> None:
        log.warning("job %s (%s) is fenced: %s", attempt.claim.id.hex(), attempt.claim.task, why)
        self._acks = [ack for ack in self._acks if ack.lease != attempt.lease]
        self._forget(attempt)
        self._holder.taken_away(attempt)

    def _mine(self, job: bytes, token: int) -> RunningAttempt | None:
        attempt = self.held.get(job)
        return attempt if attempt is not None and attempt.claim.token == token else None

    async def _lost(self) -> None:
        """Others have the jobs: fence what runs, take a new id and go on."""
        old, self.id = self.id, worker_id()
        log.warning("worker %s was given up for lost; %d jobs are fenced, going on as %s", old, len(self.held), self.id)
        for attempt in list(self.held.values()):
            self._forget(attempt)
            self._holder.taken_away(attempt)
        self._acks.clear()
        self._number = 0
        self._demand.wake()
        if not self.closing:
            await self._holder.enrol()
