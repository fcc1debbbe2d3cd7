"""Decides whether the schedules in ``depends_on`` have succeeded since the last start of a schedule.

Each success of a schedule raises a number in its own row, in the swap that closes the run (``settle.py``). A schedule
that depends on it stores the numbers that its last start used, in the swap that makes the run. So a dependency is met
when its number is greater than the used one. A number that was read a moment ago is at most too small: then the start
comes one look later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from mainspring.schedules.plan.run_job import MIN_KEEP
from mainspring.schedules.plan.settle import SeenRun
from mainspring.schedules.plan.state import Definition, LastSuccess, SchedulePlan, UnseenStart
from mainspring.states import FINAL

Successes = Mapping[str, LastSuccess | None]
"""The last success of each schedule that a schedule depends on, by name."""
NO_SUCCESSES: Successes = MappingProxyType({})


def needs_successes(plan: SchedulePlan, now: int) -> bool:
    """Whether the next step needs the successes of the dependencies."""
    is_due = plan.enabled and plan.due is not None and plan.due <= now
    return bool(plan.definition.depends_on) and (is_due or plan.waiting is not None or bool(plan.starts))


def find_unmet(plan: SchedulePlan, successes: Successes) -> tuple[str, ...]:
    """Return the dependencies that have not succeeded since the last start.

    While the job of the last run has not started, no success can have come after that start.
    """
    if plan.starts:
        return plan.definition.depends_on
    return tuple(name for name in plan.definition.depends_on if _number(successes, name) <= plan.used.get(name, 0))


def describe_unmet(names: Collection[str]) -> str:
    """Describe what the schedule waits for: ``waits for 'a' and 'b' to succeed``."""
    *most, last = [repr(name) for name in names]
    return f"waits for {', '.join(most)} and {last} to succeed" if most else f"waits for {last} to succeed"


def use_successes(plan: SchedulePlan, jobs: Sequence[bytes], now: int, successes: Successes) -> SchedulePlan:
    """Record that these jobs were made, which are one start: the present successes of the dependencies start no other
    run."""
    if not plan.definition.depends_on:
        return plan
    used = {name: max(_number(successes, name), plan.used.get(name, 0)) for name in plan.definition.depends_on}
    return replace(plan, used=used, starts=(*plan.starts, UnseenStart(tuple(jobs), now, plan.used)))


def add_to_start(plan: SchedulePlan, jobs: Sequence[bytes]) -> SchedulePlan:
    """Record that these jobs were made too, as a part of the last start."""
    if not plan.starts:  # it was seen
        return plan
    *others, last = plan.starts
    return replace(plan, starts=(*others, replace(last, jobs=(*last.jobs, *jobs))))


def give_back_successes(plan: SchedulePlan, jobs: Collection[bytes]) -> SchedulePlan:
    """Undo :func:`use_successes` for the starts of which all jobs are among these, which never start."""
    starts: list[UnseenStart] = []
    given: dict[str, int] | None = None
    for start in plan.starts:
        used = start.used if given is None else given  # the next start uses what this one gives back
        left = tuple(job for job in start.jobs if job not in jobs)
        given = None if left else used
        if left:
            starts.append(replace(start, jobs=left, used=used))
    if given is None:
        return replace(plan, starts=tuple(starts))
    # A dependency that was added in the meantime keeps its number.
    return replace(
        plan, starts=tuple(starts), used={name: given.get(name, number) for name, number in plan.used.items()}
    )


def note_starts(
    plan: SchedulePlan, now: int, seen: Mapping[bytes, SeenRun | None], successes: Successes
) -> SchedulePlan:
    """Note which of the starts that no scheduler has seen yet have happened, and which never will."""
    for n in reversed(range(len(plan.starts))):
        start = plan.starts[n]
        found = [job for id in start.jobs if (job := seen.get(id)) is not None and job.has_started]
        if found:
            plan = _end_start(plan, start, _first_moment(found), successes)
        elif _may_have_started(plan, start, now, seen):
            plan = _end_start(plan, start, None, successes)
        else:
            never = [id for id in start.jobs if id in seen and ((job := seen[id]) is None or job.state in FINAL)]
            plan = give_back_successes(plan, never)
    return plan


def _first_moment(jobs: Collection[SeenRun]) -> int | None:
    """Return when the first of these jobs was claimed first; None if that is not known."""
    moments = [
        job.started if job.first_started is None and job.attempt == job.epoch == 1 else job.first_started
        for job in jobs
    ]
    known = [moment for moment in moments if moment is not None]
    return min(known) if len(known) == len(moments) else None


def _may_have_started(plan: SchedulePlan, start: UnseenStart, now: int, seen: Mapping[bytes, SeenRun | None]) -> bool:
    """Whether a job of this start is gone that may have run. The job of a run is kept for ``MIN_KEEP`` after its end: a
    job that is gone sooner was not made, because another one holds its unique key, or a user deleted it."""
    open_jobs = {run.job for run in plan.open}
    gone = [id for id in start.jobs if id in seen and seen[id] is None]
    unknown = [id for id in start.jobs if id not in seen and id not in open_jobs]
    return bool(unknown) or bool(gone and now - start.made >= MIN_KEEP)


def _end_start(plan: SchedulePlan, start: UnseenStart, moment: int | None, successes: Successes) -> SchedulePlan:
    """Record that a start has happened. It also uses the successes that came after the jobs were made and before the
    moment of the start.

    The times of the end and the start are compared once, for these successes only. If the moment is not known, no such
    success is used.
    """
    at = plan.starts.index(start)
    used = dict(plan.used if start is plan.starts[-1] else plan.starts[at + 1].used)
    for name, last in successes.items():
        if last is not None and moment is not None and last.ended < moment:
            used[name] = max(last.number, used.get(name, 0))

    def raised(numbers: Mapping[str, int]) -> dict[str, int]:
        return {name: max(number, used.get(name, 0)) for name, number in numbers.items()}

    others = tuple(replace(each, used=raised(each.used)) for each in plan.starts if each is not start)
    return replace(plan, used=raised(plan.used), starts=others)


def first_numbers(definition: Definition, used: Mapping[str, int], successes: Successes) -> dict[str, int]:
    """Return ``used`` for a new definition. Successes from before a schedule became a dependency do not count."""
    return {name: used.get(name, _number(successes, name)) for name in definition.depends_on}


def _number(successes: Successes, name: str) -> int:
    last = successes.get(name)
    return 0 if last is None else last.number
