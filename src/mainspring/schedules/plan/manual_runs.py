"""Runs that a user requests: ``trigger`` makes a run now, ``backfill`` makes runs of past occurrences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

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
    *,
    force: bool = False,
    earliest: int = 0,
) -> ScheduleStep | TriggerRefusal:
    """Make a run now, if the rules of the schedule allow it.

    ``force`` also runs a schedule that is disabled or whose last run has not ended. The forced run starts after the
    last run has ended, unless ``overlap="allow"``.

    The history keeps the run under a moment of its own, at or after ``earliest``. This moment is never the moment of
    an occurrence of the rule, because that occurrence needs its own record.
    """
    before = plan
    plan, runs = settle(plan, now, seen)
    plan = reenable_on_trial(plan, now)
    if not plan.enabled and not force:
        return TriggerRefusal(_describe_disabled(plan))
    states = {job: each.state for job, each in seen.items() if each is not None}
    passed = None if force else find_overlap(plan, states)
    if passed is not None:
        return TriggerRefusal(passed.note, plan.open[-1].job)
    making = RunBuilder(name, plan.definition, new_id)
    at = _find_unused_moment(plan, max(now, earliest))
    job = making.job(at)
    plan = replace(plan, asked=at, open=(*plan.open, OpenRun(at, job.id, now, "triggered")))
    runs.append(encode_run(at, OccurrenceRecord("triggered", now, "forced" if force else ""), job.id))
    return ScheduleStep(
        plan, next_look(plan, now), tuple(runs), (job,), making.limits, runs_to_cancel(plan),
        tuple(report_switch(before, plan)), forced=force,
    )  # fmt: skip


def backfill(
    name: str, plan: SchedulePlan, now: int, moments: Sequence[int], new_id: Callable[[], bytes]
) -> ScheduleStep | TriggerRefusal:
    """Make one run for each of these past occurrences.

    The runs wait for each other, unless ``overlap="allow"``. If the jobs are too large for one step, the step has the
    first occurrences only, and the caller calls again with the rest.
    """
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
    return ScheduleStep(plan, next_look(plan, now), runs, jobs, making.limits)


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
