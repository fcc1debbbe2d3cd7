"""Small mistakes that got no help, or the wrong one."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from mainspring import Mainspring
from mainspring.cli import cli as main
from mainspring.errors import BadUrl, ConfigError, InvalidOption, UnknownOption

pytestmark = pytest.mark.stores("sqlite")


@pytest.mark.parametrize("url", ["sqlite:///~/x.db", "sqlite:////~/x.db"])
def test_a_tilde_in_a_url_is_not_the_home_directory(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("MAINSPRING_URL", url)
    with pytest.raises((BadUrl, ConfigError), match=r"begins with ~(.|\n)*Write sqlite:////home/ann/x.db"):
        _ = Mainspring().settings.url


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("TIMEOUT", "'timeout' is an option of @app.task"),
        ("RETRIES", "'retries' is an option of @app.task"),
        ("PROCESSES", "give it as a flag of mainspring worker"),
        ("ULR", "did you mean 'MAINSPRING_URL'"),
        ("LOG_LEVLE", "did you mean 'MAINSPRING_LOG_LEVEL'"),
    ],
)
def test_an_unknown_variable_gets_a_suggestion_that_fits(
    variable: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"MAINSPRING_{variable}", "1")
    with pytest.raises(UnknownOption) as error:
        _ = Mainspring().settings.url
    assert said in str(error.value)
    assert ("did you mean" in str(error.value)) is ("did you mean" in said)


def test_a_level_of_logging_gets_a_suggestion() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'warning'"):
        Mainspring("sqlite://", log_level="WARN")  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize("table", ["[mainspring]", "[tool.Mainspring]"])
def test_a_table_with_another_name_in_pyproject_is_refused(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(f'[project]\nname = "shop"\n{table}\nurl = "sqlite:///x.db"\n')
    monkeypatch.setenv("MAINSPRING_CONFIG", str(file))
    with pytest.raises(ConfigError) as error:
        _ = Mainspring().settings.url
    assert f"{table} is not the table of the settings" in str(error.value)
    assert "Write [tool.mainspring]" in str(error.value)


def test_a_class_as_the_error_of_a_query_gets_its_name(app: Mainspring) -> None:
    with pytest.raises(InvalidOption, match="Give its name: error='ValueError'"):
        app.jobs.list(error=ValueError)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(InvalidOption, match=r"Give its name: errors='mainspring\.errors\.BadUrl'"):
        app.jobs.list(errors=[BadUrl])  # type: ignore[list-item]  # the mistake


def test_a_call_by_a_name_that_is_nearly_a_task_warns_once(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="shop.add")
    def add(n: int) -> None: ...

    for name in ("shop.ad", "shop.ad", "shop.pay", "mail.add", "add"):
        app.call(name, 1)
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning == "app.call('shop.ad'): this program has no such task; did you mean 'shop.add'?"


def test_a_time_of_a_repeated_hour_is_accepted(app: Mainspring) -> None:
    second = datetime(2029, 10, 28, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))

    @app.task(name="at")
    def at(when: datetime, more: dict[str, datetime]) -> datetime:
        return when

    with app.test() as t:
        job = at.enqueue(second, {"a": second})
        t.drain()
        assert job.result() == datetime(2029, 10, 28, 1, 30, tzinfo=UTC)


@pytest.mark.option("cli.check.target", "cli.enqueue.url", "cli.enqueue.namespace")
def test_the_command_line_takes_a_store_and_an_app_as_its_neighbours_do(tmp_path: Path) -> None:
    file, url = tmp_path / "jobs.py", f"sqlite:///{tmp_path}/jobs.db"
    file.write_text(
        f"from mainspring import Mainspring\napp = Mainspring({url!r})\n@app.task(name='add')\ndef add(n: int): ...\n"
    )
    runner = CliRunner()
    assert runner.invoke(main, ["migrate", "--url", url]).exit_code == 0
    made = runner.invoke(main, ["enqueue", "--url", url, "--unknown", "add", "1"])
    assert made.exit_code == 0, made.output
    other = runner.invoke(main, ["enqueue", "--url", url, "--namespace", "other", "--unknown", "add", "1"])
    assert other.exit_code == 0, other.output
    checked = runner.invoke(main, ["check", str(file)])
    assert checked.exit_code == 0, checked.output
    assert "checked 1 job" in checked.output
