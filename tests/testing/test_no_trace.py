"""A test leaves no trace on its app."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring import Mainspring, Middleware, Tasks
from mainspring.errors import InsideTest, NotOpen
from mainspring.schedules.edit import load_code_schedules


@pytest.fixture
def app() -> Mainspring:
    return Mainspring("postgresql://nobody@127.0.0.1:1/nothing")


def test_a_test_restores_the_app(app: Mainspring) -> None:
    """Also when the test failed: the store, the settings, and tasks declared meanwhile."""

    @app.task
    def mine() -> None: ...

    @app.lifespan
    def setup() -> Iterator[None]:
        yield

    app.on("dead")(print)
    client, settings = app.client, app.settings

    def declared() -> tuple[object, ...]:
        parts = app.settings.parts(
            app.tasks, {}, lifespans=(), hooks=app.hooks, middleware=(), schedules=load_code_schedules(app)
        )
        spans, wrappers = vars(app)["_lifespans"], vars(app)["_middleware"]
        return sorted(parts.tasks), app.hooks.of("dead", "x"), app.hooks.of("failed", "x"), list(spans), list(wrappers)

    app.settings.use(Mainspring("sqlite://").settings.address)  # so that parts can be made of it
    before = declared()

    def meddle() -> None:
        with app.test():
            app.task(name="theirs")(lambda: None)
            app.task(name=mine.name)(mine.fn)
            app.on("dead", "failed")(print)
            app.lifespan(setup)
            app.middleware(type("Around", (Middleware,), {"enqueue": lambda _, call: call})())
            vars(app.settings)["payload_limit"] = 1
            assert app.client is not client
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        meddle()
    assert (app.client, app.settings) == (client, settings)
    assert app.settings.payload_limit != 1
    assert declared() == before
    assert app.tasks.find(mine.name) is mine


def test_tasks_of_a_module_imported_in_a_test_are_kept(
    app: Mainspring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is not imported again in the next test, so its tasks would be missing."""
    code = """
        from tests.testing.test_no_trace import HERE
        @HERE.task
        def late(): ...
        @HERE.on("dead")
        def told(event): ...
    """
    (tmp_path / "imported_late.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "HERE", app, raising=False)
    monkeypatch.setitem(sys.modules, "tests.testing.test_no_trace", sys.modules[__name__])
    for _ in range(2):
        with app.test() as t:
            from imported_late import late  # type: ignore[import-not-found]  # made above

            late.enqueue()
            assert t.drain().succeeded == 1
    assert len(app.hooks.of("dead", "x")) == 1


def test_a_library_can_be_included_in_each_test(app: Mainspring) -> None:
    library = Tasks()

    @library.task(name="library.work")
    def work() -> int:
        return 1

    for _ in range(2):
        with app.test() as t:
            app.include(library)
            job = work.enqueue()
            t.drain()
            assert job.result() == 1
        assert app.tasks.find("library.work") is None


def test_two_tests_of_one_app_at_once_are_refused(app: Mainspring) -> None:
    with app.test() as t:
        with pytest.raises(InsideTest, match="is in test mode already"), app.test():
            pass
        with pytest.raises(InsideTest, match="was used before"), t:
            pass
        assert app.test() is not t
    with pytest.raises(InsideTest, match="was used before"), t:
        pass
    with pytest.raises(NotOpen, match="not open"):
        t.drain()
    with app.test():
        pass


def test_two_apps_can_be_tested_at_once() -> None:
    one, other = Mainspring("sqlite://"), Mainspring("sqlite://")
    ran: list[str] = []
    here = one.task(name="work")(lambda: ran.append("one"))
    there = other.task(name="work")(lambda: ran.append("other"))
    with one.test() as t, other.test() as u:
        here.enqueue()
        there.enqueue()
        assert t.drain().ran == 1
        assert ran == ["one"]
        assert u.drain().ran == 1
        u.clock.advance("1d")
        assert u.clock.now() > t.clock.now()


def test_workers_of_the_app_are_refused_in_a_test(app: Mainspring) -> None:
    """They would use the real store."""
    with app.test():
        for start in (app.worker, app.run):
            with pytest.raises(InsideTest, match=r"in test mode .*\n  Use t\.drain"):
                start()


def test_a_handle_of_an_ended_test_raises(app: Mainspring) -> None:
    @app.task
    def work() -> None: ...

    with app.test():
        job = work.enqueue()
    with pytest.raises(NotOpen, match=r"belongs to an app\.test\(\) that has ended"):
        job.info()
