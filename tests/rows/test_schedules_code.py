"""S8, S6: code owns what a schedule is, by its version; operators own whether it is enabled."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption
from mainspring.schedules.sync import SyncResult
from mainspring.testing.app import TestApp
from tests.rows.scheduling import MONDAY, staged

pytestmark = pytest.mark.row("S8")


class Fleet:
    """Processes of several versions at one store, one after the other; each declares schedules with their intervals."""

    def __init__(self, url: str) -> None:
        self._url = url

    def start(self, version: str | None, *, at: int = 0, **schedules: str) -> SyncResult:
        """A worker that starts and ends this many minutes after the first."""
        with self.code(version, at=at, **schedules) as t:
            return self.synced(t)

    @contextmanager
    def code(self, version: str | None, *, at: int = 0, **schedules: str) -> Iterator[TestApp]:
        app = Mainspring("sqlite://", version=version)
        for name, every in schedules.items():
            app.schedule(name, every=every)(app.task(name=f"shop.{name}")(lambda: None))
        with app.test(url=self._url, start=MONDAY + timedelta(minutes=at)) as t:
            yield t

    @staticmethod
    def synced(t: TestApp) -> SyncResult:
        """What happened when it entered, seen from what is there."""
        infos = t.schedules.list()
        return SyncResult(
            added=tuple(info.name for info in infos if info.enabled),
            orphaned=tuple(info.name for info in infos if info.off == "orphaned"),
            changed=tuple(f"{info.name}:{info.rule.removeprefix('every ')}:{info.version}" for info in infos),
        )


@pytest.fixture
def fleet(store_url: str) -> Fleet:
    return Fleet(store_url)


def test_the_same_declaration_again_writes_nothing(store_url: str) -> None:
    with staged(store_url, version="1.0") as t:
        t.app.schedule("a", every="1h", on_dead="shop.alert", tags=["x"])(t.app.task(name="a")(lambda: None))
        t.app.schedule("b", every="1h", depends_on="a", blocks="a")(t.app.task(name="b")(lambda: None))
        assert t.schedules.declare().added == ("a", "b")
        assert t.schedules.declare() == SyncResult()


def test_a_newer_version_replaces_what_an_older_version_declared(fleet: Fleet) -> None:
    assert fleet.start("1.9", a="1h").changed == ("a:hour:1.9",)
    assert fleet.start("1.10", a="30m").changed == ("a:30 minutes:1.10",)
    assert fleet.start("v1.10.0-rc1", a="20m").changed == ("a:20 minutes:v1.10.0-rc1",)


def test_an_older_version_leaves_the_schedule_alone_and_logs_it(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    fleet.start("2.0", a="1h", new="1h")
    with caplog.at_level(logging.WARNING, "mainspring.schedules"):
        found = fleet.start("1.0", a="5m", old="1h")
    assert found.changed == ("a:hour:2.0", "new:hour:2.0", "old:hour:1.0")
    assert found.orphaned == ()
    [said] = [record.getMessage() for record in caplog.records if "'a'" in record.getMessage()]
    assert "app.schedules.declare()" in said
    assert "2.0" in said


def test_declare_makes_the_version_of_this_code_the_newest(fleet: Fleet) -> None:
    fleet.start("2.0", a="1h", new="1h")
    with fleet.code("1.0", a="5m") as t:
        assert t.schedules.declare() == SyncResult(changed=("a",), orphaned=("new",))
        assert fleet.synced(t).changed == ("a:5 minutes:1.0", "new:hour:2.0")


def test_versions_that_are_not_numbers_are_ordered_by_their_first_start(fleet: Fleet) -> None:
    fleet.start("f00d", a="1h")
    assert fleet.start("beef", at=1, a="30m").changed == ("a:30 minutes:beef",)
    assert fleet.start("f00d", at=2, a="1h").changed == ("a:30 minutes:beef",)
    assert fleet.start("7.1", at=3, a="10m").changed == ("a:10 minutes:7.1",)


def test_without_a_version_the_code_that_started_last_applies(fleet: Fleet) -> None:
    fleet.start(None, a="1h")
    assert fleet.start(None, a="30m").changed == ("a:30 minutes:",)
    assert fleet.start(None, a="1h").changed == ("a:hour:",)


def test_a_schedule_that_the_newest_code_lacks_is_orphaned_and_comes_back(fleet: Fleet) -> None:
    fleet.start("1", a="10m", b="10m")
    with fleet.code("2", a="10m") as t:
        info = t.schedules.get("b")
        assert (info.enabled, info.off) == (False, "orphaned")
        assert "version 2 does not declare it" in info.note
        t.advance("30m")
        assert t.schedules.history("b") == []
        assert len(t.schedules.history("a")) == 3
    with fleet.code("3", at=60, a="10m", b="10m") as t:
        assert fleet.synced(t).added == ("a", "b")
        t.advance("10m")
        assert len(t.schedules.history("b")) == 1  # what was due meanwhile is not made up for


def test_older_code_that_starts_again_does_not_restore_a_schedule_that_newer_code_lacks(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """In a rolling deploy an old worker can start after the first new worker."""
    fleet.start("1", a="10m", b="10m")
    fleet.start("2", at=1, a="10m")
    with caplog.at_level(logging.WARNING, "mainspring.schedules"):
        assert fleet.start("1", at=2, a="10m", b="10m").orphaned == ("b",)
    assert "schedule 'b' is not in version 2, which is newer than this code (1)" in caplog.text
    with fleet.code("1", at=3, a="10m", b="10m") as t:
        t.schedules.declare()
        assert t.schedules.get("b").enabled


def test_an_orphaned_schedule_can_be_deleted_or_taken_over(fleet: Fleet) -> None:
    fleet.start("1", a="10m", b="10m", c="10m")
    with fleet.code("2", a="10m") as t:
        t.schedules.delete("b")
        info = t.schedules.put("c", "shop.a", every="1h")
        assert (info.owner, info.enabled) == ("user", True)
    assert fleet.start("3", a="10m").added == ("a", "c")


def test_a_schedule_disabled_before_it_was_orphaned_can_be_deleted_too(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    with fleet.code("1", a="10m", b="10m", c="10m") as t:
        t.schedules.disable("b", "too loud")
        t.schedules.disable("c", "too loud")
    fleet.start("2", at=1, a="10m")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "mainspring.schedules"), fleet.code("2", at=2, a="10m") as t:
        assert caplog.text == ""  # it was said once
        assert t.schedules.get("b").note == "an operator disabled it, and the newest code does not declare it: too loud"
        t.schedules.delete("b")
        assert t.schedules.put("c", "shop.a", every="1h").owner == "user"
        assert [info.name for info in t.schedules.list()] == ["a", "c"]


def test_schedules_put_by_users_are_never_orphaned(fleet: Fleet) -> None:
    with fleet.code("1", a="10m") as t:
        t.schedules.put("mine", "shop.a", every="10m")
    assert fleet.start("2", a="10m").orphaned == ()


def test_code_does_not_change_enabled(fleet: Fleet) -> None:
    with fleet.code("1", a="10m", b="10m") as t:
        t.schedules.disable("a", "too loud")
    with fleet.code("2", a="20m", b="20m") as t:
        info = t.schedules.get("a")
        assert (info.enabled, info.rule, info.off) == (False, "every 20 minutes", "operator")
        assert t.schedules.get("b").enabled


def test_an_interval_that_is_not_changed_keeps_its_phase(fleet: Fleet) -> None:
    fleet.start("1", a="10m", b="10m")
    with fleet.code("2", at=7, a="10m", b="20m") as t:
        assert t.schedules.get("a").next == MONDAY + timedelta(minutes=10)
        assert t.schedules.get("b").next == MONDAY + timedelta(minutes=27)


def test_schedules_of_another_program_are_left_alone(app: Mainspring, store_url: str) -> None:
    """Two programs of one version in one namespace do not know each other's tasks."""
    app.schedule("mine", every="1h")(app.task(name="mine.work")(lambda: None))
    other = Mainspring(store_url)
    other.schedule("theirs", every="1h")(other.task(name="theirs.work")(lambda: None))
    with app.worker():
        with other.worker():
            assert [(info.name, info.enabled) for info in app.schedules.list()] == [("mine", True), ("theirs", True)]
            with pytest.raises(InvalidOption, match="would store it again"):
                app.schedules.delete("theirs")
        with app.worker():  # theirs is gone now
            assert app.schedules.get("theirs").enabled
        app.schedules.delete("theirs")  # nobody is there who would store it again
        assert [info.name for info in app.schedules.list()] == ["mine"]
    with pytest.raises(InvalidOption, match="would store it again"):
        app.schedules.delete("mine")
    other.close()


