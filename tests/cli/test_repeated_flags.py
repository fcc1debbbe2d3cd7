"""A flag that is given twice is collected or refused: no value is dropped without a word."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from mainspring.cli import cli
from mainspring.cli.root import Command, CommandGroup
from tests.cli.conftest import Shop

pytestmark = pytest.mark.stores("sqlite")


def commands(command: click.Command = cli, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of the tree, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from commands(each, *path, name)


def single(command: click.Command) -> list[str]:
    """A name of each flag that takes one value."""
    return [
        max(flag.opts, key=len) for flag in command.params
        if isinstance(flag, click.Option) and not (flag.multiple or flag.is_flag or flag.count)
    ]  # fmt: skip


def test_every_flag_with_one_value_is_refused_twice(shop: Shop) -> None:
    for path, command in commands():
        for flag in single(command):
            ran = shop.run(*path, f"{flag}=1", f"{flag}=2")
            assert (ran.code, ran.out) == (2, ""), (path, flag)
            assert f"{flag} was given 2 times, and it takes one value." in ran.err


def test_every_command_refuses_repeated_flags() -> None:
    assert [path for path, each in commands() if not isinstance(each, (Command, CommandGroup))] == []


def test_two_stores_are_refused_in_every_spelling(shop: Shop) -> None:
    for words in (["--url", "sqlite:///a.db", "--url=sqlite:///b.db"], ["-A", "app", "--app", "app"]):
        ran = shop.run("status", *words)
        assert ran.code == 2
        assert "was given 2 times" in ran.err


def test_an_argument_and_a_flag_that_name_different_apps_are_refused(shop: Shop) -> None:
    ran = shop.run("worker", "one.py", "-A", "two.py")
    assert ran.code == 2
    assert "Two apps were named: one.py and -A two.py. Name one." in ran.err


@pytest.mark.option("cli.worker.queues", "cli.worker.labels")
def test_names_are_collected(shop: Shop) -> None:
    ran = shop.call("worker", "-Q", "default,slow", "-Q", "late", "--labels", "gpu", "--labels", "eu", "--burst")
    assert ran.code == 0, ran.err
    assert "queues default, slow, late," in ran.err
    assert "labels eu, gpu" in ran.err


@pytest.mark.option("cli.worker.concurrency", "cli.enqueue.meta")
def test_a_key_that_is_given_twice_is_refused(shop: Shop) -> None:
    ran = shop.run("worker", "-c", "email=5", "-c", "email=6")
    assert (ran.code, "concurrency='email=6': 'email' is given twice" in ran.err) == (2, True)
    ran = shop.run("enqueue", "shop.add", "1", "--meta", "a=1", "--meta", "a=2")
    assert (ran.code, "meta='a=2': 'a' is given twice" in ran.err) == (2, True)


def test_a_flag_without_a_value_may_be_repeated(shop: Shop) -> None:
    assert shop.run("status", "--json", "--json").code == 0


class TestUnknownNames:
    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("jobs", "cancel", "--queue", "slwo"), "queue 'slwo' is not in the store; did you mean 'slow'?"),
            (("jobs", "retry", "--task", "shop.ad"), "task 'shop.ad' is not known; did you mean 'shop.add'?"),
            (("jobs", "run-now", "--task", "shop.ad"), "task 'shop.ad' is not known"),
            (("jobs", "rm", "--queue", "slwo"), "queue 'slwo' is not in the store"),
            (("dead", "retry", "--task", "shop.ad"), "task 'shop.ad' is not known; did you mean 'shop.add'?"),
            (("dead", "rm", "--queue", "slwo"), "queue 'slwo' is not in the store"),
        ],
    )
    @pytest.mark.parametrize("more", [(), ("--yes",)])
    def test_an_action_on_an_unknown_name_is_an_error_before_the_question(
        self, shop: Shop, words: tuple[str, ...], says: str, more: tuple[str, ...]
    ) -> None:
        shop.task("add").options(queue="slow").enqueue(1)
        ran = shop.run(*words, *more)
        assert (ran.code, ran.out) == (2, "")
        assert says in ran.err

    def test_a_known_name_without_jobs_is_zero(self, shop: Shop) -> None:
        ran = shop.run("dead", "retry", "--task", "shop.add", "--yes")
        assert (ran.code, ran.out) == (0, "retried 0 jobs\n")
