"""Decides which due occurrences become jobs, by the options ``misfire`` and ``overlap``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from mainspring.jobs.records import NewJob
from mainspring.schedules.plan.run_job import MAX_RUNS, RunBuilder
from mainspring.schedules.plan.state import OccurrenceRecord, OpenRun, SchedulePlan, What, encode_run
from mainspring.schedules.records import ScheduleRun
from mainspring.schedules.rules import Cron, RuleWindow, find_missed
from mainspring.states import State

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


def fire(plan: SchedulePlan, now: int, making: RunBuilder, states: Mapping[bytes, State]) -> FireResult:
    """Handle every due occurrence; at least one is due. ``states`` has the known states of the open runs."""
    if plan.definition.mode == "continuous" or plan.rule is None:
        return _fire_continuous(plan, now, making, states)
    due = _find_due(plan, now)
    chosen = _choose(plan, due.known[-making.max_jobs :], now)
    watermark = max(plan.watermark, due.until)
    runs = _record_passed(due, {*chosen, *(run.at for run in plan.open)}, now)
    plan = replace(plan, watermark=watermark, due=plan.rule.next(max(watermark, now)))
    late = sum(now - at > LATE for at in due.known)
    return _make_runs(plan, chosen, runs, now, making, states)._replace(missed=late + due.gone if late else 0)


def find_overlap(plan: SchedulePlan, states: Mapping[bytes, State]) -> OccurrenceRecord | None:
    """Return the record of an occurrence that cannot run because earlier runs are open; None if it can run."""
    overlap = plan.definition.overlap
    if plan.definition.mode == "continuous" and overlap == "allow":
        overlap = "skip"
    if not plan.open or overlap != "skip":
        return _refuse_many(plan)
    last = plan.open[-1]
    if states.get(last.job) is State.BLOCKED:
        return OccurrenceRecord("coalesced", note=f"job {UUID(bytes=last.job)} still waits for other schedules")
    return OccurrenceRecord("skipped", note=f"job {UUID(bytes=last.job)} has not ended")


def runs_to_cancel(plan: SchedulePlan) -> tuple[bytes, ...]:
    """Return the jobs that ``overlap="cancel_previous"`` cancels: every open run but the newest, without backfills."""
    if plan.definition.overlap != "cancel_previous":
        return ()
    return tuple(run.job for run in plan.open if run.what != "backfilled")[:-1]


# ---- private ---------------------------------------------------------------------------------------


def _fire_continuous(plan: SchedulePlan, now: int, making: RunBuilder, states: Mapping[bytes, State]) -> FireResult:
    """Start the next run of mode ``continuous``, unless a run is open."""
    if plan.open:
        return FireResult(replace(plan, due=None), [], [])
    at = max(now, plan.watermark + 1, plan.asked + 1)
    return _make_runs(replace(plan, due=None, watermark=at), [at], [], now, making, states)


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
    states: Mapping[bytes, State],
) -> FireResult:
    """Make runs of these occurrences, unless earlier open runs prevent it. The new runs wait for each other."""
    jobs: list[NewJob] = []
    notes: list[str] = []
    blocked = find_overlap(plan, states)
    for at in chosen:
        passed = blocked or _refuse_many(plan)
        if passed is not None:
            runs.append(encode_run(at, replace(passed, made=now)))
            notes.append(passed.note)
            continue
        job = making.occurrence_job(at, now)
        jobs.append(job)
        plan = replace(plan, open=(*plan.open, OpenRun(at, job.id, now)))
        runs.append(encode_run(at, OccurrenceRecord("fired", now), job.id))
    return FireResult(plan, runs, jobs, passed=tuple(notes))


def _refuse_many(plan: SchedulePlan) -> OccurrenceRecord | None:
    if len(plan.open) < MAX_RUNS:
        return None
    return OccurrenceRecord("skipped", note=f"{MAX_RUNS} runs have not ended")
