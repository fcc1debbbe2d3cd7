"""``mainspring config``: every setting with its value and its source."""

from __future__ import annotations

import click

from mainspring.cli.common import answers, app_flag, named
from mainspring.cli.find_app import find_app
from mainspring.cli.jobs.tables import compact
from mainspring.cli.output import Shown, Table
from mainspring.cli.root import Command
from mainspring.cli.text import to_json


@click.command(cls=Command)
@app_flag
@answers
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the settings file. Needs no app.")
def config(app: str | None, schema: bool) -> Shown:
    """Show every setting, its value and its origin. Secrets are hidden."""
    if schema:
        from mainspring.settings.schema import schema as of_settings

        return Shown(of_settings(), [to_json(of_settings(), compact=False)])
    origins = find_app(named(app)).settings.origins
    document = {
        name: {"value": each.value, "source": each.source, "where": each.where} for name, each in origins.items()
    }
    rows = [(name, _value(each.value), each.source, each.where) for name, each in origins.items()]
    return Shown({"settings": document}, [Table(("setting", "value", "source", "where"), rows)])


def _value(value: object) -> str:
    if value in (None, [], {}):
        return "none"
    return value if isinstance(value, str) else compact(value)
