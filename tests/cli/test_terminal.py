"""On a terminal and off it; asking; errors; exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mainspring.jobs.outcomes import Outcome
from mainspring.worker.records import Beat, Registration
from tests.cli.conftest import LIMIT, Shop
from tests.cli.watching import on_terminal

pytestmark = pytest.mark.stores("sqlite")


@pytest.mark.row("U2")
def test_colours_on_a_terminal_and_plain_text_elsewhere(shop: Shop) -> None:
    shop.task("add").enqueue(1)
    code, shown = on_terminal(shop, "jobs", "ls")
    assert code == 0
    assert "\x1b[36mready" in shown
    assert "shop.add" in shown
    _, without = on_terminal(shop, "jobs", "ls", NO_COLOR="1")
    assert "ready" in without
    assert "\x1b[36m" not in without
    _, dumb = on_terminal(shop, "jobs", "ls", TERM="dumb")
    assert "\x1b" not in dumb
    assert "\x1b" not in shop.call("jobs", "ls").out


def test_rich_can_print_every_kind_of_output(shop: Shop) -> None:
    """Facts, tables with and without rows, text. Brackets in stored text are not read as markup."""
    job = shop.task("fail").enqueue("[bold]x[/bold]")
    shop.work(job)
    _, shown = on_terminal(shop, "jobs", "show", str(job.id), NO_COLOR="1")
    for text in ("shop.fail", "[bold]x[/bold]", "timeline", "Traceback", "code version 7"):
        assert text in shown
    _, nothing = on_terminal(shop, "workers", "ls", NO_COLOR="1")
    assert "no workers" in nothing
    _, status = on_terminal(shop, "status", NO_COLOR="1")
    assert "ValueError" in status


def test_stored_text_cannot_control_a_terminal_with_colours(shop: Shop) -> None:
    shop.task("fail").options(queue="q").enqueue("\x1b]0;owned\x07")
    [info] = shop.app.jobs.list().jobs
    _, shown = on_terminal(shop, "jobs", "show", str(info.id))
    assert "\x1b]0;" not in shown
    assert "\x07" not in shown


@pytest.mark.parametrize(
    ("answer", "code", "state"),
    [({"typed": "y\n"}, 0, "cancelled"), ({"typed": "n\n"}, 1, "ready"), ({"ctrl_c_at": "Continue?"}, 130, "ready")],
)
def test_a_user_at_a_terminal_is_asked(shop: Shop, answer: dict[str, str], code: int, state: str) -> None:
    """ "No" ends with 1 and Ctrl-C with 130. Nothing is changed in either case."""
    job = shop.task("add").enqueue(1)
    ended, shown = on_terminal(shop, "jobs", "cancel", "--queue", "default", **answer)
    assert "found 1 job" in shown
    assert (ended, job.info().state) == (code, state)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["jobs", "ls", "--stat", "dead"], "--stat'"),
        (["jobs", "ls", "--state", "done"], "must be one of blocked"),
        (["jobs", "ls", "--since", "soon"], "is neither a time nor a duration"),
        (["jobs", "lss"], "No such command 'lss'"),
        (["jobs", "show"], "Missing argument 'ID'"),
        (["jobs", "show", "x"], "x"),
        (["nothing"], "No such command 'nothing'"),
    ],
)
def test_a_usage_error_is_one_line_and_ends_with_2(shop: Shop, words: list[str], says: str) -> None:
    ran = shop.run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("mainspring: ")
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_without_a_command_the_commands_are_listed(shop: Shop) -> None:
    assert "enqueue" in shop.run().err
    assert shop.run("--help").code == 0
    assert shop.run("--version").out.startswith("mainspring, version ")


def test_a_closed_pipe_is_no_error(shop: Shop) -> None:
    """``mainspring jobs ls | head -1``."""
    for n in range(40):
        shop.task("add").enqueue(n)
    command = f"{sys.executable} -m mainspring jobs ls --json | head -1"
    ran = subprocess.run(
        command, shell=True, cwd=shop.folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (ran.stdout, "Traceback" in ran.stderr) == ("{\n", False)


def test_a_store_that_cannot_be_opened_ends_with_2(shop: Shop) -> None:
    bad = shop.folder / "bad.db"
    bad.write_text("not a database\n" * 500)
    ran = shop.run("jobs", "ls", "--url", f"sqlite:///{bad}")
    assert ran.code == 2
    assert ran.err.startswith("mainspring: ")


@pytest.mark.row("W17")
@pytest.mark.option("cli.workers.ls.lost")
def test_lost_workers_are_listed_on_request(shop: Shop) -> None:
    from mainspring.client.blocking import run

    async def lose() -> None:
        store = await shop.app.client.store()
        [beaten] = await store.beat([Beat("silent", Registration(queues=("q",)))])
        await store.rescue("silent", beaten.number, Outcome.LOST)

    run("lose", lose())
    assert shop.run("workers", "ls").out == "no workers\n"
    assert "silent" in shop.run("workers", "ls", "--lost").out


@pytest.mark.option("cli.demo.seconds", "cli.demo.headless")
def test_the_demo_loses_no_job(shop: Shop) -> None:
    """With plain lines on a terminal, as requested."""
    code, shown = on_terminal(shop, "demo", "--seconds", "1", "--headless")
    assert code == 0, shown
    assert "about 1 s" in shown
    assert "\x1b" not in shown
