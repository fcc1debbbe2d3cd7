"""The store contract. These docstrings are the specification; ``mainspring.testing.contract`` proves it.

Words
-----
The *owner* of a running job is the worker that claimed the job. The *lease* of an owner is the row of that worker. A
*token* is valid while three things hold: it is the last token of the job, the job is running, and the row of the worker
is not marked lost. Every write of an owner is compared by (job, token, worker).

Rules for every method
----------------------
- One call is one atomic step, except where the method says that it works in slices.
- It is always safe to repeat a call whose reply was lost. Each method says what the repeat returns.
- The store's clock decides every moment. ``clock=`` of an engine's constructor replaces the clock in tests.
- The store decides the order: a job gets its ``seq`` at each entry into ready. That is the time of the store in
  microseconds, to a second, made unique; it never goes back. Ready jobs are claimed by
  :func:`~mainspring.jobs.records.order_key`.
- A method raises only ``StoreUnavailable``, ``StoreConflict``, ``StoreFull`` and ``SchemaOutdated`` (and their siblings
  under ``StoreError`` when the store is opened). ``enqueue`` also raises ``KeyTaken``, ``KeyConflict``,
  ``QueueDraining``, ``QueueDisabled``, ``QueueFull`` and ``FlowClosed``.
- The order of locks is: worker, buckets and lanes, job rows by id, dependents. A statement that started before its
  locks were held decides nothing.

Ends of attempts and jobs
-------------------------
*Attempts.* A claim adds one to ``attempt``. An ack with ``refund``, a crash and a loss subtract one. The store keeps an
``AttemptRow`` under (job, token) for every ended attempt except a plain success, whose facts are in the history row of
the job. The store keeps at least the newest 100 attempts of each job.

*Expiry.* ``expires`` is a limit for the first start of a job. A waiting job past it is never handed out, and ends as
cancelled (expired). When a job whose body has begun, or may have begun, waits to run again (after a failure, a snooze,
an interruption, a rescue or a retirement), the store removes its ``expires``. An ack with ``unstarted`` says that the
body never began: then the job keeps it. A retry by hand removes it. So a retrying job never expires.

*Leaving running.* An ack, a rescue or a retirement ends the job's use of its buckets.

*Final states.* Every way into a final state (ack, rescue, retire, cancel, expire, the end of a parent) is one routine,
``finish``: the row moves to history with its last token and owner; its edges are resolved by their policy; its use of
buckets ends; its unique key is released once the window of the key is over; and its follow-up jobs for this state are
enqueued. So no capacity can leak and no dependent job can be forgotten.

*Follow-up jobs* (``NewJob.follows``). ``finish`` inserts them, whatever the mode of their queue. The last two bytes of
the id are the epoch of the ended job, so each epoch has its own follow-up jobs and a repeat makes no second one. A
follow-up job may have follow-up jobs (``MOST_FOLLOW_UPS`` of one job in all): they are stored beside it when it is
inserted, name it in place of ``ENDED_JOB`` in their records and marks, and their ids are mixed with its id. A follow-up
job has no unique key, no parents, no fair key, and no limits except those of its queue. The enqueue of a job refuses
(``StoreConflict``) a follow-up job that a store could not insert later, because that would keep the job from ending.
The limits are the same in every engine: see ``stores/shared/follow_ups.py``.

Flows
-----
*Edges.* A blocked job waits for its parents, one edge for each. An edge is resolved, and deleted, in the step in which
the parent ends: so each end counts once, however often its ack is repeated. A parent ends *well* if it succeeds or is
cancelled (bypassed), else *badly*. The policy of the edge decides (:class:`~mainspring.jobs.records.Edge`): the child
waits for one parent less, or it ends at once (cancelled: parent, or bypassed), or (``wait``, the parent is dead) the
edge stays. A child that ends resolves its own children, and so on. The end of a job deletes its edges to parents.
A parent that is deleted or pruned ends badly for its children, also for those with ``wait``.
Where parents of a job disagree in one step, a parent that cancels the job wins over one that bypasses it, in any order.
This holds for the parents that end by the acks of one turn, and for those that ended before an enqueue or
``retry_flow``. Other calls may end parents one after the other; then the first one decides.

*Joins.* A join is a blocked job that no worker runs. Its members are the jobs with ``before=(join,)``. When its last
member has ended, and it is not open, it ends in the same step: as succeeded, or, if it is not ``lenient`` and a member
ended badly, as cancelled (parent). A join without members that is not open ends when it is inserted. The store counts
the ends of its members (:class:`~mainspring.jobs.records.JoinRow`); a member join that ended badly counts as dead if it
counted a dead member itself, else as cancelled. The edges of members have the policy ``member``: a join decides when
all members have ended. A join may have parents as well (``after``), which are no members: their edges act at once by
their policies, also while the join is open or has live members. A join may be a member of another join, may have
``expires_in`` and a unique key, and is never ready: promote, run now and retry do not apply to it, and no queue counts
it for its depth.

*Members* are added by an enqueue as long as the join is blocked, and open or the batch is ``accepted`` (a running
member adds to its own flow). Otherwise nothing of the batch is inserted and ``FlowClosed`` is raised. A job that exists
already (a repeat) adds no edge. ``before`` may also name an ordinary blocked job, which then waits for one job more.

*Retries by hand.* An ended member has no edge any more, so a retry of it is not counted again. A dead parent with an
edge of policy ``wait`` resolves this edge when it ends again.

*Many children.* A join with more than ``CHILDREN_AT_ONCE`` children resolves them in slices: this many in the step in
which it ends, the others by :meth:`Store.promote`. So a million jobs that wait for one open join can be released.

*The end of a flow.* All jobs of a flow have a mark, ``%`` with the hex id of one join, the *root*. When the root ends
other than by its members (it is cancelled by a user or by a parent, expires, or is superseded) or is deleted,
:meth:`Store.promote` cancels all live jobs with this mark, in slices: waiting jobs end as cancelled (parent), running
jobs get an order.
``next_due`` is now until it has found no further job. When the root was deleted, promote also deletes the ended jobs
with the mark, and looks again once a second while jobs with an order run.

*Retention.* Ended jobs with ``keep=FLOW_KEEP`` are kept until :meth:`Store.prune` deletes the root of their flow by the
rules for ended jobs: it deletes the jobs with the mark of the root first, in slices, and the root last. A root with a
live job of its flow stays.

Limits
------
A job names buckets (:class:`~mainspring.limits.records.Bucket`). A bucket is a limit without a key (an *unkeyed
limit*), or the part of a limit that belongs to one key. The job starts only while each of its buckets has capacity for
it. Jobs that wait for capacity are not touched: no attempt, no token, no write.

- The size of a bucket is the size of its limit at the moment of the claim, or the size set in its place
  (:meth:`Store.set_limit_size`).
- Capacity is decided under the lock of the bucket.
- A bucket whose limit the store does not know lets every job through.
- A bucket that a job, a hold or a hand-back names twice counts once, with the highest cost named. A limit of the queue
  that the job names itself counts with the cost that the job names.
- A call that frees capacity in a bucket for which jobs wait wakes the listeners of the queues of these jobs.

*Concurrency* counts the running jobs, each job once, and the holders (:meth:`Store.hold`).

*Rates* count starts at the moment of the claim, by the store's clock, whatever happens to the attempt. The store may
count a start up to a thousandth of the window later than it was, never earlier. A start that costs more than the size
counts as the whole size.

*Clocks that go back.* What a rate remembers never reaches further than its window: when a promotion finds that the
clock was set back, starts that lie ahead count from now on, for one window; ``tat`` is at most ``max(per,
time(burst))`` ahead; and a pause (``Ack.slow``) ends by the time that was left of it. So a clock that was set forward
and back closes a rate for one window, and no window has starts of more than the size.

*Smooth rates* (GCRA) are counted in whole microseconds with whole numbers. ``tat`` is the moment at which the whole
burst is available again::

    time(c)   = ceil(c * per / size)                             for each start, not for the sum of several
    slack     = min(burst, time(1) - 1), or 0 if per % size = 0  so that a burst fits one by one, in spite of rounding
    used      = ceil(max(tat - slack - now, 0) * size / per)
    available = max(burst - used, 0)                             a start of cost c fits while available >= min(c, burst)
    start     : tat = max(tat, now) + time(c)
    correct   : tat = max(tat, now) + time(spent) - time(c)      where the attempt really cost ``spent``

``burst`` is at least 1, and ``c`` at most ``size``. ``stores/shared/rates.py`` is the reference implementation.

*Plentiful limits*, and claims ahead of a free slot. See :data:`mainspring.limits.records.PLENTIFUL`.

Breakers
--------
A breaker is a limit of kind ``breaker``. While it is *closed*, it lets every job through. While it is *open*, it lets
none through. When its time is over, it is *half open*: it lets ``size`` jobs at once through as *probes*. A job that
was claimed since that moment is a probe.

- The store does not count. The row of a breaker has a number, the moment until which it is open, and a text that the
  store does not read. ``mainspring/breakers/counting.py`` computes the next row, and a turn or
  :meth:`Store.swap_breakers` writes it if the number is still the one that the change was computed from. Of several
  writers that read the same row only one can write it; the others get the new row in the reply, and compute again.
- A breaker without a row has the number 0 and is closed. A declaration of a limit does not change the row.
- A breaker is open for a time from the moment of the write, by the store's clock.
- Acks, rescues and retirements do not change a breaker. A probe that ends, in whatever way, leaves its capacity to
  another probe, and wakes listeners while the breaker is half open.
- A call that opens or closes a breaker wakes the listeners of the queues in which a job waits for the breaker. After it
  has returned, no job is claimed through an open breaker.

Fair keys
---------
The jobs of each fair key are in a lane of their own. Inside a queue and a priority, these lanes are served by virtual
time: a claim moves its lane back by ``1 / weight``, and a new lane begins one such step behind the claim before it. So
keys with a backlog get claims in proportion to their weights, whatever the order of arrival. A key that had no jobs, or
whose jobs waited for capacity, has no credit for that time, or the credit of one job. A key whose jobs differ in base
lane, limits or weight has one lane for each combination.

Among jobs without a fair key and among fair jobs of other priorities, the fair jobs of a priority have the position of
the one that is next. A fair key is no limit: no job waits because of it while a slot is free.

Unique keys
-----------
One job holds a key while the job is live, and until the end of the window if the key has one. A waiting job past its
``expires`` is not live: an enqueue that needs the key ends that job as expired. The key is released when both times are
over, or when the job is deleted. An ended job whose window is not over is not pruned. With ``keep`` the job also holds
the key for that time after it succeeded, and the store keeps the job as long; an enqueue of the key with another
``print`` is refused.

*Modes.* In the modes ``debounce``, ``throttle`` and ``keep_last`` there is at most one job under a key that has never
been claimed, and each enqueue replaces it: the record, queue, priority, limits, times, marks and follow-up jobs of the
newest enqueue hold. The id, the moment of the first enqueue, the dependents and, if the job stays ready in its queue,
its position in the lane remain. A job that was claimed once is never replaced: the next enqueue makes a second job. Two
concurrent enqueues make one job with the record of one of them. So the arguments of the last enqueue always run.

- ``debounce``: the job is due ``window`` after the last enqueue, but no later than ``max_wait`` after the first.
- ``throttle``: the job is due ``window`` after the last start of the job before it. The first job is due at once.
- ``keep_last``: the job is blocked until the job before it has ended in any way, so two jobs never run at once.

Jobs in these modes have no parents. The store deletes its row of such a key with the last job of the key.

Queues
------
*Settings* are stored, so every producer obeys them, whatever its code declares. The *depth* of a queue is the number of
its waiting jobs: blocked, scheduled, retrying and ready, including jobs that are due or expired. After an enqueue, no
queue with a ``max_depth`` that got a new job is deeper than that, however many producers there are. Jobs that were
accepted before are never refused, but count: retries, rescues, retries by hand, follow-up jobs, and batches with
``accepted``. So the depth may be above ``max_depth``; then the queue takes no other job.

*Order.* A job keeps the order that its queue had when the job was enqueued. A ``lifo`` job goes before all other jobs
of its priority at each entry into ready (its ``seq`` falls instead of growing), a ``fifo`` job goes behind them. So a
queue whose order was changed hands out the jobs of both orders, the ``lifo`` jobs first, whatever their priority. In
the same way a job names the limits that its queue had when the job was enqueued.

*Modes*: see :class:`~mainspring.queues.records.QueueMode` and :class:`~mainspring.queues.records.DisabledMode`.

Schedules
---------
The store has one row for each schedule, and a record for each occurrence that was decided (:class:`ScheduleRun`). The
store knows nothing of rules and times of day. A scheduler reads a row, computes the next row and exchanges it
(:meth:`Store.swap_schedule`). Of several schedulers that read the same row only one can exchange it, so each decision
is carried out once, together with its jobs.
"""

