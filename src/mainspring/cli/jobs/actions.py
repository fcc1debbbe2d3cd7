"""``mainspring jobs cancel | retry | run-now | rm``: change jobs by id, or all jobs that match filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from mainspring.cli.common import OF_ENDED, OF_LIVE, answers, filters, on_store, sure
from mainspring.cli.output import Shown
from mainspring.cli.root import NO, WRONG, Command
from mainspring.errors import JobNotFound, KeyTaken, WrongState

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.job import Job
    from mainspring.jobs.query import Query

ids_argument = click.argument("ids", nargs=-1, metavar="[ID]...")
yes_flag = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
rate_flag = click.option(
    "--rate",
    type=click.FloatRange(min=0.1),
    default=500,
    show_default=True,
    metavar="N",
    help="Change at most N jobs per second.",
)


@click.command(cls=Command)
@ids_argument
@on_store
@answers
@filters(*OF_LIVE)
@yes_flag
@click.option("--reason", default="", metavar="TEXT", help="A reason to store with the job.")
def cancel(app: Mainspring, ids: Sequence[str], query: Query | None, yes: bool, reason: str) -> Shown:
    """Cancel jobs. A waiting job never starts. A running job is asked to stop."""
    if one_way(ids, query):
        return each_of(app, ids, "cancelled", lambda job: job.cancel(reason))
    return all_of(app, query, "cancelled", yes, lambda jobs: app.jobs.cancel(jobs, reason=reason))


@click.command(cls=Command)
@ids_argument
@on_store
@answers
@filters(*OF_ENDED)
@yes_flag
@rate_flag
def retry(app: Mainspring, ids: Sequence[str], query: Query | None, yes: bool, rate: float) -> Shown:
    """Run finished jobs again under the same id. They get all their retries."""
    if one_way(ids, query):
        return each_of(app, ids, "retried", lambda job: job.retry())
    return all_of(app, query, "retried", yes, lambda jobs: app.jobs.retry(jobs, rate=rate))


@click.command("run-now", cls=Command)
@ids_argument
@on_store
@answers
@filters(*OF_LIVE)
@yes_flag
def run_now(app: Mainspring, ids: Sequence[str], query: Query | None, yes: bool) -> Shown:
    """Make scheduled and retrying jobs ready now."""
    if one_way(ids, query):
        return each_of(app, ids, "made ready", lambda job: job.run_now())
    return all_of(app, query, "made ready", yes, app.jobs.run_now)


@click.command(cls=Command)
@ids_argument
@on_store
@answers
@filters(*OF_ENDED)
@yes_flag
def rm(app: Mainspring, ids: Sequence[str], query: Query | None, yes: bool) -> Shown:
    """Delete jobs with their results, attempts and logs. A running job is not deleted: cancel it first."""
    if one_way(ids, query):
        return each_of(app, ids, "deleted", lambda job: job.delete())
    return all_of(app, query, "deleted", yes, app.jobs.delete)


# ---- shared by the commands ------------------------------------------------------------------------


def one_way(ids: Sequence[str], query: Query | None) -> bool:
    """Whether the jobs are named by id. Raises ``UsageError`` when no jobs are named, or both ids and filters."""
    if ids and query is not None:
        raise click.UsageError("give job ids or filters, not both")
    if not ids and query is None:
        raise click.UsageError("no jobs were named: give job ids, or filters such as --queue")
    return bool(ids)


def each_of(app: Mainspring, ids: Sequence[str], done: str, act: Callable[[Job[Any]], bool | None]) -> Shown:
    """Apply ``act`` to each job. A refused job is reported and does not stop the others."""
    count, code, refused = 0, 0, []
    for id in ids:
        try:
            job = app.jobs.get(id)
            if act(job) is not False:
                count += 1
                continue
            why, code = f"job {id} is {job.info().state}", max(code, NO)
        except (WrongState, KeyTaken) as error:
            by_flow = isinstance(error, WrongState) and error.why
            why, code = f"{error.message}. {error.hint}" if by_flow else error.message, max(code, NO)
        except JobNotFound as error:
            why, code = error.message, WRONG
        refused.append({"id": id, "why": why})
    lines = [describe_count(done, count), *(f"refused: {each['why']}" for each in refused)]
    return Shown({"done": count, "refused": refused}, ["\n".join(lines)], code)


def all_of(app: Mainspring, query: Query | None, done: str, yes: bool, act: Callable[[Query], int]) -> Shown:
    """Apply ``act`` to all jobs of the query, after confirmation."""
    assert query is not None, "one_way has checked it"
    act(without_jobs(query))
    if not yes:
        sure(f"{describe_count('found', app.jobs.count(query).total)}. Those in a suitable state will be {done}.", yes)
    count = act(query)
    return Shown({"done": count, "refused": []}, [describe_count(done, count)])


def without_jobs(query: Query) -> Query:
    """The same query without a job: an action on it checks the names in the query, before the confirmation."""
    return replace(query, ids=())


def describe_count(done: str, count: int) -> str:
    return f"{done} {count} job{'' if count == 1 else 's'}"
