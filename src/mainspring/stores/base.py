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
- The store decides the order: a job gets its ``seq`` at each entry into ready.
- A method raises only ``StoreUnavailable``, ``StoreConflict``, ``StoreFull`` and ``SchemaOutdated`` (and their siblings
  under ``StoreError`` when the store is opened). ``enqueue`` also raises ``KeyTaken``, ``KeyConflict``,
  ``QueueDraining``, ``QueueDisabled`` and ``QueueFull``.
- The order of locks is: worker, buckets and lanes, job rows by id, dependents, schedule dependencies. A statement that
  started before its locks were held decides nothing.

Ends of attempts and jobs
-------------------------
*Attempts.* A claim adds one to ``attempt``. An ack with ``refund``, a crash and a loss subtract one. The store keeps an
``AttemptRow`` under (job, token) for every ended attempt except a plain success, whose facts are in the history row of
the job. The store keeps at least the newest 100 attempts of each job.

*Leaving running.* An ack, a rescue or a retirement ends the job's use of its buckets.

*Final states.* Every way into a final state (ack, rescue, retire, cancel, expire, the end of a parent) is one routine,
``finish``: the row moves to history with its last token and owner; its edges are resolved by their policy; its use of
buckets ends; its unique key is released once the window of the key is over; and its follow-up jobs for this state are
enqueued. So no capacity can leak and no dependent job can be forgotten.

*Follow-up jobs* (``NewJob.follows``). ``finish`` inserts them, whatever the mode of their queue. The last two bytes of
the id are the epoch of the ended job, so each epoch has its own follow-up jobs and a repeat makes no second one. A
follow-up job may have follow-up jobs (``MOST_FOLLOW_UPS`` of one job in all): they are stored beside it when it is
inserted, name it in place of ``ENDED_JOB`` in their records and marks, and their ids are mixed with its id. A follow-up
job has no unique key, no parents, no fair key, no limits except those of its queue, and is no run of a schedule. The
enqueue of a job refuses (``StoreConflict``) a follow-up job that a store could not insert later, because
that would keep the job from ending. The limits are the same in every engine: see ``stores/shared/follow_ups.py``.

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

*Plentiful and scarce.* See :data:`mainspring.limits.records.PLENTIFUL`.

Breakers
--------
A breaker is a limit of kind ``breaker``. While it is *closed*, it lets every job through. While it is *open*, it lets
none through. When its time is over, it is *half open*: it lets ``size`` jobs at once through as *probes*. A job that
was claimed since that moment is a probe.

- An ack with a ``fault`` is a failure. A rescue or retirement of a worker that is lost or crashed is one failure for
  each breaker that the worker's running jobs name. An ack with the outcome succeeded is a success. Other ends are
  neither.
- A closed breaker counts failures, each once. A breaker that counts failures in a row forgets them after a success, and
  opens at the ``burst``-th failure. A breaker with a ``share`` opens at a failure that makes the share too high. It
  learns of successes from ``Turn.good`` only, and counts its window in tenths.
- The success of a probe closes a half open breaker, and the failure of a probe opens it again, whichever comes first. A
  probe that ends in another way leaves its capacity to another probe.
- While a breaker is open or half open, the ends of jobs that were claimed before do not matter.
- Within one turn, successes count before failures. A success that a closed breaker has no failure to forget for writes
  nothing for that breaker.
- A call that opens or closes a breaker wakes the listeners of the queues in which a job waits for the breaker.

Fair keys
---------
The jobs of each fair key are in a lane of their own. Inside a queue and a priority, these lanes are served by virtual
time: a claim moves its lane back by ``1 / weight``, and a new lane begins one such step behind the claim before it. So
keys with a backlog get claims in proportion to their weights, whatever the order of arrival. A key that had no jobs, or
whose jobs waited for capacity, has no credit for that time, or the credit of one job. A key whose jobs differ in base
lane, limits or weight has one lane for each combination.

Among jobs without a fair key, the jobs with fair keys have the position of the fair job that is next. Claims by age
(``Want.oldest``) treat jobs with and without a fair key alike. A fair key is no limit: no job waits because of it while
a slot is free.

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
queue whose order was changed hands out the jobs of both orders, the ``lifo`` jobs first. In the same way a job names
the limits that its queue had when the job was enqueued.

*Modes*: see :class:`~mainspring.queues.records.QueueMode` and :class:`~mainspring.queues.records.DisabledMode`.

Schedules
---------
The store has one row for each schedule, and a record for each occurrence that was decided (:class:`ScheduleRun`). The
store knows nothing of rules and times of day. A scheduler reads a row, computes the next row and exchanges it
(:meth:`Store.swap_schedule`). Of several schedulers that read the same row only one can exchange it, so each decision
is carried out once, together with its jobs.

Dependencies of schedules
-------------------------
A job with the mark ``^@name`` is a run of the schedule ``name``. A job has at most one such mark. A schedule may depend
on other schedules (:meth:`Store.set_dependencies`). Then its jobs are inserted as blocked until each of these schedules
has *succeeded since the last start* of this schedule:

- The success of a run of a schedule is recorded for each schedule that depends on it. When all successes are recorded,
  the job of the schedule that was enqueued first and still waits is released (ready, or scheduled if it is due later),
  and the recorded successes are deleted. A job for which all successes are recorded at its enqueue, with no job waiting
  before it, is released at once, with the same effect.
- A success is not recorded while the job that was released last waits and has not been claimed since its release: that
  job has not started yet, so it will see the success.
