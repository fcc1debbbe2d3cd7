"""``mainspring migrate``: create or upgrade the store's schema."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import click

from mainspring.cli.common import answers, on_store
from mainspring.cli.output import Shown
from mainspring.cli.root import Command
from mainspring.errors import ConfigError

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.stores.records import MigrationPlan


@click.command(cls=Command)
@functools.partial(on_store, make=True)
@click.option("--plan", is_flag=True, help="Show what would be done; change nothing.")
@click.option("--sql", is_flag=True, help="Print the SQL, to run it by other means (PostgreSQL).")
@click.option("--roles", is_flag=True, help="Print the grants or ACL of a user with least privilege.")
@answers
def migrate(app: Mainspring, plan: bool, sql: bool, roles: bool) -> Shown:
    """Run missing migrations. Safe to run twice and from several hosts."""
    from mainspring.client.blocking import run

    if plan + sql + roles > 1:
        raise ConfigError("--plan, --sql and --roles exclude each other", hint="Give only one of them.")
    if not (plan or sql or roles):
        before, after = run("app.client.migrate", app.client.migrate())
        text = f"schema version {before} -> {after}" if before != after else f"schema version {after}: nothing to do"
        return Shown({"before": before, "after": after}, [text])
    found = run("app.client.plan", app.client.plan())
    if plan:
        return Shown({"before": found.before, "after": found.after}, [_describe_plan(found)])
    text = found.script if sql else found.access
    key = "script" if sql else "roles"
    return Shown({key: text}, [text.rstrip() or (_NO_SCRIPT if sql else _NO_ROLES)])


_NO_SCRIPT = "-- There is no SQL to run. `mainspring migrate --plan` shows what would be done."
_NO_ROLES = "SQLite has no roles: every user who can read and write the file can use the store."


def _describe_plan(found: MigrationPlan) -> str:
    if found.before == found.after:
        return f"schema version {found.after}: nothing to do"
    if found.before > found.after:
        return f"schema version {found.before} is newer than this Mainspring knows ({found.after}): upgrade Mainspring"
    steps = ", ".join(str(number) for number in range(found.before + 1, found.after + 1))
    return f"schema version {found.before} -> {found.after}: would run {steps}"
