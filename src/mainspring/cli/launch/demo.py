"""``mainspring demo``."""

from __future__ import annotations

import click


@click.command()
@click.option("--seconds", default=20.0, show_default=True, help="About how long the work takes.")
@click.option("--headless", is_flag=True, help="Plain lines even on a terminal.")
def demo(seconds: float, headless: bool) -> int:
    """A live fleet on SQLite: progress, retries, one worker killed. Exit code 0: nothing was lost."""
    from mainspring.demo.show import run

    return run(seconds, headless=headless)