- When a schedule gets a new dependency, no success of that dependency is recorded yet.
- A job is released once: a retry, a rescue or a retry by hand never waits for dependencies again.
- A job with parents waits for both, and may be released from its dependencies while it still waits for its parents.
- Cancel, expiry and delete end a job that waits for dependencies like any waiting job; then it no longer holds back
  other jobs of the schedule. A job past its ``expires`` is neither released nor waited for, even if no call has ended
  it yet.
- A new job that ends in the step of its enqueue (skipped, or because of a parent) does not use the recorded successes.
- A job that is replaced under its key keeps waiting in its position, or stays released, as before.
- Setting the dependencies of a schedule again releases the jobs that no longer have to wait.
- A job without such a mark that is handed back with the name of a schedule (``Ack.part``) gets the mark and takes the
  position of its ``seq`` among the jobs of the schedule: ready again at its old position, or blocked, as if it had been
  a run of the schedule when it was enqueued.
"""

# The methods have no bodies, so no method uses its arguments:
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from mainspring.breakers.records import BreakerRow
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import (
    ActResult,
    AttemptReport,
    AttemptRow,
    Batch,
    Enqueued,
    JobRows,
    LogLine,
    PromoteResult,
    Retention,
    TallyRow,
)
from mainspring.limits.records import Bucket, BucketRow, HolderRow, HoldResult, Limit, LimitRow
from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.schedules.records import (
    DueSchedules,
    ScheduleDependency,
    ScheduleDependencyRow,
    ScheduleRow,
    ScheduleRun,
    ScheduleSwap,
    SwapResult,
)
from mainspring.states import Action, State
from mainspring.stores.records import Document, MigrationPlan
from mainspring.worker.records import Beat, BeatResult, RescueResult, Turn, TurnResult, WorkerRow

TallyBy = Literal["queue", "task", "error"]

CRASH_DELAYS = (0, 5_000_000, 20_000_000, 80_000_000, 320_000_000, 600_000_000)
"""Microseconds before the next try after the 1st, 2nd, ... crash: at once first, then with backoff."""

NUMBERS_KEPT = 86_400_000_000
"""Microseconds for which the last number of a bucket is remembered."""


class NotProvided(RuntimeError):
    """An engine lacks a method of the contract."""


class Listener(Protocol):
    """Tells a worker that there may be work. Wake-ups can be lost, so a worker that listens polls as well."""

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

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
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

    def enqueue_now(self, batch: Batch, connection: Any = None) -> list[Enqueued]:
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
           cancelled (by_user), whatever the ack says; the outcome is kept in its attempts. ``park`` moves the job to
           the lane that only a worker which registered the task claims. With ``buckets``, the job names these buckets
           from now on, beside the buckets that it names already: it is in their lane, at its old position (``seq``),
           and the capacity of rates that its claim used is given back. Nothing changes for a limit that the job names
           already. So buckets are added and never taken away: workers whose code disagrees on the limits of a task hand
           a job back at most once for each limit, and then the job obeys all of them.
        3. *Holds.* ``holds`` is compared with the running rows of this worker. ``gone`` names the leases that the
           worker no longer has (except those with an ack in the same turn).
        4. *Claims.* For each want in order: first the suspects' lanes while ``suspects`` allows, then the base lanes
           and the lanes beside them, merged by (priority descending, seq), the first ``oldest`` claims by seq alone,
           and fair keys as described above. A job is passed over, and so are the jobs behind it in its lane, while a
           bucket that it names has no capacity for it. Expired jobs and jobs of a paused queue are never handed out.
           However many lanes have no capacity, lanes with capacity are found: in this turn, or in the next turns while
           the reply has ``more``. Each claimed job gets token = max(last token + 1, now in microseconds), this worker,
           the number of this turn, attempt + 1.
        5. *Orders.* ``orders`` names the running jobs of this worker that must be cancelled.

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
        continues. An ``expires`` that has passed is removed. The job takes its unique key again, without a window (and
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

    # ---- fleet --------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[BeatResult]:
        """Increase the beat number of each worker.

        A worker that has no row or is marked lost gets ``alive=False``, unless it registers and has no row yet: then
        the row is made. A worker that has a row and registers again replaces its ``info`` and nothing else.
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

    async def trip_breaker(self, breaker: str, span: int | None) -> bool:
        """Open the breaker for ``span`` microseconds from now, or with None until it is reset, whatever its state was.

        After this call returns, no job is claimed through the breaker. False if there is no such breaker.
        """
        raise NotProvided

    async def reset_breaker(self, breaker: str) -> bool:
        """Close the breaker and forget its failures. False if there is no such breaker. Wakes listeners."""
        raise NotProvided

    async def report_breaker(self, breaker: str, started: int, good: int = 0, fault: str = "") -> BreakerRow | None:
        """Report the result of work that no job did and that began at ``started``: ``good`` successes, then perhaps a
        failure (``fault``).

        Counts like the ends of jobs, but ``good`` is all that the breaker learns of successes. Returns the breaker
        if this call has opened or closed it. A report for an unknown breaker does nothing. A repeat counts again.
        """
        raise NotProvided

    # ---- schedules ----------------------------------------------------------------------------

    async def swap_schedule(self, swap: ScheduleSwap, batch: Batch | None = None) -> SwapResult:
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
        """The schedules whose ``look`` is not later than now, the earliest first, then by name. One read by an index.

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

    async def set_dependencies(self, links: Sequence[ScheduleDependency]) -> None:
        """Set the dependencies of these schedules, in place of those before.

        A success that is recorded for a dependency that remains stays recorded. The jobs of a schedule that depends
        on no other any more are released, all of them in the order of their enqueue, and the store keeps nothing of
        such a schedule. Wakes listeners. Idempotent.
        """
        raise NotProvided

    async def dependencies(self) -> list[ScheduleDependencyRow]:
        """All schedules that depend on others, by name."""
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
