"""A relative path of a SQLite store starts from the project, wherever a program is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

CODE = """
from mainspring import Mainspring
app = Mainspring({url})

if __name__ == "__main__":
    app.call("shop.mail").enqueue()
    print(sum(app.jobs.count().values()))
"""


def run(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """What a program prints that is started in this folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**kept, **(env or {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("shop/src/deep", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "shop" / "pyproject.toml").write_text("")
    return tmp_path / "shop"


@pytest.mark.option("app.url")
@pytest.mark.parametrize("by", ["keyword", "environment"])
def test_programs_in_different_directories_use_one_store(project: Path, by: str) -> None:
    url = "sqlite:///data.db"
    program = project / "src" / "deep" / "app.py"
    program.write_text(CODE.format(url=repr(url) if by == "keyword" else ""))
    env = {"MAINSPRING_URL": url} if by == "environment" else {}
    assert run(project, str(program), env=env) == "1"
    assert run(project.parent / "elsewhere", str(program), env=env) == "2"
    assert (project / "data.db").is_file()
    assert list((project.parent / "elsewhere").iterdir()) == []


def test_without_a_project_the_path_starts_from_the_module_that_declares_the_app(tmp_path: Path) -> None:
    for name in ("code", "elsewhere"):
        (tmp_path / name).mkdir()
    program = tmp_path / "code" / "app.py"
    program.write_text(CODE.format(url="'sqlite:///data.db'"))
    assert run(tmp_path / "elsewhere", str(program)) == "1"
    assert (tmp_path / "code" / "data.db").is_file()


def test_config_shows_the_absolute_path(project: Path) -> None:
    (project / "app.py").write_text(CODE.format(url="'sqlite:///data.db'"))
    said = run(project.parent / "elsewhere", "-m", "mainspring", "config", "--json", "-A", str(project / "app.py"))
    assert json.loads(said)["settings"]["url"]["value"] == f"sqlite:///{project}/data.db"


def test_a_url_on_the_command_line_starts_from_the_working_directory(project: Path) -> None:
    (project / "app.py").write_text(CODE.format(url="'sqlite:///data.db'"))
    run(project, "app.py")
    said = run(project, "-m", "mainspring", "status", "--json", "--url", "sqlite:///data.db")
    assert str(project / "data.db") in said


def test_an_interactive_session_starts_from_its_working_directory(project: Path) -> None:
    run(project / "src", "-c", CODE.format(url="'sqlite:///data.db'"))
    assert (project / "src" / "data.db").is_file()
