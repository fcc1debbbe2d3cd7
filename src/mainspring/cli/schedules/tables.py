"""Tables of schedules, their runs, groups and next occurrences."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from mainspring.cli.jobs.tables import compact
from mainspring.cli.output import FactList, Table
from mainspring.cli.schedules.documents import at_zone, counts_of, due_first, summary_document
from mainspring.cli.text import ago, short, span, to_second, when

if TYPE_CHECKING:
    from mainspring.schedules.info import GroupInfo, RunInfo, ScheduleInfo, ScheduleStatus

RECENT = 5
"""Number of last occurrences that ``schedules show`` prints."""
TRIAL = "it was disabled after failures; the next run decides"


def schedule_table(schedules: Sequence[ScheduleInfo], now: datetime, *, empty: str = "no schedules") -> Table:
    """One row for each schedule, as of ``now``."""
    rows = [
        (each.name, "enabled" if each.enabled else "disabled", short(each.rule, 44), _ahead(each.next, now),
         _last(each, now), "; ".join(_about(each, now)))
        for each in schedules
    ]  # fmt: skip
    return Table(("schedule", "state", "rule", "next", "last run", "about"), rows, empty=empty)


def summary_table(status: ScheduleStatus, *, title: str = "") -> Table:
    document = summary_document(status)
    ahead = due_first(status)
    next_run = "-" if ahead is None else f"{ahead[1]} {_ahead(ahead[0], status.at)}"
    rows = [[*(value for name, value in document.items() if name != "next"), next_run]] if status.schedules else []
    return Table([name.replace("_", " ") for name in document], rows, title=title, empty="no schedules")


def open_table(schedules: Sequence[ScheduleInfo], groups: Sequence[GroupInfo]) -> Table:
    """Runs that have not finished."""
    full = {each.name for each in groups if each.max_concurrent is not None and each.running >= each.max_concurrent}
    rows = [
        (job, state, each.name, _waits_for(each, full) if state == "waiting" else "")
        for each in schedules
        for state, jobs in (("running", each.running), ("waiting", each.waiting))
        for job in jobs
    ]
    return Table(("job", "state", "schedule", "waits for"), rows, title="runs")


def group_table(groups: Sequence[GroupInfo]) -> Table:
    rows = [
        (each.name, f"{each.running} of {'?' if each.max_concurrent is None else each.max_concurrent}",
         ", ".join(each.schedules))
        for each in groups
    ]  # fmt: skip
    return Table(("group", "running", "schedules"), rows, title="groups")


def run_table(runs: Sequence[RunInfo], *, title: str = "", empty: str = "no occurrence was due yet") -> Table:
    rows = [
        (to_second(run.at), run.what, run.job or "-", _outcome(run), span(run.run), short(_why(run)))
        for run in runs
    ]  # fmt: skip
    return Table(("occurrence", "what", "job", "outcome", "took", "why"), rows, title=title, empty=empty)


def next_table(found: Sequence[tuple[datetime, ScheduleInfo]], now: datetime, *, empty: str) -> Table:
    """Next occurrences, with local times if a rule has a time zone other than UTC."""
    local = any(info.tz != "UTC" for _, info in found)
    rows = [
        (when(at, now), *([f"{at_zone(at, info.tz):%Y-%m-%d %H:%M:%S %Z}"] if local else []), info.name, info.rule)
        for at, info in found
    ]
    return Table(("occurrence", *(["local"] if local else []), "schedule", "rule"), rows, empty=empty)


def schedule_blocks(
    info: ScheduleInfo, runs: Sequence[RunInfo], status: ScheduleStatus
) -> list[Table | FactList | str]:
    """All blocks of ``schedules show``."""
    blocks: list[Table | FactList | str] = [_facts(info, runs, status.at), _options(info)]
    if info.args:
        blocks.append(FactList([(name, compact(value)) for name, value in info.args.items()], title="arguments"))
    if info.running or info.waiting:
        blocks.append(open_table([info], status.groups))
    return [*blocks, run_table(runs[:RECENT], title="last occurrences")]


def _facts(info: ScheduleInfo, runs: Sequence[RunInfo], now: datetime) -> FactList:
    counts = counts_of(runs)
    what, ended = (", ".join(f"{number} {word}" for word, number in kind.items()) for kind in counts.values())
    origin = "put at run time" if info.owner == "user" else "the code"
    since = "" if info.waiting_since is None else f", since {when(info.waiting_since, now)}"
    optional = {
        "waits for": ", ".join(info.waiting_for) + (since if info.waiting_for else ""),
        "depends on": ", ".join(info.depends_on),
        "blocks": ", ".join(info.blocks),
        "group": info.group,
    }
    return FactList([
        ("schedule", info.name),
        ("task", info.task),
        ("from", f"{origin}, version {info.version}" if info.version else origin),
        ("state", "enabled" if info.enabled else f"disabled since {when(info.off_since, now)}"),
        *((("trial", TRIAL),) if info.trial else ()),
        *((("why", info.note),) if info.note else ()),
        *((("next try", when(info.back_at, now)),) if info.back_at is not None else ()),
        ("mode", info.mode),
        ("rule", info.rule),
        ("next", when(info.next, now) + _local(info)),
        ("last run", "-" if info.last is None else f"{_last(info, now)}, job {info.last.job}"),
        ("last success", when(info.last_success, now)),
        ("last failure", when(info.last_failure, now)),
        *((("last error", info.last_error),) if info.last_error else ()),
        ("failures", f"{info.failures} in a row{_allowed(info)}"),
        *((name, value) for name, value in optional.items() if value),
        ("remembered", f"{what}{ended and f'; of the runs {ended}'}" or "nothing yet"),
    ])  # fmt: skip


def _options(info: ScheduleInfo) -> FactList:
    optional = {
        "jitter": info.jitter and span(info.jitter),
        "start": info.start and to_second(info.start),
        "end": info.end and to_second(info.end),
        "min_pause": span(info.min_pause) if info.mode == "continuous" else None,
    }
    return FactList([
        ("queue", info.queue),
        ("priority", info.priority),
        ("overlap", info.overlap),
        ("misfire", info.misfire),
        *((name, value) for name, value in optional.items() if value),
        ("max_failures", info.max_failures),
        ("reenable_after", "never" if info.reenable_after is None else span(info.reenable_after)),
        ("history", info.history),
    ], title="options")  # fmt: skip


def _about(info: ScheduleInfo, now: datetime) -> Iterable[str]:
    """Short facts about the present state of a schedule."""
    if info.off == "failures":
        yield "enable it by hand" if info.back_at is None else f"next try: {_ahead(info.back_at, now)}"
    if info.off:
        yield short(info.note)
    if info.running:
        yield "running" if len(info.running) == 1 else f"{len(info.running)} running"
    waiting = len(info.waiting) + (info.waiting_since is not None)
    if waiting:
        held = f" for {', '.join(info.waiting_for)}" if info.waiting_for else ""
        yield f"waiting{held}" if waiting == 1 else f"{waiting} waiting{held}"
    if info.mode == "scheduled" and info.enabled and info.next is None and not (info.running or waiting):
        yield "no occurrence is left" if info.last is not None else "no occurrence is left, and it never ran"
    if info.trial:
        yield f"on trial: {TRIAL}"
    if info.failures and info.off != "failures":
        yield f"{info.failures} failed in a row: {short(info.last_error, 40)}"
    if info.failures and info.last_success is not None:
        yield f"succeeded {ago(now - info.last_success)}"


def _waits_for(info: ScheduleInfo, full: Collection[str]) -> str:
    """The schedules or the group that a run waits for; the claim knows other obstacles."""
    return ", ".join(info.waiting_for) or (
        f"capacity of group {info.group}" if info.group in full else "see mainspring jobs why"
    )


def _allowed(info: ScheduleInfo) -> str:
    return f", disabled at {info.max_failures}" if info.max_failures else ""


def _ahead(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "-"
    return "due" if moment < now + timedelta(seconds=1) else ago(now - moment)


def _last(info: ScheduleInfo, now: datetime) -> str:
    return "-" if info.last is None else f"{info.last.outcome} {ago(now - info.last.ended)}"


def _local(info: ScheduleInfo) -> str:
    if info.next is None or info.tz == "UTC":
        return ""
    return f", {at_zone(info.next, info.tz):%Y-%m-%d %H:%M:%S %Z} local time"


def _outcome(run: RunInfo) -> str:
    if run.job is None:
        return "-"
    return "not finished" if run.state is None else run.state.value


def _why(run: RunInfo) -> str:
    many = f"{run.count} occurrences" if run.count > 1 else ""
    reason = run.reason.value if run.reason is not None and not (run.note or run.error) else ""
    return ": ".join(part for part in (many, reason, run.note, run.error) if part)