# The methods have no bodies, so no method uses its arguments:
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from mainspring.breakers.records import BreakerSwap, StoredBreaker
from mainspring.jobs.outcomes import CRASH_DELAYS, Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import (
    ActResult,
    AttemptReport,
    AttemptRow,
    Edge,
    Enqueued,
    FlowRetry,
    JobBatch,
    JobRows,
    JoinRow,
    LogLine,
    PromoteResult,
    Retention,
    TallyRow,
)
from mainspring.limits.records import Bucket, BucketRow, HolderRow, HoldResult, Limit, LimitRow
from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.schedules.records import (
    DueSchedules,
    ScheduleRow,
    ScheduleRun,
    ScheduleSwap,
    SwapResult,
)
from mainspring.states import Action, State
from mainspring.stores.records import Document, MigrationPlan
from mainspring.worker.records import Beat, BeatResult, LeadResult, RescueResult, Turn, TurnResult, WorkerRow

TallyBy = Literal["queue", "task", "error"]

CHILDREN_AT_ONCE = 1_000
"""A join with more children resolves them in slices."""

MOST_RETRIED = 1_000
"""Jobs of one :meth:`Store.retry_flow`."""

NUMBERS_KEPT = 86_400_000_000
"""Microseconds for which the last number of a bucket is remembered."""


