"""The pytest plugin, in runs of pytest of their own: its fixtures, other plugins, and the forgotten ``app.test()``."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LIMIT = 100
QUIET = (
    *("-p", "no:valkey", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
    *("-W", "error", "-W", "ignore:The configuration option"),
)
"""Other plugins do not disturb; a warning of ours would be an error."""

SHOP = """
    from mainspring import Mainspring

    app = Mainspring()

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(name="aadd")
    async def aadd(a: int, b: int) -> int:
        return a + b
"""

PLAIN = """
    from shop import add, aadd

    def test_fixture(mainspring_test):
        job = add.enqueue(1, 2)
        mainspring_test.assert_enqueued("add", 1, b=2)
        assert mainspring_test.drain().succeeded == 1
        assert job.result() == 3

    def test_each_test_has_its_own_store(mainspring_test, mainspring_app):
        assert mainspring_test.enqueued() == []
        assert mainspring_app.jobs.count().total == 0
        mainspring_test.clock.advance("3d")

    def test_it_is_over_then(mainspring_app):
        assert "nobody" not in repr(mainspring_app)
        with mainspring_app.test() as t:
            aadd.enqueue(1, 1)
            assert t.drain().succeeded == 1
"""

ASYNC = """
    async def test_fixture(mainspring_test):
        job = await aadd.aenqueue(1, 2)
        assert (await mainspring_test.adrain()).succeeded == 1
        assert await job.aresult() == 3

    async def test_own_loop(mainspring_app):
        async with mainspring_app.test() as t:
            job = await aadd.aenqueue(2, 2)
            assert (await t.adrain()).succeeded == 1
            assert await job.aresult() == 4
"""


class Project:
    """A project of a user, in a folder that is not below the directory for temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.temporary = folder / "temporary"
        self.folder.mkdir()
        self.temporary.mkdir()
        self.write("shop.py", SHOP)
        self.settings('[tool.mainspring]\napp = "shop:app"\n')

    def write(self, name: str, code: str) -> None:
        (self.folder / name).write_text(textwrap.dedent(code))

    def settings(self, text: str) -> None:
        (self.folder / "pyproject.toml").write_text(text)

    def run(self, *arguments: str, code: int = 0) -> str:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING_", "PYTEST_"))}
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *QUIET, *arguments],
            cwd=self.folder,
            env={**env, "TMPDIR": str(self.temporary)},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout

    @property
    def store(self) -> Path:
        return self.folder / "mainspring.db"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize(
    "more", [(), ("-n", "2"), ("-p", "no:asyncio", "-p", "no:anyio")], ids=["plain", "xdist", "bare"]
)
def test_the_fixtures_use_the_app_of_the_project(project: Project, more: tuple[str, ...]) -> None:
    project.write("test_shop.py", PLAIN)
    assert "3 passed" in project.run(*more)
    assert not project.store.exists(), "the app's own store was never opened"


@pytest.mark.parametrize(
    ("mark", "more"),
    [
        ("@pytest.mark.asyncio\n", ("-o", "asyncio_mode=strict")),
        ("", ("-o", "asyncio_mode=auto")),
        ("", ("-o", "asyncio_mode=auto", "-n", "2")),
        ("@pytest.mark.anyio\n", ("-p", "no:asyncio")),
        ("@pytest.mark.anyio\n", ("-o", "asyncio_mode=strict")),
    ],
    ids=["strict", "auto", "auto-xdist", "anyio", "anyio-beside-asyncio"],
)
def test_async_tests_work_with_every_plugin(project: Project, mark: str, more: tuple[str, ...]) -> None:
    tests = textwrap.dedent(ASYNC).replace("async def test", f"{mark}async def test")
    backend = '@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n'
    project.write("test_shop.py", f"import pytest\nfrom shop import aadd\n{backend}{tests}")
    assert "2 passed" in project.run(*more)
    assert not project.store.exists()


def test_nothing_is_imported_until_a_fixture_is_used(project: Project) -> None:
    code = """
        import sys
        def test_cheap():
            ours = sorted(name for name in sys.modules if name.startswith("mainspring"))
            assert ours == [
                "mainspring", "mainspring.client", "mainspring.client.test_guard", "mainspring.testing",
                "mainspring.testing.plugin",
            ]
            assert "msgspec" not in sys.modules
    """
    project.write("test_cheap.py", code)
    assert "1 passed" in project.run("-p", "no:anyio")


