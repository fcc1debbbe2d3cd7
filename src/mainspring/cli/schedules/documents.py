"""Schedules and their runs as JSON documents, and figures that documents and tables share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from mainspring.cli.document import document, iso

if TYPE_CHECKING:
    from mainspring.schedules.info import RunInfo, ScheduleInfo, ScheduleStatus

OFF = {"operator": "disabled", "failures": "disabled_by_failures", "orphaned": "orphaned"}
"""The cause that disabled a schedule, and its key in the summary."""


def schedule_document(info: ScheduleInfo, **more: Any) -> dict[str, Any]:
    disabled = {"disabled": info.off or None, "disabled_since": info.off_since, "group": info.group or None}
    return document(info, without=("off", "off_since"), **disabled, **more)


def run_document(run: RunInfo) -> dict[str, Any]:
    return document(run)


def counts_of(runs: Iterable[RunInfo]) -> dict[str, dict[str, int]]:
    """Count a history: occurrences by their result, jobs by final state."""
    what: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for run in runs:
        what[run.what] += run.count
        if run.state is not None:
            ended[run.state.value] += 1
    return {"what": dict(what), "ended": dict(ended)}


def summary_document(status: ScheduleStatus) -> dict[str, Any]:
    """Count all schedules by state, and name the one that is due next."""
    found = status.schedules
    ahead = due_first(status)
    return {
        "total": len(found),
        "enabled": sum(each.enabled for each in found),
        **{word: sum(each.off == off for each in found) for off, word in OFF.items()},
        "failing": sum(each.failures > 0 for each in found),
        "running": sum(len(each.running) for each in found),
        "waiting": sum(len(each.waiting) + (each.waiting_since is not None) for each in found),
        "next": None if ahead is None else {"at": iso(ahead[0]), "schedule": ahead[1]},
    }


def due_first(status: ScheduleStatus) -> tuple[datetime, str] | None:
    """The earliest next occurrence, and the name of its schedule."""
    return min(((each.next, each.name) for each in status.schedules if each.next is not None), default=None)


def at_zone(moment: datetime, tz: str) -> datetime:
    """A time in the time zone of the rule, or in UTC if this machine does not know the zone."""
    try:
        return moment.astimezone(ZoneInfo(tz))
    except (LookupError, OSError, ValueError):
        return moment.astimezone(UTC)
