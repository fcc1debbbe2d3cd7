"""What somebody asks for by hand: a run now, or runs of occurrences that are over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from mainspring.schedules.plan.fire import in_the_way, superseded
from mainspring.schedules.plan.run_job import MOST, RunBuilder
from mainspring.schedules.plan.settle import SeenRun, come_back, settle
from mainspring.schedules.plan.state import OccurrenceRecord, OpenRun, SchedulePlan, run_of
from mainspring.schedules.plan.steps import ScheduleStep, changes, look_of


class TriggerRefusal(NamedTuple):
    """Why there is no run."""

    why: str
    job: bytes | None = None
    """The run that is in the way."""


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
    """A run now, if the rules of the schedule let it; ``force``: also of one that is disabled or has not ended its last
    run. It begins when that has ended, unless overlaps are allowed.

    It is kept under a moment of its own, from ``earliest`` on: an occurrence of the rule needs its own."""
    before = plan
    plan, runs = settle(plan, now, seen)
    plan = come_back(plan, now)
    if not plan.enabled and not force:
        return TriggerRefusal(_off(plan))
    states = {job: each.state for job, each in seen.items() if each is not None}
    passed = None if force else in_the_way(plan, states)
    if passed is not None:
        return TriggerRefusal(passed.note, plan.open[-1].job)
    making = RunBuilder(name, plan.definition, new_id)
    at = _unused(plan, max(now, earliest))
    job = making.plain(at)
    plan = replace(plan, asked=at, open=(*plan.open, OpenRun(at, job.id, now, "triggered")))
    runs.append(run_of(at, OccurrenceRecord("triggered", now, "forced" if force else ""), job.id))
    return ScheduleStep(
        plan, look_of(plan, now), tuple(runs), (job,), making.limits, superseded(plan), tuple(changes(before, plan)),
        forced=force,
    )  # fmt: skip


def backfill(
    name: str, plan: SchedulePlan, now: int, moments: Sequence[int], new_id: Callable[[], bytes]
) -> ScheduleStep | TriggerRefusal:
    """Runs of these occurrences, each its own job; they wait for each other unless overlaps are allowed. Of the first
    of them, if their jobs are too large for one step."""
    wanted = sorted(set(moments))
    if len(plan.open) + len(wanted) > MOST:
        return TriggerRefusal(
            f"{len(plan.open)} runs have not ended and {len(wanted)} would be added; {MOST} is the most"
        )
    making = RunBuilder(name, plan.definition, new_id)
    jobs = tuple(making.plain(at) for at in wanted[: making.most])
    added = tuple(OpenRun(at, job.id, now, "backfilled") for at, job in zip(wanted, jobs, strict=False))
    runs = tuple(run_of(run.at, OccurrenceRecord("backfilled", now), run.job) for run in added)
    plan = replace(plan, open=(*plan.open, *added))
    return ScheduleStep(plan, look_of(plan, now), runs, jobs, making.limits)


def _unused(plan: SchedulePlan, now: int) -> int:
    """A moment that no run stands under, and none will: not that of an occurrence."""
    at = max(now, plan.watermark + 1, plan.asked + 1)
    while plan.rule is not None and plan.rule.next(at - 1) == at:
        at += 1
    return at


def _off(plan: SchedulePlan) -> str:
    words = {
        "failures": f"it was disabled after {plan.failures} runs failed in a row",
        "orphaned": "it is not in the newest code any more",
    }
    return words.get(plan.off, "it is disabled") + (f": {plan.note}" if plan.note else "")
