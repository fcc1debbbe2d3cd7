"""A program or a command line that cannot start: one error with its fix, the right exit code, no loop."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.errors import StoreUnavailable

LIMIT = 60


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def worker(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run("-m", "mainspring", "worker", *arguments, folder=folder)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a good app in it."""
    code = """
        from mainspring import Mainspring
        app = Mainspring()
        @app.task
        def add(a: int, b: int) -> int:
            return a + b
    """
    (tmp_path / "shop.py").write_text(textwrap.dedent(code))
    return tmp_path


def test_run_without_a_main_guard_fails_with_the_fix(tmp_path: Path) -> None:
    code = """
        from mainspring import Mainspring
        app = Mainspring()
        raise SystemExit(app.run(until_empty=True))
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(code))
    ran = run(str(tmp_path / "script.py"), folder=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.count("NoMainGuard") == 1
    assert 'if __name__ == "__main__":' in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["shop:app", "--leese", "1s"], "--lease"),  # did you mean
        (["shop:app", "--lease", "soon"], "lease='soon': cannot be read as a duration"),
        (["shop:app", "--processes", "0"], "processes=0"),
        (["shop:app", "--async-slots", "many"], "async_slots='many'"),
        (["shop:app", "--concurrency", "email"], "concurrency='email': is not QUEUE=N"),
        (["shop:app", "--log-level", "loud"], "log_level='loud': must be one of debug"),
        (["shop:app", "extra"], "unexpected extra argument"),
        ([], "no app was found"),
    ],
)
def test_wrong_flags_end_with_2_and_one_error(shop: Path, arguments: list[str], says: str) -> None:
    ran = worker(*arguments, folder=shop)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (shop / "mainspring.db").exists(), "nothing was opened"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("shop:ap", "has no 'ap'; did you mean 'app'?"),
        ("shop:add", "shop:add is a Task, not an app"),
        ("nowhere:app", "No module named 'nowhere'"),
        ("nofile.py", "there is no such file"),
    ],
)
def test_an_app_that_does_not_exist_ends_with_1_and_one_error(shop: Path, target: str, says: str) -> None:
    ran = worker(target, folder=shop)
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.count(says) == 1


def test_an_app_that_cannot_be_imported_ends_with_1_and_one_traceback(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import json\n\njson.loads('{')\n")
    ran = worker("broken", folder=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.count("Traceback") == 1
    assert "broken.py" in ran.stderr
    assert "JSONDecodeError" in ran.stderr


def test_a_store_that_cannot_be_opened_ends_with_1_and_one_error(shop: Path) -> None:
    (shop / "mainspring.db").write_text("not a database\n" * 500)
    ran = worker("shop:app", folder=shop)
    assert ran.returncode == 1
    assert ran.stderr.count("StoreCorrupt") == 1
    assert "restore a backup" in ran.stderr


def test_an_app_that_no_module_holds_cannot_be_run_by_other_processes(tmp_path: Path) -> None:
    code = """
        from mainspring import Mainspring
        def main():
            app = Mainspring()
            return app.run(until_empty=True)
        if __name__ == "__main__":
            main()
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(code))
    ran = run(str(tmp_path / "script.py"), folder=tmp_path)
    assert ran.returncode == 1
    assert "no module contains this app" in ran.stderr
    assert "top level of a module, or use app.worker()" in ran.stderr


@pytest.mark.parametrize("url", ["postgresql://user:hidden@127.0.0.1:1/db", "redis://:hidden@127.0.0.1:1/0"])
def test_an_unreachable_server_is_reported_without_its_password(url: str) -> None:
    app = Mainspring(url)
    for use in (app.open, lambda: app.worker().start()):
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1") as refused:
            use()
        assert "hidden" not in str(refused.value)
