"""``mainspring completion``: shell completion of commands, options, tasks and schedules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from mainspring.cli.root import Command

if TYPE_CHECKING:
    from mainspring.app import Mainspring

VARIABLE = "_MAINSPRING_COMPLETE"


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    It completes commands, options, and the names of tasks and schedules.

    bash: eval "$(mainspring completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc.
    fish: mainspring completion fish > ~/.config/fish/completions/mainspring.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root()
    click.echo(kind(root.command, {}, "mainspring", VARIABLE).source())


def task_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as click calls it
    """Complete names of the app's tasks; no names when the app cannot be found."""
    return _named(ctx, incomplete, lambda app: app.tasks)


def schedule_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as click calls it
    """Complete names of schedules that the app's code declares. The store is not asked: completion must not wait."""
    return _named(ctx, incomplete, lambda app: app.tasks.scheduled)


def _named(ctx: click.Context, incomplete: str, names: Callable[[Mainspring], Iterable[str]]) -> list[CompletionItem]:
    from mainspring.cli.find_app import find_app

    try:
        with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(null):  # noqa: PTH123 - shorter
            app = find_app(ctx.params.get("app") or ctx.find_root().params.get("app"))
            app.import_included()
    except Exception:  # noqa: BLE001 - completion shows no errors
        return []
    return [CompletionItem(name) for name in sorted(names(app)) if incomplete in name]
