"""The store contract. These docstrings are the specification; ``mainspring.testing.contract`` proves it.

Words. An *owner* is a worker that claimed a job; its *lease* is the worker's row. A token is
valid while it is the job's last token, the job is running, and the worker's row is not marked
lost. Every write of an owner is compared by (job, token, worker).

Rules for every method
- One call is one atomic step, except where it says that it works in slices.
- Repeating a call whose reply was lost is always safe: see each method for what the repeat says.
- Time is the store's. ``clock=`` of an engine's constructor replaces it in tests.
- Order is the store's: ``seq`` is given at each entry into ready.
- Only ``StoreUnavailable``, ``StoreConflict``, ``StoreFull`` and ``SchemaOutdated`` (and their
  siblings under ``StoreError`` at open) come out, and of ``enqueue`` ``KeyTaken``, ``KeyConflict``,
  ``QueueDraining``, ``QueueDisabled`` and ``QueueFull``.
- Lock order: worker, buckets and lanes, job rows by id, dependents, parts. Nothing is decided by a
  statement that started before its locks were held.

Limits. A job names buckets: it starts only while each has room. A bucket's size is that of its limit at
the moment of the claim, or what somebody set in its place. Room is decided under the bucket's lock. Concurrency is
counted from what runs, a job once however often it names a bucket, and from guests (:meth:`Store.hold`). A rate counts
starts at the moment of the claim, by the store's clock, whatever becomes of the attempt; moments may be taken to be
up to a thousandth of the window later than they were, never earlier; when the clock goes back they still count until
their window is over. A start that costs more than the size counts as the whole size. A bucket whose limit the
store does not know lets everything through. Jobs that wait for room are not touched: no attempt, no token, no write.
Whoever frees room in a bucket that held something back wakes the listeners of the queues concerned.

Breakers. A limit of kind ``breaker`` lets everything through while it is closed, nothing while it is open, and as
many *probes* at once as it has while it is half open: from the moment on at which its time is over. A job that was
claimed since that moment is a probe. An ack with a ``fault`` is a failure, a rescue or retirement of a worker that is
lost or crashed one for each breaker that its running jobs name. An ack that says succeeded is a success. Other ends
are neither.
Of a closed breaker failures are counted, each once. One that counts those in a row forgets them with a success, and
opens with the last that it may have. One that goes by a share opens with a failure that makes it too high;
of its successes it knows what turns tell (``Turn.good``), and a window is looked at in tenths. Of a half open one the
success of a probe closes it and its failure opens it again, whichever comes first; a probe that ends otherwise leaves
its place to another. The ends of jobs that were claimed before do not matter while it is open or half open. Within a
turn successes count before failures. A success of which a closed breaker has nothing to forget writes nothing for it.
Whatever opens or closes a breaker wakes the listeners of the queues in which something waits for it.

Fair keys. Jobs with a fair key stand in a lane for each key, and inside a queue and a priority those lanes are served
by virtual time: a claim puts its lane back by one over its weight, and a lane that appears begins one such step behind
the claim before it. So keys with a backlog get claims by their weights, whatever the order of arrival; one that had
nothing to do, or waited for room, has no credit for it, or that of one job. A key whose jobs are of several kinds (base
lanes, limits, weights) has a lane for each. Among others, jobs with a fair key stand at the place of the one whose turn
it is. By age they are like all jobs. A fair key is no limit: nobody waits for it while there is work for a free slot.

Leaving ``running`` by any door (ack, rescue, retire) frees the job's bucket holds. Entering a
final state by any door (ack, rescue, retire, cancel, expire, a parent's end) is one routine,
``finish``: the row moves to history with its last token and owner, its edges are resolved by
their policy, its bucket holds end, its unique key is let go once its window is over, and of its
``follows`` those for this state are enqueued. So nothing can leak and no dependent can be forgotten.

Unique keys. A key is held by one job: while that is live (a waiting job past its ``expires`` is
not: whoever asks for the key ends it as expired), and to the end of the window if there is one. It is
let go when both are over, or when the job is deleted. A window that is running keeps an ended job
from being pruned. With ``keep`` it is also held for that long after its job succeeded, which is kept as
long; whoever asks for it with another ``print`` is refused.

Modes of keys. In the other modes a job that has not been started stands for every enqueue under its key: the
newest replaces all that is said of it (record, queue, priority, limits, times, marks, follow-up jobs), and its id, the
moment of its enqueue, its dependents and, if it stays ready in its queue, its place in the line remain. One that was
claimed once is never changed: the next enqueue makes a second job. Two enqueues at once make one job with the
record of one of them. So the arguments of the last enqueue always run.
``debounce``: the job is due ``window`` after the last enqueue, but no later than ``max_wait`` after the first.
``throttle``: the job is due ``window`` after the last start of the one before it, the first at once.
``keep_last``: the job waits (blocked) until the one before it has ended in whatever way: never two run at once.
Such jobs have no parents. What remains of a key goes with the last job that took it.

Follow-up jobs. Inserted by ``finish``, whatever the mode of their queue; the last two bytes of the
id are the epoch of the job they follow, so each epoch has its own and a repeat makes no second one.
A follow-up has no unique key, no parents, no fair key, no limits but those of its queue, and is of no part.

Settings of queues. They are stored, so every producer obeys them, whatever it knows of the queue. *Depth* is how
many jobs of a queue wait: blocked, scheduled, retrying and ready ones, due and expired ones alike. After an enqueue no
queue with a ``max_depth`` that got a new job is deeper than that, however many producers there are. What was accepted
before is never refused, and counts all the same: retries, rescues, retries by hand, follow-up jobs, and batches that
say ``accepted``. So the depth may lie above ``max_depth``, and then nothing else gets in.
A job keeps the order that its queue had at its enqueue: one of ``lifo`` stands before all others of its priority at
each entry into ready (its ``seq`` falls instead of growing), one of ``fifo`` behind them. So a queue whose order was
changed hands out the jobs of both, those of ``lifo`` first. In the same way a job names the limits that its queue had
at its enqueue.

Schedules. A row for each, and a record for each of its occurrences that became something (:class:`ScheduleRun`).
Nothing here knows of rules and times of day: whoever looks at a row works out what comes next and exchanges it
(:meth:`Store.swap_schedule`). Only one of those who saw the same row can do that, so a decision is carried out once,
with the jobs that belong to it.

Parts. A job with the mark ``^@name`` is of the part of that name; it has one such mark at most. A part may wait for
others (:meth:`Store.set_dependencies`). Then a job of it is inserted as blocked until each of those has *succeeded
since the last start* of this part: the success of a job of the one is noted for the other. Once all is noted, the job
that was enqueued first of those that wait is released (ready, or scheduled if it is due later), and the notes are
taken away; and so is a job for which all is noted when it is enqueued, with nobody before it. A success is not noted
while the job that was released last waits and was not claimed since: its start is still to come, and will see that
success. Of a part that begins to wait for another nothing is noted yet. A job is released once: a retry, a rescue or
a retry by hand never waits for parts again. One with parents of its own waits for both, and is released from its part
while it still waits for those. What else ends a waiting job (cancel, expiry, delete) ends one that waits for parts
too, and it is no longer in anybody's way; one past its ``expires`` is neither released nor waited for any more, even
if nobody has ended it yet. A new job that ends in the step of its enqueue (skipped, or by a parent) takes no notes.
One that is replaced under its key goes on waiting in its place, or is not held back, as before. Linking a part anew
releases whom it no longer holds back. A job without such a mark that is handed back with a part (``Ack.part``) gets
the mark, and stands in the line of the part by its seq: ready again at its old place, or blocked, as if it had been
of the part when it was enqueued.

Attempts. A claim adds one to ``attempt``; an ack with ``refund``, a crash and a loss take it back.
An ``AttemptRow`` is kept under (job, token) for every ended attempt except a plain success,
whose facts stand in the history row itself; of each job at least the newest 100.
"""

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


