"""The loop around ``store.turn``: reports finished attempts, and claims jobs for free slots.

When is a turn made? (``TurnLoop``)
- at once, when a slot is idle and there are acks to report or the store may have work for the slot;
- otherwise when 256 acks wait, half of the claims ahead are used up, or the oldest ack is 5 ms old;
- at least once a second while the worker holds jobs, so that cancel orders arrive; otherwise every 5 s.

A turn with the ack of a limited job asks for jobs of every lane: the store takes the ack first, so the same turn can
hand out the job that waited for this place. No wake-up is needed for that.

How is a turn sent? (``TurnSender``)
One turn is in flight at a time, and it is sent until the store answers it. Meanwhile bodies keep running and their acks
wait. When the outcome is unknown (the store could not be reached, gave no answer in time, or raised an unknown error),
the same turn is sent again, with the same number and the same content: the store recognises a repeat by its number.
Only a ``StoreConflict`` proves that nothing was applied. If conflicts continue, the turn is sent with half of its acks,
down to the single ack that cannot be stored; that ack is then replaced by one with a plain error.

Over a network a turn waits for an answer for a shorter time than ``stores/door.py`` allows: otherwise a connection that
died silently would keep the worker from a store that can be reached. If only the turns fail and all other calls
succeed, the store may just be slow: then the turn gets the whole time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from mainspring.codec import describe_error, dumps
from mainspring.common.clock import LONG_AGO, boottime
from mainspring.common.ids import id_text, worker_id
from mainspring.errors import ResultNotSerializable, StoreConflict, StoreFull, StoreUnavailable
from mainspring.jobs.lanes import excludes_suspects, is_limited
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.states import Reason, State
from mainspring.stores.base import Store
from mainspring.worker import failure_log
from mainspring.worker.loop.demand import Demand
from mainspring.worker.records import Claim, Turn, TurnResult
from mainspring.worker.retry_log import Outage, RetryLog
from mainspring.worker.run.attempt import NEVER, RunEnvironment, RunningAttempt

if TYPE_CHECKING:
    from mainspring.worker.events.dispatcher import EventDispatcher
    from mainspring.worker.run.dispatch import Dispatcher

log = logging.getLogger("mainspring.worker")

FLUSH_AT = 256
"""Waiting acks that cause a turn."""
FLUSH_AFTER = 0.005
"""Seconds that an ack waits at most."""
ORDERS_EVERY = 1.0
"""Most seconds between two turns while the worker holds jobs; each second it also sends the list of its leases."""
IDLE_EVERY = 5.0
"""Most seconds between two turns while the worker holds no job."""
RATE_PAUSE = 0.005
"""Seconds between two turns that only a rate limit is the reason for."""
RESYNC_EVERY = 60.0
"""Seconds after which a worker asks for all jobs that it holds: a store restored from a backup may lack acks."""
MAX_ACKS = 1024
"""Most acks in one turn."""
_DELAYED = (State.RETRYING, State.SCHEDULED)
_DUE_SOON = 1_000_000
QUICK = 3.0
"""Seconds to wait for an answer over a network."""
_QUICK_TRIES = 3
_MOST_NAMED = 5
"""Jobs that one log line names."""
_CONFLICTS = 3
"""Conflicts in a row after which the turn is made smaller."""
_UNSTORABLE = describe_error(ResultNotSerializable("the result cannot be stored"))
_UNSTORABLE_RECORD = dumps(_UNSTORABLE)


class TurnLoop:
    """Owns the worker's identity in the store: its id, the numbers of its turns, and the jobs that it holds.

    ``register`` registers a new worker id; it returns when the store knows the id. ``due_soon`` is called with the
    seconds until a job of this worker is due that was delayed by less than a second.
    """

    def __init__(
        self,
        store: Store,
        demand: Demand,
        dispatcher: Dispatcher,
        environment: RunEnvironment,
        outage: Outage,
        *,
        register: Callable[[], Awaitable[None]],
        due_soon: Callable[[float], None],
        events: EventDispatcher | None = None,
    ) -> None:
        self.environment = environment
        self.held: dict[bytes, RunningAttempt] = {}
        self.claiming = True
        self.closing = False
        """End as soon as nothing is held and everything is acked."""
        self.turned_at = 0.0
        self.on_runs_ended: Callable[[Collection[str]], None] | None = None
        """Is called with the names of schedules whose runs have ended."""
        self._events = events
        self._demand = demand
        self._dispatcher = dispatcher
        self._register = register
        self._due_soon = due_soon
        self._number = 0
        self._acks: list[Ack] = []
        self._first_ack = NEVER
        self._flush_at = 1
        self._suspects = 0
        self._limited = 0
        """How many of the held jobs come from a lane with limits or a breaker."""
        self._leases_sent_at = LONG_AGO
        self._resynced_at = boottime()
        self._force = False
        self._waiter: asyncio.Future[None] | None = None
        self._rate_timer: asyncio.TimerHandle | None = None
        self._sender = TurnSender(store, outage)

    # ---- for the worker ----------------------------------------------------------------------

    def add_ack(self, ack: Ack) -> None:
        """Report the end of an attempt with the next turn. Loop thread only."""
        acks = self._acks
        if not acks:
            self._first_ack = boottime()
        acks.append(ack)
        counts = self._dispatcher.breaker_counts
        if counts is not None and (attempt := self._find_held(ack.id, ack.token)) is not None:
            counts.add_ack(ack, attempt)
        if self._waiter is not None and (len(acks) in (1, self._flush_at) or self._demand.has_idle_slot):
            self.reschedule()

    def reschedule(self) -> None:
        """Compute again when the next turn is due."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def wake(self) -> None:
        """The store may have work."""
        self._demand.wake()
        self.reschedule()

    def on_slot_lent(self, queue: str) -> None:
        """A job of this queue waits for another job, which may run in its place."""
        self._demand.count_release(queue)
        self.wake()

    def turn_now(self) -> None:
        """Make a turn now, even an empty one: the store may have declared this worker lost."""
        self._force = True
        self.reschedule()

    def resync(self) -> None:
        """Ask for all jobs that this worker holds: the store may have been away, and restored from a backup."""
        self._resynced_at = LONG_AGO
        self.wake()
        self.turn_now()

    @property
    def tried_at(self) -> float:
        """When the last try of a turn ended, with or without success; 0 before the first turn."""
        return self._sender.tried_at

    @property
    def is_out_of_work(self) -> bool:
        """Slots are free, the store had no jobs for them, and the loop waits for a wake-up or the next poll."""
        return self._waiter is not None and self.claiming and self._demand.is_dry

    @property
    def is_empty(self) -> bool:
        """No job is held and no ack waits."""
        return not self.held and not self._acks

    def has_unreported(self, ignore: Collection[bytes]) -> bool:
        """Whether an ack waits, or a job is held that is not in ``ignore``."""
        return bool(self._acks) or any(job not in ignore for job in self.held)

    def repeat_with_acks(self, more: Iterable[Ack]) -> Turn | None:
        """The last turn again, with all acks that wait and with ``more``, and without wants; None if the store has all
        of these acks. Any thread, while the event loop is blocked.

        The store applies the acks of a repeated turn that it has not applied before. So neither the numbers of turns
        nor the acks of the loop change: when the loop runs again, it sends its acks once more, and the store knows
        them. If the loop has sent a newer turn meanwhile, the store refuses this one.
        """
        worker, sent = self.environment.worker, self._sender.in_flight  # the id first: see _take_new_id
        acks = {ack.lease: ack for ack in (*(sent.acks if sent else ()), *tuple(self._acks), *more)}
        left = [ack for lease, ack in acks.items() if lease not in self._sender.saved][:MAX_ACKS]
        number = self._number if sent is None else sent.number
        if not left or not number:
            return None
        self._sender.sending.update(ack.lease for ack in left)
        return Turn(
            worker=worker if sent is None else sent.worker,
            number=number,
            seen=number,
            acks=tuple(left),
            wants=(),
            suspects=0,
        )

    def record_saved(self, turn: Turn, reply: TurnResult) -> None:
        """The store has answered a turn of :meth:`repeat_with_acks`. Any thread."""
        if not reply.lost:
            refused = {*reply.stale, *reply.unstorable}
            self._sender.saved.update(ack.lease for ack in turn.acks if ack.lease not in refused)
            self._sender.sending.difference_update(ack.lease for ack in turn.acks)

    async def run(self) -> None:
        """Make turns until closing and empty. Errors of the store do not end it."""
        while True:
            await self._wait_until_due()
            if self.closing and self.is_empty and not self._has_late_counts:
                return
            await self._make_turn()

    def abandon_bodies_of_loop(self) -> None:
        """User code has ended the event loop: report no end of a body that ran on it. The worker is retired as crashed,
        which charges these jobs. Ends that the store does not know yet are left out too: one of them may be the cause.
        """
        for attempt in [each for each in self.held.values() if each.spec.kind == "async" and each.begun]:
            self._acks = [ack for ack in self._acks if ack.lease != attempt.lease]
            self._release(attempt)
            self._dispatcher.abandon(attempt)

    # ---- when --------------------------------------------------------------------------------

    async def _wait_until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while (wait := self._seconds_until_due()) > 0:
            self._waiter = loop.create_future()
            timer = loop.call_later(wait, self.reschedule)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None

    def _seconds_until_due(self) -> float:
        if self._force or (self.closing and self.is_empty):
            return 0
        demand, acks = self._demand, self._acks
        if acks and (len(acks) >= self._flush_at or not self.claiming or demand.has_idle_slot):
            return 0
        if self.claiming and demand.is_urgent:
            return 0
        now = boottime()
        due = self.turned_at + (ORDERS_EVERY if self.held else IDLE_EVERY)
        if acks:
            due = min(due, self._first_ack + FLUSH_AFTER)
        return max(0.0, due - now)

    def _wake_in(self, seconds: float) -> None:
        """A rate limit admits a job then. Moments that are close together share one turn."""
        loop = asyncio.get_running_loop()
        at = loop.time() + max(RATE_PAUSE, seconds)
        timer = self._rate_timer
        if timer is not None and not timer.cancelled() and loop.time() < timer.when() <= at:
            return
        if timer is not None:
            timer.cancel()
        self._rate_timer = loop.call_at(at, self.wake)

    # ---- the turn ----------------------------------------------------------------------------

    async def _make_turn(self) -> None:
        reply, turn, deferred = await self._sender.send(self._build_turn())
        self._acks[:0] = deferred
        if deferred or self._sender.recovered:
            self.resync()  # at once; wake-ups may have been lost as well
        now = boottime()
        self.turned_at = now
        if reply.lost:
            self._publish_saved(turn)
            await self._take_new_id()
            return
        self._compare_clocks(reply.now, now)
        self._number = turn.number
        if turn.acks or turn.breakers:
            self._publish(turn, reply)
        self._release_acked(turn.acks)
        if reply.unstorable or reply.stale:
            self._handle_refused(turn, reply)
        claims = reply.claims if turn.seen == turn.number - 1 else self._new_claims(turn, reply.claims)
        if reply.more:
            self._demand.wake()
        if reply.next_at is not None:  # relative to now: the turn may have taken longer than one step of the rate
            self._wake_in((reply.next_at - self.environment.store_ahead) / 1e6 - now)
        self._demand.record_reply(claims, partial=reply.more, blocked=reply.held, passed=reply.passed)
        if claims:
            self._start_claims(claims, now, turn)
        for order in reply.orders:
            if (attempt := self._find_held(order.id, order.token)) is not None:
                self._dispatcher.cancel(attempt, order.reason)
        for lease in reply.gone:
            if (attempt := self._find_held(*lease)) is not None:
                self._fence(attempt, "the store has given it to another worker")
        self._flush_at = self._demand.half_ahead or FLUSH_AT

    def _build_turn(self) -> Turn:
        acks, counts = self._acks[:MAX_ACKS], self._dispatcher.breaker_counts
        self._acks = self._acks[MAX_ACKS:]
        self._first_ack = boottime() if self._acks else NEVER
        self._force = False
        if self._limited and self._free_capacity(acks):
            self._demand.wake()
        now = boottime()
        seen, holds = self._number, None
        if now - self._resynced_at >= RESYNC_EVERY:
            self._resynced_at, self._leases_sent_at, seen = now, LONG_AGO, 0
        if self.held and now - self._leases_sent_at >= ORDERS_EVERY:
            self._leases_sent_at = now
            holds = tuple(attempt.lease for attempt in self.held.values())
        return Turn(
            worker=self.environment.worker,
            number=self._number + 1,
            seen=seen,
            acks=tuple(acks),
            wants=self._demand.next_wants() if self.claiming else (),
            suspects=0 if self._suspects else 1,
            holds=holds,
            breakers=() if counts is None else counts.next_swaps(now, self.environment.store_now()),
        )

    def _free_capacity(self, acks: Sequence[Ack]) -> bool:
        """Whether one of these acks ends the use of a limit, or the probe of a breaker, for which jobs may wait."""
        found = [self.held.get(ack.id) for ack in acks]
        return any(attempt is not None and (attempt.limited or attempt.takes_capacity) for attempt in found)

    def _compare_clocks(self, replied: int, now: float) -> None:
        """Update the difference of the clocks. The reply needed time to arrive, so each sample is too low: the highest
        sample is the best."""
        environment = self.environment
        environment.store_replied = replied
        ahead = replied - int(now * 1e6)
        if not environment.store_ahead or ahead >= environment.store_ahead:
            environment.store_ahead = ahead
        else:
            environment.store_ahead -= (
                environment.store_ahead - ahead
            ) // 8  # the store's clock may have been set back

    # ---- acks that were answered -------------------------------------------------------------

    def _publish(self, turn: Turn, reply: TurnResult) -> None:
        """Tell hooks, the log and the scheduler about stored acks. Called while the attempts are still held."""
        if self._events is not None and turn.acks:
            self._events.on_acks_stored(turn.acks, reply, self.held, self.environment.worker)
        self._log_crashes(turn, reply)
        if runs := self.environment.schedule_runs:
            names = {name for ack in turn.acks if (name := runs.pop(ack.id, "")) and ack.may_end_job}
            if names and self.on_runs_ended is not None:
                self.on_runs_ended(names)
        if turn.breakers:
            self._count_for_breakers(turn, reply)

    def _log_crashes(self, turn: Turn, reply: TurnResult) -> None:
        for ack in turn.acks:
            if ack.outcome is Outcome.CRASHED and ack.lease not in (*reply.stale, *reply.unstorable):
                attempt = self._find_held(*ack.lease)
                if attempt is not None:
                    failure_log.log_crashed_attempt(attempt, ack)

    def _publish_saved(self, turn: Turn) -> None:
        """The store has lost this worker: publish the acks that another thread had stored before."""
        acks = tuple(ack for ack in (*turn.acks, *self._acks) if ack.lease in self._sender.saved)
        if acks:
            self._publish(replace(turn, acks=acks, breakers=()), TurnResult(self.environment.store_now()))

    def _count_for_breakers(self, turn: Turn, reply: TurnResult) -> None:
        """Compare the rows of the reply with those that this turn counted in; publish what the turn has changed."""
        counts = self._dispatcher.breaker_counts
        assert counts is not None
        changed = counts.apply(turn.breakers, reply.breakers)
        self._force = self._force or counts.has_late
        if changed:
            self._demand.wake()  # a breaker that closed lets waiting jobs through
            failure_log.log_breaker_changes(changed)
            if self._events is not None:
                self._events.on_breakers_changed(changed, self.environment.worker, reply.now)

    @property
    def _has_late_counts(self) -> bool:
        counts = self._dispatcher.breaker_counts
        return counts is not None and counts.has_late

    def _release_acked(self, acks: Sequence[Ack]) -> None:
        for ack in acks:
            attempt = self.held.get(ack.id)
            if attempt is not None and attempt.claim.token == ack.token:
                self._release(attempt)
            if ack.to in _DELAYED and ack.delay < _DUE_SOON:
                self._due_soon(ack.delay / 1e6)

    def _release(self, attempt: RunningAttempt) -> None:
        claim = attempt.claim
        del self.held[claim.id]
        if self.environment.schedule_runs:
            self.environment.schedule_runs.pop(claim.id, None)
        self._demand.count_release(claim.queue)
        if "#" in claim.lane:
            self._limited -= 1
        if claim.crashes and excludes_suspects(claim.crashes):
            self._suspects -= 1
            self._demand.wake()  # the next suspect may be claimed, if there is one

    def _handle_refused(self, turn: Turn, reply: TurnResult) -> None:
        """Acks that the store did not take: late ones are dropped, unstorable ones are replaced by a plain error."""
        if reply.stale:
            log.warning("%d acks came too late: other workers have their jobs now", len(reply.stale))
        unstorable = set(reply.unstorable)
        for ack in turn.acks:
            if (ack.id, ack.token) not in unstorable:
                continue
            log.error("the result of job %s cannot be stored; the job is dead", id_text(ack.id))
            if (plain := replace_unstorable(ack)) is not None:
                self.add_ack(plain)

    # ---- claims ------------------------------------------------------------------------------

    def _new_claims(self, turn: Turn, claims: Sequence[Claim]) -> tuple[Claim, ...]:
        """The claims that are neither held nor about to be acked. After a resync the store repeats all others too."""
        known = {attempt.lease for attempt in self.held.values()} | {ack.lease for ack in self._acks}
        new = tuple([claim for claim in claims if (claim.id, claim.token) not in known])
        _log_missing([claim for claim in new if claim.turn < turn.number])
        return new

    def _start_claims(self, claims: Sequence[Claim], now: float, turn: Turn) -> None:
        """Start the claims. The reply has those for free slots first, then those claimed ahead; with weights of queues,
        all of them start interleaved."""
        started: list[RunningAttempt] = []
        free = sum(want.n for want in turn.wants if not want.ahead)
        is_repeat = self._sender.recovered or turn.seen < turn.number - 1
        ordered = self._demand.in_start_order(claims)
        for_slots = None if ordered is claims else {claim.id for claim in claims[:free]}
        for place, claim in enumerate(ordered):
            known = self.held.get(claim.id)
            if known is not None:
                if known.claim.token == claim.token:
                    continue  # repeated: the store does not know that the reply before arrived
                self._fence(known, "the job was claimed again")
            accepted = (
                self._dispatcher.accept(claim, now) if self.claiming else Ack.returned(Lease(claim.id, claim.token))
            )
            if isinstance(accepted, Ack):
                self.add_ack(accepted)
                continue
            self.held[claim.id] = accepted
            self._demand.count_claim(claim.queue)
            if "#" in claim.lane:
                self._limited += 1
                # The store repeats claims without saying for which want it made them: all of them count as urgent.
                if is_repeat or (place < free if for_slots is None else claim.id in for_slots):
                    self._expect_slot(accepted)
            if claim.crashes and excludes_suspects(claim.crashes):
                self._suspects += 1
            started.append(accepted)
        self._dispatcher.start(started)

    def _expect_slot(self, attempt: RunningAttempt) -> None:
        """A limited job was claimed for a free slot: it may hold the last capacity of a limit, or probe a breaker."""
        attempt.takes_capacity = is_limited(attempt.claim.lane)
        counts = self._dispatcher.breaker_counts
        if counts is not None:
            counts.add_probe(attempt)

    def _fence(self, attempt: RunningAttempt, why: str) -> None:
        log.warning("job %s (%s) is fenced: %s", id_text(attempt.claim.id), attempt.claim.task, why)
        self._acks = [ack for ack in self._acks if ack.lease != attempt.lease]
        self._release(attempt)
        self._dispatcher.abandon(attempt)

    def _find_held(self, job: bytes, token: int) -> RunningAttempt | None:
        attempt = self.held.get(job)
        return attempt if attempt is not None and attempt.claim.token == token else None

    async def _take_new_id(self) -> None:
        """The store has given the jobs to other workers: fence all bodies, register a new id and continue."""
        self._number = 0  # before the id: another thread must not see the new id with an old number
        old, self.environment.worker = self.environment.worker, worker_id()
        log.warning(
            "the store declared worker %s lost; its %d jobs are fenced, and it continues as %s",
            old, len(self.held), self.environment.worker,
        )  # fmt: skip
        for attempt in list(self.held.values()):
            self._release(attempt)
            self._dispatcher.abandon(attempt)
        self._acks.clear()
        if self._dispatcher.breaker_counts is not None:
            self._dispatcher.breaker_counts.forget()
        self._sender.saved.clear()
        self._sender.sending.clear()
        self._demand.wake()
        if not self.closing:
            await self._register()


