"""The help of every command: one whole line in the list of commands, and an example that works."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from mainspring.cli import cli
from mainspring.cli.examples import EXAMPLES


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from commands(each, (*path, name))


PATHS = [*commands(cli)]


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_no_help_line_is_cut_off_at_80_columns(path: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(cli, [*path, "--help"], prog_name="mainspring", terminal_width=80)
    assert ran.exit_code == 0
    lines = [line for line in ran.stdout.splitlines() if not line.startswith("Usage:")]
    assert not [line for line in lines if line.endswith("...")]
    assert not [line for line in lines if len(line) > 80 and not line.startswith("  mainspring ")]


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_command_shows_an_example(path: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(cli, [*path, "--help"], prog_name="mainspring")
    assert "Example" in ran.stdout
    for example in EXAMPLES[" ".join(path)]:
        assert example in ran.stdout


def test_no_example_is_left_of_a_command_that_is_gone() -> None:
    assert set(EXAMPLES) == {" ".join(path) for path in PATHS}


@pytest.mark.parametrize("example", [each for found in EXAMPLES.values() for each in found])
def test_the_command_line_accepts_each_example(example: str) -> None:
    """Only the words are checked: nothing runs."""
    words = shlex.split(example.partition(" >>")[0])[1:]
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, example
        command = found
    command.make_context(command.name, words)
