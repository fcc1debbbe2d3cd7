"""What people read of schedules: made of the store's rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from mainspring.common.clock import to_datetime
from mainspring.common.duration import format_duration
from mainspring.common.redact import hide
from mainspring.jobs.records import JobBody
from mainspring.schedules import plan as planning
from mainspring.schedules import rules
from mainspring.schedules.plan import SchedulePlan, SeenRun
from mainspring.schedules.plan.state import Misfire, Mode, Off, Overlap, What
from mainspring.schedules.records import ScheduleDependencyRow, ScheduleRun
from mainspring.states import Reason, State


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The last run of a schedule that ended."""

    at: datetime
    """The occurrence."""
    job: UUID
    outcome: str
    """The state in which the job ended, or ``deleted``."""
    ended: datetime


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule when the store was asked."""

    name: str
    task: str
    enabled: bool
    off: Off
    """What disabled it: ``operator``, ``failures`` or ``orphaned``; empty if it is enabled."""
    note: str
    """Why it is disabled, in words."""
    off_since: datetime | None
    back_at: datetime | None
    """When one that failures disabled is tried again."""
    mode: Mode
    rule: str
    """When it is due, in words."""
    tz: str
    """The time zone of its rule; UTC where a rule has none."""
    next: datetime | None
    """The next occurrence; None if there is none, or while it is disabled."""
    last: LastRun | None
    running: tuple[UUID, ...]
    """Its runs that run now."""
    waiting: tuple[UUID, ...]
    """Its runs that have not started: for others, for room, or for a worker."""
    waiting_for: tuple[str, ...]
    """Schedules that must succeed or end before what waits can start."""
    failures: int
    """Runs that failed since one succeeded."""
    trial: bool
    """Failures disabled it, its time was over, and the next run decides."""
    last_success: datetime | None
    last_failure: datetime | None
    last_error: str
    owner: Literal["code", "user"]
    version: str
    """Of the code that declared it."""
    queue: str
    priority: int
    args: dict[str, Any]
    """The arguments of its runs by name; hidden as in ``JobInfo``."""
    group: str
    depends_on: tuple[str, ...]
    blocks: tuple[str, ...]
    """Schedules of which it blocks each other, whichever of the two says so."""
    overlap: Overlap
    misfire: Misfire
    jitter: timedelta
    start: datetime | None
    end: datetime | None
    max_failures: int
    reenable_after: timedelta | None
    min_pause: timedelta
    history: int


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one occurrence."""

    at: datetime
    """The occurrence; of a run that was triggered, when that was."""
    what: What
    """``fired``, ``triggered`` and ``backfilled`` have a job; those skipped, coalesced, missed or rejected none."""
    job: UUID | None
    state: State | None
    """How the job ended; None before that is known."""
    reason: Reason | None
    note: str
    error: str
    made: datetime
    """When that was decided."""
    started: datetime | None
    ended: datetime | None
    count: int
    """Of occurrences that were missed and stand in this record together."""


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules of which only so many run at once."""

    name: str
    max_concurrent: int | None
    """None: the store does not know of it yet."""
    running: int
    schedules: tuple[str, ...]


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole set, seen in one call."""

    at: datetime
    """By the store's clock."""
    schedules: tuple[ScheduleInfo, ...]
    groups: tuple[GroupInfo, ...]

    def __getitem__(self, name: str) -> ScheduleInfo:
        return {each.name: each for each in self.schedules}[name]


def infos_of(
    plans: Mapping[str, SchedulePlan], seen: Mapping[bytes, SeenRun | None], links: Sequence[ScheduleDependencyRow]
) -> list[ScheduleInfo]:
    """All of these, which are all there are of their set: what waits for what is looked up among them."""
    linked = {link.name: link for link in links}
    running = {name for name, plan in plans.items() if _in(plan, seen, State.RUNNING)}
    partners: dict[str, set[str]] = defaultdict(set)
    for name, plan in plans.items():
        for other in (*plan.definition.blocks, *plan.definition.blocked_by):
            partners[name].add(other)
            partners[other].add(name)
    return [
        _info(name, plan, seen, linked.get(name), tuple(sorted(partners[name])), running)
        for name, plan in plans.items()
    ]


