"""``mainspring migrate``: bring the store's schema up to this version."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import click

from mainspring.cli.frame import answers, on_store
from mainspring.cli.output import Shown

if TYPE_CHECKING:
    from mainspring.app import Mainspring


@click.command()
@functools.partial(on_store, make=True)
@answers
def migrate(app: Mainspring) -> Shown:
    """Run the migrations that the store's schema is missing. Safe to run twice and from several hosts."""
    from mainspring.sync import run

    before, after = run("app.client.migrate", app.client.migrate())
    told = f"schema version {before} -> {after}" if before != after else f"schema version {after}: nothing to do"
    return Shown({"before": before, "after": after}, [told])