class Listener(Protocol):
    """Hears that there may be work. May miss things: whoever listens polls as well."""

    async def wait(self, timeout: float) -> bool:
        """True when woken, False after ``timeout`` seconds. Wake-ups that came before the call count."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """The one seam between Mainspring and a database."""

    engine: str
    """``sqlite``, ``postgres`` or ``redis``."""
    url: str
    """For people: the password is masked."""

    # ---- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and check. Makes or migrates the schema where the engine does that by itself (SQLite).

        Raises ``SchemaOutdated`` for a schema that is newer than this code, and a sibling of
        ``StoreError`` that names the fix for a store that cannot keep the promises.
        Idempotent; after a fork the child opens anew and leaves the parent's handles alone.
        """
        ...

    async def close(self) -> None:
        """Let go of everything. Idempotent; calls after it raise ``StoreUnavailable``."""
        ...

    async def migrate(self) -> tuple[int, int]:
        """Run the missing numbered migrations, once, under a lock. Returns (version before, version after)."""
        ...

    async def migration_plan(self) -> MigrationPlan:
        """What ``migrate`` would do. Changes nothing, and needs no store that is open or there."""
        ...

    async def durability(self) -> str:
        """The class that ``enqueue`` and acks are held to, e.g. ``sqlite:full``."""
        ...

    # ---- jobs ---------------------------------------------------------------------------------

    async def enqueue(self, batch: Batch) -> list[Enqueued]:
        """Insert all jobs of the batch, or none; replies in the order of the batch.

        A job is blocked while it waits for a parent, else scheduled when ``run_at`` or ``delay``
        lies ahead of the store's now, else ready. The seq of ready jobs follows the batch's order.
        A parent that is final already is resolved at once by the edge's policy (the child may be
        born cancelled: parent); a parent that exists nowhere is a ``StoreConflict`` naming it.
        A parent may be another job of the same batch.

        With ``retry`` only ids that are in no place (live, finished, dead) are inserted, the rest
        say ``created=False``; without it an id that is live says ``created=False`` too. A first try
        that arrives after a retry of its batch (something on the way held it back) acts as a retry.
        So one batch id makes each job at most once, however often and in whatever order it is sent.

        A job with a ``unique`` key that another job holds (also one earlier in the batch) is not
        inserted: ``return`` answers with the holder's id and ``created=False``; ``error`` raises
        ``KeyTaken``, naming the holder, and nothing of the batch is inserted; ``replace`` cancels a
        waiting holder (superseded) and inserts the job, which takes the key over, as it does from
        a running or an ended holder, which is otherwise left alone. With ``retry`` a job that is
        found by its own id answers for itself, whoever holds its key now.
        ``KeyConflict`` refuses the batch if the holder of a key with ``keep`` has another ``print``.
        In the other modes a job that replaces one answers with its id and ``created=False``; so do all but the first
        of those in a batch that share a key (if one of them is a repeat, all are). A repeat of the last enqueue
        that replaced something changes nothing; one that others have come after counts as a new enqueue.
        In its queue a job that is replaced is not new: it needs no room, is not skipped, and is not dropped for others
        of the batch. One that goes to another queue is new there: it needs room, is skipped, has no place in the line.
        A job for a queue that is draining raises ``QueueDraining`` and nothing is inserted. So does one for a
        queue that is disabled to reject: ``QueueDisabled``. In a queue that is disabled to skip, new jobs are
        inserted and end in the same step as cancelled (skipped).

        Where new jobs would make a queue deeper than its ``max_depth``, ``drop_oldest`` ends as many as are too
        many, of those that wait there and are not of this batch, the first enqueued first, as cancelled (superseded)
        with a note that says why. With ``error`` and ``wait``, or if there are too few, it raises ``QueueFull`` and
        nothing of the batch is inserted. Its ``retry_after`` is a guess.

        Wakes listeners of the queues concerned. Raises ``StoreFull`` before anything is lost, and
        ``StoreConflict`` for a batch that is too large for the engine: 1,000 jobs and 8 MB fit everywhere.
        """
        ...

    def enqueue_now(self, batch: Batch, connection: Any = None) -> list[Enqueued]:
        """The same, blocking, in the calling thread, without a loop or a thread of our own.

        With ``connection`` it runs inside the caller's open transaction: the jobs appear when
        that commits and never if it rolls back. A connection of another kind or to another
        database is refused with ``WrongConnection``.
        """
        ...

    async def turn(self, turn: Turn) -> TurnResult:
        """Take what a worker finished, hand out work for its free slots: one atomic step.

        1. A worker whose row is absent or marked lost gets ``lost=True`` and nothing is applied.
        2. Each ack is compared by (job, token, worker) with the running row. It is applied; or it
           is ``already`` (the same owner's same ack was applied before); or it is ``stale``
           (rescued, re-claimed, deleted: nothing changes). An ack that the store cannot keep for
           its content's sake is ``unstorable``: nothing changes for it, the others are applied.
           A job with a cancel order ends as cancelled (by_user), whatever the ack says; the
           outcome is kept in its attempts.
           ``park`` moves the job to the lane that only a worker which registered the task claims.
           ``buckets`` are named by the job from now on, beside those that it names already: it stands in their lane,
           at the place in line that it had (``seq``), and what its claim used up of rates is given back. Of a limit
           that it names already nothing changes. So buckets are added and never taken away, and workers whose code
           disagrees on the limits of a task hand a job back once for each limit at most; then it obeys all of them.
        3. ``holds`` is compared with the running rows of this worker; ``gone`` names what is not
           there any more (acks of the same turn excepted).
        4. Claims: for each want in turn, the suspects' lanes first while ``suspects`` allows, then
           the base lanes and the lanes beside them, merged by (priority descending, seq), the first
           ``oldest`` by seq alone, and those with fair keys as said above. A job is passed over, and those of its
           lane behind it, while a bucket that it names has no room for it. Expired jobs are never handed out, nor
           jobs of a paused queue.
           However many lanes have no room, those that have are found: in this turn, or in the next ones
           while the reply says ``more``.
           Each claimed job gets token = max(last token + 1, now in microseconds), this worker,
           this turn's number, attempt + 1.
        5. ``orders`` names the running jobs of this worker that must be cancelled.

        Numbers: a turn with the number of the last turn applied is a repeat: acks answer
        ``already``, and the claims of that number that still run under this worker come again,
        nothing new. Rows claimed by a number above ``seen`` that the worker never heard of come
        again as well, beside what is wanted; those that ``holds`` names need not. A number lower than the
        last is a ``StoreConflict``.

        A full store takes acks and may give no claims: then the reply says ``full``. Where even acks find
        no room the turn raises ``StoreFull`` and its number is not used up.
        A store that gives fewer than were wanted before it has looked at all that waits says ``more``.
        An engine behind a wire hands out at most about 8 MB of records in a turn, but always one job: a
        slow wire must carry the reply in the time of a call.
        """
        ...

    async def promote(self, limit: int = 1000) -> PromoteResult:
        """Up to ``limit`` scheduled and retrying jobs that are due become ready (in order of due);
        up to ``limit`` waiting jobs past their ``expires`` become cancelled (expired), ``ended`` naming them.
        Lanes that waited for a rate whose moment has come are looked at again by the next turns; ``next_due`` is no
        later than the next such moment. Wakes listeners."""
        ...

    async def rescue(
        self, worker: str, number: int, cause: Outcome, delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        """Take the jobs of a worker that is gone, if its beat number is still ``number``.

        Compare-and-set on (worker, beat number): a beat that came first wins and nothing is taken.
        The row is locked and marked lost, then its running jobs move; from then on the worker's
        beats, turns and reports are answered lost.

        ``LOST`` (the owner is silent): ready again, attempt given back, no blame.
        ``CRASHED`` (the owner is known dead): attempt given back and one crash charged: to those
        that crashed before and are no suspects, else to the suspects, else to all: a last crash
        is charged only where nobody else is likelier. A charged job is ready after
        ``delays[crashes - 1]``, the last of them for every crash beyond (retrying while that lies
        ahead); the crash that reaches ``crash_limit`` makes it dead (crashed) if it was a suspect
        or ran alone, for only then is it known whose crash it was. A job whose next
        crash would be its last is a suspect and goes to its suspects' lane. An uncharged one is
        ready at once.
        Either way: a job with a cancel order is cancelled; an ``early`` job is dead (crashed),
        for it began and must not begin again.
        """
        ...

    async def report(self, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
        """Store progress, log lines and stream items of running attempts. False where the lease is not good:
        nothing stored.

        Guarded by a lock on the running row, so a rescue that commits meanwhile wins.
        At most 1,000 log lines are kept per job, the newest; they are numbered on from 1.
        An item takes its place in the job's stream; what an earlier attempt put there is replaced.
        A full store that takes acks takes reports too.
        """
        ...

    async def find(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> JobRows:
        """The jobs of a query, live and ended, newest id first; page by ``cursor``.

        A page may be short, or empty, though there is a cursor: an engine that looks at job after job
        stops in time.
        """
        ...

    async def count(self, query: Query) -> dict[State, int]:
        """Exact numbers by state; every state is a key. In one snapshot, of any number of jobs, where the query
        asks for states, queues, tasks, reasons and errors. By ids, marks and times an engine may look at 5,000
        at a time: then each job is counted once, in a state that it had meanwhile."""
        ...

    async def tally(self, query: Query, by: TallyBy) -> list[TallyRow]:
        """Exact numbers by a value and state, by value and state; only what is above zero. Snapshots are as in
        :meth:`count`. Of very many jobs, ``first`` and ``last`` may be those of the ones enqueued first.

        ``error`` counts dead jobs only, by the type of the error they died of (``Ack.label``), or by
        their reason where there was none.
        """
        ...

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        """The ended attempts of a job, oldest first."""
        ...

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        """The log lines of a job whose number is above ``after``, oldest first."""
        ...

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        """The items of a job's stream at places above ``after``, in order of place, at most ``limit``."""
        ...

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

        An empty query is refused. Jobs are listed, then changed in slices: each is looked at again in
        the step that changes it, and left alone if it is no longer one of the query.
        Works as the transition table says; a job in another state is ``refused`` and unchanged.
        Cancel of a running job sets an order (and is ``done``).
        Retry makes the job ready in a new epoch (the first is 1), attempt 0, crashes 0, its token
        going on; an ``expires`` that has passed is dropped. It takes its unique key again, without a
        window (nor a ``keep`` if another job has had the key since); if another job holds that, or is live under it
        in another mode, the job is unchanged and ``held`` names both.
        Its progress and stream are gone, its log lines and attempts stay.
        ``refused`` is said for queries by id only: a filter finds what it can act on.
        ``more`` says that the slice was full, or that the time was, and another call may find more: with
        the ``cursor`` of this one it need not look again at what was looked at.
        """
        ...

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        """Delete up to ``limit`` ended jobs past their retention, with all that is kept of them. Returns how many.

        A job with a ``keep`` of its own goes by that alone, once it is over, and is not counted.
        The others go by age, or when ``keep_count`` (``keep_dead_count``) others ended later, but
        none that ended within ``keep_at_least``. One whose unique window (or the ``keep`` of its key, or the
        window since its start) is running stays.
        Numbers of guests that are ``NUMBERS_KEPT`` old are forgotten: those that come are larger, for they are the
        store's microseconds at least, unless its clock went back by as much.
        """
        ...

    # ---- fleet --------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> list[BeatResult]:
        """Count up each worker's beat number. A worker without a row or marked lost is ``alive=False``,
        unless it registers and has no row yet: then the row is made. One that has a row and registers
        again replaces its ``info``, and nothing else."""
        ...

    async def retire(
        self, worker: str, cause: Outcome, acks: Sequence[Ack] = (), delays: Sequence[int] = CRASH_DELAYS
    ) -> RescueResult:
        """The worker is over, said by itself or by the supervisor that saw its whole process group end.

        ``acks`` (of jobs known to be guilty, say by timing out) are applied first, then what is
        left is taken back: ``INTERRUPTED`` gives every job back without blame (but an ``early`` one,
        which began, is dead), ``CRASHED`` as in :meth:`rescue`. The row goes. Repeating it changes
        nothing and says ``taken=False``.
        """
        ...

    async def workers(self) -> list[WorkerRow]:
        """The fleet, with rows marked lost until they are pruned."""
        ...

    async def notify(self, queues: Sequence[str]) -> None:
        """Wake listeners of these queues. May be lost."""
        ...

    async def listen(self, worker: str, queues: Sequence[str]) -> Listener:
        """Be woken when a job of these queues may have become ready."""
        ...

    # ---- queues -------------------------------------------------------------------------------

    async def set_queue_mode(self, queues: Sequence[str], mode: QueueMode) -> None:
        """Set what these queues do from now on, for the whole fleet: the next turn and the next enqueue obey.
        Opening wakes listeners. Idempotent."""
        ...

    async def queues(self) -> list[QueueRow]:
        """The queues of which something is stored, by name."""
        ...

    async def configure_queue(self, queue: str, settings: QueueSettings | None, *, declared: bool = False) -> None:
        """Store settings of a queue in place of those given before; ``None`` takes them back. ``declared``: those that
        code declares, which hold where nothing was given. The next enqueue obeys; when this returns, all that
        waits counts for its depth."""
        ...

    async def disable_queues(self, queues: Sequence[str], how: DisabledMode | None, by: str = "") -> None:
        """Switch queues off: the next turn gets nothing of them, the next enqueue does as ``how`` says. ``None``
        switches them on and wakes listeners. Modes are another matter: a queue may be both paused and disabled.
        Idempotent: said again in the same way it stands since the first time."""
        ...

    # ---- limits -------------------------------------------------------------------------------

    async def declare_limits(self, limits: Sequence[Limit]) -> None:
        """Store these limits; the last declaration of a name stands. What somebody set in place of a size stays.
        Holds from the next claim on, also below what runs. Wakes listeners where something may start. Idempotent."""
        ...

    async def set_limit_size(self, limit: str, size: int | None) -> bool:
        """Set what the limit lets through in place of its declared size (0: nothing), or with None take that back.
        False if there is no such limit. Wakes listeners."""
        ...

    async def limits(self) -> list[LimitRow]:
        """All limits, by name."""
        ...

    async def forget_limit(self, limit: str) -> bool:
        """The limit is there no more: its buckets let everything through. False if there was none. Wakes listeners."""
        ...

    async def buckets(self, buckets: Sequence[Bucket]) -> list[BucketRow]:
        """How these buckets stand, in the order asked for, by the very rules of the claim; unknown limits are left out.
        ``next_at`` is for the cost given."""
        ...

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
        """Places outside of a claim: room in all of the buckets, or in none. ``limits`` as in a batch.

        A guest that has places already keeps them for ``ttl`` microseconds from now, never for less than it had,
        without another start: so a repeat is safe, and so is renewing. Without buckets it only renews: who has no
        places gets none. Once its time is over a guest holds nothing, and its id may be used again.
        ``info`` is kept beside new places, for whoever looks: opaque, some hundred bytes.

        With ``keep``: if all that it lacks are places where something has to end, the next one there is kept for
        guests, for so many microseconds from now: no job gets it, and it counts as used. So jobs that wait do not keep
        all guests out. A place that a guest gives back while one is kept is for whoever is first, and for a second none
        is kept there: so guests that wait do not keep all jobs out.

        With ``fenced`` new places come with a number, ``token``: max(the last number of these buckets + 1, now in
        microseconds). So the numbers of a bucket grow for ever, also when the store has lost the last of them. A
        renewal repeats its number: another one says that the guest had lost its places in between, whoever wanted
        them.
        """
        ...

    async def release(self, holder: bytes, spent: Sequence[tuple[str, int]] = (), slow: int = 0) -> bool:
        """The guest's places are free again; ``spent`` and ``slow`` as in an ack. False if it held none any more."""
        ...

    async def holders(self, of: Bucket | str, limit: int = 1000) -> list[HolderRow]:
        """Up to ``limit`` guests whose time is not over: those of a bucket, or of every bucket whose name begins with a
        text. By the name of their bucket, then by when they came. An engine may look at 10,000 guests only."""
        ...

    # ---- breakers -----------------------------------------------------------------------------

    async def trip_breaker(self, breaker: str, span: int | None) -> bool:
        """Open the breaker for ``span`` microseconds from now, with None until it is reset; whatever it was before.
        Nothing is claimed after that was confirmed. False if there is no such breaker."""
        ...

    async def reset_breaker(self, breaker: str) -> bool:
        """Close the breaker and forget its failures. False if there is no such breaker. Wakes listeners."""
        ...

    async def report_breaker(self, breaker: str, started: int, good: int = 0, fault: str = "") -> BreakerRow | None:
        """What came of work that no job did and that began at ``started``: so many successes, and after
        them perhaps a failure.

        Counts as the ends of jobs do, but here ``good`` is all that a breaker hears of successes. Returns the breaker
        if that has opened or closed it. A breaker that there is not hears nothing. A repeat counts again.
        """
        ...

    # ---- schedules ----------------------------------------------------------------------------

    async def swap_schedule(self, swap: ScheduleSwap, batch: Batch | None = None) -> SwapResult:
        """Exchange the row of a schedule, if it has the number ``swap.rev``, and enqueue the batch: one step.

        A row with another number, or one where none was expected, is left alone: ``ok=False``, with the number that
        it has, and nothing is enqueued. That is compared first. So is the whole step if a run is to get a job whose
        occurrence has another job already (``taken``); a record without a job is written over. The new number is
        max(last + 1, now in microseconds), where last is that of any schedule of this name, also of one that went not
        long ago.
        The batch is enqueued as by :meth:`enqueue`, and what that raises comes out here, with nothing changed.
        Of the runs the ``keep`` latest stay.

        A repeat whose first try arrived finds a newer number and changes nothing.
        Wakes those who listen to the queue ``""``: schedulers, which wait for a row that is to be looked at earlier.
        """
        ...

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        """The schedules whose ``look`` is not later than now, the earliest first, then by name. One read by an index.
        ``next_look`` is that of the first that is not among them: if there were too many, it lies behind us."""
        ...

    async def schedules(self, names: Sequence[str] = ()) -> list[ScheduleRow]:
        """These schedules, without names all, by name; those that are not there are left out."""
        ...

    async def schedule_runs(self, name: str, limit: int = 100, before: int | None = None) -> list[ScheduleRun]:
        """What became of the occurrences of a schedule before that moment, the latest first."""
        ...

    async def set_dependencies(self, links: Sequence[ScheduleDependency]) -> None:
        """Say what these parts wait for from now on, in place of what was said before. What was noted of a part that
        it waited for before stays noted. Those that wait for nobody any more are released, all of them in the order
        of their enqueue, and nothing is kept of such a part. Wakes listeners. Idempotent."""
        ...

    async def dependencies(self) -> list[ScheduleDependencyRow]:
        """All parts that wait for others, by name."""
        ...

    # ---- small documents ----------------------------------------------------------------------

    async def put_document(self, doc: Document) -> Document:
        """Store a versioned document unless a newer version is there; returns the one that stands."""
        ...

    async def documents(self, kind: str) -> list[Document]:
        """All documents of a kind, by name."""
        ...


class Engine(Store, Protocol):
    """A store as an engine implements it, for the door to wrap."""

    def translate(self, error: Exception) -> Exception | None:
        """The ``StoreError`` that a driver's error means; None for what is not the driver's."""
        ...
