"""``mainspring schedules``: list, show, trigger, enable, disable, remove, backfill and sync schedules."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from mainspring.cli.common import a_moment, answers, listing, moment, on_code, on_store, sure
from mainspring.cli.completion import schedule_names
from mainspring.cli.document import documents, iso
from mainspring.cli.find_app import check_store
from mainspring.cli.jobs.actions import describe_count
from mainspring.cli.jobs.enqueue import refuse_timeout, waited
from mainspring.cli.output import FactList, Shown, Table, complain
from mainspring.cli.root import NO, CommandGroup
from mainspring.cli.schedules.documents import at_zone, counts_of, run_document, schedule_document
from mainspring.cli.schedules.tables import (
    group_table,
    next_table,
    open_table,
    run_table,
    schedule_blocks,
    schedule_table,
)
from mainspring.cli.text import to_second
from mainspring.errors import InvalidOption, NotTriggered, did_you_mean

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.schedules.info import ScheduleInfo, ScheduleStatus

MOST_RUNS = 10_000
NONE_STORED = "No schedules are stored yet. Start a worker, or run `mainspring schedules sync`."

_name = click.argument("name", metavar="SCHEDULE", shell_complete=schedule_names)
_names = click.argument("names", nargs=-1, required=True, metavar="SCHEDULE...", shell_complete=schedule_names)


@click.group(cls=CommandGroup)
def schedules() -> None:
    """List schedules; trigger, enable or disable them."""


@schedules.command()
@on_store
@listing
@click.option("--disabled", is_flag=True, help="Only disabled schedules.")
@click.option("--group", metavar="GROUP", help="Only schedules of this group.")
def ls(app: Mainspring, disabled: bool, group: str | None) -> Shown:
    """List schedules: state, next and last run, groups."""
    status = app.schedules.status()
    if group is not None and group not in (names := [each.name for each in status.groups]):
        raise InvalidOption("group", group, f"is not the group of a schedule{did_you_mean(group, names)}")
    found = [each for each in status.schedules if group in (None, each.group) and not (disabled and each.enabled)]
    empty = "no schedule matches" if status.schedules else NONE_STORED
    return _shown(status, found, empty=empty)


@schedules.command()
@_name
@on_store
@listing
def show(app: Mainspring, name: str) -> Shown:
    """Show one schedule: its state, options and last occurrences."""
    status = app.schedules.status()
    [info] = _found(app, status, [name])
    runs = app.schedules.history(name, MOST_RUNS)
    document = schedule_document(info, remembered=counts_of(runs))
    return Shown(document, schedule_blocks(info, runs, status))


@schedules.command("next")
@click.argument("name", required=False, metavar="[SCHEDULE]", shell_complete=schedule_names)
@on_store
@listing
@click.option(
    "-n", "number", default=5, show_default=True, type=click.IntRange(1, 1000), metavar="N", help="At most N."
)
def upcoming(app: Mainspring, name: str | None, number: int) -> Shown:
    """Show the next occurrences by rule. Without NAME, those of all enabled schedules."""
    status = app.schedules.status()
    if name is None:
        found, empty = _merged(app, status.schedules, number), "no occurrence is due"
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
    "--limit", default=50, show_default=True, type=click.IntRange(1, MOST_RUNS), metavar="N", help="At most N."
)
@click.option("--before", metavar="WHEN", help="Only occurrences before WHEN: 2h (ago) or 2026-01-31T12:00Z.")
def history(app: Mainspring, name: str, limit: int, before: str | None) -> Shown:
    """Show past occurrences, latest first."""
    runs = app.schedules.history(name, limit, moment(before, "before"))
    blocks: list[Table | FactList | str] = [run_table(runs, empty="no occurrences")]
    if len(runs) == limit:
        blocks.append(f"For older ones: --before {iso(runs[-1].at)}")
    return Shown({"schedule": name, "runs": [run_document(run) for run in runs]}, blocks)


@schedules.command()
@_name
@on_store
@answers
@click.option(
    "--force",
    is_flag=True,
    help="Also if it is disabled; ignore dependencies; queue behind a run.",
)
@click.option("--wait", is_flag=True, help="Wait until the run has finished; print its result.")
@click.option("--wait-timeout", metavar="DURATION", help="Stop waiting after DURATION; the run is not affected.")
def run(app: Mainspring, name: str, force: bool, wait: bool, wait_timeout: str | None) -> Shown:
    """Trigger a schedule and print the job's id. Exit code 1 if its rules refuse, with the reason."""
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
    """Enable schedules and clear their failures. Missed occurrences are not made up."""
    _found(app, app.schedules.status(), names)
    for name in names:
        app.schedules.enable(name)
    return _now(app, names)