class TurnAnswer(NamedTuple):
    """The store's answer to a turn."""

    reply: TurnResult
    turn: Turn
    """The turn that was answered. It may have fewer acks than the turn that was to be sent."""
    deferred: list[Ack]
    """Acks that were taken out of the turn, to be sent with the next one."""


class TurnSender:
    """Sends one turn at a time."""

    def __init__(self, store: Store, outage: Outage) -> None:
        self.recovered = False
        """Whether the last answer came after failures."""
        self.tried_at = 0.0
        """When the last try ended, with or without success."""
        self.saved: set[tuple[bytes, int]] = set()
        """Acks that another thread has stored while the event loop was blocked. The loop sends them once more."""
        self.sending: set[tuple[bytes, int]] = set()
        """Acks that another thread sends now, or has sent without an answer: the store may have them."""
        self.in_flight: Turn | None = None
        """The turn that was sent and not answered yet."""
        self._store = store
        self._outage = outage
        self._retry_log = RetryLog("sending a turn", log, outage)
        self._full_log = RetryLog("claiming", log)

    async def send(self, turn: Turn) -> TurnAnswer:
        """The answer. Retries until there is one; a store that refuses even an empty turn has lost the worker."""
        conflicts = 0
        deferred: list[Ack] = []
        while True:
            self.in_flight = turn
            try:
                reply = await self._try_once(turn)
            except StoreConflict as error:
                pause = self._retry_log.record_failure(error)
                conflicts += 1
                if conflicts % _CONFLICTS == 0:
                    smaller = _with_fewer_acks(turn, deferred)
                    if smaller is None:
                        log.error(
                            "the store refuses every turn of worker %s, which takes a new id: %s", turn.worker, error
                        )
                        self.in_flight = None
                        return TurnAnswer(TurnResult(0, lost=True), turn, [])
                    turn = smaller
            except Exception as error:  # noqa: BLE001 - whatever the error is, only a repeat is safe
                pause = self._retry_log.record_failure(error)
            else:
                self.in_flight = None
                self.recovered = self._retry_log.record_success()
                self._log_full_store(turn, reply)
                if (self.saved or self.sending) and not reply.lost:
                    reply = self._without_saved(turn, reply)
                return TurnAnswer(reply, turn, deferred)
            await asyncio.sleep(pause)

    def _without_saved(self, turn: Turn, reply: TurnResult) -> TurnResult:
        """The reply without refused acks and leases of jobs that another thread has acked: these acks are stored, and
        another worker may have the job by now.

        The answer to the other thread may come later than this reply, so a lease that it is sending counts as well. The
        body of that job has ended: the loop sends the ack once more, and its answer shows whether the store took it.
        """
        acked = {*self.sending, *self.saved}  # in this order: the other thread adds to `saved` first
        answered = [ack.lease for ack in turn.acks]
        self.saved.difference_update(answered)
        self.sending.difference_update(answered)
        return replace(
            reply,
            stale=tuple(lease for lease in reply.stale if lease not in acked),
            gone=tuple(lease for lease in reply.gone if lease not in acked),
        )

    def _log_full_store(self, turn: Turn, reply: TurnResult) -> None:
        """Log once that the store hands out no jobs because it is full, and once that it hands out jobs again."""
        if reply.full:
            self._full_log.record_failure(StoreFull("the store is full and hands out no jobs", url=self._store.url))
        elif turn.wants:
            self._full_log.record_success()

    async def _try_once(self, turn: Turn) -> TurnResult:
        try:
            async with asyncio.timeout(self._time_limit()):
                return await self._store.turn(turn)
        except TimeoutError as late:
            raise StoreUnavailable(f"turn: {self._store.url} gave no answer in {QUICK:g} s") from late
        finally:
            self.tried_at = boottime()

    def _time_limit(self) -> float | None:
        if self._store.engine == "sqlite":
            return None
        slow = self._retry_log.failures >= _QUICK_TRIES and not self._outage.others_fail(self._retry_log.operation)
        return None if slow else QUICK


