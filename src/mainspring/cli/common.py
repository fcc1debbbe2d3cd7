"""Decorators and checks that commands share: find the app or the store, add flags, print the answer."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring.cli import output
from mainspring.cli.find_app import find_app, find_app_or_store
from mainspring.common.duration import to_timedelta
from mainspring.errors import ConfigError, InvalidOption

if TYPE_CHECKING:
    from mainspring.jobs.query import Query

F = TypeVar("F", bound=Callable[..., Any])

app_flag = click.option("-A", "--app", metavar="APP", help="module:object, module, file.py or file.py:object.")
_json_flag = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


class _Seconds(click.FloatRange):
    """A range of seconds that refuses ``nan``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return number


def on_code(fn: F, *, argument: bool = False) -> F:
    """Pass the app, with its code imported, to the command. Adds ``-A``; with ``argument``, also the argument APP."""

    @functools.wraps(fn)
    def command(*, app: str | None, target: str | None = None, **given: Any) -> Any:
        return _with(find_app(named(app, target)), fn, given)

    made: Any = click.argument("target", required=False, metavar="[APP]")(command) if argument else command
    return app_flag(made)  # type: ignore[no-any-return]  # click hands the function on


def on_store(fn: F, *, make: bool = False, all_namespaces: bool = False) -> F:
    """Pass the app, or an app without code on the store of ``--url``. Adds ``-A``, ``--url``, ``--namespace``.

    The store must exist, unless the command may ``make`` it: a typing error in a URL must not create an empty store.
    A command for ``all_namespaces`` of a store has no ``--namespace``.
    """

    @functools.wraps(fn)
    def command(*, app: str | None, url: str | None, namespace: str | None = None, **given: Any) -> Any:
        return _with(find_app_or_store(app if url or namespace else named(app), url, namespace, make=make), fn, given)

    made: Any = command
    if not all_namespaces:
        made = click.option("--namespace", help="The namespace in the store of --url.")(made)
    made = click.option("--url", help="Use this store instead of an app. No code is imported.")(made)
    return app_flag(made)  # type: ignore[no-any-return]  # click hands the function on


def named(app: str | None, target: str | None = None) -> str | None:
    """The app named by the command, with ``-A`` or with its argument APP; else by ``-A`` before the command."""
    ctx = click.get_current_context(silent=True)
    if app is not None and target is not None and app != target:
        raise click.UsageError(f"Two apps were named: {target} and -A {app}. Name one.", ctx)
    if app is not None or target is not None:
        return app or target
    return None if ctx is None else ctx.find_root().params.get("app")


def _with(app: Any, fn: Callable[..., Any], given: dict[str, Any]) -> Any:
    try:
        return fn(app, **given)
    finally:
        app.close()


def answers(fn: F) -> F:
    """Print the ``Shown`` that the command returns. Adds ``--json``."""

    @functools.wraps(fn)
    def command(*args: Any, as_json: bool, **given: Any) -> int:
        answer = _asked(fn, *args, **given)
        output.show(answer, as_json=as_json)
        return answer.code

    return _json_flag(command)  # type: ignore[return-value]  # click hands the function on


def _asked(fn: Callable[..., Any], *args: Any, **given: Any) -> output.Shown:
    """Run the command. Output of the app's own code goes to standard error, apart from the answer."""
    with redirect_stdout(sys.stderr):
        answer: output.Shown = fn(*args, **given)
    return answer


def listing(fn: F) -> F:
    """The same as ``answers`` for commands that list things. Adds ``--json`` and ``--watch``."""

    @functools.wraps(fn)
    def command(*args: Any, as_json: bool, watch: float | None, **given: Any) -> int:
        ask = functools.partial(_asked, fn, *args, **given)
        if watch is not None:
            return output.watch(ask, watch, as_json=as_json)
        answer = ask()
        output.show(answer, as_json=as_json)
        return answer.code

    again = click.option(
        "--watch", is_flag=False, flag_value=2.0, type=_Seconds(0.1, 86_400), default=None, metavar="[SECONDS]",
        help="Repeat every SECONDS (2) until Ctrl-C; with --json, one document per line.",
    )  # fmt: skip
    return _json_flag(again(command))  # type: ignore[return-value]  # click hands the function on


# ---- filters ---------------------------------------------------------------------------------------

_FILTERS: dict[str, Callable[[Any], Any]] = {
    "state": click.option("--state", multiple=True, help="Only jobs in this state; repeat it for several."),
    "queue": click.option("--queue", multiple=True, help="Only jobs of this queue."),
    "task": click.option("--task", multiple=True, help="Only jobs of this task."),
    "tag": click.option("--tag", multiple=True, help="Only jobs with this tag; a job must have all tags given."),
    "reason": click.option("--reason", multiple=True, help="Only jobs that ended for this reason."),
    "error": click.option("--error", multiple=True, help="Only dead jobs with this error type."),
    "since": click.option("--since", metavar="WHEN", help="Enqueued at or after WHEN: 2h (ago) or 2026-01-31T12:00Z."),
    "until": click.option("--until", metavar="WHEN", help="Enqueued before WHEN."),
    "parent": click.option("--parent", metavar="ID", help="Only jobs that this job spawned."),
    "flow": click.option("--flow", metavar="ID", help="Only jobs of the flow with this id."),
}
OF_ENDED = ("state", "queue", "task", "tag", "reason", "error", "since", "until", "parent")
OF_LIVE = ("state", "queue", "task", "tag", "since", "until", "parent")
OF_DEAD = ("queue", "task", "tag", "reason", "error", "since", "until", "parent")


def filters(*names: str) -> Callable[[F], F]:
    """Add these filter flags. The command gets one ``query``, or None when no filter was given."""

    def add(fn: F) -> F:
        @functools.wraps(fn)
        def command(*args: Any, **given: Any) -> Any:
            wanted = {name: given.pop(name) for name in names}
            return fn(*args, query=_query(**wanted), **given)

        made: Any = command
        for name in reversed(names):
            made = _FILTERS[name](made)
        return made  # type: ignore[no-any-return]  # click hands the function on

    return add


def _query(
    *, queue: Sequence[str], task: Sequence[str], tag: Sequence[str], since: str | None, until: str | None,
    parent: str | None, state: Sequence[str] = (), reason: Sequence[str] = (), error: Sequence[str] = (),
    flow: str | None = None,
) -> Query | None:  # fmt: skip
    from mainspring.jobs.query import Query

    query = Query.where(
        state=state or None, queue=queue or None, task=task or None, tag=tag or None,
        reason=reason or None, error=error or None,
        since=moment(since, "since"), until=moment(until, "until"), parent=parent, flow=flow,
    )  # fmt: skip
    return None if query.empty else query


def moment(text: str | None, name: str) -> datetime | None:
    """Read ``2h`` (ago) or an ISO 8601 time, in UTC unless it names an offset; None stays None."""
    return None if text is None else a_moment(text, name, flag=f"--{name} ")


def a_moment(text: str, name: str, *, flag: str = "") -> datetime:
    """Read a time that is required; ``flag`` is shown before the examples in the error."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) - to_timedelta(text, what=name)
        except InvalidOption:
            raise InvalidOption(
                name, text, "is neither a time nor a duration", hint=f"{flag}2h, or {flag}2026-01-31T12:00Z"
            ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def sure(question: str, yes: bool) -> None:
    """Ask for confirmation. End the command with exit code 1 when the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{question} Standard input is not a terminal: cannot ask for confirmation",
            hint="Add --yes to confirm.",
        )
    if not click.confirm(f"{question} Continue?", err=True):
        raise click.exceptions.Exit(1)