@pytest.mark.parametrize("package", ["", "company."])
def test_versions_of_two_programs_are_not_compared(store_url: str, package: str) -> None:
    """A higher version of one program does not make the other program old, also when their tasks are in one package."""
    shop, mail = Mainspring(store_url, version="1.4"), Mainspring(store_url, version="2.0")
    shop.schedule("orders", every="1h")(shop.task(name=f"{package}shop.orders")(lambda: None))
    mail.schedule("letters", every="1h")(mail.task(name=f"{package}mail.letters")(lambda: None))
    with shop.worker():
        with mail.worker():
            assert [(info.name, info.enabled) for info in shop.schedules.list()] == [
                ("letters", True),
                ("orders", True),
            ]
        with shop.worker():
            assert shop.schedules.get("letters").enabled
    with mail.worker():  # nobody of the shop is there; who shares a package with it takes it for older code of its own
        assert mail.schedules.get("orders").enabled is not bool(package)
        with shop.worker():
            assert mail.schedules.get("orders").enabled
            assert mail.schedules.get("letters").enabled
    shop.close()
    mail.close()


LATE = """
import sys

app = sys.modules["held_app"].app
app.schedule("late", every="1h")(app.task(name="held.late")(lambda: None))
"""


def test_schedules_of_an_included_module_are_not_deleted_before_it_is_imported(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "held_late.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    first, second = (Mainspring(store_url, include=["held_late"]) for _ in range(2))
    for app in (first, second):
        monkeypatch.setitem(sys.modules, "held_app", types.SimpleNamespace(app=app))
        monkeypatch.delitem(sys.modules, "held_late", raising=False)
        if app is first:
            assert app.schedules.declare().added == ("late",)
    with pytest.raises(InvalidOption, match="would store it again"):
        second.schedules.delete("late")
    for app in (first, second):
        app.close()
