"""Q12, Q13 and the rest of what a caller meets: payloads, results, deadlines, libraries, old payloads."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mainspring import Call, Context, Depends, Mainspring, Middleware, Secret, Tasks
from mainspring.client.blocking import run
from mainspring.errors import (
    ArgumentError,
    JobCancelled,
    JobNotFound,
    NoApp,
    PayloadTooLarge,
    ResultGone,
    ResultTimeout,
    UnknownArgument,
    WrongArgument,
)
from mainspring.jobs.job import Job
from mainspring.states import Reason, State
from tests.rows.crew import until
from tests.rows.test_queue import total

LIMIT = 60


@dataclass
class Line:
    sku: str
    price: Decimal


@dataclass
class Order:
    id: UUID
    lines: list[Line]
    due: date
    notes: dict[str, str]


@pytest.mark.row("Q12")
class TestPayloads:
    ORDER = Order(UUID(int=1), [Line("a", Decimal("1.50"))], date(2030, 1, 2), {"x": "y"})

    def test_arguments_and_results_keep_their_declared_types(self, app: Mainspring) -> None:
        @app.task(name="take")
        def take(order: Order, when: datetime, tags: set[str], raw: bytes) -> Order:
            assert (order, when, tags, raw) == (self.ORDER, datetime(2030, 1, 1, tzinfo=UTC), {"a"}, b"\0\xff")
            return order

        with app.worker():
            job = take.enqueue(self.ORDER, datetime(2030, 1, 1, tzinfo=UTC), {"a"}, b"\0\xff")
            assert job.result(timeout=LIMIT) == self.ORDER

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"id": "not an id"}, r"take\(order=\.\.\.\): argument 'order\.id':"),
            ({"lines": [Line("a", "cheap")]}, r"argument 'order\.lines\[0\]\.price':"),  # type: ignore[arg-type]
            ({"due": "tomorrow"}, r"argument 'order\.due':"),
            ({"notes": {"x": 7}}, r"argument 'order\.notes\[\.\.\.\]' expected str, got int"),
        ],
    )
    def test_bad_input_is_refused_at_enqueue_with_the_field(
        self, app: Mainspring, wrong: dict[str, Any], says: str
    ) -> None:
        @app.task(name="take")
        def take(order: Order) -> None: ...

        with pytest.raises(ArgumentError, match=says):
            take.enqueue(Order(**{**vars(self.ORDER), **wrong}))
        assert total(app) == 0

    def test_payloads_are_json_and_no_class_is_looked_up_by_a_stored_name(self, app: Mainspring) -> None:
        @app.task(name="take")
        def take(order: Order) -> None: ...

        info = take.enqueue(self.ORDER).info()
        assert info.args == {
            "order": {
                "id": str(UUID(int=1)), "lines": [{"sku": "a", "price": "1.50"}], "due": "2030-01-02",
                "notes": {"x": "y"},
            }
        }  # fmt: skip

    @pytest.mark.option("task.sensitive")
    def test_sensitive_arguments_and_secrets_reach_the_task_and_are_shown_nowhere(self, app: Mainspring) -> None:
        got: list[str] = []

        @app.task(name="login", sensitive=["colour"])  # a name that says nothing by itself
        def login(user: str, colour: str, key_card: Secret[str]) -> None:
            got.extend([user, colour, key_card.reveal()])

        with app.worker():
            job = login.enqueue("ann", "mauve-ish", Secret("t0ken-value"))
            job.join(timeout=LIMIT)
        assert got == ["ann", "mauve-ish", "t0ken-value"]
        assert job.info().args == {"user": "ann", "colour": "***", "key_card": "***"}

    def test_a_wait_for_a_result_ends_at_its_timeout_and_the_job_runs_on(self, app: Mainspring) -> None:
        go_on = threading.Event()

        @app.task(name="slow")
        def slow() -> str:
            go_on.wait(LIMIT)
            return "done"

        with app.worker():
            job = slow.enqueue()
            with pytest.raises(ResultTimeout, match=str(job.id)):
                job.result(timeout="50ms")
            go_on.set()
            assert job.result(timeout=LIMIT) == "done"

    @pytest.mark.option("task.retention")
    def test_a_result_is_kept_as_long_as_the_retention_and_not_longer(self, app: Mainspring) -> None:
        short = app.task(name="short", retention="1ms")(lambda: 1)
        long = app.task(name="long", retention="1h")(lambda: 2)
        usual = app.task(name="usual")(lambda: 3)
        with app.worker():
            jobs = [task.enqueue() for task in (short, long, usual)]
            for job in jobs[1:]:
                job.join(timeout=LIMIT)
            until(lambda: is_gone(app, jobs[0]), "what is past its retention is deleted")
        with pytest.raises(JobNotFound):
            jobs[0].result(timeout=LIMIT)
        assert [job.result(timeout=LIMIT) for job in jobs[1:]] == [2, 3]

    @pytest.mark.option("task.result")
    def test_a_result_is_not_stored_when_the_task_does_not_keep_it(self, app: Mainspring) -> None:
        forgotten = app.task(name="forgotten", result="ignore")(lambda: "large")
        with app.worker():
            job = forgotten.enqueue()
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
            with pytest.raises(ResultGone):
                job.result(timeout=LIMIT)


def is_gone(app: Mainspring, job: Job[Any]) -> bool:
    """Whether it is deleted, by this prune or by the worker's own."""

    async def prune() -> int:
        return await (await app.client.store()).prune(app.settings.retention)

    run("prune", prune())
    try:
        job.info()
    except JobNotFound:
        return True
    return False


