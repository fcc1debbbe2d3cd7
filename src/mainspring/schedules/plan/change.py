"""The rows that declarations and operators write: a new schedule, a changed one, enable and disable."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from mainspring.schedules.plan.dependencies import NO_SUCCESSES, Successes, first_numbers
from mainspring.schedules.plan.fire import LATE
from mainspring.schedules.plan.settle import next_continuous_run, restart
from mainspring.schedules.plan.state import Definition, OccurrenceRecord, SchedulePlan, encode_run
from mainspring.schedules.records import ScheduleRun
from mainspring.schedules.rules import Once


def new_plan(
    definition: Definition,
    now: int,
    successes: Successes = NO_SUCCESSES,
    *,
    owner: Literal["code", "user"] = "user",
    version: str = "",
) -> SchedulePlan:
    """Return the row of a schedule that is stored for the first time. An interval is anchored here, once.

    ``successes`` has the last success of each schedule that this one depends on: they do not count for it.
    """
    used = first_numbers(definition, {}, successes)
    plan = SchedulePlan(definition=definition, owner=owner, version=version, used=used)
    return _set_due(plan, now)


def revise(
    plan: SchedulePlan,
    definition: Definition,
    now: int,
    successes: Successes = NO_SUCCESSES,
    *,
    owner: Literal["code", "user"],
    version: str = "",
) -> SchedulePlan:
    """Return the same schedule with a new definition. ``successes``: see :func:`new_plan`.

    The open runs, the waiting occurrence, the failure count and the enabled flag stay. If the rule and the mode did not
    change, the interval keeps its phase and the due occurrence stays due. A new rule begins at ``now``.
    """
    same = plan.definition.rule == definition.rule and plan.definition.mode == definition.mode
    used = first_numbers(definition, plan.used, successes)
    changed = replace(plan, definition=definition, owner=owner, version=version, gone_in=None, used=used)
    if plan.off == "orphaned":
        changed = replace(changed, enabled=True, off="", note="", off_at=0)
        changed = restart(changed, now) if same else changed
    return changed if same else _set_due(changed, now)


def is_over(plan: SchedulePlan) -> bool:
    """Whether the rule of the schedule has no occurrence left."""
    return plan.definition.mode == "scheduled" and plan.due is None


def record_passed(plan: SchedulePlan, now: int) -> tuple[ScheduleRun, ...]:
    """Return the history record of a single occurrence that had passed when its schedule was stored; () for others."""
    rule = None if plan.rule is None else plan.rule.rule
    if not is_over(plan) or not isinstance(rule, Once) or rule.moment is None:
        return ()
    note = "its time had passed when the schedule was stored"
    return (encode_run(rule.moment, OccurrenceRecord("missed", now, note)),)


def enable(plan: SchedulePlan, now: int) -> SchedulePlan:
    """Enable a schedule and reset its failure count. Occurrences from the disabled time do not run."""
    if plan.enabled:
        return replace(plan, failures=0, trips=0, trial=False)
    on = replace(plan, enabled=True, off="", note="", off_at=0, back_at=None, trial=False, trips=0, failures=0)
    return restart(on, now)


def disable(plan: SchedulePlan, now: int, note: str = "") -> SchedulePlan:
    """Disable a schedule until an operator enables it. Runs that have started continue."""
    return replace(plan, enabled=False, off="operator", note=note, off_at=now, back_at=None, trial=False)


def mark_orphaned(plan: SchedulePlan, now: int, version: str) -> SchedulePlan:
    """Disable a schedule that the newest code does not declare.

    Code that declares the schedule again enables it. A schedule that an operator disabled stays disabled.
    """
    plan = replace(plan, gone_in=version)
    if plan.off == "operator":
        return plan
    note = f"version {version} does not declare it" if version else "the code that started last does not declare it"
    return replace(plan, enabled=False, off="orphaned", note=note, off_at=now, back_at=None, trial=False)


def _set_due(plan: SchedulePlan, now: int) -> SchedulePlan:
    """Set the next occurrence by the rule of the definition, from ``now`` on."""
    definition = plan.definition
    if definition.mode == "continuous":
        return replace(plan, rule=None, due=next_continuous_run(plan, now))
    if definition.mode == "triggered" or definition.rule is None:
        return replace(plan, rule=None, due=None)
    rule = definition.rule.anchored(now, immediate=definition.immediate)
    # An occurrence exactly at `now` must still run. It is an immediate one, or the schedule was stored at the moment of
    # its occurrence. A single occurrence may be late, as it may be at any other time: see `misfire`.
    late = LATE if isinstance(rule.rule, Once) else 0
    due = rule.next(max(plan.watermark, now - late - 1))
    return replace(plan, rule=rule, due=due)
