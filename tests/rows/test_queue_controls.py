"""Q5, Q10, R11: the order of a queue, queues that are switched off, limits of a queue."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest

from mainspring import AsyncContext, Concurrency, Job, Mainspring, Query, Rate
from mainspring.errors import InvalidOption, QueueDisabled, QueueFull, UnknownOption
from mainspring.states import Reason, State
from tests.rows.crew import LIMIT, until
from tests.rows.test_limits import Gauge


def by_name(app: Mainspring, task: str, queue: str) -> Job[object]:
    """From a program that knows nothing of the queue."""
    other = Mainspring(app.settings.url)
    try:
        return other.call(task).options(queue=queue).enqueue()
    finally:
        other.close()


@pytest.mark.row("Q5")
class TestOrder:
    @pytest.mark.option("queue.order")
    def test_a_lifo_queue_runs_the_newest_first_also_after_a_retry(self, app: Mainspring) -> None:
        ran: list[int] = []
        stack = app.queue("stack", order="lifo")

        @app.task(name="order.note", queue=stack, retries=1, backoff="1ms")
        async def note(ctx: AsyncContext, n: int) -> None:
            ran.append(n)
            if n == 3 and ctx.attempt == 1:
                raise ValueError

        @app.task(name="order.line")
        async def line(n: int) -> None:
            ran.append(n)

        jobs = [note.enqueue(n) for n in range(4)]
        with app.worker(async_slots=1, queues="stack"):
            for job in jobs:
                job.join(timeout=LIMIT)
        assert (ran[0], [n for n in ran if n != 3]) == (3, [2, 1, 0])
        assert ran.count(3) == 2

        ran.clear()
        jobs = [line.enqueue(n) for n in range(4)]
        with app.worker(async_slots=1, queues="default"):
            for job in jobs:
                job.join(timeout=LIMIT)
        assert ran == [0, 1, 2, 3]

    def test_a_lifo_queue_does_not_starve_other_queues_of_its_worker(self, app: Mainspring) -> None:
        """New jobs arrive in the queue all the time. The other queues still get their share."""
        app.queue("stack", order="lifo")
        enough = threading.Event()

        @app.task(name="order.feed", queue="stack")
        async def feed() -> None:
            if not enough.is_set():
                await app.aenqueue_many([feed.s(), feed.s()])

        @app.task(name="order.plain")
        async def plain(n: int) -> int:
            return n

        app.enqueue_many(feed.s() for _ in range(50))
        with app.worker(async_slots=2):
            until(lambda: app.queues.get("stack").counts["running"] > 0, "the stack is worked at")
            jobs = app.enqueue_many(plain.s(n) for n in range(20))
            assert [job.result(timeout=LIMIT) for job in jobs] == list(range(20))
            enough.set()

    def test_an_order_set_by_hand_applies_to_every_producer(self, app: Mainspring) -> None:
        """A change of the order loses no job."""

        @app.task(name="order.id", queue="q")
        async def own(ctx: AsyncContext) -> str:
            ran.append(ctx.job_id)
            return ""

        ran: list[UUID] = []
        first = own.enqueue()
        app.queues.configure("q", order="lifo")
        second, third = own.enqueue(), by_name(app, "order.id", "q")
        app.queues.reset("q")
        last = own.enqueue()
        with app.worker(async_slots=1):
            for job in (first, second, third, last):
                job.join(timeout=LIMIT)
        assert ran == [third.id, second.id, first.id, last.id]


@pytest.mark.row("Q10")
class TestDisabled:
    def test_mode_hold_keeps_jobs(self, app: Mainspring) -> None:
        @app.task(name="off.note", queue="q")
        def note(n: int) -> int:
            return n

        @app.task(name="off.other")
        def other() -> None: ...

        before = note.enqueue(1)
        app.queues.disable("q")
        with app.worker():
            after = note.enqueue(2)
            other.enqueue().result(timeout=LIMIT)
            assert [job.info().state for job in (before, after)] == [State.READY, State.READY]
            told = before.why()
            assert [each.kind for each in told.obstacles] == ["disabled"]
            assert "queue 'q' was disabled by" in str(told)
            assert "(hold)" in str(told)
            found = app.queues.get("q")
            assert (found.disabled, found.mode, found.depth) == ("hold", "open", 2)
            assert found.disabled_since is not None
            app.queues.enable("q")
            assert [job.result(timeout=LIMIT) for job in (before, after)] == [1, 2]

    def test_mode_skip_ends_new_jobs_as_skipped(self, app: Mainspring) -> None:
        """Info and lists show the state. Jobs that wait already are held."""

        @app.task(name="off.note", queue="q")
        def note(n: int) -> int:
            return n

        waits = note.enqueue(1)
        app.queues.disable("q", "skip")
        skipped = [note.enqueue(2), by_name(app, "off.note", "q")]
        infos = [job.join(timeout=LIMIT) for job in skipped]
        assert [(info.state, info.reason) for info in infos] == [(State.CANCELLED, Reason.SKIPPED)] * 2
        assert "'q' is disabled by" in (infos[0].note or "")
        assert {info.id for info in app.jobs.list(Query.where(reasons=["skipped"])).jobs} == {job.id for job in skipped}
        app.queues.enable("q")
        with app.worker():
            assert waits.result(timeout=LIMIT) == 1

    def test_mode_reject_raises_with_the_queue_and_the_fix(self, app: Mainspring) -> None:
        @app.task(name="off.note", queue="q")
        def note(n: int) -> int:
            return n

        waits = note.enqueue(1)
        app.queues.disable("q", "reject")
        with pytest.raises(QueueDisabled, match=r"disabled by .+@") as said:
            note.enqueue(2)
        assert "app.queues.enable('q')" in said.value.hint
        with pytest.raises(QueueDisabled):
            by_name(app, "off.note", "q")
        with pytest.raises(QueueDisabled):
            app.enqueue_many([note.options(queue="other").s(3), note.s(4)])
        assert app.queues.get("other").depth == 0
        app.queues.enable("q")
        with app.worker():
            assert waits.result(timeout=LIMIT) == 1

    async def test_the_async_methods_of_disabled_queues(self, app: Mainspring) -> None:
        @app.task(name="off.note", queue="q")
        async def note() -> None: ...

        await app.queues.adisable("q", "reject")
        with pytest.raises(QueueDisabled):
            await note.aenqueue()
        await app.queues.aenable("q")
        await note.aenqueue()
        assert (await app.queues.aconfigure("q", max_depth=1)).max_depth == 1
        with pytest.raises(QueueFull):
            await note.aenqueue()
        await app.queues.areset("q")
        await note.aenqueue()

    def test_an_unknown_mode_or_queue_name_is_refused(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match="hold, skip, reject"):
            app.queues.disable("q", "off")  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="not a queue name"):
            app.queues.disable("q/1")


@pytest.mark.row("R11")
class TestQueueLimits:
    @pytest.mark.option("queue.limit")
    def test_a_queue_is_limited_in_the_whole_fleet(self, app: Mainspring) -> None:
        """The limit counts all its tasks, also tasks with their own limits and jobs by name."""
        gauge = Gauge()
        app.queue("mail", limit=Concurrency(2))

        @app.task(name="ql.send", queue="mail")
        def send() -> None:
            gauge("mail")

        @app.task(name="ql.other", queue="mail", limit=Concurrency(5))
        def other() -> None:
            gauge("mail")

        jobs: list[Job[object]] = [task.enqueue() for _ in range(8) for task in (send, other)]
        jobs += [by_name(app, "ql.send", "mail") for _ in range(4)]
        with app.worker(), app.worker():
            for job in jobs:
                job.result(timeout=LIMIT)
        assert gauge.most["mail"] == 2
        assert app.queues.get("mail").limits == ("queue/mail:at-once",)

    def test_the_size_of_a_queue_limit_is_changed_at_run_time(self, app: Mainspring) -> None:
        app.queue("mail", limit=Concurrency(2))

        @app.task(name="ql.send", queue="mail")
        def send() -> None: ...

        job = send.enqueue()
        app.limits.set("queue/mail:at-once", 0)
        with app.worker():
            until(lambda: any(each.kind == "limit" for each in job.why().obstacles), "it is told")
            app.limits.reset("queue/mail:at-once")
            job.result(timeout=LIMIT)
        assert app.limits.get("queue/mail:at-once").size == 2


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"max_depth": 0}, "whole number from 1"),
            ({"max_depth": -1}, "whole number from 1"),
            ({"max_depth": "10"}, "whole number from 1"),
            ({"max_depth": True}, "whole number from 1"),
            ({"on_full": "wait"}, "needs max_depth"),
            ({"max_depth": 1, "on_full": "drop"}, "drop_oldest"),
            ({"order": "random"}, "lifo"),
            ({"limit": 5}, "is not a limit"),
            ({"limit": Concurrency(5, by="tenant")}, "needs the arguments of one task"),
            ({"limit": Rate(5, per="1s", cost="tokens")}, "needs the arguments of one task"),
            ({"limit": [Concurrency(5), Concurrency(6)]}, "is declared twice"),
        ],
    )
    def test_bad_queue_options_are_refused_at_declaration(
        self, app: Mainspring, options: dict[str, object], said: str
    ) -> None:
        with pytest.raises(InvalidOption, match=said) as error:
            app.queue("mail", **options)  # type: ignore[arg-type]
        assert "queue 'mail'" in str(error.value)

    def test_a_second_declaration_that_differs_is_refused(self, app: Mainspring) -> None:
        app.queue("mail", max_depth=5)
        app.queue("mail", max_depth=5)
        with pytest.raises(InvalidOption, match="already declared as Queue\\('mail', max_depth=5\\)"):
            app.queue("mail", max_depth=6)

    def test_bad_options_of_configure_are_refused(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match="at least one"):
            app.queues.configure("mail")
        with pytest.raises(InvalidOption, match="whole number from 1"):
            app.queues.configure("mail", max_depth=0)
        with pytest.raises(UnknownOption, match="max_depth"):
            app.queues.configure("mail", max_dept=5)  # type: ignore[call-arg]
        with pytest.raises(UnknownOption):
            app.queues.configure("mail", weight=5)  # type: ignore[call-arg]
        with pytest.raises(InvalidOption, match="on_full='wait': needs max_depth"):
            app.queues.configure("mail", on_full="wait")
        assert app.queues.get("mail").max_depth is None
        app.queue("bounded", max_depth=5)
        assert app.queues.configure("bounded", on_full="wait").on_full == "wait"
