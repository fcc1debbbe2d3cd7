"""Programs that share a store: each notices a store that holds only jobs of other programs, once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.errors import mask_url
from tests.rows.project import Project
from tests.timing import short_settings

Make = Callable[..., Mainspring]


@pytest.fixture
def make(store_url: str) -> Iterator[Make]:
    """``make("shop")``: a program of this name with a task ``shop.work``."""
    apps: list[Mainspring] = []

    def made(name: str | None, **given: object) -> Mainspring:
        app = Mainspring(store_url, name=name, **{**short_settings(), **given})
        app.task(name=f"{name}.work")(_work)
        apps.append(app)
        return app

    yield made
    for app in apps:
        app.close()


async def _work() -> None: ...


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "this store holds jobs" in r.getMessage()]


def run_once(app: Mainspring) -> None:
    with app.worker():
        pass


def test_a_worker_warns_once_of_a_store_of_another_program(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    run_once(make("shop"))
    assert said(caplog) == []
    mail = make("mail")
    run_once(mail)
    [line] = said(caplog)
    assert line == (
        f"this store holds jobs of app 'shop', and none of app 'mail': {mask_url(mail.settings.url)} "
        "(namespace 'default'); if that is not intended, use namespace=... or another database"
    )
    caplog.clear()
    with caplog.at_level(logging.INFO, "mainspring.worker"):
        run_once(make("mail"))
        run_once(make("shop"))
    assert said(caplog) == []
    shared = [r.getMessage() for r in caplog.records if "shares this store" in r.getMessage()]
    assert shared == ["app 'mail' shares this store with 'shop'", "app 'shop' shares this store with 'mail'"]


def test_a_task_that_was_imported_under_two_names_is_named_instead_of_another_database(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    run_once(make("shop"))
    other = make("mail")
    other.call("web.shop.work").enqueue()
    [line] = said(caplog)
    assert "'shop.work' and 'web.shop.work' look like one function, imported under two names" in line
    assert "another database" not in line


def test_an_enqueue_warns_once_of_a_store_of_another_program(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    run_once(make("shop"))
    mail = make("mail")
    for _ in range(3):
        mail.call("mail.work").enqueue()
    [line] = said(caplog)
    assert "this store holds jobs of app 'shop', and none of app 'mail'" in line


async def test_an_async_enqueue_warns_too(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    async with make("shop").worker():
        pass
    mail = make("mail")
    for _ in range(3):
        await mail.call("mail.work").aenqueue()
    assert len(said(caplog)) == 1


def test_a_producer_of_the_other_programs_tasks_gets_no_warning(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    run_once(make("shop"))
    make("web").call("shop.work").enqueue()
    assert said(caplog) == []


def test_a_renamed_program_gets_no_warning(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    run_once(make("shop"))
    renamed = make("store")
    renamed.task(name="shop.work")(_work)
    run_once(renamed)
    assert said(caplog) == []


@pytest.mark.option("app.name")
def test_schedules_of_apps_with_other_names_are_left_alone(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Both programs have tasks of one package, and no worker of the first is live."""
    shop = make("shop", version="1")
    shop.schedule(every="1h", name="jobs.clean")(_work)
    shop.schedules.declare()
    mail = make("mail", version="2")
    mail.schedule(every="1h", name="jobs.send")(_work)
    assert mail.schedules.declare().orphaned == ()
    taking = make("post", version="3")
    taking.schedule(every="2h", name="jobs.clean")(_work)
    caplog.clear()
    assert taking.schedules.declare().left == ()  # an operator's order: the schedule belongs to this app now
    newer = make("post", version="4")
    assert newer.schedules.declare().orphaned == ("jobs.clean",)


class TestName:
    CODE = "import os\nfrom mainspring import Mainspring\napp = Mainspring(os.environ['SHOP_STORE']{})\n"
    SHOW = "from shop import app; print(app.settings.program)"

    @pytest.fixture
    def project(self, tmp_path: Path, store_url: str) -> Project:
        (tmp_path / "my-shop").mkdir()
        return Project(tmp_path / "my-shop", store_url)

    @pytest.mark.stores("sqlite")
    def test_the_default_is_the_name_of_the_project(self, project: Project) -> None:
        project.write(self.CODE.format(""))
        assert project.python(self.SHOW) == "my-shop"
        (project.folder / "pyproject.toml").write_text('[project]\nname = "shop-service"\n')
        assert project.python(self.SHOW) == "shop-service"
        assert project.python(self.SHOW, env={"MAINSPRING_NAME": "other"}) == "other"
        project.write(self.CODE.format(", name='given'"))
        assert project.python(self.SHOW, env={"MAINSPRING_NAME": "other"}) == "given"

    @pytest.mark.stores("sqlite")
    def test_a_producer_starts_no_thread_for_the_look(self, project: Project) -> None:
        project.write(self.CODE.format(""))
        code = "import threading\nfrom shop import app\napp.call('x').enqueue()\nprint(threading.active_count())"
        assert project.python(code) == "1"
