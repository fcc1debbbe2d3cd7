"""What a worker with ``until_empty`` or ``burst`` waits for, and what it leaves behind when it ends.

``burst`` waits for ready and running jobs, ``until_empty`` also for scheduled and retrying jobs. Neither waits for a
job that no event of this run can start: a job in a paused or disabled queue, of a task that the worker cannot run,
pinned to another version, or behind a limit of size 0 or a breaker that stays open until an operator resets it.
``burst`` does not wait for any open breaker. The jobs that are left are counted: those that no live worker can run by
what holds them, those that ``burst`` did not wait for by their state. An end is reported as "all jobs finished" only if
no such job is left.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from mainspring.common.clock import to_datetime
from mainspring.flows.shape import EACH_TASK
from mainspring.jobs.query import Query
from mainspring.jobs.why import Obstacle, explain
from mainspring.states import State
from mainspring.worker.eligibility import meets_terms, runnable_tasks

if TYPE_CHECKING:
    from mainspring.jobs.records import JobRow
    from mainspring.limits.records import Bucket, BucketRow
    from mainspring.stores.base import Store
    from mainspring.worker.config import WorkerConfig

_MAX_EXPLAINED = 1000
"""The number of jobs that are looked at for the report."""
_MAX_REASONS = 5
_SOON = (State.READY, State.RUNNING)
_LATER = (*_SOON, State.SCHEDULED, State.RETRYING)
_HOLDS = frozenset(
    {"paused", "disabled", "breaker", "no_worker", "labels", "version", "unknown_task", "dependency", "slots"}
)
"""The kinds of obstacles that do not end by themselves while this worker is the only one."""
_LATER_WORDS = {
    State.RETRYING: ("waits for a retry", "wait for a retry"),
    State.SCHEDULED: ("is scheduled", "are scheduled"),
    State.BLOCKED: ("waits for other jobs", "wait for other jobs"),
}
"""What the jobs that ``burst`` does not wait for are doing: one job, several jobs."""


class LeftJobs(NamedTuple):
    """What is left at the end of a run, in words; both are empty if nothing is left."""

    stuck: str = ""
    """The jobs that no live worker can run."""
    later: str = ""
    """The jobs that wait for their time or for other jobs, after ``burst``."""


async def has_jobs_to_wait_for(store: Store, config: WorkerConfig) -> bool:
    """Whether a job is running or can still start in this run."""
    settings, tasks = config.settings, runnable_tasks(config)
    if config.tasks and not tasks:
        return False  # this worker cannot run any of the tasks that it knows
    tasks = (*tasks, EACH_TASK) if tasks else ()
    states = _SOON if settings.burst else _LATER
    counts = await store.count(Query.where(states=states, queues=settings.queues, tasks=tasks or None))
    if counts[State.RUNNING]:
        return True
    if not any(counts[state] for state in states):
        return False
    closed = {row.name for row in await store.queues() if row.closed}
    served = [queue for queue in settings.queues if queue not in closed]
    return bool(served) and await _can_start_one(store, config, served, states, tasks)


async def _can_start_one(
    store: Store, config: WorkerConfig, queues: list[str], states: tuple[State, ...], tasks: tuple[str, ...]
) -> bool:
    """Whether one of the waiting jobs of these queues can start, now or later."""
    waiting = Query.where(states=states, queues=queues, tasks=tasks or None)
    seen: dict[tuple[Bucket, ...], bool] = {}
    cursor = None
    while True:
        page = await store.find(waiting, cursor=cursor)
        for row in page.jobs:
            if not meets_terms(row.lane, config):
                continue
            if row.state is not State.READY or not row.buckets:
                return True
            if row.buckets not in seen:
                found = await store.buckets(row.buckets)
                seen[row.buckets] = not any(_is_shut(bucket, burst=config.settings.burst) for bucket in found)
            if seen[row.buckets]:
                return True
        if (cursor := page.cursor) is None:
            return False


def _is_shut(bucket: BucketRow, *, burst: bool) -> bool:
    """Whether the bucket lets no job start until an operator changes it; with ``burst``, also an open breaker."""
    breaker = bucket.breaker
    if breaker is not None:
        return breaker.state == "open" and (burst or breaker.until is None)
    return bucket.size <= 0


async def describe_left_jobs(store: Store, config: WorkerConfig) -> LeftJobs:
    """The jobs that are left. With ``queues=``, only jobs of these queues count; else all jobs of the store."""
    stuck = await _describe_stuck(store, config)
    return LeftJobs(stuck, await _describe_later(store, config) if config.settings.burst else "")


async def _describe_later(store: Store, config: WorkerConfig) -> str:
    """The jobs that ``burst`` did not wait for, by state; the next moment of those that are due at a time."""
    queues = config.settings.queues if config.chosen_queues else None
    counts = await store.count(Query.where(states=[*_LATER_WORDS], queues=queues))
    parts: list[str] = []
    for state, (one, several) in _LATER_WORDS.items():
        if count := counts[state]:
            noun = "" if parts else " job" if count == 1 else " jobs"
            when = await _describe_next_due(store, Query.where(states=[state], queues=queues), count)
            parts.append(f"{count:,}{noun} {one if count == 1 else several}{when}")
    return "; ".join(parts)


async def _describe_next_due(store: Store, query: Query, count: int) -> str:
    """The earliest moment at which one of these jobs is due; empty if none is, or if there are too many to look at."""
    dues: list[int] = []
    cursor = None
    while count <= _MAX_EXPLAINED:
        page = await store.find(query, cursor=cursor)
        dues += [row.due for row in page.jobs if row.due is not None and row.state is not State.BLOCKED]
        if (cursor := page.cursor) is None:
            break
    if not dues:
        return ""
    return f", {'' if count == 1 else 'the next '}at {to_datetime(min(dues)).isoformat(' ', 'seconds')}"


async def _describe_stuck(store: Store, config: WorkerConfig) -> str:
    """The jobs that no live worker can run, counted by what holds them; empty if there is none."""
    settings = config.settings
    states = (State.READY,) if settings.burst else (State.READY, State.SCHEDULED, State.RETRYING, State.BLOCKED)
    query = Query.where(states=states, queues=settings.queues if config.chosen_queues else None)
    reasons, held, cursor, seen = Counter[str](), dict[object, str](), None, 0
    now = (await store.promote(0)).now
    while seen < _MAX_EXPLAINED:
        page = await store.find(query, cursor=cursor)
        for row in page.jobs:
            alike = (row.state, row.queue, row.task, row.lane, row.buckets)
            if alike not in held:
                held[alike] = await _describe_hold(store, row, now)
            if held[alike]:
                reasons[held[alike]] += 1
        seen += len(page.jobs)
        if (cursor := page.cursor) is None:
            break
    if not reasons:
        return ""
    count = sum(reasons.values())
    parts = [f"{n} because {reason}" for reason, n in reasons.most_common(_MAX_REASONS)]
    more = "at least " if cursor is not None else ""
    return (
        f"{more}{count} {'job is' if count == 1 else 'jobs are'} left that no live worker can run: {'; '.join(parts)}"
    )


async def _describe_hold(store: Store, row: JobRow, now: int) -> str:
    why = await explain(store, row, now)
    return next((each.text for each in why.obstacles if _holds(each)), "")


def _holds(found: Obstacle) -> bool:
    return found.kind in _HOLDS or (found.kind in ("limit", "rate") and not found.jobs and found.until is None)
