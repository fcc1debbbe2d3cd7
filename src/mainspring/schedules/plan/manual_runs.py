"""Runs that a user requests: ``trigger`` makes a run now, ``backfill`` makes runs of past occurrences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from mainspring.schedules.plan.dependencies import (
    NO_SUCCESSES,
    Successes,
    add_to_start,
    describe_unmet,
    find_unmet,
    note_starts,
    use_successes,
)
from mainspring.schedules.plan.fire import find_overlap, runs_to_cancel
from mainspring.schedules.plan.run_job import MAX_RUNS, RunBuilder
from mainspring.schedules.plan.settle import SeenRun, reenable_on_trial, settle
from mainspring.schedules.plan.state import OccurrenceRecord, OpenRun, SchedulePlan, encode_run
from mainspring.schedules.plan.steps import ScheduleStep, next_look, report_switch


class TriggerRefusal(NamedTuple):
    """The reason why no run was made."""

    why: str
    job: bytes | None = None
    """The open run that prevents it."""


def trigger(
    name: str,
    plan: SchedulePlan,
    now: int,
    seen: Mapping[bytes, SeenRun | None],
    new_id: Callable[[], bytes],
    successes: Successes = NO_SUCCESSES,
    *,
    force: bool = False,
    earliest: int = 0,
) -> ScheduleStep | TriggerRefusal:
    """Make a run now, if the rules of the schedule allow it. ``seen`` and ``successes``: see :func:`step`.

    ``force`` also runs a schedule that is disabled, whose dependencies have not succeeded, or whose last run has not
    ended. The forced run starts after the last run has ended, unless ``overlap="allow"``.

    The history keeps the run under a moment of its own, at or after ``earliest``. This moment is never the moment of
    an occurrence of the rule, because that occurrence needs its own record.
    """
    before = plan
    plan, runs = settle(plan, now, seen)
    plan = reenable_on_trial(note_starts(plan, now, seen, successes), now)
    refusal = None if force else _refuse(plan, successes)
    if refusal is not None:
        return refusal
    making = RunBuilder(name, plan.definition, new_id)
    at = _find_unused_moment(plan, max(now, earliest))
    job = making.job(at)
    plan = replace(plan, asked=at, open=(*plan.open, OpenRun(at, job.id, now, "triggered")))
    plan = use_successes(plan, (job.id,), now, successes)
    runs.append(encode_run(at, OccurrenceRecord("triggered", now, "forced" if force else ""), job.id))
    return ScheduleStep(
        plan, next_look(plan, now), tuple(runs), (job,), making.limits, runs_to_cancel(plan),
        tuple(report_switch(before, plan)),
    )  # fmt: skip


def backfill(
    name: str,
    plan: SchedulePlan,
    now: int,
    moments: Sequence[int],
    new_id: Callable[[], bytes],
    seen: Mapping[bytes, SeenRun | None] = MappingProxyType({}),
    successes: Successes = NO_SUCCESSES,
    *,
    more: bool = False,
) -> ScheduleStep | TriggerRefusal:
    """Make one run for each of these past occurrences.

    The runs wait for each other, unless ``overlap="allow"``. If the jobs are too large for one step, the step has the
    first occurrences only, and the caller calls again with the rest and ``more``. All runs of a backfill are one start:
    the dependencies must have succeeded once for all of them.
    """
    plan = note_starts(plan, now, seen, successes)
    unmet = () if more else find_unmet(plan, successes)
    if unmet:
        return TriggerRefusal(f"it {describe_unmet(unmet)}")
    wanted = sorted(set(moments))
    if len(plan.open) + len(wanted) > MAX_RUNS:
        return TriggerRefusal(
            f"{len(plan.open)} runs have not ended and {len(wanted)} would be added; the maximum is {MAX_RUNS}"
        )
    making = RunBuilder(name, plan.definition, new_id)
    jobs = tuple(making.job(at) for at in wanted[: making.max_jobs])
    added = tuple(OpenRun(at, job.id, now, "backfilled") for at, job in zip(wanted, jobs, strict=False))
    runs = tuple(encode_run(run.at, OccurrenceRecord("backfilled", now), run.job) for run in added)
    plan = replace(plan, open=(*plan.open, *added))
    ids = [job.id for job in jobs]
    if ids:
        plan = add_to_start(plan, ids) if more else use_successes(plan, ids, now, successes)
    return ScheduleStep(plan, next_look(plan, now), runs, jobs, making.limits)


def _refuse(plan: SchedulePlan, successes: Successes) -> TriggerRefusal | None:
    """Return the rule that does not allow a run now; None if all do."""
    if not plan.enabled:
        return TriggerRefusal(_describe_disabled(plan))
    passed = find_overlap(plan)
    if passed is not None:
        return TriggerRefusal(passed.note, plan.open[-1].job)
    unmet = find_unmet(plan, successes)
    if unmet:
        return TriggerRefusal(f"it {describe_unmet(unmet)}")
    return None if plan.waiting is None else TriggerRefusal("its waiting occurrence is about to start")


def _find_unused_moment(plan: SchedulePlan, now: int) -> int:
    """Return a moment that no run has and no occurrence will have."""
    at = max(now, plan.watermark + 1, plan.asked + 1)
    while plan.rule is not None and plan.rule.next(at - 1) == at:
        at += 1
    return at


def _describe_disabled(plan: SchedulePlan) -> str:
    words = {
        "failures": f"it was disabled after {plan.failures} runs failed in a row",
        "orphaned": "it is orphaned",
    }
    return words.get(plan.off, "it is disabled") + (f": {plan.note}" if plan.note else "")
