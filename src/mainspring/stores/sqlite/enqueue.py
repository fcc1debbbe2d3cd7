"""Insert a batch: all of it or nothing, each job at most once."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from mainspring.errors import StoreConflict
from mainspring.jobs.records import Edge, Enqueued, NewJob
from mainspring.states import Reason
from mainspring.stores.shared.folding import folded, unfolded

from .depths import settle
from .finish import finish_waiting
from .follows import add_follows
from .inserts import READY, add_beside, due_of, is_there, line_up_all, row_of, standing_of
from .latest import take_turn
from .limits import add_limits
from .parts import held_back, leave_line, mark_of, note_start, settle_new, stand_in_line
from .places import enter_ready
from .settings import Kept, add_declared, admitted, kept, placed
from .statements import sizes
from .uniq import claim_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.jobs.records import Batch

    from .tx import Row, Tx


def enqueue(tx: Tx, batch: Batch) -> list[Enqueued]:
    jobs = batch.jobs
    if not jobs:
        return []
    seq = tx.next_seq(len(jobs))  # a write first: a caller's transaction that began with a read could be too old for it
    if batch.limits:
        add_limits(tx, batch.limits)
    if batch.queues:
        add_declared(tx, batch.queues)
    special = kept(tx)
    repeat = batch.retry or tx.first("retried", (batch.id,)) is not None
    held = held_back(tx, jobs)
    if not repeat and not held and _plain(jobs, special) and _insert_plain(tx, jobs, seq):
        return [Enqueued(job.id, True) for job in jobs]
    with tx.savepoint("batch"):
        if batch.retry:
            tx.run("remember_retry", (batch.id, tx.now))
        lines = frozenset[str]() if batch.forced else held
        said, new, replaced = _insert_each(tx, folded(jobs), seq, special, lines, repeat=repeat)
        if special:
            settle(tx, new, replaced.keys(), accepted=batch.accepted)
        if batch.forced:
            _force(tx, held, new, replaced.values())
        settle_new(tx, lines)
        return unfolded(jobs, said)


def _force(tx: Tx, held: frozenset[str], new: Iterable[NewJob], replaced: Iterable[NewJob]) -> None:
    """None of them waits for parts; one that is replaced may have been of another part before."""
    for job in replaced:
        leave_line(tx, job.id)
    for job in (*new, *replaced):
        part = mark_of(job.marks)
        if part in held:
            note_start(tx, part, job.id)


def _plain(jobs: Sequence[NewJob], special: dict[str, Kept]) -> bool:
    if special and any(job.queue in special for job in jobs):
        return False
    return not any([  # noqa: C419  # a generator costs 3 x as much for one
        job.after or job.unique for job in jobs
    ])  # fmt: skip


def _insert_plain(tx: Tx, jobs: Sequence[NewJob], seq: int) -> bool:
    """Insert jobs that wait for nobody in bulk; False, and nothing changed, if one of them was there already."""
    now = tx.now
    rows = [row_of(job, seq + n, now) for n, job in enumerate(jobs)]
    inserted = tx.sized("enqueue", 1, rows[0]).rowcount if len(rows) == 1 else _insert_rows(tx, rows)
    if inserted == len(rows):
        tx.woken.update(row[2] for row in rows if row[1] is READY)
        more = [job for job in jobs if job.marks or job.follows or job.buckets or job.fair or job.keep is not None]
        if more:
            add_beside(tx, more)
            add_follows(tx, more)
            line_up_all(tx, rows)
    return inserted == len(rows)


def _insert_rows(tx: Tx, rows: list[Row]) -> int:
    execute = tx.cursor.execute
    execute("savepoint bulk")
    inserted = 0
    for start, end in sizes(len(rows)):
        inserted += tx.sized("enqueue", end - start, [value for row in rows[start:end] for value in row]).rowcount
    if inserted < len(rows):
        execute("rollback to bulk")  # the places were taken before the savepoint: they stay taken
    execute("release bulk")
    return inserted


def _insert_each(
    tx: Tx, jobs: Sequence[NewJob], seq: int, special: dict[str, Kept], lines: frozenset[str], *, repeat: bool
) -> tuple[list[Enqueued], list[NewJob], dict[bytes, NewJob]]:
    """One by one: for repeats, keys, limits, dependencies, parts that wait, and queues of which something is stored.

    Edges come after all rows, for parents in the batch; last go the jobs that lost their key. Returns what became of
    each, the jobs that are new in their queue, and those that have been replaced.
    """
    said: list[Enqueued] = []
    new: list[NewJob] = []
    seqs: list[int] = []
    superseded: list[bytes] = []
    moved: list[NewJob] = []
    replaced: dict[bytes, NewJob] = {}
    for n, job in enumerate(jobs):
        queue = special.get(job.queue)
        place = seq + n if queue is None else placed(seq + n, queue)
        answers = job.id if is_there(tx, job.id, anywhere=repeat) else None
        if answers is None and job.unique is not None and job.unique.mode != "once":
            turn = take_turn(tx, job, job.unique, place, queue)
            job, answers = turn.job, turn.answers  # noqa: PLW2901 - as its key wants it
            replaced |= {job.id: job} if answers == job.id else {}
            moved += [job] if turn.moved else []
        elif answers is None:
            answers, loser = claim_key(tx, job)
            superseded += [loser] if loser is not None else []
        if answers is None:
            made = job if queue is None else admitted(job, queue)
            _insert(tx, made, place)
            new.append(made)
            seqs.append(place)
        said.append(Enqueued(answers or job.id, answers is None))
    add_beside(tx, new)
    add_follows(tx, new)
    for job, place in zip(new, seqs, strict=True):
        _settle_new(tx, job, place, lines)
    for loser in superseded:
        finish_waiting(tx, loser, Reason.SUPERSEDED)
    return said, new + moved, replaced


def _insert(tx: Tx, job: NewJob, seq: int) -> None:
    if tx.sized("enqueue", 1, row_of(job, seq, tx.now)).rowcount != 1:
        raise StoreConflict(f"SQLite refused the data of job {job.id.hex()}: its id or a time of it is not valid")


def _settle_new(tx: Tx, job: NewJob, seq: int, lines: frozenset[str]) -> None:
    due = due_of(job, tx.now)
    deps = _wait_for_parents(tx, job)
    part = mark_of(job.marks) if lines else None
    if part in lines and deps is not None:
        stand_in_line(tx, part, job.id, seq)
        deps += 1
    if deps is None:
        finish_waiting(tx, job.id, Reason.PARENT)
    elif deps:
        tx.run("enqueue_blocked", {"id": job.id, "deps": deps, "due": due})
    elif due is None:
        enter_ready(tx, job.queue, standing_of(row_of(job, seq, tx.now)), seq)


def _wait_for_parents(tx: Tx, job: NewJob) -> int | None:
    """How many parents the job waits for; None when one has ended in a way that ends this job too."""
    live: list[Edge] = []
    ends = False
    for edge in job.after:
        found = tx.first("parent_state", {"id": edge.parent}) if edge.parent != job.id else None
        if found is None:
            raise StoreConflict(
                f"job {UUID(bytes=job.id)} waits for job {UUID(bytes=edge.parent)}, which does not exist",
                hint="Enqueue the parent first or in the same batch; was it deleted or pruned?",
            )
        (ended,) = found
        ends = ends or (ended == 2 and edge.policy == "fail")
        if ended == 0:
            live.append(edge)
    if ends:
        return None
    deps = 0
    for edge in live:
        deps += tx.run("add_edge", {"parent": edge.parent, "child": job.id, "policy": edge.policy})
        tx.run("mark_parent", (edge.parent,))
    return deps