def test_the_app_fixture_can_be_overridden(project: Project) -> None:
    project.settings("")
    project.write(
        "conftest.py",
        "import pytest\n@pytest.fixture\ndef mainspring_app():\n    from shop import app\n    return app\n",
    )
    project.write("test_shop.py", PLAIN)
    assert "3 passed" in project.run()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("", "no settings file at or above"),
        ('[tool.mainspring]\napp = "shop:ap"\n', "has no 'ap'; did you mean 'app'?"),
        ('[tool.mainspring]\napp = "shop:add"\n', "is a Task, not an app"),
    ],
)
def test_an_app_that_cannot_be_found_is_reported(project: Project, settings: str, says: str) -> None:
    project.settings(settings)
    project.write("test_shop.py", "def test(mainspring_test): ...")
    assert says in project.run(code=1)


def test_the_app_can_be_in_a_named_file(project: Project) -> None:
    project.settings('[tool.mainspring]\napp = "shop.py:app"\n')
    project.write("test_shop.py", "def test(mainspring_test):\n    assert mainspring_test.drain().ran == 0\n")
    project.run()


# ---- the forgotten app.test() ----------------------------------------------------------------------

FORGOT = """
    import asyncio
    from shop import add, app

    def test_enqueue():
        add.enqueue(1, 2)

    def test_aenqueue():
        asyncio.run(add.aenqueue(1, 2))

    def test_read():
        app.jobs.count()

    def test_worker():
        with app.worker():
            pass

    def test_again():
        add.enqueue(1, 2)
"""


def test_a_forgotten_test_mode_is_an_error_with_its_fix(project: Project) -> None:
    """No store is opened or created."""
    project.write("test_shop.py", FORGOT)
    said = project.run(code=1)
    assert "5 failed" in said
    assert said.count("OutsideTest: a test would use the store sqlite:///") >= 5
    assert "with app.test() as t:" in said
    assert not project.store.exists()


@pytest.mark.parametrize(
    "more",
    [
        ("-o", "mainspring_strict=false"),
        ("-o", "mainspring_allow_urls=sqlite:///*/project/mainspring.db"),
        ("-p", "no:mainspring"),
    ],
    ids=["switched off", "allowed", "without the plugin"],
)
def test_a_store_that_tests_are_allowed_to_use_is_used(project: Project, more: tuple[str, ...]) -> None:
    project.write("test_shop.py", FORGOT)
    assert "5 passed" in project.run(*more)
    assert project.store.exists()


@pytest.mark.parametrize(
    "url", ['"sqlite://"', '"sqlite:///" + tempfile.mkdtemp() + "/jobs.db"'], ids=["memory", "temporary"]
)
def test_a_store_in_a_temporary_folder_needs_no_permission(project: Project, url: str) -> None:
    project.write(
        "shop.py",
        textwrap.dedent(SHOP).replace("Mainspring()", f"Mainspring({url})").replace("\n", "import tempfile\n", 1),
    )
    project.write("test_shop.py", "from shop import add\ndef test():\n    add.enqueue(1, 2)\n")
    project.run()


def test_a_store_in_the_basetemp_of_pytest_needs_no_permission(project: Project) -> None:
    code = """
        from mainspring import Mainspring
        def test(tmp_path):
            app = Mainspring(f"sqlite:///{tmp_path}/jobs.db")
            app.open().close()
    """
    project.write("test_own.py", code)
    project.run("--basetemp", str(project.folder / "elsewhere"))


def test_passwords_are_not_shown(project: Project) -> None:
    project.write(
        "shop.py", textwrap.dedent(SHOP).replace("Mainspring()", 'Mainspring("postgresql://me:hunter22@db/shop")')
    )
    project.write("test_shop.py", "from shop import add\ndef test():\n    add.enqueue(1, 2)\n")
    said = project.run("--tb=line", code=1)
    assert "me:***@db" in said
    assert "hunter22" not in said
