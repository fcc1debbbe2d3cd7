"""``mainspring schedules``: what runs by itself, how it stands, and changing that for the whole fleet."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from mainspring.cli.common import a_moment, answers, listing, moment, on_code, on_store, sure
from mainspring.cli.completion import schedule_names
from mainspring.cli.enqueue import refuse_timeout, waited
from mainspring.cli.job_actions import told
from mainspring.cli.output import FactList, Shown, Table, complain
from mainspring.cli.root import NO
from mainspring.cli.schedule_documents import at_zone, counts_of, group_document, run_document, schedule_document
from mainspring.cli.schedule_tables import (
    group_table,
    next_table,
    open_table,
    run_table,
    schedule_blocks,
    schedule_table,
)
from mainspring.cli.text import iso, to_second
from mainspring.errors import InvalidOption, NotTriggered, did_you_mean

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.schedules.info import ScheduleInfo, ScheduleStatus

MOST_RUNS = 10_000

_name = click.argument("name", metavar="SCHEDULE", shell_complete=schedule_names)
_names = click.argument("names", nargs=-1, required=True, metavar="SCHEDULE...", shell_complete=schedule_names)


@click.group()
def schedules() -> None:
    """Look at schedules; run, enable, disable and remove them for the whole fleet."""


@schedules.command()
@on_store
@listing
@click.option("--disabled", is_flag=True, help="Only those that are disabled.")
@click.option("--group", metavar="GROUP", help="Only those of this group.")
def ls(app: Mainspring, disabled: bool, group: str | None) -> Shown:
    """One screen: every schedule, its state, its next and its last run; what runs and waits now; groups."""
    status = app.schedules.status()
    if group is not None and group not in (names := [each.name for each in status.groups]):
        raise InvalidOption("group", group, f"is not the group of a schedule{did_you_mean(group, names)}")
    found = [each for each in status.schedules if group in (None, each.group) and not (disabled and each.enabled)]
    empty = "no such schedules" if status.schedules else "no schedules are stored: workers that start do so, or sync"
    return _shown(status, found, empty=empty)


@schedules.command()
@_name
@on_store
@listing
def show(app: Mainspring, name: str) -> Shown:
    """Everything about one schedule: why it does not run, its options, what became of its last occurrences."""
    status = app.schedules.status()
    [info] = _found(app, status, [name])
    runs = app.schedules.history(name, MOST_RUNS)
    document = {**schedule_document(info), "remembered": counts_of(runs)}
    return Shown(document, schedule_blocks(info, runs, status))


@schedules.command("next")
@click.argument("name", required=False, metavar="[SCHEDULE]", shell_complete=schedule_names)
@on_store
@listing
@click.option(
    "-n", "number", default=5, show_default=True, type=click.IntRange(1, 1000), metavar="N", help="At most so many."
)
def upcoming(app: Mainspring, name: str | None, number: int) -> Shown:
    """The next occurrences of a schedule, by its rule alone; without a name those of all that are enabled."""
    status = app.schedules.status()
    if name is None:
        found, empty = _merged(app, status.schedules, number), "nothing is to come"
    else:
        [info] = _found(app, status, [name])
        found = [(at, info) for at in app.schedules.next(name, number)]
        empty = f"schedule {name} has no next occurrence: {info.rule}"
    document = [
        {"schedule": info.name, "at": iso(at), "local": at_zone(at, info.tz).isoformat(), "tz": info.tz}
        for at, info in found
    ]
    return Shown({"occurrences": document}, [next_table(found, status.at, empty=empty)])


@schedules.command()
@_name
@on_store
@listing
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, MOST_RUNS), metavar="N", help="At most so many."
)
@click.option("--before", metavar="WHEN", help="Only occurrences before then: 2h (ago), or 2026-01-31T12:00Z.")
def history(app: Mainspring, name: str, limit: int, before: str | None) -> Shown:
    """What became of its occurrences, the latest first: runs, and those that were skipped or missed."""
    runs = app.schedules.history(name, limit, moment(before, "before"))
    blocks: list[Table | FactList | str] = [run_table(runs, empty="no occurrences")]
    if len(runs) == limit:
        blocks.append(f"There may be more: --before {iso(runs[-1].at)}")
    return Shown({"schedule": name, "runs": [run_document(run) for run in runs]}, blocks)


@schedules.command()
@_name
@on_store
@answers
@click.option("--force", is_flag=True, help="Also if it is disabled; wait for no other schedule, queue behind a run.")
@click.option("--wait", is_flag=True, help="Until the run has ended, and print its result.")
@click.option("--wait-timeout", metavar="DURATION", help="Wait no longer than this; the run goes on.")
def run(app: Mainspring, name: str, force: bool, wait: bool, wait_timeout: str | None) -> Shown:
    """Run it now, by all its rules, and print the job's id. Exit code 1 if they do not let it: the reason is told."""
    refuse_timeout(wait_timeout, wait=wait)
    try:
        job = app.schedules.trigger(name, force=force)
    except NotTriggered as error:
        complain(error)
        holder = None if error.job is None else str(error.job)
        return Shown({"schedule": name, "id": None, "why": error.why, "job": holder}, [], NO)
    document = {"schedule": name, "id": str(job.id), "task": job.task}
    if not wait:
        return Shown(document, [str(job.id)])
    return waited(job, wait_timeout, document, known=app.tasks.find(job.task) is not None)


@schedules.command()
@_names
@on_store
@answers
def enable(app: Mainspring, names: Sequence[str]) -> Shown:
    """Let these run again, with their failures forgotten. What was due meanwhile is not made up for."""
    _found(app, app.schedules.status(), names)
    for name in names:
        app.schedules.enable(name)
    return _now(app, names)


