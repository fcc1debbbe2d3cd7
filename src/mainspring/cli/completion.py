"""``mainspring completion``, and the names that a shell can complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from mainspring.app import Mainspring

VARIABLE = "_MAINSPRING_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options and names of tasks and schedules.

    bash: eval "$(mainspring completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc.
    fish: mainspring completion fish > ~/.config/fish/completions/mainspring.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root()
    click.echo(kind(root.command, {}, "mainspring", VARIABLE).source())


def task_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as click calls it
    """Names of the app's tasks, by their whole name or its end; none when the app cannot be found."""
    return _named(ctx, incomplete, lambda app: app.tasks)


def schedule_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as click calls it
    """Names of the schedules that the app's code declares: a shell that asks must not wait for a store."""
    return _named(ctx, incomplete, lambda app: app.tasks.scheduled)


def _named(ctx: click.Context, incomplete: str, names: Callable[[Mainspring], Iterable[str]]) -> list[CompletionItem]:
    from mainspring.cli.find_app import find_app

    try:
        with open(os.devnull, "w") as nobody, redirect_stdout(nobody), redirect_stderr(nobody):  # noqa: PTH123 - shorter
            app = find_app(ctx.params.get("app") or ctx.find_root().params.get("app"))
            app.import_included()
    except Exception:  # noqa: BLE001 - a shell that asks for names has no use for errors
        return []
    return [CompletionItem(name) for name in sorted(names(app)) if incomplete in name]
