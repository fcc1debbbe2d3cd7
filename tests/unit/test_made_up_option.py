"""One option, one place: an option that is only in the table arrives in the record, the flags and the reference."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mainspring import Context, Mainspring
from mainspring.common.ids import raw_id
from mainspring.errors import InvalidOption
from mainspring.jobs.records import JobBody
from mainspring.options import checks
from mainspring.options.table import Option, added_option, options_for
from mainspring.schedules.build_definition import build_code_definitions

COLOUR = Option(
    "colour",
    "str | None",
    None,
    "The colour of the job.",
    frozenset({"job", "task", "schedule"}),
    checks.choice("red", "blue", None),
)  # fmt: skip
RED: Any = {"colour": "red"}
ECHO = Option("echo", "Duration", 1_000_000, "The time between two echoes.", frozenset({"worker"}), checks.span, "1s")


@pytest.fixture(name="app")
def app_with_the_option() -> Iterator[Mainspring]:
    with added_option(COLOUR):
        yield Mainspring("sqlite://")


def body_of(record: bytes) -> JobBody:
    return msgspec.json.decode(record, type=JobBody)


def test_a_new_job_option_reaches_the_worker_and_job_info(app: Mainspring) -> None:
    seen: list[Any] = []

    @app.task(name="paint")
    def paint(ctx: Context) -> None:
        attempt = ctx._attempt
        assert attempt is not None
        assert attempt.body is not None
        seen.append(attempt.body.options)

    with app.test() as t:
        job = cast("Any", paint).options(colour="red").enqueue()
        paint.enqueue()
        t.drain()
        assert job.info().options["colour"] == "red"
    assert sorted(seen, key=len) == [{}, {"colour": "red"}]


def test_the_task_keeps_the_new_option_and_its_jobs_stay_on_the_fast_path(app: Mainspring) -> None:
    task = cast("Any", app).task(colour="blue", name="paint")(lambda: None)
    assert task.spec().options["colour"] == "blue"
    assert task.target.template is not None
    assert body_of(task.s().new_job().record).options == {}


def test_a_schedule_gives_the_new_option_to_its_jobs(app: Mainspring) -> None:
    cast("Any", app).schedule(every="1h", colour="red")(app.task(name="paint")(lambda: None))
    (definition,) = build_code_definitions(app).values()
    assert body_of(definition.job.record).options == {"colour": "red"}


def test_the_value_of_the_new_option_is_checked(app: Mainspring) -> None:
    task = app.task(name="paint")(lambda: None)
    with pytest.raises(InvalidOption, match="colour"):
        cast("Any", task).options(colour="green")


def test_an_option_that_is_built_for_each_job_takes_its_task_off_the_fast_path() -> None:
    """The fast path asks the table, so it cannot miss an unknown option."""
    with added_option(msgspec.structs.replace(COLOUR, carried="built")):
        app = Mainspring("sqlite://")
        plain = app.task(name="plain")(lambda: None)
        coloured = cast("Any", app).task(name="red", colour="red")(lambda: None)
        assert plain.target.template is not None
        assert coloured.target.template is None
        assert coloured.target.carried["colour"] == "red"


@pytest.mark.parametrize(
    "option", [each for each in options_for("job") if each.carried != "call"], ids=lambda o: o.name
)
def test_every_job_option_changes_the_job(option: Option) -> None:
    """An option given for one job is never dropped, whether it is a column, built or in the record."""
    samples = {
        "queue": "other", "priority": 7, "expires": "1m", "key": "k", "tags": ["t"], "meta": {"m": 1}, "delay": "1m",
        "run_at": datetime(2030, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    app, id = Mainspring("sqlite://"), raw_id()
    call = app.task(name="x")(lambda: None).s()
    given: Any = {option.name: samples.get(option.name, option.shown_default or 3)}
    assert call.options(**given).new_job(id=id) != call.new_job(id=id)


def test_the_new_option_is_in_the_reference_and_in_the_typed_dictionary() -> None:
    from tools import reference  # not above: it imports the command line, and the script below adds options first

    assert "`colour`" not in reference.options_page()
    with added_option(COLOUR), added_option(ECHO):
        page, typed = reference.options_page(), reference.typed_dictionaries()
    assert page.count("| `colour` | `str \\| None` | `None` | The colour of the job. |") == 2
    assert "| `colour` | `str \\| None` | the task's | The colour of the job. |" in page
    assert "| `echo` | `Duration` | 1s | The time between two echoes. |" in page
    assert typed.count("    colour: str | None\n") == 3
    assert "    echo: Duration\n" in typed


SCRIPT = """
import sys
from mainspring.options import checks, table
from tests.unit.test_made_up_option import COLOUR, ECHO
table.add_option(COLOUR)
table.add_option(ECHO)
from mainspring.cli import cli
cli(sys.argv[1:])
"""
APP = """
from mainspring import Mainspring
app = Mainspring("sqlite:///jobs.db")
@app.task(name="paint")
def paint() -> None: ...
"""


def test_the_new_option_is_a_flag_of_the_command_line(tmp_path: Path) -> None:
    """In an interpreter of its own: the flags are read from the table when the command line is imported."""
    (tmp_path / "shop.py").write_text(APP)

    def run(*args: str) -> str:
        env = {"PYTHONPATH": f"{Path(__file__).parents[2]}", "PATH": ""}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *args], cwd=tmp_path, env=env, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = run("enqueue", "--help")
    assert "--colour TEXT" in shown
    assert "The colour of the job." in shown
    assert "--echo DURATION" in run("worker", "--help")
    id = run("enqueue", "-A", "shop:app", "paint", "--colour", "red").strip()
    assert '"colour": "red"' in run("jobs", "show", id, "-A", "shop:app", "--json")