def _log_missing(claims: Sequence[Claim]) -> None:
    """Log claims of earlier turns that the worker does not hold, although it has read the reply of every turn."""
    if claims:
        more = f" and {len(claims) - _MOST_NAMED:,} more" if len(claims) > _MOST_NAMED else ""
        log.warning(
            "for the store this worker runs %d jobs that it does not run: the store has lost the ends of these jobs. "
            "They start again: %s%s",
            len(claims), ", ".join(id_text(claim.id) for claim in claims[:_MOST_NAMED]), more,
        )  # fmt: skip


def replace_unstorable(ack: Ack) -> Ack | None:
    """The ack to send in place of an ack that cannot be stored; None if the ack is itself such a replacement."""
    if ack.error == _UNSTORABLE_RECORD:
        return None
    return Ack.dead(ack.lease, _UNSTORABLE_RECORD, Reason.NOT_RETRYABLE, label=_UNSTORABLE.type)


def _with_fewer_acks(turn: Turn, deferred: list[Ack]) -> Turn | None:
    """The turn with half of its acks, the others moved to ``deferred``; None if the turn cannot get smaller."""
    acks = turn.acks
    if len(acks) > 1:
        half = len(acks) // 2
        deferred[:0] = acks[half:]
        return replace(turn, acks=acks[:half])
    plain = replace_unstorable(acks[0]) if acks else None
    return None if plain is None else replace(turn, acks=(plain,))
