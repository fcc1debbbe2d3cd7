"""Schedules, their groups and runs as JSON documents with stable keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from mainspring.cli.text import iso, seconds

if TYPE_CHECKING:
    from mainspring.schedules.info import GroupInfo, RunInfo, ScheduleInfo, ScheduleStatus

OFF = {"operator": "disabled", "failures": "disabled_by_failures", "orphaned": "orphaned"}
"""What disabled a schedule, and how that is counted."""


def schedule_document(info: ScheduleInfo) -> dict[str, Any]:
    last = info.last
    return {
        "name": info.name,
        "task": info.task,
        "enabled": info.enabled,
        "disabled": info.off or None,
        "note": info.note,
        "disabled_since": iso(info.off_since),
        "back_at": iso(info.back_at),
        "trial": info.trial,
        "mode": info.mode,
        "rule": info.rule,
        "tz": info.tz,
        "next": iso(info.next),
        "running": [str(job) for job in info.running],
        "waiting": [str(job) for job in info.waiting],
        "waiting_for": list(info.waiting_for),
        "failures": info.failures,
        "last": None
        if last is None
        else {"at": iso(last.at), "job": str(last.job), "outcome": last.outcome, "ended": iso(last.ended)},
        "last_success": iso(info.last_success),
        "last_failure": iso(info.last_failure),
        "last_error": info.last_error,
        "owner": info.owner,
        "version": info.version,
        "group": info.group or None,
        "depends_on": list(info.depends_on),
        "blocks": list(info.blocks),
        "queue": info.queue,
        "priority": info.priority,
        "args": info.args,
        "overlap": info.overlap,
        "misfire": info.misfire,
        "jitter": seconds(info.jitter),
        "start": iso(info.start),
        "end": iso(info.end),
        "max_failures": info.max_failures,
        "reenable_after": seconds(info.reenable_after),
        "min_pause": seconds(info.min_pause),
        "history": info.history,
    }


def group_document(group: GroupInfo) -> dict[str, Any]:
    return {
        "name": group.name,
        "max_concurrent": group.max_concurrent,
        "running": group.running,
        "schedules": list(group.schedules),
    }


def run_document(run: RunInfo) -> dict[str, Any]:
    return {
        "at": iso(run.at),
        "what": run.what,
        "job": None if run.job is None else str(run.job),
        "state": None if run.state is None else run.state.value,
        "reason": None if run.reason is None else run.reason.value,
        "note": run.note,
        "error": run.error,
        "made": iso(run.made),
        "started": iso(run.started),
        "ended": iso(run.ended),
        "run": seconds(took(run)),
        "count": run.count,
    }


def counts_of(runs: Iterable[RunInfo]) -> dict[str, dict[str, int]]:
    """A history in numbers: what became of the occurrences, and how their jobs ended."""
    what: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for run in runs:
        what[run.what] += run.count
        if run.state is not None:
            ended[run.state.value] += 1
    return {"what": dict(what), "ended": dict(ended)}


def summary_document(status: ScheduleStatus) -> dict[str, Any]:
    """The whole set in numbers, and which of them is due next."""
    found = status.schedules
    ahead = due_first(status)
    return {
        "total": len(found),
        "enabled": sum(each.enabled for each in found),
        **{word: sum(each.off == off for each in found) for off, word in OFF.items()},
        "failing": sum(each.failures > 0 for each in found),
        "running": sum(len(each.running) for each in found),
        "waiting": sum(len(each.waiting) for each in found),
        "next": None if ahead is None else {"at": iso(ahead[0]), "schedule": ahead[1]},
    }


def due_first(status: ScheduleStatus) -> tuple[datetime, str] | None:
    """The next occurrence of all, and whose it is."""
    return min(((each.next, each.name) for each in status.schedules if each.next is not None), default=None)


def took(run: RunInfo) -> timedelta | None:
    return None if run.started is None or run.ended is None else run.ended - run.started


def at_zone(moment: datetime, tz: str) -> datetime:
    """As the clocks of a rule show it; in UTC where this machine does not know the zone."""
    try:
        return moment.astimezone(ZoneInfo(tz))
    except (LookupError, OSError, ValueError):
        return moment.astimezone(UTC)
