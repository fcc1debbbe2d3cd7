"""Insert a batch: all of it or nothing, each job at most once.

Plain jobs (no parents, no unique key, no stored queue, no dependencies) are inserted in bulk. All other batches are
inserted job by job, and then the depth of their queues is checked.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mainspring.common.ids import id_text
from mainspring.errors import StoreConflict
from mainspring.jobs.records import Edge, Enqueued, NewJob
from mainspring.queues.records import DisabledMode, QueueSettings
from mainspring.states import Reason
from mainspring.stores.shared.constants import EDGE_FAIL
from mainspring.stores.shared.depth import dropped_note, queue_full, skipped_note
from mainspring.stores.shared.folding import folded, unfolded
from mainspring.stores.sqlite.driver.constants import PARENT_FAILED, PARENT_LIVE
from mainspring.stores.sqlite.driver.statements import sizes
from mainspring.stores.sqlite.lanes import READY, add_lanes, enter_ready, placement_of
from mainspring.stores.sqlite.limits import add_limits
from mainspring.stores.sqlite.queues import StoredQueue, admit, declare_queues, seq_in_queue, stored_queues
from mainspring.stores.sqlite.rows import add_marks_and_keeps, due_of, job_exists, row_of

from .dependencies import add_waiting_job, mark_of, note_start, release_new_jobs, stop_waiting, waiting_marks
from .finish import finish_waiting
from .follow_ups import add_follow_ups
from .keys import take_key, take_key_with_mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.jobs.records import Batch
    from mainspring.stores.sqlite.driver.transaction import Row, Tx


def enqueue(tx: Tx, batch: Batch) -> list[Enqueued]:
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
    waiting = waiting_marks(tx, jobs)
    if not repeat and not waiting and _are_plain(jobs, stored) and _insert_plain(tx, jobs, seq):
        return [Enqueued(job.id, True) for job in jobs]
    with tx.savepoint("batch"):
        if batch.retry:
            tx.run("add_retried_batch", (batch.id, tx.now))
        marks = frozenset[str]() if batch.forced else waiting
        replies, new, replaced = _insert_each(tx, folded(jobs), seq, stored, marks, repeat=repeat)
        if stored:
            _apply_depth(tx, new, replaced.keys(), accepted=batch.accepted)
        if batch.forced:
            _start_at_once(tx, waiting, new, replaced.values())
        release_new_jobs(tx, marks)
        return unfolded(jobs, replies)


def _start_at_once(tx: Tx, waiting: frozenset[str], new: Iterable[NewJob], replaced: Iterable[NewJob]) -> None:
    """No job of a forced batch waits for dependencies. A replaced job may have waited under another name before."""
    for job in replaced:
        stop_waiting(tx, job.id)
    for job in (*new, *replaced):
        mark = mark_of(job.marks)
        if mark in waiting:
            note_start(tx, mark, job.id)


# ---- plain jobs --------------------------------------------------------------------------------------------


def _are_plain(jobs: Sequence[NewJob], stored: dict[str, StoredQueue]) -> bool:
    if stored and any(job.queue in stored for job in jobs):
        return False
    return not any([  # noqa: C419  # a generator costs 3 x as much for one
        job.after or job.unique for job in jobs
    ])  # fmt: skip


def _insert_plain(tx: Tx, jobs: Sequence[NewJob], seq: int) -> bool:
    """Insert plain jobs in bulk. False, and nothing changed, if one of them existed already."""
    now = tx.now
    rows = [row_of(job, seq + n, now) for n, job in enumerate(jobs)]
    inserted = tx.sized("enqueue", 1, rows[0]).rowcount if len(rows) == 1 else _insert_rows(tx, rows)
    if inserted == len(rows):
        tx.woken.update(row[2] for row in rows if row[1] is READY)
        more = [job for job in jobs if job.marks or job.follows or job.buckets or job.fair or job.keep is not None]
        if more:
            add_marks_and_keeps(tx, more)
            add_follow_ups(tx, more)
            add_lanes(tx, rows)
    return inserted == len(rows)


def _insert_rows(tx: Tx, rows: list[Row]) -> int:
    execute = tx.cursor.execute
    execute("savepoint bulk")
    inserted = 0
    for start, end in sizes(len(rows)):
        inserted += tx.sized("enqueue", end - start, [value for row in rows[start:end] for value in row]).rowcount
    if inserted < len(rows):
        execute("rollback to bulk")  # the seqs were taken before the savepoint: they stay taken
    execute("release bulk")
    return inserted


# ---- all other jobs ----------------------------------------------------------------------------------------


def _insert_each(
    tx: Tx, jobs: Sequence[NewJob], seq: int, stored: dict[str, StoredQueue], marks: frozenset[str], *, repeat: bool
) -> tuple[list[Enqueued], list[NewJob], dict[bytes, NewJob]]:
    """Insert one by one: repeats, unique keys, parents, jobs that wait for dependencies, and stored queues.

    Edges come after all rows, because a parent may be in the batch. Jobs that lost their key end last. Returns the
    reply for each job, the jobs that are new in their queue, and the jobs that were replaced.
    """
    replies: list[Enqueued] = []
    new: list[NewJob] = []
    seqs: list[int] = []
    superseded: list[bytes] = []
    moved: list[NewJob] = []
    replaced: dict[bytes, NewJob] = {}
    for n, job in enumerate(jobs):
        queue = stored.get(job.queue)
        place = seq + n if queue is None else seq_in_queue(seq + n, queue)
        answers = job.id if job_exists(tx, job.id, anywhere=repeat) else None
        if answers is None and job.unique is not None and job.unique.mode != "once":
            decision = take_key_with_mode(tx, job, job.unique, place, queue)
            job, answers = decision.job, decision.answers  # noqa: PLW2901 - as its key changes it
            replaced |= {job.id: job} if answers == job.id else {}
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
    add_marks_and_keeps(tx, new)
    add_follow_ups(tx, new)
    for job, place in zip(new, seqs, strict=True):
        _place(tx, job, place, marks)
    for loser in superseded:
        finish_waiting(tx, loser, Reason.SUPERSEDED)
    return replies, new + moved, replaced


def _insert(tx: Tx, job: NewJob, seq: int) -> None:
    if tx.sized("enqueue", 1, row_of(job, seq, tx.now)).rowcount != 1:
        raise StoreConflict(
            f"SQLite refused the data of job {id_text(job.id)}: its id or one of its times is not valid"
        )


def _place(tx: Tx, job: NewJob, seq: int, marks: frozenset[str]) -> None:
    """Block the new job, end it with a parent that ended before, or make it ready."""
    due = due_of(job, tx.now)
    deps = _wait_for_parents(tx, job)
    mark = mark_of(job.marks) if marks else None
    if mark in marks and deps is not None:
        add_waiting_job(tx, mark, job.id, seq)
        deps += 1
    if deps is None:
        finish_waiting(tx, job.id, Reason.PARENT)
    elif deps:
        tx.run("block_job", {"id": job.id, "deps": deps, "due": due})
    elif due is None:
        enter_ready(tx, job.queue, placement_of(row_of(job, seq, tx.now)), seq)


def _wait_for_parents(tx: Tx, job: NewJob) -> int | None:
    """Add the edges to live parents and return their number; None if a parent has ended in a way that ends this job."""
    live: list[Edge] = []
    ends = False
    for edge in job.after:
        found = tx.first("parent_state", {"id": edge.parent}) if edge.parent != job.id else None
        if found is None:
            raise StoreConflict(
                f"job {id_text(job.id)} waits for job {id_text(edge.parent)}, which does not exist",
                hint="Enqueue the parent first or in the same batch. It may have been deleted or pruned.",
            )
        (state,) = found
        ends = ends or (state == PARENT_FAILED and edge.policy == EDGE_FAIL)
        if state == PARENT_LIVE:
            live.append(edge)
    if ends:
        return None
    deps = 0
    for edge in live:
        deps += tx.run("add_edge", {"parent": edge.parent, "child": job.id, "policy": edge.policy})
        tx.run("flag_parent", (edge.parent,))
    return deps


# ---- depth of queues ---------------------------------------------------------------------------------------


def _apply_depth(tx: Tx, jobs: Sequence[NewJob], replaced: Iterable[bytes], *, accepted: bool) -> None:
    """Count the new jobs for the depth of their queues, or end them because their queue skips new jobs.

    Replaced jobs belong to the batch too: they are not dropped for other jobs of it.
    """
    stored = stored_queues(tx)
    for job in jobs:
        if job.queue in stored:
            _count(tx, job, stored[job.queue])
    for name, n in Counter(job.queue for job in jobs if job.queue in stored).items():
        queue = stored[name]
        if queue.settings.max_depth and queue.disabled != DisabledMode.SKIP and not accepted:
            _check_depth(tx, name, queue.settings, n, {*replaced, *(job.id for job in jobs)})


def _count(tx: Tx, job: NewJob, queue: StoredQueue) -> None:
    if queue.disabled == DisabledMode.SKIP:
        finish_waiting(tx, job.id, Reason.SKIPPED, skipped_note(job.queue, queue.by))
    elif queue.settings.max_depth:
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
