"""What the parts of a run wrote down, as parts of its history."""

from __future__ import annotations

import time
from collections.abc import Iterable

from mainspring.breakers.records import is_breaker
from mainspring.codec import decode_result
from mainspring.common.clock import boottime
from mainspring.jobs.records import JobBatch, JobRow, NewJob
from mainspring.states import State
from mainspring.testing.history import BodyRun, Disturbance, LimitBound, Promise
from tests.processes.fleet import Line
from tests.soak.crew import Deed
from tests.soak.flow import AT_ONCE, RETRIES


def promise_of(job: NewJob, born: float) -> Promise:
    delay = job.unique.window if job.unique is not None and job.unique.mode == "debounce" else job.delay
    return Promise(
        retries=RETRIES.get(job.task, 0),
        early=job.early,
        not_before=born + delay / 1e6 if delay else None,
        expires=None if job.expires_in is None else born + job.expires_in / 1e6,
        queue=job.queue,
        key=job.unique.hash.hex() if job.unique is not None and job.unique.mode == "once" else "",
        buckets=(*(bucket.name for bucket in job.buckets if not is_breaker(bucket.name)), *one_at_a_time(job)),
        breakers=tuple(bucket.name for bucket in job.buckets if is_breaker(bucket.name)),
        line=job.queue if job.queue in AT_ONCE else "",
        stack=job.queue == "stack",
        priority=job.priority,
    )


def one_at_a_time(job: NewJob) -> tuple[str, ...]:
    """What two jobs of a key that keeps the last may not be in at once, though no limit says so."""
    return (f"last {job.unique.hash.hex()}",) if job.unique is not None and job.unique.mode == "keep_last" else ()


def bounds_of(batches: Iterable[JobBatch]) -> dict[str, LimitBound]:
    """Of every bucket that a job names."""
    found = dict[str, LimitBound]()
    for batch in batches:
        declared = {limit.name: LimitBound(size=limit.size, per=limit.per / 1e6) for limit in batch.limits}
        for job in batch.jobs:
            found |= {bucket.name: declared[bucket.limit] for bucket in job.buckets if not is_breaker(bucket.name)}
            found |= dict.fromkeys(one_at_a_time(job), LimitBound(size=1))
    return found


def shown(row: JobRow) -> int | None:
    """Most bodies of the load return their token."""
    if row.state is not State.SUCCEEDED or row.result is None:
        return None
    result = decode_result(row.result)
    return result if isinstance(result, int) else None


def runs_of(lines: list[Line]) -> list[BodyRun]:
    """The runs that bodies wrote down, by the wall clock."""
    wall = time.time() - boottime()
    ends = {(line.job, line.token): line.at + wall for line in lines if line.word == "END"}
    return [
        BodyRun(job=line.job, token=line.token, began=line.at + wall, ended=ends.get((line.job, line.token)))
        for line in lines
        if line.word == "START"
    ]


def troubles_of(deeds: list[Deed], pids: dict[str, int]) -> list[Disturbance]:
    """What was done to processes, as what was done to their workers."""
    workers: dict[int, list[str]] = {}
    for worker, pid in pids.items():
        workers.setdefault(pid, []).append(worker)
    found = []
    for deed in deeds:
        names = [worker for pid in deed.pids for worker in workers.get(pid, ())] if deed.pids else [""]
        found += [Disturbance(what=deed.what, worker=name, began=deed.began, ended=deed.ended) for name in set(names)]  # type: ignore[arg-type]  # a deed's word is one of them
    return found