class NotProvided(RuntimeError):
    """An engine lacks a method of the contract."""


class Listener(Protocol):
    """Tells a worker that there may be work. Wake-ups can be lost, so a worker that listens polls as well."""

    @property
    def is_always_woken(self) -> bool:
        """Whether all that makes jobs ready wakes this listener, as long as no wake-up is lost. False while there is no
        connection for wake-ups."""
        ...

    async def wait(self, timeout: float) -> bool:
        """True when woken, False after ``timeout`` seconds. Wake-ups that came before the call count."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """The one interface between Mainspring and a database.

    A body raises instead of being empty, so that the door can inherit each method with its types: see
    ``stores/door.py``.
    """

    engine: str
    """``sqlite``, ``postgres`` or ``redis``."""
    url: str
    """For people: the password is masked."""

    # ---- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and check the store. Creates or migrates the schema where the engine does so by itself (SQLite).

        Raises ``SchemaOutdated`` for a schema that is newer than this code, and a sibling of ``StoreError`` that
        names the fix for a store that cannot keep the promises of the contract. Idempotent. After a fork, the child
        opens the store again and does not touch the handles of the parent.
        """
        raise NotProvided

    async def close(self) -> None:
        """Close all connections and files. Idempotent. Calls after it raise ``StoreUnavailable``."""
        raise NotProvided

    async def migrate(self) -> tuple[int, int]:
        """Run the missing numbered migrations, once, under a lock. Returns (version before, version after)."""
        raise NotProvided

    async def migration_plan(self) -> MigrationPlan:
        """What ``migrate`` would do. Changes nothing. The store need not be open and need not exist."""
        raise NotProvided

    async def durability(self) -> str:
        """The durability class of ``enqueue`` and acks, for example ``sqlite:full``."""
        raise NotProvided

    async def now(self) -> int:
        """The time of the store, in microseconds since 1970. A read: it writes nothing and waits for no writer."""
        raise NotProvided

    # ---- jobs ---------------------------------------------------------------------------------

    async def enqueue(self, batch: JobBatch) -> list[Enqueued]:
        """Insert all jobs of the batch, or none. The replies are in the order of the batch.

        *State.* A job is blocked while it waits for a parent, else scheduled if ``run_at`` or ``delay`` is later
        than the store's now, else ready. The seq of ready jobs follows the order of the batch.

        *Parents.* A parent that is final already is resolved at once by the policy of the edge (the child may be
        inserted as cancelled: parent). A parent that does not exist is a ``StoreConflict`` that names the parent. A
        parent may be another job of the same batch.

        *Repeats.* With ``retry`` the store inserts only ids that it does not have (live, finished, dead); the other
        jobs answer ``created=False``. Without ``retry``, an id that is live answers ``created=False`` too. A first try
        that arrives after a retry of its batch (the network delayed it) acts as a retry. So one batch id makes each job
        at most once, however often and in whatever order it is sent.

        *Unique keys, mode once.* A job whose key another job holds (also a job earlier in the batch) is not inserted.
        ``return`` answers with the id of the holder and ``created=False``. ``error`` raises ``KeyTaken``, which names
        the holder, and inserts nothing of the batch. ``replace`` cancels a waiting holder (superseded) and inserts the
        job, which takes over the key; it also takes over the key of a running or ended holder, which stays unchanged
        otherwise. With ``retry``, a job that is found by its own id answers for itself, whichever job holds the key
        now. ``KeyConflict`` refuses the batch if the holder of a key with ``keep`` has another ``print``.

        *Unique keys, other modes.* A job that replaces another job answers with the id of that job and
        ``created=False``. So do all jobs of a batch that share a key, except the first (if one of them is a repeat, all
        are). A repeat of the last enqueue that replaced a job changes nothing; a repeat of an enqueue that others have
        followed counts as a new enqueue. A job that is replaced in its queue is not new there: it needs no depth, is
        not skipped, and is not dropped for other jobs of the batch. A job that moves to another queue is new there: it
        needs depth, may be skipped, and has no position in the lane.

        *Modes of queues.* A job for a draining queue raises ``QueueDraining``, and a job for a queue that is disabled
        to reject raises ``QueueDisabled``; nothing of the batch is inserted. In a queue that is disabled to skip, new
        jobs are inserted and end in the same step as cancelled (skipped).

        *Depth.* Where new jobs would make a queue deeper than its ``max_depth``, ``drop_oldest`` ends as many waiting
        jobs as are too many, the first enqueued first and none of this batch, as cancelled (superseded) with a note
        that says why. With ``error`` and ``wait``, or if there are too few such jobs, it raises ``QueueFull`` and
        inserts nothing of the batch. The ``retry_after`` of the error is an estimate.

        Wakes the listeners of the queues concerned. Raises ``StoreFull`` before anything is lost, and ``StoreConflict``
        for a batch that is too large for the engine: 1,000 jobs and 8 MB fit in every engine.
        """
        raise NotProvided

    def enqueue_now(self, batch: JobBatch, connection: Any = None) -> list[Enqueued]:
        """:meth:`enqueue`, blocking, in the calling thread, without an event loop or a thread of the store.

        With ``connection`` it runs inside the open transaction of the caller: the jobs appear when the transaction
        commits, and never if it rolls back. A connection of another kind or to another database raises
        ``WrongConnection``.
        """
        raise NotProvided

    async def turn(self, turn: Turn) -> TurnResult:
        """Apply the acks of a worker and hand out jobs for its free slots, in one atomic step.

        1. *Worker.* A worker whose row is absent or marked lost gets ``lost=True``, and nothing is applied.
        2. *Acks.* The store compares each ack by (job, token, worker) with the running row. The ack is applied; or it
           is ``already`` (the same ack of the same owner was applied before); or it is ``stale`` (the job was rescued,
           claimed again or deleted: nothing changes). An ack that the store cannot keep because of its content is
           ``unstorable``: nothing changes for this ack, and the others are applied. A job with a cancel order ends as
           cancelled (by_user), whatever the ack says; the outcome is kept in its attempts. The row of the attempt,
           and of a job that ends by its ack, keep ``run_us`` as ``ran``. ``park`` moves the job to the lane that only
           a worker which registered the task claims. With ``buckets``, the job names these buckets
           from now on, beside the buckets that it names already: it is in their lane, at its old position (``seq``),
           and the capacity of rates that its claim used is given back. Nothing changes for a limit that the job names
           already. So buckets are added and never taken away: workers whose code disagrees on the limits of a task hand
           a job back at most once for each limit, and then the job obeys all of them.
        3. *Holds.* ``holds`` is compared with the running rows of this worker. ``gone`` names the leases that the
           worker no longer has (except those with an ack in the same turn).
        4. *Claims.* For each want in order: first the suspects' lanes while ``suspects`` allows, then the base lanes
           and the lanes beside them, merged by order key, and fair keys as described above. A job is passed over, and
           so are the jobs behind it in its lane, while a bucket that it names has no capacity for it. Expired jobs and
           jobs of a paused queue are never handed out. However many lanes have no capacity, lanes with capacity are
           found: in this turn, or in the next turns while the reply has ``more``. Each claimed job gets
           token = max(last token + 1, now in microseconds), this worker, the number of this turn, attempt + 1.
        5. *Orders.* ``orders`` names the running jobs of this worker that must be cancelled.

        The ``breakers`` of the turn are written as by :meth:`swap_breakers` before the claims, also in a repeat: then
        the number of the row shows whether the first try has written it.

        *Numbers.* A turn with the number of the last applied turn is a repeat: the acks that were applied
        answer ``already``, further acks are applied, and the claims of that number that still run under this worker are
        returned again, and no new ones. Rows that were
        claimed by a number above ``seen``, whose reply the worker never got, are returned again as well, in addition to
        the wants; the store may leave out rows that ``holds`` names. A number lower than the last is a
        ``StoreConflict``.

        *A full store* accepts acks and may give no claims: then the reply has ``full``. Where a full store cannot
        accept acks either, the turn raises ``StoreFull`` and its number is not used up.

        *Partial replies.* A store that gives fewer claims than wanted before it has looked at all waiting jobs sets
        ``more``. An engine behind a network hands out at most about 8 MB of records in a turn, but always one job: a
        slow network must carry the reply within the deadline of a call.
        """
        raise NotProvided

    async def promote(self, limit: int = 1000) -> PromoteResult:
        """Make up to ``limit`` scheduled and retrying jobs that are due ready, in the order of due; and end up to
        ``limit`` waiting jobs past their ``expires`` as cancelled (expired), which ``ended`` names.

        Up to ``limit`` children of large joins, and up to ``limit`` jobs of flows that were cancelled, are handled as
        described under Flows.

        Lanes that waited for a rate whose moment has come are rechecked by the next turns. ``next_due`` is no later
        than the next such moment. Wakes listeners.
        """
        raise NotProvided

    async def rescue(
        self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        """Take the jobs of a worker that is gone, if its beat number is still ``number``.

        Compare-and-set on (worker, beat number): if the worker has sent a beat since, nothing is taken. The row is
        locked and marked lost, then its running jobs move. From then on, the store answers beats, turns and reports
        of the worker with lost.

        ``LOST`` (the owner is silent): each job is ready again, its attempt is given back, no crash is charged.

        ``CRASHED`` (the owner is known to be dead): each attempt is given back and one crash is charged: to the jobs
        that crashed before and are no suspects, else to the suspects, else to all jobs. So a last crash is charged only
        where no other job is more likely to be the cause. A charged job is ready after ``delays[crashes - 1]`` (the
        last delay for every crash beyond; the job is retrying while that moment is ahead). The crash that reaches
        ``crash_limit`` makes the job dead (crashed) if the job was a suspect or ran alone, because only then is the
        cause of the crash certain. A job whose next crash would be its last is a suspect and goes to its suspects'
        lane. A job that is not charged is ready at once.

        In both cases a job with a cancel order is cancelled, and an ``early`` job is dead (crashed), because it began
        and must not begin again.

        A worker reports the crash of a job that ran alone in a process by ``Ack.crashed`` with a turn. Then the same
        happens to this one job, as if it were the only job of a worker that is known to be dead: by the ``delays`` of
        the ack, and dead by its ``reason``. The attempt has the error and the run time of the ack, and its owner stays.
        """
        raise NotProvided

    async def report(self, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
        """Store progress, log lines and stream items of running attempts. False for a lease that is not valid: nothing
        is stored for it.

        Guarded by a lock on the running row, so a rescue that commits in the meantime wins. The store keeps the
        newest 1,000 log lines of a job and numbers them from 1. An item is stored under its number in the stream of
        the job and replaces the item of an earlier attempt. A full store that accepts acks accepts reports too.
        """
        raise NotProvided

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> JobRows:
        """The jobs of a query, live and ended, newest id first. Page with ``cursor``.

        A page may have fewer jobs than ``limit``, or none, and still have a cursor: an engine that examines one job
        after another stops after some time.
        """
        raise NotProvided

    async def count(self, query: Query) -> dict[State, int]:
        """Exact numbers by state; every state is a key.

        One snapshot of any number of jobs, where the query has states, queues, tasks, reasons and errors. For ids,
        marks and times an engine may examine 5,000 jobs at a time: then each job is counted once, in a state that it
        had in the meantime.
        """
        raise NotProvided

    async def tally(self, query: Query, by: TallyBy) -> list[TallyRow]:
        """Exact numbers by value and state, in this order; only numbers above zero. Snapshots are as in :meth:`count`.

        For very many jobs, ``first`` and ``last`` may be those of the jobs enqueued first. ``error`` counts dead
        jobs only, by the type of the error they died of (``Ack.label``), or by their reason if there was no error.
        """
        raise NotProvided

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        """The ended attempts of a job, oldest first."""
        raise NotProvided

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        """The log lines of a job whose number is above ``after``, oldest first."""
        raise NotProvided

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        """The items of a job's stream with a number above ``after``, in the order of numbers, at most ``limit``."""
        raise NotProvided

    async def act(
        self,
        action: Action,
        query: Query,
        *,
        limit: int = 1000,
        reason: str = "",
        priority: int = 0,
        cursor: str | None = None,
    ) -> ActResult:
        """Do ``CANCEL``, ``RETRY``, ``RUN_NOW``, ``REPRIORITISE`` or ``DELETE`` to up to ``limit`` jobs of the query.

        An empty query is refused. The jobs are listed and then changed in slices: the step that changes a job checks
        it again, and leaves it alone if it no longer matches the query. The transition table decides: a job in
        another state is ``refused`` and unchanged.

        *Cancel* of a running job sets an order (and is ``done``).

        *Retry* makes the job ready in a new epoch (the first epoch is 1) with attempt 0 and crashes 0; its token
        continues. Its ``expires`` is removed. The job takes its unique key again, without a window (and
        without a ``keep`` if another job has had the key since). If another job holds the key, or is live under the key
        in another mode, the job is unchanged and ``held`` names both jobs. The progress and the stream of the job are
        deleted; its log lines and attempts remain.

        ``refused`` is filled for queries by id only: a filter finds only jobs that it can act on. ``more`` means that
        the slice or the time was full and another call may find more jobs; with the ``cursor`` of this reply, that call
        does not examine the same jobs again.
        """
        raise NotProvided

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        """Delete up to ``limit`` ended jobs past their retention, with everything that belongs to them. Returns how
        many.

        A job with a ``keep`` of its own is deleted when that time is over, and is not counted among the others. The
        others are deleted by age, or when ``keep_count`` (``keep_dead_count``) other jobs ended later, but never
        within ``keep_at_least`` after their end. A job whose unique window (or the ``keep`` of its key, or the
        window since its start) is not over stays.

        Fencing numbers of buckets that are older than ``NUMBERS_KEPT`` are deleted. Later numbers are larger still,
        because a number is at least the store's time in microseconds, unless the store's clock went back by as much.
        """
        raise NotProvided

    # ---- flows --------------------------------------------------------------------------------

    async def close_join(self, join: bytes) -> JoinRow | None:
        """No member is added from outside any more, and the join ends when its last member has ended: now, if all have.

        Idempotent; returns the row after that, None if there is no such join. Wakes listeners.
        """
        raise NotProvided

    async def joins(self, ids: Sequence[bytes]) -> list[JoinRow]:
        """The joins with these ids, live and ended, in the order asked for. Other ids are left out."""
        raise NotProvided

    async def waits_for(self, job: bytes, limit: int = 100) -> list[Edge]:
        """Up to ``limit`` unresolved edges of a blocked job, ordered by the ids of the parents."""
        raise NotProvided

    async def retry_flow(self, retries: Sequence[FlowRetry]) -> ActResult:
        """Let ended jobs of a flow wait or run again, with new edges between them: one atomic step.

        Each job that is dead or cancelled gets a new epoch, as by ``RETRY``, and the edges of its ``FlowRetry`` instead
        of older ones: it is blocked while it waits for a live parent, and an ended parent is resolved as by
        :meth:`enqueue`. The order of the list does not matter. A join that is retried is not open. It forgets the
        members that ended badly: its total is its members that ended well, and the jobs that name it in ``before``.
        ``before`` of a live join adds the job to it again, as to an open one.
        A job in another state is ``refused``, and a key that another job holds is in ``held``; they change nothing, and
        the others are retried. A job that does not exist is left out. Of a job that is named twice the first entry
        holds, and the job is reported once. A parent, named in ``after``, of a job that would be retried must exist:
        else ``StoreConflict`` names both, and nothing changes. A job in ``before`` that does not exist or does not wait
        is left out. At most ``MOST_RETRIED`` entries: ``StoreConflict``.
        """
        raise NotProvided

    # ---- fleet --------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[BeatResult]:
        """Increase the beat number of each worker.

        A worker that has no row or is marked lost gets ``alive=False``, unless it registers and has no row yet: then
        the row is made. A worker that has a row and registers again replaces its ``info`` and nothing else.
        """
        raise NotProvided

    async def lead(self, worker: str, services: Sequence[str], span: int) -> LeadResult:
        """Ask to lead these services of the fleet for ``span`` microseconds, and read when there is work for them.

        A service has one leader at most. A service without a leader, or whose leader has not called for its span, gets
        this worker as its leader. A call of the leader begins the span again. The retirement and the rescue of a worker
        end what it leads. After the clock was set back, a lead lasts ``span`` from the next call of its leader, and
        ends at once if another worker calls first.

        The call of a worker that leads nothing and gets nothing writes nothing. ``next_due`` is no later than the
        moment at which :meth:`promote` has something to do, and now if a promotion has left something to do. Schedules
        with ``look=ALWAYS_DUE`` do not count for ``next_look``, but for ``always_due``.
        """
        raise NotProvided

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        """End a worker. The worker itself calls it, or the supervisor that saw the whole process group of the worker
        end.

        ``acks`` (of jobs that are known to be the cause, for example by a timeout) are applied first. Then the other
        running jobs are taken back: ``INTERRUPTED`` gives every job back without a crash (but an ``early`` job,
        which began, is dead), ``CRASHED`` acts as in :meth:`rescue`. The row of the worker is deleted. A repeat
        changes nothing and returns ``taken=False``.
        """
        raise NotProvided

    async def workers(self) -> list[WorkerRow]:
        """The rows of all workers, including rows marked lost until they are pruned."""
        raise NotProvided

    async def notify(self, queues: Sequence[str]) -> None:
        """Wake the listeners of these queues. A wake-up can be lost."""
        raise NotProvided

    async def listen(self, worker: str, queues: Sequence[str]) -> Listener:
        """A listener that is woken when a job of these queues may have become ready."""
        raise NotProvided

    # ---- queues -------------------------------------------------------------------------------

    async def set_queue_mode(self, queues: Sequence[str], mode: QueueMode) -> None:
        """Set the mode of these queues for all workers and producers, from the next turn and the next enqueue on.

        Opening a queue wakes listeners. Idempotent.
        """
        raise NotProvided

    async def queues(self) -> list[QueueRow]:
        """The queues of which a setting or a mode is stored, by name."""
        raise NotProvided

    async def configure_queue(self, queue: str, settings: QueueSettings | None, *, declared: bool = False) -> None:
        """Store settings of a queue in place of those stored before; ``None`` deletes them.

        ``declared``: the settings come from code, and hold where no others were set. The next enqueue obeys. When
        this method returns, every waiting job counts for the depth of the queue.
        """
        raise NotProvided

    async def disable_queues(self, queues: Sequence[str], how: DisabledMode | None, by: str = "") -> None:
        """Disable queues: the next turn gets no job of them, and the next enqueue obeys ``how``.

        ``None`` enables the queues and wakes listeners. Independent of modes: a queue may be both paused and
        disabled. Idempotent: a repeat with the same ``how`` keeps the moment of the first call.
        """
        raise NotProvided

    # ---- limits -------------------------------------------------------------------------------

    async def declare_limits(self, limits: Sequence[Limit]) -> None:
        """Store these limits; the last declaration of a name holds. A size that was set in place of the declared size
        stays.

        Takes effect from the next claim on, also if more jobs run than the limit allows. Wakes listeners where a job
        may start now. Idempotent.
        """
        raise NotProvided

    async def set_limit_size(self, limit: str, size: int | None) -> bool:
        """Set a size in place of the declared size of the limit (0: nothing starts), or remove it with None.

        False if there is no such limit. Wakes listeners.
        """
        raise NotProvided

    async def limits(self) -> list[LimitRow]:
        """All limits, by name."""
        raise NotProvided

    async def forget_limit(self, limit: str) -> bool:
        """Delete the limit: its buckets let every job through. False if there was no such limit. Wakes listeners."""
        raise NotProvided

    async def buckets(self, buckets: Sequence[Bucket]) -> list[BucketRow]:
        """The size and use of these buckets, in the order asked for, by the same rules as a claim.

        Buckets of unknown limits are left out. ``next_at`` is for the cost given.
        """
        raise NotProvided

    async def hold(
        self,
        holder: bytes,
        buckets: Sequence[Bucket],
        ttl: int,
        limits: Sequence[Limit] = (),
        keep: int = 0,
        *,
        info: bytes = b"",
        fenced: bool = False,
    ) -> HoldResult:
        """Hold capacity outside of a claim: in all of the buckets, or in none. ``limits`` as in a batch.

        *Renewal.* A holder that has capacity already keeps it for ``ttl`` microseconds from now, never for less than
        it had, without another start. So a repeat is safe, and so is a renewal. Without buckets the call only
        renews: a holder without capacity gets none. Once its time is over, a holder holds nothing, and its id may be
        used again. ``info`` is stored beside new capacity, for people to read: opaque, some hundred bytes.

        *Reservation.* With ``keep``: if the holder lacks only capacity that a running job or another holder has to
        free, the next capacity there is reserved for holders, for this many microseconds from now. No job gets it, and
        it counts as used. So waiting jobs do not keep all holders out. Capacity that a holder releases while a
        reservation exists goes to the first that asks, and no second reservation is made there. So waiting holders do
        not keep all jobs out.

        *Fencing.* With ``fenced``, new capacity comes with a number, ``token``: max(the last number of these buckets +
        1, now in microseconds). So the numbers of a bucket grow for ever, also if the store has lost the last number. A
        renewal repeats its number. Another number means that the holder had lost its capacity in the meantime.
        """
        raise NotProvided

    async def release(self, holder: bytes, spent: Sequence[tuple[str, int]] = (), slow: int = 0) -> bool:
        """Free the capacity of the holder; ``spent`` and ``slow`` as in an ack. False if the holder held nothing."""
        raise NotProvided

    async def holders(self, of: Bucket | str, limit: int = 1000) -> list[HolderRow]:
        """Up to ``limit`` holders whose time is not over: of a bucket, or of every bucket whose name begins with a
        text.

        Ordered by the name of the bucket, then by the moment of the hold. An engine may examine 10,000 holders only.
        """
        raise NotProvided

    # ---- breakers -----------------------------------------------------------------------------

    async def swap_breakers(self, swaps: Sequence[BreakerSwap]) -> list[StoredBreaker]:
        """Exchange the row of each breaker whose number is still ``swap.expected``; only read it if ``swap.rev`` is 0.

        Returns the breakers after that, in the order asked for, each named once: a swap has been carried out if the row
        has its number. Breakers that are not declared are left out. A repeat whose first try arrived changes nothing.
        Wakes listeners where a breaker was opened or closed.
        """
        raise NotProvided

    # ---- schedules ----------------------------------------------------------------------------

    async def swap_schedule(self, swap: ScheduleSwap, batch: JobBatch | None = None) -> SwapResult:
        """Exchange the row of a schedule, if its number is still ``swap.rev``, and enqueue the batch, in one step.

        If the row has another number, or exists where none was expected, nothing changes: ``ok=False`` with the
        number of the row, and nothing is enqueued. The number is compared first. Nothing changes either if a run is
        to get a job and its occurrence has another job already (``taken``); a record without a job is overwritten.
        The new number is max(last + 1, now in microseconds), where last is the number of any schedule of this name,
        also of one that was deleted not long ago.

        The batch is enqueued as by :meth:`enqueue`. An error of the enqueue is raised here, with nothing changed. The
        store keeps the ``keep`` latest runs. A repeat whose first try arrived finds a newer number and changes nothing.

        Wakes the listeners of the queue ``""``: schedulers, which wait for a row that is due earlier.
        """
        raise NotProvided

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        """The schedules whose ``look`` is not later than now, the earliest first (``ALWAYS_DUE`` is the earliest of
        all), then by name. One read by an index.

        ``next_look`` is the ``look`` of the first schedule that is not among them: if ``limit`` cut the list, it is
        in the past.
        """
        raise NotProvided

    async def schedules(self, names: Sequence[str] = ()) -> list[ScheduleRow]:
        """These schedules, or all without names, by name. Unknown names are left out."""
        raise NotProvided

    async def schedule_runs(self, name: str, limit: int = 100, before: int | None = None) -> list[ScheduleRun]:
        """The runs of a schedule with an occurrence before that moment, the latest first."""
        raise NotProvided

    # ---- small documents ----------------------------------------------------------------------

    async def put_document(self, doc: Document) -> Document:
        """Store a versioned document unless a newer version is stored; returns the stored document."""
        raise NotProvided

    async def documents(self, kind: str) -> list[Document]:
        """All documents of a kind, by name."""
        raise NotProvided

    def documents_now(self, kind: str) -> list[Document]:
        """:meth:`documents`, blocking, in the calling thread, without an event loop or a thread of the store."""
        raise NotProvided


class Engine(Store, Protocol):
    """A store as an engine implements it, for the door to wrap."""

    def translate(self, error: Exception) -> Exception | None:
        """The ``StoreError`` that an error of the driver means; None for an error that is not of the driver."""
        ...