@pytest.mark.row("Q13")
class TestLimits:
    @pytest.mark.option("task.expires", "job.expires")
    def test_a_job_not_started_in_time_is_cancelled_and_never_runs(self, app: Mainspring) -> None:
        ran: list[str] = []

        @app.task(name="late", expires="20ms")
        def late(which: str) -> None:
            ran.append(which)

        jobs = [
            late.enqueue("of the task"),
            late.options(expires="10ms").enqueue("of the job"),
            late.options(expires=None).enqueue("switched off"),
            late.options(expires="1h").enqueue("in time"),
        ]
        until(lambda: all(info.expires and info.expires < datetime.now(UTC) for info in infos(jobs[:2])), "they expire")
        with app.worker():
            assert [job.join(timeout=LIMIT).state for job in jobs] == [State.CANCELLED] * 2 + [State.SUCCEEDED] * 2
        assert [info.reason for info in infos(jobs[:2])] == [Reason.EXPIRED] * 2
        assert sorted(ran) == ["in time", "switched off"]
        with pytest.raises(JobCancelled, match="expired"):
            jobs[0].result(timeout=LIMIT)

    def test_a_payload_that_is_too_large_is_refused_with_the_fix(self, store_url: str) -> None:
        app = Mainspring(store_url, payload_limit="1kB")
        take = app.task(name="take")(text_of)
        take.enqueue("x" * 900)
        for use in (take.enqueue, lambda text: app.call("elsewhere", text).enqueue()):
            with pytest.raises(PayloadTooLarge, match=r"limit is 1,000\n  Store the data elsewhere"):
                use("x" * 1_000)
        assert total(app) == 1
        app.close()


def text_of(text: str) -> None: ...


def infos(jobs: list[Any]) -> list[Any]:
    return [job.info() for job in jobs]


@pytest.mark.row("Q1")
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_program_that_only_enqueues_starts_no_loop_and_no_thread(store_url: str, durability: str) -> None:
    code = f"""
        import asyncio, os, sys, threading
        from mainspring import Key, Mainspring

        class NoLoop(asyncio.DefaultEventLoopPolicy):
            def new_event_loop(self):
                raise AssertionError("a loop was started")

        asyncio.set_event_loop_policy(NoLoop())
        app = Mainspring({store_url!r}, durability={durability!r})

        def fn(a: int) -> int: ...
        task = app.task(name="shop.add", tags=["x"], on_dead="shop.alert")(fn)
        jobs = [task.enqueue(1), app.call("elsewhere", 1, 2).enqueue(), task.options(key="k").enqueue(2)]
        jobs += app.enqueue_many([task.s(3), task.s(4).options(key=Key.arguments())])
        assert len({{job.id for job in jobs}}) == 5
        print([thread.name for thread in threading.enumerate()], len(os.listdir("/proc/self/task")))
    """
    shown = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert shown.stdout.strip() == "['MainThread'] 1", shown.stderr


