"""Which of the occurrences that are due become jobs, by misfire and overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from mainspring.jobs.records import NewJob
from mainspring.schedules.plan.run_job import MOST, RunBuilder
from mainspring.schedules.plan.state import OccurrenceRecord, OpenRun, SchedulePlan, What, run_of
from mainspring.schedules.records import ScheduleRun
from mainspring.schedules.rules import Cron, RuleWindow, missed
from mainspring.states import State

LATE = 30_000_000
"""An occurrence that nobody has seen to for longer than this is missed."""
_DAY = 86_400_000_000


class FireResult(NamedTuple):
    """What came of the occurrences that were due."""

    plan: SchedulePlan
    runs: list[ScheduleRun]
    jobs: list[NewJob]
    missed: int = 0
    """How many of them were too late, whether they run now or never."""
    passed: tuple[str, ...] = ()
    """Why those that should run do not: by overlap."""


class _Due(NamedTuple):
    """The occurrences that are due, oldest first: the first one and the newest."""

    known: list[int]
    gone: int
    """How many more there are, between the first one and the others."""
    exact: bool
    """Whether those are all."""
    until: int
    """None of them will come again after this moment."""


def fire(plan: SchedulePlan, now: int, making: RunBuilder, states: Mapping[bytes, State]) -> FireResult:
    """See to all that is due, which is something. ``states`` are those of the open runs, as far as they are known."""
    if plan.definition.mode == "continuous" or plan.rule is None:
        return _again(plan, now, making, states)
    due = _due(plan, now)
    chosen = _chosen(plan, due.known[-making.most :], now)
    watermark = max(plan.watermark, due.until)
    runs = _passed_over(due, {*chosen, *(run.at for run in plan.open)}, now)
    plan = replace(plan, watermark=watermark, due=plan.rule.next(max(watermark, now)))
    late = sum(now - at > LATE for at in due.known)
    return _made(plan, chosen, runs, now, making, states)._replace(missed=late + due.gone if late else 0)


def _again(plan: SchedulePlan, now: int, making: RunBuilder, states: Mapping[bytes, State]) -> FireResult:
    """The next run of mode ``continuous``, unless one is there."""
    if plan.open:
        return FireResult(replace(plan, due=None), [], [])
    at = max(now, plan.watermark + 1, plan.asked + 1)
    return _made(replace(plan, due=None, watermark=at), [at], [], now, making, states)


def _due(plan: SchedulePlan, now: int) -> _Due:
    assert plan.due is not None
    assert plan.rule is not None
    since = _by_our_clocks(plan.rule, plan.due)
    later = missed(plan.rule, since, now, MOST)
    known = [at for at in (plan.due, *later.last) if at > plan.watermark]
    return _Due(known, max(0, later.count - MOST), later.exact, max([since, *later.last]))


def _by_our_clocks(rule: RuleWindow, due: int) -> int:
    """The moment of the occurrence that is stored as due, or a later one if the rules of time zones that we have say
    that it is yet to come: it must not come twice."""
    if not isinstance(rule.rule, Cron) or (ours := rule.next(due - 1)) == due:
        return due
    if ours is None or ours - due > _DAY or missed(rule, due - (ours - due), due, 1).count:
        return due  # it has been, or is another one
    return ours


def _chosen(plan: SchedulePlan, known: Sequence[int], now: int) -> list[int]:
    """The occurrences that become runs."""
    definition = plan.definition
    if definition.misfire == "all" and definition.overlap != "cancel_previous":
        return list(known)
    return [at for at in known[-1:] if definition.misfire != "skip" or now - at <= LATE]


def _passed_over(due: _Due, run: set[int], now: int) -> list[ScheduleRun]:
    """The records of those that do not, and that nobody has backfilled meanwhile. Those between the first one and the
    others stand in its record."""
    runs = []
    for at in due.known:
        if at not in run:
            first = at == due.known[0]
            note = _LATE_NOTE if now - at > LATE else "a later one was due as well"
            note += "" if due.exact or not first else "; there were more than are counted here"
            what: What = "missed" if now - at > LATE else "coalesced"
            runs.append(run_of(at, OccurrenceRecord(what, now, note, count=1 + (due.gone if first else 0))))
    return runs


_LATE_NOTE = "nobody was there to run it in time"


def _made(
    plan: SchedulePlan,
    chosen: Sequence[int],
    runs: list[ScheduleRun],
    now: int,
    making: RunBuilder,
    states: Mapping[bytes, State],
) -> FireResult:
    """Runs of these occurrences, unless those that were there before are in the way; they wait for each other."""
    jobs: list[NewJob] = []
    notes: list[str] = []
    blocked = in_the_way(plan, states)
    for at in chosen:
        passed = blocked or _too_many(plan)
        if passed is not None:
            runs.append(run_of(at, replace(passed, made=now)))
            notes.append(passed.note)
            continue
        job = making.job(at, now)
        jobs.append(job)
        plan = replace(plan, open=(*plan.open, OpenRun(at, job.id, now)))
        runs.append(run_of(at, OccurrenceRecord("fired", now), job.id))
    return FireResult(plan, runs, jobs, passed=tuple(notes))


def in_the_way(plan: SchedulePlan, states: Mapping[bytes, State]) -> OccurrenceRecord | None:
    """What is said of another run if those that have not ended leave no room for it; None if they do."""
    overlap = plan.definition.overlap
    if plan.definition.mode == "continuous" and overlap == "allow":
        overlap = "skip"
    if not plan.open or overlap != "skip":
        return _too_many(plan)
    last = plan.open[-1]
    if states.get(last.job) is State.BLOCKED:
        return OccurrenceRecord("coalesced", note=f"job {UUID(bytes=last.job)} still waits for others")
    return OccurrenceRecord("skipped", note=f"job {UUID(bytes=last.job)} has not ended")


def superseded(plan: SchedulePlan) -> tuple[bytes, ...]:
    """Runs that are to be cancelled, for a later one is there. What somebody backfilled is not meant."""
    if plan.definition.overlap != "cancel_previous":
        return ()
    return tuple(run.job for run in plan.open if run.what != "backfilled")[:-1]


def _too_many(plan: SchedulePlan) -> OccurrenceRecord | None:
    return OccurrenceRecord("skipped", note=f"{MOST} runs have not ended") if len(plan.open) >= MOST else None
