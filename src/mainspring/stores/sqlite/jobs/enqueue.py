"""Insert a batch: all of it or nothing, each job at most once.

Plain jobs (no parents, no unique key, no stored queue) are inserted in bulk. So are the jobs of a flow, and then their
edges. All other batches are inserted job by job, and then the depth of their queues is checked.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mainspring.common.ids import id_text
from mainspring.errors import FlowClosed, StoreConflict
from mainspring.jobs.records import Enqueued, NewJob
from mainspring.queues.records import DisabledMode, QueueSettings
from mainspring.states import LIVE, Reason, State
from mainspring.stores.shared import plain
from mainspring.stores.shared.constants import EDGE_FAIL
from mainspring.stores.shared.depth import dropped_note, queue_full, skipped_note
from mainspring.stores.shared.folding import folded, unfolded
from mainspring.stores.sqlite.driver.constants import EDGE_MEMBER, FLAG_HAS_CHILDREN, FLAG_JOIN
from mainspring.stores.sqlite.driver.statements import sizes
from mainspring.stores.sqlite.lanes import READY, add_lanes, enter_ready, placement_of
from mainspring.stores.sqlite.limits import add_limits
from mainspring.stores.sqlite.queues import StoredQueue, admit, declare_queues, seq_in_queue, stored_queues
from mainspring.stores.sqlite.rows import add_marks_and_keeps, due_of, job_exists, row_of, shared_of

from .finish import EndedParent, Verdict, finish_waiting, settle_join
from .follow_ups import add_follow_ups
from .keys import take_key, take_key_with_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from mainspring.jobs.records import Edge, FlowRetry, JobBatch
    from mainspring.stores.sqlite.driver.transaction import Row, Tx

_fits_bulk = plain.only(
    "id", "task", "queue", "kind", "priority", "delay", "run_at", "expires_in", "crashes", "early", "record", "buckets",
    "fair", "marks", "keep", "follows",
)  # fmt: skip

_fits_alike = plain.only(
    "id", "task", "queue", "kind", "priority", "delay", "run_at", "expires_in", "crashes", "early", "record"
)


def enqueue(tx: Tx, batch: JobBatch) -> list[Enqueued]:
    jobs = batch.jobs
    if not jobs:
        return []
    seq = tx.next_seq(len(jobs))  # a write first: a caller's transaction that began with a read could be too old for it
    if batch.limits:
        add_limits(tx, batch.limits)
    if batch.queues:
        declare_queues(tx, batch.queues)
    stored = stored_queues(tx)
    repeat = batch.retry or tx.first("batch_was_retried", (batch.id,)) is not None
    if not repeat and _are_plain(jobs, stored) and _insert_plain(tx, jobs, seq):
        return [Enqueued(job.id, True) for job in jobs]
    with tx.savepoint("batch"):
        if batch.retry:
            tx.run("add_retried_batch", (batch.id, tx.now))
        if not repeat and _insert_flow(tx, batch, seq, stored):
            return [Enqueued(job.id, True) for job in jobs]
        replies, new, replaced = _insert_each(tx, batch, seq, stored, repeat=repeat)
        if stored:
            _apply_depth(tx, new, replaced, accepted=batch.accepted)
        return unfolded(jobs, replies)


# ---- plain jobs --------------------------------------------------------------------------------------------


def _are_plain(jobs: Sequence[NewJob], stored: dict[str, StoredQueue]) -> bool:
    if stored and any(job.queue in stored for job in jobs):
        return False
    return all(map(_fits_bulk, jobs))


def _insert_plain(tx: Tx, jobs: Sequence[NewJob], seq: int) -> bool:
    """Insert plain jobs in bulk. False, and nothing changed, if one of them existed already."""
    now = tx.now
    if len(jobs) > 1 and _fits_alike(jobs[0]) and plain.are_alike(jobs):
        return _insert_alike(tx, jobs, seq)
    rows = [row_of(job, seq + n, now) for n, job in enumerate(jobs)]
    inserted = tx.sized("enqueue", 1, rows[0]).rowcount == 1 if len(rows) == 1 else _insert_rows(tx, rows)
    if inserted:
        tx.woken.update(row[2] for row in rows if row[1] is READY)
        more = [job for job in jobs if job.marks or job.follows or job.buckets or job.fair or job.keep is not None]
        if more:
            add_marks_and_keeps(tx, more)
            add_follow_ups(tx, more)
            add_lanes(tx, rows)
    return inserted


def _insert_alike(tx: Tx, jobs: Sequence[NewJob], seq: int) -> bool:
    """As ``_insert_plain``, for jobs that differ only in their ids and records."""
    first = row_of(jobs[0], seq, tx.now)
    shared = shared_of(first)

    def values(start: int, end: int) -> list[Any]:
        own: list[Any] = [*shared]
        for place, job in enumerate(jobs[start:end], seq + start):
            own += (job.id, place, job.record)
        return own

    inserted = _insert_slices(tx, "enqueue_alike", len(jobs), values)
    if inserted and first[1] is READY:
        tx.woken.add(first[2])
    return inserted


def _insert_rows(tx: Tx, rows: list[Row]) -> bool:
    def values(start: int, end: int) -> list[Any]:
        return [value for row in rows[start:end] for value in row]

    return _insert_slices(tx, "enqueue", len(rows), values)


def _insert_slices(tx: Tx, name: str, n: int, values: Callable[[int, int], list[Any]]) -> bool:
    """Insert ``n`` rows; ``values`` are those of a slice. False, and nothing changed, if a row was not inserted."""
    execute = tx.cursor.execute
    execute("savepoint bulk")
    inserted = sum([tx.sized(name, end - start, values(start, end)).rowcount for start, end in sizes(n)])
    if inserted < n:
        execute("rollback to bulk")  # the seqs were taken before the savepoint: they stay taken
    execute("release bulk")
    return inserted == n


# ---- jobs of flows -----------------------------------------------------------------------------------------


def _insert_flow(tx: Tx, batch: JobBatch, seq: int, stored: dict[str, StoredQueue]) -> bool:
    """Insert the rows of jobs without unique keys and stored queues in bulk. False, and nothing changed, for others."""
    jobs = batch.jobs
    if any(job.unique is not None or job.queue in stored for job in jobs):
        return False
    if not _insert_rows(tx, [_row_in_flow(job, seq + n, tx.now) for n, job in enumerate(jobs)]):
        return False
    _complete(tx, jobs, range(seq, seq + len(jobs)), accepted=batch.accepted)
    return True


def _row_in_flow(job: NewJob, seq: int, now: int) -> Row:
    row = row_of(job, seq, now)
    flags = (FLAG_HAS_CHILDREN if job.before else 0) | (FLAG_JOIN if job.join is not None else 0)
    return (*row[:12], row[12] | flags, *row[13:]) if flags else row


def _complete(tx: Tx, jobs: Sequence[NewJob], seqs: Sequence[int], *, accepted: bool) -> None:
    """Add what belongs to new jobs whose rows are there: marks, follow-up jobs, edges, and their places in lanes."""
    add_marks_and_keeps(tx, jobs)
    add_follow_ups(tx, jobs)
    joins = {job.id: job.join for job in jobs if job.join is not None}
    for id, join in joins.items():
        tx.run("add_join", (id, join.open, join.lenient))
    edges = NewEdges(tx, jobs, joins)
    edges.add(_accept if accepted else _accept_open)
    for job, seq in zip(jobs, seqs, strict=True):
        if job.id in edges.ended or edges.block(job.id, due_of(job, tx.now)):
            continue
        if due_of(job, tx.now) is None:
            enter_ready(tx, job.queue, placement_of(row_of(job, seq, tx.now)), seq)
    edges.settle()


def _accept(_flags: int, _is_open: int) -> bool:
    """Of a batch of a running job: every blocked job accepts further parents."""
    return True


def _accept_open(flags: int, is_open: int) -> bool:
    return not flags & FLAG_JOIN or bool(is_open)


class NewEdges:
    """The edges of jobs that were inserted or revived in this transaction, and the ends that follow from them."""

    def __init__(self, tx: Tx, jobs: Sequence[NewJob | FlowRetry], joins: Collection[bytes]) -> None:
        """``joins``: those of the jobs that are joins."""
        self._tx = tx
        self._linked = [job for job in jobs if job.after or job.before]
        self._joins = joins
        self._deps = dict.fromkeys((job.id for job in jobs), 0)
        self.ended: dict[bytes, Reason] = {}
        """Jobs that end at once, because a parent ended before."""

    def add(self, accepts: Callable[[int, int], bool], *, must_wait: bool = True) -> None:
        """Add the edges to jobs that wait for these jobs, then the edges to parents.

        ``accepts`` decides by the flags of a blocked job and whether it is an open join. With ``must_wait``, a job
        that does not wait or accept raises ``FlowClosed``; else it is left alone.
        """
        kinds: dict[bytes, str | None] = {}
        more: Counter[bytes] = Counter()
        for job in self._linked:
            for child in dict.fromkeys(job.before):
                if child not in kinds:
                    kinds[child] = self._kind_of(child, accepts)
                policy = kinds[child] if child != job.id else None
                if policy is not None:
                    more[child] += self._add(job.id, child, policy)
                elif must_wait:
                    raise FlowClosed(UUID(bytes=child))
        for child, n in more.items():
            if child in self._deps:
                self._deps[child] += n
            else:
                self._tx.run("wait_for_more", (n, child))
            if kinds[child] == EDGE_MEMBER:
                self._tx.run("add_members", (n, child))
        for job in self._linked:
            if job.after:
                self._wait_for_parents(job)

    def _kind_of(self, child: bytes, accepts: Callable[[int, int], bool]) -> str | None:
        """The policy of new edges to this job; None if it does not wait or does not accept them."""
        if child in self._deps:
            return EDGE_MEMBER if child in self._joins else EDGE_FAIL
        found = self._tx.first("waiting_child", {"id": child})
        if found is None or not accepts(*found):
            return None
        return EDGE_MEMBER if found[0] & FLAG_JOIN else EDGE_FAIL

    def _add(self, parent: bytes, child: bytes, policy: str) -> int:
        return self._tx.run("add_edge", {"parent": parent, "child": child, "policy": policy})

    def _wait_for_parents(self, job: NewJob | FlowRetry) -> None:
        """Add the edges to live parents. Parents that ended before are resolved: a cancel wins over a bypass."""
        waits: list[Edge] = []
        for edge in job.after:
            parent = self._parent_of(job, edge)
            if parent.state in LIVE:
                verdict = Verdict.RELEASE if edge.policy == "dead" and parent.died else Verdict.KEEP
            else:
                verdict = Verdict.of(edge.policy, parent)
            if verdict is Verdict.KEEP:
                waits.append(edge)
            elif verdict is not Verdict.RELEASE:
                reason = Reason(verdict.value)
                self.ended[job.id] = Reason.PARENT if Reason.PARENT in (reason, self.ended.get(job.id)) else reason
        if job.id not in self.ended:
            for edge in waits:
                self._deps[job.id] += self._add(edge.parent, job.id, edge.policy)
                self._tx.run("flag_parent", (edge.parent,))

    def _parent_of(self, job: NewJob | FlowRetry, edge: Edge) -> EndedParent:
        found = self._tx.first("parent_state", {"id": edge.parent}) if edge.parent != job.id else None
        if found is None:
            raise StoreConflict(
                f"job {id_text(job.id)} waits for job {id_text(edge.parent)}, which does not exist",
                hint="Enqueue the parent first or in the same batch. It may have been deleted or pruned.",
            )
        state, reason, died = found
        return EndedParent(edge.parent, State(state), Reason(reason) if reason else None, bool(died))

    def block(self, job: bytes, due: int | None) -> bool:
        """Block the job if it waits, or is a join. False for any other job."""
        deps = self._deps[job]
        if not deps and job not in self._joins:
            return False
        self._tx.run("block_job", {"id": job, "deps": deps, "due": None if job in self._joins else due})
        return True

    def settle(self) -> None:
        """End the jobs that a parent has ended, and the joins that wait for nothing."""
        for job, reason in self.ended.items():
            finish_waiting(self._tx, job, reason)
        for job in self._joins:
            if not self._deps[job]:
                settle_join(self._tx, job)


# ---- all other jobs ----------------------------------------------------------------------------------------


def _insert_each(
    tx: Tx, batch: JobBatch, seq: int, stored: dict[str, StoredQueue], *, repeat: bool
) -> tuple[list[Enqueued], list[NewJob], set[bytes]]:
    """Insert one by one: repeats, unique keys, parents, and stored queues.

    Edges come after all rows, because a parent may be in the batch. Jobs that lost their key end last. Returns the
    reply for each job, the jobs that are new in their queue, and the jobs that were replaced.
    """
    replies: list[Enqueued] = []
    new: list[NewJob] = []
    seqs: list[int] = []
    superseded: list[bytes] = []
    moved: list[NewJob] = []
    replaced: set[bytes] = set()
    for n, job in enumerate(folded(batch.jobs)):
        queue = stored.get(job.queue)
        place = seq + n if queue is None else seq_in_queue(seq + n, queue)
        answers = job.id if job_exists(tx, job.id, anywhere=repeat) else None
        if answers is None and job.unique is not None and job.unique.mode != "once":
            decision = take_key_with_mode(tx, job, job.unique, place, queue)
            job, answers = decision.job, decision.answers  # noqa: PLW2901 - as its key changes it
            replaced |= {job.id} if answers == job.id else set()
            moved += [job] if decision.moved else []
        elif answers is None:
            answers, loser = take_key(tx, job)
            superseded += [loser] if loser is not None else []
        if answers is None:
            made = job if queue is None else admit(job, queue)
            _insert(tx, made, place)
            new.append(made)
            seqs.append(place)
        replies.append(Enqueued(answers or job.id, answers is None))
    _complete(tx, new, seqs, accepted=batch.accepted)
    for loser in superseded:
        finish_waiting(tx, loser, Reason.SUPERSEDED)
    return replies, new + moved, replaced


def _insert(tx: Tx, job: NewJob, seq: int) -> None:
    if tx.sized("enqueue", 1, _row_in_flow(job, seq, tx.now)).rowcount != 1:
        raise StoreConflict(
            f"SQLite refused the data of job {id_text(job.id)}: its id or one of its times is not valid"
        )


# ---- depth of queues ---------------------------------------------------------------------------------------


def _apply_depth(tx: Tx, jobs: Sequence[NewJob], replaced: Iterable[bytes], *, accepted: bool) -> None:
    """Count the new jobs for the depth of their queues, or end them because their queue skips new jobs.

    Replaced jobs belong to the batch too: they are not dropped for other jobs of it.
    """
    stored = stored_queues(tx)
    for job in jobs:
        if job.queue in stored:
            _count(tx, job, stored[job.queue])
    for name, n in Counter(job.queue for job in jobs if job.queue in stored and job.join is None).items():
        queue = stored[name]
        if queue.settings.max_depth and queue.disabled != DisabledMode.SKIP and not accepted:
            _check_depth(tx, name, queue.settings, n, {*replaced, *(job.id for job in jobs)})


def _count(tx: Tx, job: NewJob, queue: StoredQueue) -> None:
    if queue.disabled == DisabledMode.SKIP:
        finish_waiting(tx, job.id, Reason.SKIPPED, skipped_note(job.queue, queue.by))
    elif queue.settings.max_depth and job.join is None:
        tx.run("count_job", (job.id,))


def _check_depth(tx: Tx, queue: str, settings: QueueSettings, new: int, batch: set[bytes]) -> None:
    """Drop the oldest jobs of a queue that is too deep, or raise ``QueueFull``."""
    max_depth = settings.max_depth or 0
    depth, first = tx.all("depth", (queue,))[0]
    excess = depth - max_depth
    if excess <= 0:
        return
    if settings.on_full == "drop_oldest":
        oldest = [id for (id,) in tx.all("oldest_in_queue", (queue, excess + len(batch))) if id not in batch]
        if len(oldest) >= excess:
            for id in oldest[:excess]:
                finish_waiting(tx, id, Reason.SUPERSEDED, dropped_note(queue, max_depth))
            return
    on_full = settings.on_full or "error"
    raise queue_full(queue, max_depth, on_full, depth=depth - new, excess=excess, age=tx.now - (first or tx.now))
