"""Parts that wait for others: whose success is noted, who stands in line, and who is released.

A job that waits for parts is blocked as a child of its own part: an edge whose parent is no job. So whatever ends
it takes it out of the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from mainspring.jobs.records import NewJob
from mainspring.schedules.records import PART, ScheduleDependency, ScheduleDependencyRow, part_mark

from .freeing import Blocked, free
from .places import Standing

if TYPE_CHECKING:
    from .tx import Row, Tx


@lru_cache(maxsize=1024)
def line_of(part: str) -> bytes:
    """What stands for the part in the place of a parent."""
    return sha256(part.encode()).digest()[:16]


def mark_of(marks: Iterable[str]) -> str | None:
    """The mark that says of which part a job is."""
    return next((mark for mark in marks if mark.startswith(PART)), None)


# ---- enqueue ---------------------------------------------------------------------------------------


def held_back(tx: Tx, jobs: Sequence[NewJob]) -> frozenset[str]:
    """The parts of these jobs that wait for others."""
    parts = {mark for job in jobs for mark in job.marks if mark.startswith(PART)}
    return frozenset(part for part in parts if tx.first("is_part", (part,)))


def stand_in_line(tx: Tx, part: str, job: bytes, seq: int) -> None:
    """Behind those who wait already."""
    tx.run("enter_line", (line_of(part), job, abs(seq)))


def leave_line(tx: Tx, job: bytes) -> None:
    """The job waits for no parts any more, if it did."""
    found = tx.first("in_line", (job,))
    if found is not None:
        _free(tx, (job, *found), keeps_place=True)


def joins(tx: Tx, part: str, job: bytes, seq: int) -> bool:
    """A job that was of no part is of this one from now on. Whether it has to wait; else it is the next start of it."""
    tx.run("add_mark", (part, job))
    tx.run("join_part", (job,))
    if not tx.first("is_part", (part,)):
        return False
    stand_in_line(tx, part, job, seq)
    found = tx.first("first_in_line", (line_of(part), part, tx.now))
    if found is None or found[0] != job:
        return True
    tx.run("leave_line", (job,))
    _take_notes(tx, part, job)
    return False


def note_start(tx: Tx, part: str, job: bytes) -> None:
    """This is the next start of the part; unless the job has ended in this very step."""
    if tx.all("live", {"id": job})[0][0]:
        _take_notes(tx, part, job)


def settle_new(tx: Tx, parts: Iterable[str]) -> None:
    """Of the new jobs of these parts, one may start at once if nobody was before it; it keeps its place."""
    for part in sorted(parts):
        _advance(tx, part, keeps_place=True)


# ---- success ---------------------------------------------------------------------------------------


def note_success(tx: Tx, job: bytes) -> None:
    """The job has succeeded: it is noted for those who wait for its part."""
    for part, after in tx.all("heard_by", (job,)):
        if tx.run("note", (part, after, tx.now)):
            _advance(tx, part)


def _advance(tx: Tx, part: str, *, keeps_place: bool = False) -> bool:
    """Release the first in line, if all is noted."""
    found = tx.first("first_in_line", (line_of(part), part, tx.now))
    if found is None:
        return False
    _free(tx, found, keeps_place=keeps_place)
    _take_notes(tx, part, found[0])
    return True


def _free(tx: Tx, found: Row, *, keeps_place: bool) -> None:
    job, seq, deps, due, queue, *standing = found
    tx.run("leave_line", (job,))
    free(tx, Blocked(job, deps, due, queue, Standing(*standing)), abs(seq) if keeps_place else None)


def _take_notes(tx: Tx, part: str, job: bytes) -> None:
    tx.run("take_notes", (part,))
    tx.run("set_released", (job, part))


# ---- links -----------------------------------------------------------------------------------------


def link(tx: Tx, links: Sequence[ScheduleDependency]) -> None:
    for each in links:
        part, after = part_mark(each.name), {part_mark(name) for name in each.after}
        for before, _ in tx.all("links_of", (part,)):
            if before not in after:
                tx.run("drop_link", (part, before))
        if after:
            tx.run("add_part", (part,))
            tx.cursor.executemany(tx.sql["add_link"], [(part, name) for name in sorted(after)])
            _advance(tx, part)
        else:
            while _advance(tx, part):
                pass
            tx.run("drop_part", (part,))


def links(tx: Tx) -> list[ScheduleDependencyRow]:
    return [
        ScheduleDependencyRow(
            name=part.removeprefix(PART),
            after=tuple((after.removeprefix(PART), bool(noted)) for after, noted in tx.all("links_of", (part,))),
            waiting=tuple(job for (job,) in tx.all("line_of", (line_of(part),))),
        )
        for (part,) in tx.all("parts")
    ]
