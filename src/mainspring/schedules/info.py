"""What users read about schedules: the info structs, and the functions that load them from the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec

from mainspring.common.clock import to_datetime
from mainspring.common.duration import format_duration
from mainspring.common.redact import hide
from mainspring.errors import NotFound
from mainspring.jobs.records import JobBody
from mainspring.limits.records import Bucket
from mainspring.schedules import plan as planning
from mainspring.schedules import rules
from mainspring.schedules.compare_and_set import read_plan
from mainspring.schedules.plan import SchedulePlan, SeenRun, Successes, find_unmet, group_limit, is_block_limit
from mainspring.schedules.plan.state import Misfire, Mode, Off, Overlap, What
from mainspring.schedules.records import ScheduleRun
from mainspring.schedules.swap import find_runs
from mainspring.schedules.sync import decode_plan
from mainspring.states import WAITING, Reason, State

if TYPE_CHECKING:
    from mainspring.stores.base import Store


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The last run of a schedule that has ended."""

    at: datetime
    """The occurrence."""
    job: UUID
    outcome: str
    """The final state of the job, or ``deleted``."""
    ended: datetime


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, at the time of the call."""

    name: str
    task: str
    enabled: bool
    off: Off
    """What disabled the schedule: ``operator``, ``failures`` or ``orphaned``; empty if it is enabled."""
    note: str
    """Why the schedule is disabled, in words."""
    off_since: datetime | None
    """When it was disabled."""
    back_at: datetime | None
    """When a schedule that failures disabled is enabled on trial."""
    mode: Mode
    rule: str
    """When the schedule is due, in words."""
    tz: str
    """The time zone of the rule; UTC if the rule has none."""
    next: datetime | None
    """The next occurrence; None if there is none, or while the schedule is disabled."""
    last: LastRun | None
    running: tuple[UUID, ...]
    """The jobs of its runs that are running."""
    waiting: tuple[UUID, ...]
    """The jobs of its runs that wait: for a blocking schedule, for a limit, or for a worker."""
    waiting_since: datetime | None
    """Since when an occurrence waits for ``depends_on``; its job does not exist yet. None if no occurrence waits."""
    waiting_for: tuple[str, ...]
    """Schedules that must succeed or end before the waiting occurrence and the waiting jobs can start."""
    failures: int
    """The number of failed runs since the last successful run."""
    trial: bool
    """Failures disabled the schedule, and it is enabled on trial: the next run decides."""
    last_success: datetime | None
    last_failure: datetime | None
    last_error: str
    """The error of the last failed run."""
    owner: Literal["code", "user"]
    """``code``: declared with ``@app.schedule``; ``user``: made with ``app.schedules.put``."""
    version: str
    """The version of the code that declared it."""
    queue: str
    priority: int
    args: dict[str, Any]
    """The arguments of its runs, by name; secrets are hidden as in ``JobInfo``."""
    group: str
    depends_on: tuple[str, ...]
    blocks: tuple[str, ...]
    """Schedules that never run at the same time as this one, whichever of the two declares ``blocks``."""
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
    """The history record of one occurrence."""

    at: datetime
    """The occurrence; for a triggered run, the time of the call."""
    what: What
    """``fired``, ``triggered`` and ``backfilled`` have a job. ``waiting`` has none yet. ``skipped``, ``coalesced``,
    ``missed`` and ``rejected`` have none."""
    job: UUID | None
    state: State | None
    """The final state of the job; None until a scheduler has seen it."""
    reason: Reason | None
    note: str
    error: str
    made: datetime
    """When the scheduler decided it."""
    started: datetime | None
    ended: datetime | None
    run: timedelta | None
    """How long the body of the job ran; None if that is not known: see ``JobInfo.run``."""
    count: int
    """The number of missed occurrences in this record."""


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A group of schedules: at most ``max_concurrent`` of them run at the same time."""

    name: str
    max_concurrent: int | None
    """None: the store does not know the group yet."""
    running: int
    schedules: tuple[str, ...]


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Every schedule and every group, read in one call."""

    at: datetime
    """The time of the store."""
    schedules: tuple[ScheduleInfo, ...]
    groups: tuple[GroupInfo, ...]

    def __getitem__(self, name: str) -> ScheduleInfo:
        return {each.name: each for each in self.schedules}[name]


# ---- load -------------------------------------------------------------------------------------------


async def load_plans(store: Store, names: Sequence[str] = ()) -> dict[str, SchedulePlan]:
    """Load the schedules of these names, or every schedule. Schedules that this version cannot read are left out."""
    found = {row.name: decode_plan(row) for row in await store.schedules(names)}
    return {name: plan for name, plan in found.items() if plan is not None}


async def load_plan(store: Store, name: str) -> tuple[SchedulePlan, int]:
    """Load one schedule and the time of the store."""
    rows = await store.schedules([name])
    if not rows:
        raise unknown_schedule(name, [row.name for row in await store.schedules()])
    return read_plan(rows[0]), await store.now()


async def load_info(store: Store, name: str) -> ScheduleInfo:
    """Load one schedule for users. Other schedules are read only if some are related to it: there may be thousands."""
    plan, _ = await load_plan(store, name)
    definition = plan.definition
    if definition.depends_on or definition.blocked_by or any(is_block_limit(limit) for limit in definition.limits):
        found = {info.name: info for info in (await load_status(store)).schedules}
        if name not in found:  # deleted in the meantime
            raise unknown_schedule(name, found)
        return found[name]
    [info] = _build_infos({name: plan}, await find_runs(store, [run.job for run in plan.open]))
    return info


async def load_status(store: Store) -> ScheduleStatus:
    """Load every schedule and every group."""
    plans = await load_plans(store)
    seen = await find_runs(store, [run.job for plan in plans.values() for run in plan.open])
    groups: dict[str, list[str]] = defaultdict(list)
    for name, plan in plans.items():
        if plan.definition.group:
            groups[plan.definition.group].append(name)
    limits = {name: group_limit(name, 1).name for name in groups}
    rows = (
        {row.limit: row for row in await store.buckets([Bucket(limit) for limit in limits.values()])} if groups else {}
    )
    return ScheduleStatus(
        at=to_datetime(await store.now()),
        schedules=tuple(_build_infos(plans, seen)),
        groups=tuple(
            GroupInfo(
                name=name,
                max_concurrent=rows[limit].size if limit in rows else None,
                running=rows[limit].used if limit in rows else 0,
                schedules=tuple(groups[name]),
            )
            for name, limit in sorted(limits.items())
        ),
    )


def unknown_schedule(name: str, known: Iterable[str]) -> NotFound:
    """The error for a schedule that is not in the store."""
    hint = "A worker that starts stores the schedules of the code. To see every schedule, run: mainspring schedules ls"
    return NotFound("schedule", name, known, hint=hint)


# ---- build ------------------------------------------------------------------------------------------


def _build_infos(plans: Mapping[str, SchedulePlan], seen: Mapping[bytes, SeenRun | None]) -> list[ScheduleInfo]:
    """Build the infos of these schedules. ``plans`` must include every related schedule."""
    successes = {name: plan.success for name, plan in plans.items()}
    running = {name for name, plan in plans.items() if _jobs_in(plan, seen, State.RUNNING)}
    partners: dict[str, set[str]] = defaultdict(set)
    for name, plan in plans.items():
        for other in (*plan.definition.blocks, *plan.definition.blocked_by):
            partners[name].add(other)
            partners[other].add(name)
    return [
        _build_info(name, plan, seen, successes, tuple(sorted(partners[name])), running) for name, plan in plans.items()
    ]


def _build_info(
    name: str, plan: SchedulePlan, seen: Mapping[bytes, SeenRun | None], successes: Successes,
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
        note="" if plan.enabled else describe_disabled(plan),
        off_since=None if plan.enabled else to_datetime(plan.off_at),
        back_at=_moment(plan.back_at),
        mode=definition.mode,
        rule=describe_rule(plan),
        tz=window.rule.tz if window is not None and isinstance(window.rule, rules.Cron) else "UTC",
        next=_moment(plan.due) if plan.enabled else None,
        last=_build_last_run(plan),
        running=_jobs_in(plan, seen, State.RUNNING),
        waiting=_jobs_in(plan, seen, *WAITING),
        waiting_since=None if plan.waiting is None else to_datetime(plan.waiting.since),
        waiting_for=_find_waiting_for(plan, seen, successes, [each for each in blocks if each in running]),
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


def build_run_info(run: ScheduleRun) -> RunInfo:
    """Build the info of one history record."""
    record = planning.decode_run(run)
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
        run=None if record.ran is None else timedelta(microseconds=record.ran),
        count=record.count,
    )


def describe_rule(plan: SchedulePlan) -> str:
    """Return when the schedule is due, in words."""
    if plan.definition.mode == "triggered":
        return "when it is triggered"
    if plan.definition.mode == "continuous":
        pause = format_duration(plan.definition.min_pause / 1e6)
        return f"continuously, {pause} after each run"
    return rules.describe(plan.definition.rule) if plan.definition.rule is not None else "never"


def describe_disabled(plan: SchedulePlan) -> str:
    """Return why the schedule is disabled, in words."""
    words = {
        "failures": "the last run failed" if plan.failures == 1 else f"{plan.failures} runs failed in a row",
        "orphaned": "it is orphaned",
        "operator": "an operator disabled it"
        + (", and the newest code does not declare it" if plan.gone_in is not None else ""),
    }
    return words.get(plan.off, "") + (f": {plan.note}" if plan.note else "")


def _build_last_run(plan: SchedulePlan) -> LastRun | None:
    last = plan.last
    if last is None:
        return None
    outcome = "deleted" if last.state is None else last.state.value
    return LastRun(at=to_datetime(last.at), job=UUID(bytes=last.job), outcome=outcome, ended=to_datetime(last.ended))


def _jobs_in(plan: SchedulePlan, seen: Mapping[bytes, SeenRun | None], *states: State) -> tuple[UUID, ...]:
    found = [(run.job, seen.get(run.job)) for run in plan.open]
    return tuple(UUID(bytes=job) for job, each in found if each is not None and each.state in states)


def _find_waiting_for(
    plan: SchedulePlan, seen: Mapping[bytes, SeenRun | None], successes: Successes, running: Sequence[str]
) -> tuple[str, ...]:
    found = list(find_unmet(plan, successes)) if plan.waiting is not None else []
    if _jobs_in(plan, seen, State.READY):
        found += running
    return tuple(dict.fromkeys(found))


def _moment(us: int | None) -> datetime | None:
    return None if us is None else to_datetime(us)
