"""``mainspring demo``: the package's own demonstration."""

from __future__ import annotations

import click

from mainspring.cli.root import Command


@click.command(cls=Command)
@click.option("--seconds", default=20.0, show_default=True, help="Approximate length of the demo.")
@click.option("--headless", is_flag=True, help="Print plain lines, also on a terminal.")
def demo(seconds: float, headless: bool) -> int:
    """Run three workers on SQLite and kill one. Exit code 0 if no job was lost."""
    from mainspring.demo.show import run

    return run(seconds, headless=headless)
