"""Decides which due occurrences become jobs, by the options ``misfire`` and ``overlap``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from mainspring.common.clock import to_datetime
from mainspring.jobs.records import NewJob
from mainspring.schedules.plan.dependencies import Successes, describe_unmet, find_unmet, use_successes
from mainspring.schedules.plan.run_job import MAX_RUNS, RunBuilder
from mainspring.schedules.plan.state import (
    OccurrenceRecord,
    OpenRun,
    SchedulePlan,
    WaitingOccurrence,
    What,
    encode_run,
)
from mainspring.schedules.records import ScheduleRun
from mainspring.schedules.rules import Cron, RuleWindow, find_missed

SOONEST = 1_000_000
"""Microseconds until a look that must come soon, and not at once."""
LATE = 30_000_000
"""Microseconds. An occurrence that no scheduler handled within this time is missed."""
_DAY = 86_400_000_000


class FireResult(NamedTuple):
    """The decisions about the occurrences that were due."""

    plan: SchedulePlan
    runs: list[ScheduleRun]
    jobs: list[NewJob]
    missed: int = 0
    """The number of occurrences that were too late, including the occurrences that run now."""
    passed: tuple[str, ...] = ()
    """For each occurrence that ``overlap`` skipped: the reason."""


class _Due(NamedTuple):
    """The due occurrences, oldest first: the first occurrence and the newest ones."""

    known: list[int]
    gone: int
    """The number of further occurrences, between the first one and the others."""
    exact: bool
    """False: there are more occurrences than ``known`` and ``gone`` count."""
    until: int
    """No occurrence at or before this moment fires again."""


def fire(plan: SchedulePlan, now: int, making: RunBuilder, successes: Successes) -> FireResult:
    """Handle every due occurrence; at least one is due."""
    if plan.definition.mode == "continuous" or plan.rule is None:
        return _fire_continuous(plan, now, making, successes)
    due = _find_due(plan, now)
    chosen = _choose(plan, due.known[-making.max_jobs :], now)
    watermark = max(plan.watermark, due.until)
    runs = _record_passed(due, {*chosen, *(run.at for run in plan.open)}, now)
    plan = replace(plan, watermark=watermark, due=plan.rule.next(max(watermark, now)))
    late = sum(now - at > LATE for at in due.known)
    return _make_runs(plan, chosen, runs, now, making, successes)._replace(missed=late + due.gone if late else 0)


def find_overlap(plan: SchedulePlan) -> OccurrenceRecord | None:
    """Return the record of an occurrence that cannot run because earlier runs are open; None if it can run."""
    overlap = plan.definition.overlap
    if plan.definition.mode == "continuous" and overlap == "allow":
        overlap = "skip"
    if not plan.open or overlap != "skip":
        return _refuse_many(plan)
    return OccurrenceRecord("skipped", note=f"job {UUID(bytes=plan.open[-1].job)} has not ended")


def drop_waiting(plan: SchedulePlan, now: int, successes: Successes) -> FireResult:
    """Give up the waiting occurrence if its schedule was disabled or its ``expires`` has passed."""
    waiting = plan.waiting
    if waiting is None:
        return FireResult(plan, [], [])
    expires = expiry_of_waiting(plan)
    if not plan.enabled:
        note = "the schedule was disabled while the occurrence waited"
    elif expires is not None and now >= expires:
        unmet = find_unmet(plan, successes) or plan.definition.depends_on
        note = f"it expired while the schedule waited: it {describe_unmet(unmet)}"
    else:
        return FireResult(replace(plan, waiting=replace(waiting, since=min(waiting.since, now))), [], [])
    plan = replace(plan, waiting=None)
    if plan.definition.mode == "continuous" and plan.enabled and not plan.open:
        plan = replace(plan, due=now + max(plan.definition.min_pause, SOONEST))
    return FireResult(plan, [encode_run(waiting.at, OccurrenceRecord("skipped", now, note))], [], passed=(note,))


def expiry_of_waiting(plan: SchedulePlan) -> int | None:
    """Return when the waiting occurrence expires; None if none waits or it does not expire."""
    expires = plan.definition.job.expires_in
    return None if plan.waiting is None or expires is None else plan.waiting.since + expires


def start_waiting(plan: SchedulePlan, now: int, making: RunBuilder, successes: Successes) -> FireResult:
    """Make the run of the waiting occurrence if its dependencies are met."""
    waiting = plan.waiting
    if waiting is None or find_unmet(plan, successes) or _refuse_many(plan) is not None:
        return FireResult(plan, [], [])
    job = making.occurrence_job(waiting.at, now)
    if job.expires_in is not None:
        job = replace(job, expires_in=max(1, job.expires_in - (now - waiting.since)))
    plan = replace(plan, waiting=None, open=(*plan.open, OpenRun(waiting.at, job.id, now)))
    record = encode_run(waiting.at, OccurrenceRecord("fired", now), job.id)
    return FireResult(use_successes(plan, (job.id,), now, successes), [record], [job])


def runs_to_cancel(plan: SchedulePlan) -> tuple[bytes, ...]:
    """Return the jobs that ``overlap="cancel_previous"`` cancels: every open run but the newest, without backfills."""
    if plan.definition.overlap != "cancel_previous":
        return ()
    return tuple(run.job for run in plan.open if run.what != "backfilled")[:-1]


# ---- private ---------------------------------------------------------------------------------------


def _fire_continuous(plan: SchedulePlan, now: int, making: RunBuilder, successes: Successes) -> FireResult:
    """Start the next run of mode ``continuous``, unless a run is open or an occurrence waits."""
    if plan.open or plan.waiting is not None:
        return FireResult(replace(plan, due=None), [], [])
    at = max(now, plan.watermark + 1, plan.asked + 1)
    return _make_runs(replace(plan, due=None, watermark=at), [at], [], now, making, successes)


def _find_due(plan: SchedulePlan, now: int) -> _Due:
    assert plan.due is not None
    assert plan.rule is not None
    since = _nearest_by_local_zone_rules(plan.rule, plan.due)
    later = find_missed(plan.rule, since, now, MAX_RUNS)
    known = [at for at in (plan.due, *later.last) if at > plan.watermark]
    return _Due(known, max(0, later.count - MAX_RUNS), later.exact, max([since, *later.last]))


def _nearest_by_local_zone_rules(rule: RuleWindow, due: int) -> int:
    """Return the moment of the stored due occurrence by the time zone database of this machine.

    Another machine, with another database, may have stored ``due``. If this machine computes the same occurrence at a
    later moment, that later moment counts as handled too: otherwise the occurrence would run twice.
    """
    if not isinstance(rule.rule, Cron) or (ours := rule.next(due - 1)) == due:
        return due
    if ours is None or ours - due > _DAY or find_missed(rule, due - (ours - due), due, 1).count:
        return due  # this machine's occurrence is over, or it is a different occurrence
    return ours


def _choose(plan: SchedulePlan, known: Sequence[int], now: int) -> list[int]:
    """Return the occurrences that become runs, by ``misfire``."""
    definition = plan.definition
    if definition.misfire == "all" and definition.overlap != "cancel_previous":
        return list(known)
    return [at for at in known[-1:] if definition.misfire != "skip" or now - at <= LATE]


def _record_passed(due: _Due, run: set[int], now: int) -> list[ScheduleRun]:
    """Return the records of the occurrences that do not run and have no backfilled run.

    The record of the first occurrence also counts the occurrences between it and the others (``due.gone``).
    """
    runs = []
    for at in due.known:
        if at not in run:
            first = at == due.known[0]
            note = _LATE_NOTE if now - at > LATE else "a later occurrence was due as well"
            note += "" if due.exact or not first else "; there were more occurrences than this record counts"
            what: What = "missed" if now - at > LATE else "coalesced"
            runs.append(encode_run(at, OccurrenceRecord(what, now, note, count=1 + (due.gone if first else 0))))
    return runs


_LATE_NOTE = "no scheduler ran it in time"


def _make_runs(
    plan: SchedulePlan,
    chosen: Sequence[int],
    runs: list[ScheduleRun],
    now: int,
    making: RunBuilder,
    successes: Successes,
) -> FireResult:
    """Make runs of these occurrences, unless earlier open runs prevent it. The new runs wait for each other.

    An occurrence whose dependencies are not met waits, and later ones are coalesced into it.
    """
    jobs: list[NewJob] = []
    notes: list[str] = []
    overlaps = find_overlap(plan)
    for at in chosen:
        passed = _coalesce(plan) or overlaps or _refuse_many(plan)
        if passed is not None:
            runs.append(encode_run(at, replace(passed, made=now)))
            notes.append(passed.note)
            continue
        if unmet := find_unmet(plan, successes):
            plan = replace(plan, waiting=WaitingOccurrence(at, now))
            runs.append(encode_run(at, OccurrenceRecord("waiting", now, describe_unmet(unmet))))
            continue
        job = making.occurrence_job(at, now)
        jobs.append(job)
        plan = replace(plan, open=(*plan.open, OpenRun(at, job.id, now)))
        plan = use_successes(plan, (job.id,), now, successes)
        runs.append(encode_run(at, OccurrenceRecord("fired", now), job.id))
    return FireResult(plan, runs, jobs, passed=tuple(notes))


def _coalesce(plan: SchedulePlan) -> OccurrenceRecord | None:
    """Return the record of an occurrence that the waiting occurrence replaces; None if none waits."""
    if plan.waiting is None:
        return None
    at = to_datetime(plan.waiting.at).isoformat(" ", "seconds")
    return OccurrenceRecord("coalesced", note=f"the occurrence of {at} still waits for other schedules")


def _refuse_many(plan: SchedulePlan) -> OccurrenceRecord | None:
    if len(plan.open) < MAX_RUNS:
        return None
    return OccurrenceRecord("skipped", note=f"{MAX_RUNS} runs have not ended")
