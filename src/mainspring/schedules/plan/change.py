"""The rows that declarations and operators write: a new schedule, a changed one, enable and disable."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from mainspring.schedules.plan.settle import next_continuous_run, restart
from mainspring.schedules.plan.state import Definition, SchedulePlan


def new_plan(
    definition: Definition, now: int, *, owner: Literal["code", "user"] = "user", version: str = ""
) -> SchedulePlan:
    """Return the row of a schedule that is stored for the first time. An interval is anchored here, once."""
    plan = SchedulePlan(definition=definition, owner=owner, version=version)
    return _set_due(plan, now)


def revise(
    plan: SchedulePlan, definition: Definition, now: int, *, owner: Literal["code", "user"], version: str = ""
) -> SchedulePlan:
    """Return the same schedule with a new definition.

    The open runs, the failure count and the enabled flag stay. If the rule and the mode did not change, the interval
    keeps its phase and the due occurrence stays due. A new rule begins at ``now``.
    """
    same = plan.definition.rule == definition.rule and plan.definition.mode == definition.mode
    changed = replace(plan, definition=definition, owner=owner, version=version, gone_in=None)
    if plan.off == "orphaned":
        changed = replace(changed, enabled=True, off="", note="", off_at=0)
        changed = restart(changed, now) if same else changed
    return changed if same else _set_due(changed, now)


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
    # `now - 1`: an occurrence exactly at `now` must still run. It is an immediate one, or the schedule was stored at
    # the moment of its occurrence.
    due = rule.next(max(plan.watermark, now - 1))
    return replace(plan, rule=rule, due=due)
