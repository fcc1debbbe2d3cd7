"""The rows that declarations and operators make: the first one, a changed one, on and off."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from mainspring.schedules.plan.settle import after_pause, restarted
from mainspring.schedules.plan.state import Definition, SchedulePlan


def first(
    definition: Definition, now: int, *, owner: Literal["code", "user"] = "user", version: str = ""
) -> SchedulePlan:
    """The row of a schedule that is stored for the first time: its interval is anchored here, once."""
    plan = SchedulePlan(definition=definition, owner=owner, version=version)
    return _timed(plan, now)


def revised(
    plan: SchedulePlan, definition: Definition, now: int, *, owner: Literal["code", "user"], version: str = ""
) -> SchedulePlan:
    """The same schedule under a new definition. Its runs, failures and whether it is enabled stay. A rule that stays as
    it was keeps its phase and what is due; another one begins now."""
    same = plan.definition.rule == definition.rule and plan.definition.mode == definition.mode
    changed = replace(plan, definition=definition, owner=owner, version=version, gone_in=None)
    if plan.off == "orphaned":
        changed = replace(changed, enabled=True, off="", note="", off_at=0)
        changed = restarted(changed, now) if same else changed
    return changed if same else _timed(changed, now)


def enabled(plan: SchedulePlan, now: int) -> SchedulePlan:
    """On again, with failures forgotten. What was due meanwhile is not made up for."""
    if plan.enabled:
        return replace(plan, failures=0, trips=0, trial=False)
    on = replace(plan, enabled=True, off="", note="", off_at=0, back_at=None, trial=False, trips=0, failures=0)
    return restarted(on, now)


def disabled(plan: SchedulePlan, now: int, note: str = "") -> SchedulePlan:
    """Off until somebody enables it; what runs goes on."""
    return replace(plan, enabled=False, off="operator", note=note, off_at=now, back_at=None, trial=False)


def orphaned(plan: SchedulePlan, now: int, version: str) -> SchedulePlan:
    """Off because the newest code does not have it; it comes back with code that does, unless somebody disabled it."""
    plan = replace(plan, gone_in=version)
    if plan.off == "operator":
        return plan
    note = f"version {version} does not declare it" if version else "the code that started last does not declare it"
    return replace(plan, enabled=False, off="orphaned", note=note, off_at=now, back_at=None, trial=False)


def _timed(plan: SchedulePlan, now: int) -> SchedulePlan:
    """What is due by the rule of its definition, from now on."""
    definition = plan.definition
    if definition.mode == "continuous":
        return replace(plan, rule=None, due=after_pause(plan, now))
    if definition.mode == "triggered" or definition.rule is None:
        return replace(plan, rule=None, due=None)
    rule = definition.rule.anchored(now, immediate=definition.immediate)
    # An occurrence at this very moment is to come: an immediate one, or one that is stored when its moment is here.
    due = rule.next(max(plan.watermark, now - 1))
    return replace(plan, rule=rule, due=due)
