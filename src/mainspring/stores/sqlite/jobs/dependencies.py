"""Names that wait for the success of other names: whose success is noted, which jobs wait, and which job is released.

A job belongs to a name by its dependency mark (``^@name``, see :mod:`mainspring.schedules.records`). A job that waits
is blocked as the child of its own name: an edge whose parent is no job. So every way to end the job takes it out of the
waiting jobs of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from mainspring.jobs.records import NewJob
from mainspring.schedules.records import PART, ScheduleDependency, ScheduleDependencyRow, part_mark
from mainspring.states import State
from mainspring.stores.sqlite.lanes import Placement, enter_ready

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Row, Tx


@lru_cache(maxsize=1024)
def edge_parent(mark: str) -> bytes:
    """The id that represents a name in the column ``parent`` of edges."""
    return sha256(mark.encode()).digest()[:16]


def mark_of(marks: Iterable[str]) -> str | None:
    """The dependency mark among the marks of a job."""
    return next((mark for mark in marks if mark.startswith(PART)), None)


# ---- blocked jobs ----------------------------------------------------------------------------------------


class BlockedJob(NamedTuple):
    """A job that waits for ``deps`` parents and names."""

    id: bytes
    deps: int
    due: int | None
    queue: str
    placement: Placement


def unblock(tx: Tx, job: BlockedJob, seq: int | None = None) -> None:
    """The job waits for one parent or name less. If none is left it becomes ready, or scheduled if it is due later.

    The job goes behind all others, unless ``seq`` gives its place.
    """
    if job.deps > 1:
        tx.run("unblock_one", (job.id,))
        return
    seq = tx.next_seq() if seq is None else seq
    if job.due is not None and job.due > tx.now:
        tx.run("unblock", (State.SCHEDULED, job.due, seq, job.id))
    else:
        tx.run("unblock", (State.READY, None, seq, job.id))
        enter_ready(tx, job.queue, job.placement, seq)


# ---- enqueue ---------------------------------------------------------------------------------------------


def waiting_marks(tx: Tx, jobs: Sequence[NewJob]) -> frozenset[str]:
    """The dependency marks of these jobs whose names wait for other names."""
    marks = {mark for job in jobs for mark in job.marks if mark.startswith(PART)}
    return frozenset(mark for mark in marks if tx.first("has_dependencies", (mark,)))


def add_waiting_job(tx: Tx, mark: str, job: bytes, seq: int) -> None:
    """The job waits, behind the jobs of its name that wait already."""
    tx.run("add_waiting_job", (edge_parent(mark), job, abs(seq)))


def stop_waiting(tx: Tx, job: bytes) -> None:
    """The job waits for no dependencies any more, if it did."""
    found = tx.first("job_waits", (job,))
    if found is not None:
        _release(tx, (job, *found), keeps_place=True)


def join_waiting_jobs(tx: Tx, mark: str, job: bytes, seq: int) -> bool:
    """Give a job without a dependency mark this one. Returns whether it has to wait; else it is the next start."""
    tx.run("add_mark", (mark, job))
    tx.run("flag_dependency", (job,))
    if not tx.first("has_dependencies", (mark,)):
        return False
    add_waiting_job(tx, mark, job, seq)
    found = tx.first("first_waiting_job", (edge_parent(mark), mark, tx.now))
    if found is None or found[0] != job:
        return True
    tx.run("drop_waiting_job", (job,))
    _start(tx, mark, job)
    return False


def note_start(tx: Tx, mark: str, job: bytes) -> None:
    """The job is the next start of its name, unless it has ended in this same step."""
    if tx.all("job_is_live", {"id": job})[0][0]:
        _start(tx, mark, job)


def release_new_jobs(tx: Tx, marks: Iterable[str]) -> None:
    """Of the new jobs with these marks, the first may start at once if no job waited before it. It keeps its place."""
    for mark in sorted(marks):
        _release_first(tx, mark, keeps_place=True)


# ---- success ---------------------------------------------------------------------------------------------


def note_success(tx: Tx, job: bytes) -> None:
    """Note the success of a job for each name that waits for the job's name."""
    for dependent, after in tx.all("dependents_of_job", (job,)):
        if tx.run("note_success", (dependent, after, tx.now)):
            _release_first(tx, dependent)


def _release_first(tx: Tx, mark: str, *, keeps_place: bool = False) -> bool:
    """Release the first waiting job if every success is noted."""
    found = tx.first("first_waiting_job", (edge_parent(mark), mark, tx.now))
    if found is None:
        return False
    _release(tx, found, keeps_place=keeps_place)
    _start(tx, mark, found[0])
    return True


def _release(tx: Tx, found: Row, *, keeps_place: bool) -> None:
    job, seq, deps, due, queue, *placement = found
    tx.run("drop_waiting_job", (job,))
    unblock(tx, BlockedJob(job, deps, due, queue, Placement(*placement)), abs(seq) if keeps_place else None)


def _start(tx: Tx, mark: str, job: bytes) -> None:
    """Use up the noted successes: this job is the start that they were noted for."""
    tx.run("clear_notes", (mark,))
    tx.run("set_released", (job, mark))


# ---- contract methods ------------------------------------------------------------------------------------


def set_dependencies(tx: Tx, links: Sequence[ScheduleDependency]) -> None:
    for each in links:
        dependent, after = part_mark(each.name), {part_mark(name) for name in each.after}
        for before, _ in tx.all("dependencies_of", (dependent,)):
            if before not in after:
                tx.run("drop_dependency", (dependent, before))
        if after:
            tx.run("add_dependent", (dependent,))
            tx.cursor.executemany(tx.sql["add_dependency"], [(dependent, name) for name in sorted(after)])
            _release_first(tx, dependent)
        else:
            while _release_first(tx, dependent):
                pass
            tx.run("drop_dependent", (dependent,))


def dependencies(tx: Tx) -> list[ScheduleDependencyRow]:
    return [
        ScheduleDependencyRow(
            name=dependent.removeprefix(PART),
            after=tuple(
                (after.removeprefix(PART), bool(noted)) for after, noted in tx.all("dependencies_of", (dependent,))
            ),
            waiting=tuple(job for (job,) in tx.all("waiting_jobs", (edge_parent(dependent),))),
        )
        for (dependent,) in tx.all("dependents")
    ]