def _info(
    name: str, plan: SchedulePlan, seen: Mapping[bytes, SeenRun | None], link: ScheduleDependencyRow | None,
    blocks: tuple[str, ...], running: set[str],
) -> ScheduleInfo:  # fmt: skip
    definition, window = plan.definition, plan.rule
    body = msgspec.json.decode(definition.job.record, type=JobBody)
    args = msgspec.json.decode(body.args)
    return ScheduleInfo(
        name=name,
        task=definition.job.task,
        enabled=plan.enabled,
        off=plan.off,
        note="" if plan.enabled else said_of_off(plan),
        off_since=None if plan.enabled else to_datetime(plan.off_at),
        back_at=_moment(plan.back_at),
        mode=definition.mode,
        rule=text_of(plan),
        tz=window.rule.tz if window is not None and isinstance(window.rule, rules.Cron) else "UTC",
        next=_moment(plan.due) if plan.enabled else None,
        last=_last(plan),
        running=_in(plan, seen, State.RUNNING),
        waiting=_in(plan, seen, State.BLOCKED, State.SCHEDULED, State.READY, State.RETRYING),
        waiting_for=_waiting_for(plan, seen, link, [each for each in blocks if each in running]),
        failures=plan.failures,
        trial=plan.trial,
        last_success=_moment(plan.succeeded),
        last_failure=_moment(plan.failed),
        last_error=plan.error,
        owner=plan.owner,
        version=plan.version,
        queue=definition.job.queue,
        priority=definition.job.priority,
        args=hide(args if isinstance(args, dict) else {}, body.hide),
        group=definition.group,
        depends_on=definition.depends_on,
        blocks=blocks,
        overlap=definition.overlap,
        misfire=definition.misfire,
        jitter=timedelta(microseconds=definition.jitter),
        start=_moment(window.start) if window is not None else None,
        end=_moment(window.end) if window is not None else None,
        max_failures=definition.max_failures,
        reenable_after=timedelta(microseconds=definition.reenable_after) if definition.reenable_after else None,
        min_pause=timedelta(microseconds=definition.min_pause),
        history=definition.history,
    )


def run_info(run: ScheduleRun) -> RunInfo:
    record = planning.record_of(run)
    return RunInfo(
        at=to_datetime(run.at),
        what=record.what,
        job=None if run.job is None else UUID(bytes=run.job),
        state=record.state,
        reason=record.reason,
        note=record.note,
        error=record.error,
        made=to_datetime(record.made),
        started=_moment(record.started),
        ended=_moment(record.ended),
        count=record.count,
    )


def text_of(plan: SchedulePlan) -> str:
    """When it is due, in words."""
    if plan.definition.mode == "triggered":
        return "when it is triggered"
    if plan.definition.mode == "continuous":
        pause = format_duration(plan.definition.min_pause / 1e6)
        return f"continuously, {pause} after each run"
    return rules.text(plan.definition.rule) if plan.definition.rule is not None else "never"


def said_of_off(plan: SchedulePlan) -> str:
    """Why it is disabled, in words."""
    words = {
        "failures": "the last run failed" if plan.failures == 1 else f"{plan.failures} runs failed in a row",
        "orphaned": "it is not in the newest code",
        "operator": "somebody disabled it" + (", and it is not in the newest code" if plan.gone_in is not None else ""),
    }
    return words.get(plan.off, "") + (f": {plan.note}" if plan.note else "")


def _last(plan: SchedulePlan) -> LastRun | None:
    last = plan.last
    if last is None:
        return None
    outcome = "deleted" if last.state is None else last.state.value
    return LastRun(at=to_datetime(last.at), job=UUID(bytes=last.job), outcome=outcome, ended=to_datetime(last.ended))


def _in(plan: SchedulePlan, seen: Mapping[bytes, SeenRun | None], *states: State) -> tuple[UUID, ...]:
    found = [(run.job, seen.get(run.job)) for run in plan.open]
    return tuple(UUID(bytes=job) for job, each in found if each is not None and each.state in states)


def _waiting_for(
    plan: SchedulePlan, seen: Mapping[bytes, SeenRun | None], link: ScheduleDependencyRow | None, running: Sequence[str]
) -> tuple[str, ...]:
    found = [name for name, noted in link.after if not noted] if link is not None and link.waiting else []
    if _in(plan, seen, State.READY):
        found += running
    return tuple(dict.fromkeys(found))


def _moment(us: int | None) -> datetime | None:
    return None if us is None else to_datetime(us)