@schedules.command()
@_names
@on_store
@answers
@click.option("--reason", default="", metavar="TEXT", help="A reason to store with the schedule.")
def disable(app: Mainspring, names: Sequence[str], reason: str) -> Shown:
    """Disable schedules until they are enabled again. Running jobs continue."""
    _found(app, app.schedules.status(), names)
    for name in names:
        app.schedules.disable(name, reason)
    return _now(app, names)


@schedules.command()
@_names
@on_store
@answers
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def rm(app: Mainspring, names: Sequence[str], yes: bool) -> Shown:
    """Remove schedules with their history. They were put at run time, or no live worker has their code."""
    _found(app, app.schedules.status(), names)
    sure(f"{_list(names)} will be removed with {'its' if len(names) == 1 else 'their'} history.", yes)
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
    """Create the missing jobs of past occurrences.

    Occurrences from START to before END count, at most 100.

    START and END are times, in UTC unless they name an offset (2026-01-31, 2026-01-31T12:00+02:00), or durations ago
    (2h).
    """
    jobs = app.schedules.backfill(name, a_moment(start, "start"), a_moment(end, "end"))
    moments = {run.job: run.at for run in app.schedules.history(name, MOST_RUNS)} if jobs else {}
    document = [{"id": str(job.id), "at": iso(moments.get(job.id))} for job in jobs]
    rows = [(to_second(moments[job.id]) if job.id in moments else "-", job.id) for job in jobs]
    text = (
        describe_count("created", len(jobs)) if jobs else "nothing to do: every past occurrence in that time has a job"
    )
    blocks: list[Table | FactList | str] = [text]
    if rows:
        blocks.append(Table(("occurrence", "job"), rows))
    return Shown({"schedule": name, "jobs": document}, blocks)


@schedules.command()
@functools.partial(on_code, argument=True)
@answers
def sync(app: Mainspring) -> Shown:
    """Store the schedules of APP's code, whatever its version. Stored schedules that it lacks become orphaned.

    A worker that starts does this by itself unless newer code did it before. Use this command for a rollback, or
    before a deploy.
    """
    synced = check_store(app).schedules.declare()._asdict()
    rows = [(name, word) for word, names in synced.items() for name in names]
    unchanged = sorted(set(app.tasks.scheduled) - {name for name, _ in rows})
    document = {**{word: list(names) for word, names in synced.items()}, "unchanged": unchanged}
    counts = {word: len(names) for word, names in document.items()}
    blocks: list[Table | FactList | str] = [", ".join(f"{number} {word}" for word, number in counts.items())]
    return Shown(document, [*blocks, Table(("schedule", "what"), rows)] if rows else blocks)


# ---- private ---------------------------------------------------------------------------------------


def _shown(status: ScheduleStatus, found: Sequence[ScheduleInfo], *, empty: str = "") -> Shown:
    """Schedules, their runs in progress, and their groups."""
    groups = [group for group in status.groups if any(each.group == group.name for each in found)]
    blocks: list[Table | FactList | str] = [schedule_table(found, status.at, empty=empty)]
    blocks += [table for table in (open_table(found, groups), group_table(groups)) if table.rows]
    document = {
        "at": iso(status.at),
        "schedules": [schedule_document(each) for each in found],
        "groups": documents(groups),
    }
    return Shown(document, blocks)


def _now(app: Mainspring, names: Iterable[str]) -> Shown:
    """The schedules after a change."""
    status = app.schedules.status()
    return _shown(status, _found(app, status, names))


def _found(app: Mainspring, status: ScheduleStatus, names: Iterable[str]) -> list[ScheduleInfo]:
    """Find schedules by name. An unknown name is an error before anything changes."""
    known = {each.name: each for each in status.schedules}
    return [known.get(name) or app.schedules.get(name) for name in dict.fromkeys(names)]


def _merged(app: Mainspring, infos: Sequence[ScheduleInfo], number: int) -> list[tuple[datetime, ScheduleInfo]]:
    """The first ``number`` occurrences of all schedules. A schedule whose next occurrence is later is not asked."""
    found: list[tuple[datetime, ScheduleInfo]] = []
    due = [(info.next, info) for info in infos if info.next is not None]
    for first, info in sorted(due, key=lambda each: (each[0], each[1].name)):
        if len(found) == number and first > found[-1][0]:
            break
        found += [(at, info) for at in app.schedules.next(info.name, number)]
        found = sorted(found, key=lambda each: (each[0], each[1].name))[:number]
    return found


def _removed(app: Mainspring, names: Iterable[str]) -> dict[str, InvalidOption]:
    """Delete schedules, dependents before their dependencies. Returns the errors of those that were refused."""
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