@pytest.mark.stores("sqlite")
class TestLibraries:
    def test_the_tasks_of_a_library_run_in_the_app_that_includes_it(self, app: Mainspring) -> None:
        tasks = Tasks()

        @tasks.task(name="lib.add", queue="lib", retries=0)
        async def add(a: int, b: int = 1) -> int:
            return a + b

        with pytest.raises(NoApp):
            add.enqueue(1)
        app.include(tasks)
        with app.worker():
            assert add.enqueue(1).result(timeout=LIMIT) == 2
            assert app.call("lib.add", 1, b=2).enqueue().result(timeout=LIMIT) == 3

    @pytest.mark.option("app.include")
    def test_an_included_module_is_imported_at_first_use(
        self, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("given_first", "included_later"):
            (tmp_path / f"{name}.py").write_text(
                "from mainspring import Tasks\n"
                "tasks = Tasks()\n"
                f"@tasks.task(name='{name}.add')\n"
                "def add(a: int) -> int:\n    return a + 1\n"
                "import calls_app\ncalls_app.app.include(tasks)\n"
            )
        (tmp_path / "calls_app.py").write_text(
            "from mainspring import Mainspring\n"
            f"app = Mainspring({store_url!r}, include=['given_first'])\n"
            "app.include('included_later')\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        import calls_app  # type: ignore[import-not-found]  # just written

        app: Mainspring = calls_app.app
        assert not {"given_first", "included_later"} & set(sys.modules)
        call = app.call("included_later.add", a=1)
        assert {"given_first", "included_later"} <= set(sys.modules)
        with app.worker():
            assert call.enqueue().result(timeout=LIMIT) == 2
            assert app.call("given_first.add", 2).enqueue().result(timeout=LIMIT) == 3
        app.close()


@pytest.mark.stores("sqlite")
class TestOldPayloads:
    def test_upgrade_gets_the_stored_arguments_by_name_when_they_do_not_fit(self, app: Mainspring) -> None:
        old = Mainspring(app.settings.url)
        was = old.task(name="send")(lambda address, subject="": None)
        waiting = [was.enqueue("a@b.c", "hello"), was.enqueue(address="d@e.f")]
        asked: list[dict[str, Any]] = []

        @app.task(name="send")
        def send(to: str, title: str) -> str:
            return f"{to}: {title}"

        @send.upgrade
        def from_v1(old: dict[str, Any]) -> dict[str, Any]:
            asked.append(old)
            return {"to": old["address"], "title": old.get("subject", "none")}

        with app.worker():
            results = [send.job(job.id).result(timeout=LIMIT) for job in waiting]
            assert send.enqueue("x", "new").result(timeout=LIMIT) == "x: new"
        old.close()
        assert results == ["a@b.c: hello", "d@e.f: none"]
        assert sorted(asked, key=len) == [{"address": "d@e.f"}, {"address": "a@b.c", "subject": "hello"}]


@pytest.mark.stores("sqlite")
class TestAround:
    def test_middleware_sees_every_enqueue_and_may_change_or_refuse_it(self, app: Mainspring) -> None:
        seen: list[tuple[str, dict[str, Any]]] = []

        class Audit(Middleware):
            def enqueue(self, call: Call[Any]) -> Call[Any]:
                seen.append((call.task, call.arguments))
                if call.arguments.get("a") == 0:
                    raise PermissionError("not zero")
                return call.options(meta={"by": "audit"}, tags=["seen"])

        app.middleware(Audit())

        @app.task(name="add")
        def add(a: int) -> int:
            return a

        one = add.options(meta={"who": "me"}).enqueue(1)
        many = app.enqueue_many([add.s(2), app.call("elsewhere", 3)])
        with pytest.raises(PermissionError, match="not zero"):
            app.enqueue_many([add.s(4), add.s(0)])
        assert seen == [(name, args) for name, args in [
            ("add", {"a": 1}), ("add", {"a": 2}), ("elsewhere", {"@": [3]}), ("add", {"a": 4}), ("add", {"a": 0}),
        ]]  # fmt: skip
        assert (one.info().meta, one.info().tags) == ({"who": "me", "by": "audit"}, ("seen",))
        assert [job.info().tags for job in many] == [("seen",), ("seen",)]
        assert total(app) == 3

    def test_a_dependency_is_supplied_in_the_worker_and_in_a_plain_call(self, app: Mainspring) -> None:
        def length(ctx: Context) -> int:
            return len(ctx.task)

        @app.task(name="four")
        def four(a: int, more: int = Depends(length)) -> int:
            return a + more

        assert (four(1), four(1, more=10), four(1, 10)) == (5, 11, 11)
        with pytest.raises(UnknownArgument, match="'more' is a dependency"):
            four.enqueue(1, more=2)
        with pytest.raises(UnknownArgument, match="takes 1 positional argument, 2 were given"):
            four.enqueue(1, 2)
        with app.worker():
            assert four.enqueue(1).result(timeout=LIMIT) == 5

    def test_a_wrong_argument_is_refused_by_the_async_enqueue_too(self, app: Mainspring) -> None:
        @app.task(name="add")
        def add(a: int) -> int:
            return a

        async def twins() -> None:
            with pytest.raises(WrongArgument, match="'a' expected int"):
                await add.aenqueue("1")  # type: ignore[arg-type]  # the mistake under test
            await app.aclose()

        import asyncio

        asyncio.run(twins())
        assert total(app) == 0