@schedules.command()
@_names
@on_store
@answers
@click.option("--reason", default="", metavar="TEXT", help="Kept with them, for people.")
def disable(app: Mainspring, names: Sequence[str], reason: str) -> Shown:
    """Fire these no more until they are enabled, whatever code starts. What runs goes on."""
    _found(app, app.schedules.status(), names)
    for name in names:
        app.schedules.disable(name, reason)
    return _now(app, names)


@schedules.command()
@_names
@on_store
@answers
@click.option("-y", "--yes", is_flag=True, help="Do not ask before they are removed.")
def rm(app: Mainspring, names: Sequence[str], yes: bool) -> Shown:
    """Remove schedules that were put at run time, or that no living worker has code for, with their history."""
    _found(app, app.schedules.status(), names)
    sure(f"{_list(names)} will be removed, with what is remembered of {'it' if len(names) == 1 else 'them'}.", yes)
    refused = _removed(app, names)
    gone = [name for name in dict.fromkeys(names) if name not in refused]
    for error in refused.values():
        complain(error)
    document = {
        "removed": gone,
        "refused": [{"schedule": name, "why": error.why} for name, error in refused.items()],
    }
    return Shown(document, [f"removed {_list(gone)}"] if gone else [], NO if refused else 0)


@schedules.command()
@_name
@click.argument("start", metavar="START")
@click.argument("end", metavar="END")
@on_store
@answers
def backfill(app: Mainspring, name: str, start: str, end: str) -> Shown:
    """Run the occurrences from START on and before END that are over and have no job, a hundred at most.

    START and END are moments, UTC unless they say otherwise (2026-01-31, 2026-01-31T12:00+02:00), or so long ago (2h).
    """
    jobs = app.schedules.backfill(name, a_moment(start, "start"), a_moment(end, "end"))
    moments = {run.job: run.at for run in app.schedules.history(name, MOST_RUNS)} if jobs else {}
    document = [{"id": str(job.id), "at": iso(moments.get(job.id))} for job in jobs]
    rows = [(to_second(moments[job.id]) if job.id in moments else "-", job.id) for job in jobs]
    text = told("made", len(jobs)) if jobs else "nothing to do: in that time no occurrence is over that has no job"
    blocks: list[Table | FactList | str] = [text]
    if rows:
        blocks.append(Table(("occurrence", "job"), rows))
    return Shown({"schedule": name, "jobs": document}, blocks)


@schedules.command()
@functools.partial(on_code, argument=True)
@answers
def sync(app: Mainspring) -> Shown:
    """Store the schedules of APP's code as the newest, whatever its version; what it does not have is orphaned.

    Workers that start do so by themselves, unless newer code did. This is for a rollback, or for a deploy before them.
    """
    synced = app.schedules.declare()._asdict()
    rows = [(name, word) for word, names in synced.items() for name in names]
    unchanged = sorted(set(app.tasks.scheduled) - {name for name, _ in rows})
    document = {**{word: list(names) for word, names in synced.items()}, "unchanged": unchanged}
    counts = {word: len(names) for word, names in document.items()}
    blocks: list[Table | FactList | str] = [", ".join(f"{number} {word}" for word, number in counts.items())]
    return Shown(document, [*blocks, Table(("schedule", "what"), rows)] if rows else blocks)


# ---- private ---------------------------------------------------------------------------------------


def _shown(status: ScheduleStatus, found: Sequence[ScheduleInfo], *, empty: str = "") -> Shown:
    """These schedules, their runs that have not ended, and their groups."""
    groups = [group for group in status.groups if any(each.group == group.name for each in found)]
    blocks: list[Table | FactList | str] = [schedule_table(found, status.at, empty=empty)]
    blocks += [table for table in (open_table(found, groups), group_table(groups)) if table.rows]
    document = {
        "at": iso(status.at),
        "schedules": [schedule_document(each) for each in found],
        "groups": [group_document(each) for each in groups],
    }
    return Shown(document, blocks)


def _now(app: Mainspring, names: Iterable[str]) -> Shown:
    """How these stand after a change."""
    status = app.schedules.status()
    return _shown(status, _found(app, status, names))


def _found(app: Mainspring, status: ScheduleStatus, names: Iterable[str]) -> list[ScheduleInfo]:
    """These schedules. One that is not there is refused, before anything is done to the others."""
    known = {each.name: each for each in status.schedules}
    return [known.get(name) or app.schedules.get(name) for name in dict.fromkeys(names)]


def _merged(app: Mainspring, infos: Sequence[ScheduleInfo], number: int) -> list[tuple[datetime, ScheduleInfo]]:
    """The first so many of all: no schedule is asked whose next occurrence comes after them."""
    found: list[tuple[datetime, ScheduleInfo]] = []
    due = [(info.next, info) for info in infos if info.next is not None]
    for first, info in sorted(due, key=lambda each: (each[0], each[1].name)):
        if len(found) == number and first > found[-1][0]:
            break
        found += [(at, info) for at in app.schedules.next(info.name, number)]
        found = sorted(found, key=lambda each: (each[0], each[1].name))[:number]
    return found


def _removed(app: Mainspring, names: Iterable[str]) -> dict[str, InvalidOption]:
    """Remove them, those that wait for others before these; what was refused is returned."""
    left = list(dict.fromkeys(names))
    while True:
        refused: dict[str, InvalidOption] = {}
        for name in left:
            try:
                app.schedules.delete(name)
            except InvalidOption as error:
                refused[name] = error
        if len(refused) in (0, len(left)):
            return refused
        left = list(refused)


def _list(names: Sequence[str]) -> str:
    return f"schedule{'' if len(names) == 1 else 's'} {', '.join(names)}"
