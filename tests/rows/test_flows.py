"""F1 to F7: chains, groups, graphs, batches and compensations through the public API.

The named cases in which canvas of Celery breaks are in ``test_canvas_cases.py``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mainspring import AsyncContext, Chain, Context, Dag, JobCancelled, JobDead, Mainspring, chain, chord, group
from mainspring.errors import FlowClosed, InvalidOption, KeyTaken, NotFound, NotOpen, WrongState
from mainspring.flows.shape import FLOW_QUEUE
from mainspring.jobs.query import Query
from mainspring.states import State
from tests.rows.crew import LIMIT, Crew, Tasks, until


class Work:
    """Some tasks, and what they did."""

    def __init__(self, app: Mainspring) -> None:
        self.ran: list[Any] = []
        ran = self.ran

        @app.task
        def add(a: int, b: int) -> int:
            ran.append(("add", a, b))
            return a + b

        @app.task
        async def double(x: int) -> int:
            ran.append(("double", x))
            return 2 * x

        @app.task
        def total(numbers: list[int]) -> int:
            ran.append(("total", tuple(numbers)))
            return sum(numbers)

        @app.task
        def count_to(n: int) -> list[int]:
            return list(range(n))

        @app.task(retries=0)
        def fail(x: int) -> int:
            raise ValueError(f"no {x}")

        @app.task
        def undo(value: int) -> None:
            ran.append(("undo", value))

        @app.task
        def note(what: str) -> str:
            ran.append(("note", what))
            return what

        self.add, self.double, self.total, self.count_to = add, double, total, count_to
        self.fail, self.undo, self.note = fail, undo, note

    def times(self, *what: Any) -> int:
        return self.ran.count(what)


@pytest.fixture
def work(app: Mainspring) -> Work:
    return Work(app)


@pytest.mark.row("F1")
class TestChain:
    def test_each_part_gets_the_result_before_it(self, app: Mainspring, work: Work) -> None:
        job = (work.add.s(1, 2) | work.double | work.double).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == 12
        assert work.ran == [("add", 1, 2), ("double", 3), ("double", 6)]

    def test_then_gives_further_arguments(self, app: Mainspring, work: Work) -> None:
        job = work.add.s(1, 2).then(work.add, 10).then(work.add, b=100).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == 113

    async def test_in_async_code(self, app: Mainspring, work: Work) -> None:
        job = await (work.add.s(1, 2) | work.double).aenqueue()
        async with app.worker():
            assert await job.aresult(timeout=LIMIT) == 6

    def test_options_belong_to_the_parts(self, app: Mainspring, work: Work) -> None:
        flow = work.add.s(1, 2).options(queue="first") | work.double.options(queue="second", tags=["b"])
        job = flow.enqueue()
        found = {info.task: info for info in app.jobs.list(flow=app.flows.get(job.id).id)}
        assert found[work.add.name].queue == "first"
        assert (found[work.double.name].queue, found[work.double.name].tags) == ("second", ("b",))

    def test_a_call_behind_a_call_runs_without_its_result(self, app: Mainspring, work: Work) -> None:
        job = (work.note.s("a") | work.note.s("b") | work.note.s("c")).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == "c"
        assert [what for _, what in work.ran] == ["a", "b", "c"]

    def test_a_failed_part_cancels_the_rest_and_is_named(self, app: Mainspring, work: Work) -> None:
        job = (work.add.s(1, 2) | work.fail | work.double).enqueue()
        with app.worker(), pytest.raises(JobCancelled, match=r"task '.*fail' in its flow is dead: ValueError: no 3"):
            job.result(timeout=LIMIT)
        assert app.flows.get(job.id).state == "failed"
        assert not work.times("double", 3)

    def test_a_thousand_parts(self, app: Mainspring, work: Work) -> None:
        flow: Any = work.add.s(0, 0)
        for _ in range(499):
            flow = flow.then(work.add, 1)
        with app.worker():
            assert flow.enqueue().result(timeout=LIMIT) == 499

    def test_nothing_is_enqueued_if_one_part_is_refused(self, app: Mainspring, work: Work) -> None:
        with pytest.raises(InvalidOption, match="key"):
            (work.add.s(1, 2) | work.double.options(key="x")).enqueue()
        assert app.jobs.count()[State.READY] == 0

    def test_a_part_waits_for_its_time(self, app: Mainspring, work: Work) -> None:
        with app.test() as t:
            job = (work.add.s(1, 2) | work.double.options(delay="1h")).enqueue()
            t.drain()
            assert job.info().state == State.SCHEDULED
            t.advance("61m")
            t.drain()
            assert job.result(timeout=0) == 6

    def test_the_worker_is_killed_between_two_parts(self, app: Mainspring, tasks: Tasks, crew: Crew) -> None:
        """The first part has ended, the second runs: it runs again elsewhere, and the first does not."""
        flow = chain(tasks.mark.s(1), tasks.stick.s(), tasks.mark.s(2))
        job = flow.enqueue()
        first = crew.start()
        until((tasks.folder / "sticks").exists, "the second part runs")
        first.kill()
        first.wait(LIMIT)
        crew.start()
        tasks.say("go_on")
        job.join(timeout=LIMIT)
        assert tasks.marks() == [1, 2]


@pytest.mark.row("F1")
class TestAdditions:
    """A running job adds to its flow."""

    @pytest.mark.parametrize("kind", ["def", "async def"])
    def test_what_waits_for_the_job_waits_for_its_additions(self, app: Mainspring, work: Work, kind: str) -> None:
        if kind == "def":

            @app.task(name="first")
            def first(ctx: Context) -> int:
                ctx.flow.add(work.add.s(1, 1) | work.double)
                return 7

        else:

            @app.task(name="first")
            async def first(ctx: AsyncContext) -> int:
                await ctx.flow.add(work.add.s(1, 1) | work.double)
                return 7

        job = (first.s() | work.double).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == 14
        assert work.ran == [("add", 1, 1), ("double", 2), ("double", 7)]


@pytest.mark.row("F2")
class TestGroup:
    def test_results_have_the_order_of_the_parts(self, app: Mainspring, work: Work) -> None:
        job = group(work.double.s(n) for n in range(50)).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == [2 * n for n in range(50)]

    def test_parts_of_different_tasks(self, app: Mainspring, work: Work) -> None:
        job = group(work.add.s(1, 1), work.note.s("x"), work.add.s(1, 2) | work.double).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == [2, "x", 6]

    def test_the_callback_of_a_chord_runs_once(self, app: Mainspring, work: Work) -> None:
        job = chord(group(work.double.s(n) for n in range(300)), work.total).enqueue()
        with app.worker(), app.worker():
            assert job.result(timeout=LIMIT) == sum(2 * n for n in range(300))
        assert sum(1 for what, *_ in work.ran if what == "total") == 1

    def test_a_chord_of_ten_thousand(self, app: Mainspring, work: Work) -> None:
        job = chord(group(work.double.s(n) for n in range(10_000)), work.total).enqueue()
        with app.worker():
            assert job.result(timeout=10 * LIMIT) == sum(2 * n for n in range(10_000))

    def test_a_group_of_calls_behind_a_call(self, app: Mainspring, work: Work) -> None:
        job = (work.note.s("first") | group(work.add.s(1, 1), work.add.s(2, 2)) | work.total).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == 6
        assert work.ran[0] == ("note", "first")

    def test_members_run_at_the_same_time(self, app: Mainspring) -> None:
        running: list[int] = []

        @app.task
        async def meet(n: int) -> int:
            import asyncio

            running.append(n)
            while len(running) < 3:  # noqa: ASYNC110 - the others run on other threads of the test too
                await asyncio.sleep(0.01)
            return n

        with app.worker():
            assert group(meet.s(n) for n in range(3)).enqueue().result(timeout=LIMIT) == [0, 1, 2]


@pytest.mark.row("F3")
class TestEach:
    def test_each_element_of_a_result(self, app: Mainspring, work: Work) -> None:
        job = work.count_to.s(20).each(work.double).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == [2 * n for n in range(20)]

    @pytest.mark.parametrize("n", [0, 1, 1200])
    def test_then_one_task_for_all(self, app: Mainspring, work: Work, n: int) -> None:
        job = (work.count_to.s(n).each(work.add, 1) | work.total).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == n * (n + 1) // 2

    def test_each_member_of_a_group(self, app: Mainspring, work: Work) -> None:
        job = group(work.add.s(1, 1), work.add.s(2, 2)).each(work.double).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == [4, 8]

    def test_partial_goes_on_with_the_results_of_the_others(self, app: Mainspring, work: Work) -> None:
        @app.task(retries=0)
        def odd(n: int, factor: int = 1) -> int:
            if n % 2 == 0:
                raise ValueError(f"{n} is even")
            return factor * n

        numbers = work.count_to.s(6).each(odd, factor=10, on_failure="partial")
        job, summed = numbers.enqueue(), (numbers | work.total).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == [10, 30, 50]
            assert summed.result(timeout=LIMIT) == 90
            until(lambda: app.flows.get(summed.id).state == "succeeded")
        assert app.jobs.count(flow=app.flows.get(summed.id).id)[State.DEAD] == 3

    @pytest.mark.parametrize("n", [0, 3])
    def test_partial_with_no_result_at_all(self, app: Mainspring, work: Work, n: int) -> None:
        job = (work.count_to.s(n).each(work.fail, on_failure="partial") | work.total).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == 0

    def test_partial_without_a_list_fails(self, app: Mainspring, work: Work) -> None:
        """The policy is about the elements: if the part before fails, there are none."""

        @app.task(retries=0)
        def numbers() -> list[int]:
            raise ValueError("no list")

        job = (numbers.s().each(work.double, on_failure="partial") | work.total).enqueue()
        with app.worker(), pytest.raises(JobCancelled, match="no list"):
            job.result(timeout=LIMIT)

    def test_an_unknown_policy_is_refused(self, work: Work) -> None:
        with pytest.raises(InvalidOption, match="must be 'fail' or 'partial'"):
            work.count_to.s(1).each(work.double, on_failure="ignore")  # type: ignore[call-overload]  # refused

    def test_a_result_that_is_no_list(self, app: Mainspring, work: Work) -> None:
        @app.task
        def anything(n: int):  # type: ignore[no-untyped-def]  # without a declared type, it is refused when it is known
            return {"n": n}

        job = anything.s(1).each(work.double).enqueue()
        with app.worker(), pytest.raises(JobCancelled, match="needs a list"):
            job.result(timeout=LIMIT)

    def test_types_that_cannot_fit_are_refused(self, app: Mainspring, work: Work) -> None:
        from mainspring.errors import WrongArgument

        with pytest.raises(WrongArgument, match="declared as str"):
            work.add.s(1, 2) | work.note  # type: ignore[operator]  # the checker refuses it too
        with pytest.raises(WrongArgument, match="for each element of a list"):
            work.add.s(1, 2).each(work.double)  # type: ignore[misc]  # as above
        with pytest.raises(WrongArgument, match="declared as int"):
            group(work.add.s(1, 2)) | work.double  # type: ignore[operator]


@pytest.mark.row("F4")
class TestBatch:
    def test_callbacks_run_once_each(self, app: Mainspring, work: Work) -> None:
        with app.worker():
            with app.flows.batch(
                "import", on_success=work.note.s("good"), on_finished=work.note.s("end"), on_dead=work.note.s("dead")
            ) as batch:
                batch.add(work.double.s(1))
                batch.add_many(work.double.s(n) for n in range(10))
            batch.join(timeout=LIMIT)
        assert (work.times("note", "good"), work.times("note", "end"), work.times("note", "dead")) == (1, 1, 0)
        found = batch.counts()
        assert (found.total, found.pending, found.succeeded, found.closed) == (11, 0, 11, True)

    def test_a_dead_member(self, app: Mainspring, work: Work) -> None:
        batch = app.flows.batch(
            "import", on_success=work.note.s("good"), on_finished=work.note.s("end"), on_dead=work.note.s("dead")
        )
        batch.add(work.fail.s(1))
        with app.worker():
            until(lambda: work.times("note", "dead"), "the callback of the first death, while the batch is open")
            batch.add(work.fail.s(2))
            batch.close()
            batch.join(timeout=LIMIT)
        assert (work.times("note", "good"), work.times("note", "end"), work.times("note", "dead")) == (0, 1, 1)
        assert batch.counts().dead == 2

    def test_members_add_members(self, app: Mainspring, work: Work) -> None:
        @app.task
        def page(ctx: Context, n: int) -> None:
            if n:
                ctx.flow.add(page.s(n - 1))
                ctx.flow.add(work.double.s(n))

        with app.worker():
            with app.flows.batch("crawl", on_success=work.note.s("all")) as batch:
                batch.add(page.s(5))
            batch.join(timeout=LIMIT)
        assert batch.counts().succeeded == 11
        assert work.times("note", "all") == 1

    def test_a_callback_can_take_the_id(self, app: Mainspring) -> None:
        seen: list[UUID] = []

        @app.task
        def done(batch: UUID) -> None:
            seen.append(batch)

        with app.worker():
            with app.flows.batch("x", on_finished=done) as batch:
                pass
            batch.join(timeout=LIMIT)
        assert seen == [batch.id]

    def test_a_closed_batch_takes_nothing(self, app: Mainspring, work: Work) -> None:
        with app.flows.batch("x") as batch:
            batch.add(work.double.s(1))
        with pytest.raises(FlowClosed):
            batch.add(work.double.s(2))
        assert batch.counts().total == 1

    def test_a_producer_goes_on_by_the_key(self, app: Mainspring, other: Mainspring, work: Work) -> None:
        first = app.flows.batch("import", key="import:7", on_success=work.note.s("all")).open()
        first.add(work.double.s(1))
        again = app.flows.batch("import", key="import:7", on_success=work.note.s("all"))
        again.add(work.double.s(2))
        assert again.id == first.id
        assert app.flows.batch_of(first.id).counts().total == 2
        again.close()
        with app.worker():
            first.join(timeout=LIMIT)
        assert work.times("note", "all") == 1

    def test_a_producer_starts_over_at_an_earlier_position(
        self, app: Mainspring, other: Mainspring, work: Work
    ) -> None:
        """With pieces of another size, while some members have ended and a member has added one of its own."""

        @app.task
        def parent(ctx: Context, n: int) -> int:
            ctx.flow.add(work.double.s(n))
            return n

        first = app.flows.batch("import", key="import:8", on_success=work.note.s("all")).open()
        made = first.add_many((parent.s(n) for n in range(1_300)), at=0)
        assert all(job.created for job in made)
        with app.worker(concurrency=20):
            until(lambda: first.counts().succeeded > 100)
            again = app.flows.batch("import", key="import:8", on_success=work.note.s("all"))
            repeated = again.add_many((parent.s(n) for n in range(1_000, 1_500)), at=1_000)
            assert [job.id for job in repeated[:300]] == [job.id for job in made[1_000:]]
            assert [job.created for job in repeated] == [False] * 300 + [True] * 200
            again.close()
            assert not any(job.created for job in again.add_many([parent.s(0), parent.s(1)], at=0))
            again.join(timeout=4 * LIMIT)
        assert again.counts().total == again.counts().succeeded == 2 * 1_500
        assert work.times("note", "all") == 1
        with pytest.raises(FlowClosed):
            other.flows.batch_of(first.id).add_many([other.call("x")], at=1_500)

    async def test_positions_in_async_code(self, app: Mainspring, work: Work) -> None:
        async with app.flows.batch("x") as batch:
            first, second = await batch.aadd_many([work.double.s(1), work.double.s(2)], at=7), batch
            assert [job.created for job in await second.aadd_many([work.double.s(2)], at=8)] == [False]
        assert len(first) == (await batch.acounts()).total == 2

    @pytest.mark.parametrize("at", [-1, True, 1.0, "1"])
    def test_a_position_that_is_none(self, app: Mainspring, work: Work, at: Any) -> None:
        with pytest.raises(InvalidOption, match="must be a whole number"):
            app.flows.batch("x").add_many([work.double.s(1)], at=at)
        assert app.flows.list() == []

    def test_an_abandoned_batch_is_cancelled(self, app: Mainspring, work: Work) -> None:
        with app.test() as t:
            batch = app.flows.batch("x", hold="1h", on_finished=work.note.s("end")).open()
            job = batch.add(work.double.s(1).options(delay="1d"))
            t.advance("61m")
            t.drain()
            assert app.flows.get(batch.id).state == "failed"
            with pytest.raises(FlowClosed):
                batch.add(work.double.s(2))
            assert job.info().state == State.SCHEDULED

    def test_after_an_exception_it_stays_open(self, app: Mainspring, work: Work) -> None:
        batch = app.flows.batch("x")

        def produce() -> None:
            with batch:
                batch.add(work.double.s(1))
                raise RuntimeError

        with pytest.raises(RuntimeError):
            produce()
        assert not batch.counts().closed


@pytest.mark.row("F5")
class TestDag:
    def test_a_diamond(self, app: Mainspring, work: Work) -> None:
        dag = Dag()
        top = dag.add(work.add.s(1, 2))
        left, right = dag.add(work.double.s(top.result)), dag.add(work.add.s(top.result, 10))
        bottom = dag.add(work.add.s(left.result, right.result))
        dag.add(work.note.s("last"), after=[bottom])
        job = dag.enqueue()
        with app.worker():
            assert job.join(timeout=LIMIT).state == State.SUCCEEDED
        assert work.times("add", 6, 13) == 1
        assert work.ran[-1] == ("note", "last")

    @pytest.mark.parametrize(
        ("when", "runs", "behind"),
        [("fail", False, False), ("ignore", True, True), ("skip", False, True)],
    )
    def test_policies(self, app: Mainspring, work: Work, when: Any, runs: bool, behind: bool) -> None:
        dag = Dag()
        bad = dag.add(work.fail.s(1))
        middle = dag.add(work.note.s("middle"), after=[bad], when=when)
        dag.add(work.note.s("behind"), after=[middle])
        with app.worker():
            state = dag.enqueue().join(timeout=LIMIT).state
        assert state == (State.SUCCEEDED if behind else State.CANCELLED)
        assert (bool(work.times("note", "middle")), bool(work.times("note", "behind"))) == (runs, behind)

    def test_wait_for_a_retry_by_hand(self, app: Mainspring, work: Work) -> None:
        attempts: list[int] = []

        @app.task(retries=0)
        def twice() -> int:
            attempts.append(1)
            if len(attempts) == 1:
                raise ValueError("the first time")
            return 21

        job = (twice.s() | work.double).when("wait").enqueue()
        with app.worker():
            until(app.dead.list, "it is dead")
            assert job.info().state == State.BLOCKED
            app.dead.retry(Query.everything())
            assert job.result(timeout=LIMIT) == 42

    def test_a_node_of_another_graph_is_refused(self, work: Work) -> None:
        stranger = Dag().add(work.add.s(1, 2))
        dag = Dag()
        with pytest.raises(InvalidOption, match="not a node of this Dag"):
            dag.add(work.note.s("x"), after=[stranger])
        with pytest.raises(InvalidOption, match="not a node of this Dag"):
            dag.add(work.double.s(stranger.result))
        with pytest.raises(InvalidOption, match="has no nodes"):
            dag.enqueue()

    def test_a_cancelled_node_resolves(self, app: Mainspring, work: Work) -> None:
        dag = Dag()
        first = dag.add(work.note.s("never").options(delay="1h"))
        dag.add(work.note.s("behind"), after=[first], when="ignore")
        job = dag.enqueue()
        assert app.jobs.cancel(state="scheduled", flow=app.flows.get(job.id).id)
        with app.worker():
            assert job.join(timeout=LIMIT).state == State.SUCCEEDED


@pytest.mark.row("F6")
class TestManaging:
    def test_a_flow_is_shown(self, app: Mainspring, work: Work) -> None:
        job = chord(group(work.double.s(n) for n in range(5)), work.total).flow(name="report", tags=["x"]).enqueue()
        (found,) = app.flows.list(tag="x")
        assert (found.name, found.state, found.jobs) == ("report", "running", 6)
        flow = app.flows.get(job.id)
        assert flow.id == found.id
        assert flow.counts == {"ready": 5, "blocked": 1}
        assert [(node.kind, node.total) for node in flow.nodes] == [("group", 5), ("job", 0)]
        assert "double x 5" in app.flows.graph(job.id).mermaid()
        assert "digraph" in app.flows.graph(flow.id).dot()
        with app.worker():
            job.join(timeout=LIMIT)
        until(lambda: app.flows.get(flow.id).state == "succeeded")
        assert app.flows.get(flow.id).counts == {"succeeded": 6}

    def test_cancelling_reaches_waiting_and_running_jobs(self, app: Mainspring, work: Work) -> None:
        started: list[int] = []
        ended: list[str] = []

        @app.task
        async def sleep(ctx: AsyncContext, n: int) -> None:
            import asyncio

            started.append(n)
            try:
                await asyncio.sleep(10 * LIMIT)
            finally:
                ended.append("cancelled" if ctx.cancelled else "?")

        job = (sleep.s(1) | work.note.s("never")).enqueue()
        with app.worker():
            until(lambda: started)
            assert app.flows.cancel(job.id, "not needed")
            assert not app.flows.cancel(job.id)
            assert job.join(timeout=LIMIT).state == State.CANCELLED
            until(lambda: ended == ["cancelled"])
        assert app.flows.get(job.id).state == "cancelled"
        assert not work.times("note", "never")

    def test_a_time_limit_ends_the_whole_flow(self, app: Mainspring, work: Work) -> None:
        with app.test() as t:
            flow = work.add.s(1, 2) | work.double.options(delay="2h")
            job = flow.flow(time_limit="1h").enqueue()
            t.drain()
            t.advance("61m")
            t.drain()
            assert job.info().state == State.CANCELLED
            assert app.flows.get(job.id).state == "expired"

    def test_a_failed_flow_goes_on_where_it_failed(self, app: Mainspring, work: Work) -> None:
        tries: list[int] = []

        @app.task(retries=0)
        def flaky(x: int) -> int:
            tries.append(x)
            if len(tries) < 2:
                raise ValueError("the first time")
            return x + 1

        job = (work.add.s(1, 2) | flaky | work.double).enqueue()
        with app.worker():
            with pytest.raises(JobCancelled):
                job.result(timeout=LIMIT)
            until(lambda: app.flows.get(job.id).state == "failed")
            assert app.flows.retry(job.id) == 3
            assert job.result(timeout=LIMIT) == 8
            until(lambda: app.flows.get(job.id).state == "succeeded")
        assert work.times("add", 1, 2) == 1
        with pytest.raises(WrongState):
            app.flows.retry(job.id)

    def test_a_retry_of_more_jobs_than_one_step_takes(self, app: Mainspring, work: Work) -> None:
        """Two levels of groups, compensations that have nothing to undo, and the callback of each group."""
        broken = [True]

        @app.task(retries=0)
        def flaky(n: int) -> int:
            if broken:
                raise ValueError("the first time")
            return n

        inner = group(flaky.s(n) for n in range(700)) | work.total
        flow = group(inner, work.count_to.s(600).each(flaky) | work.total, work.add.s(1, 2)) | work.total
        job = flow.enqueue()
        with app.worker(concurrency=50):
            until(lambda: app.flows.get(job.id).state == "failed")
            broken.clear()
            assert app.flows.retry(job.id) > 1_300
            assert job.result(timeout=4 * LIMIT) == sum(range(700)) + sum(range(600)) + 3
            until(lambda: app.flows.get(job.id).state == "succeeded")
        assert work.times("add", 1, 2) == 1
        assert sum(1 for what, *_ in work.ran if what == "total") == 3
        with pytest.raises(WrongState):
            app.flows.retry(job.id)

    def test_a_large_retry_that_fails_again(self, app: Mainspring, work: Work) -> None:
        job = (group(work.fail.s(n) for n in range(1_050)) | work.total).enqueue()
        with app.worker(concurrency=50):
            for _ in range(2):
                until(lambda: app.flows.get(job.id).state == "failed")
                assert app.flows.retry(job.id) == 1_050 + 3
            until(lambda: app.flows.get(job.id).state == "failed")
        assert {info.epoch for info in app.jobs.list(task=work.fail, limit=2_000)} == {3}

    def test_a_large_retry_that_nobody_finishes_fails(self, app: Mainspring, work: Work) -> None:
        from mainspring.flows import retry

        with app.test() as t:
            job = (group(work.fail.s(n) for n in range(1_050)) | work.total).enqueue()
            t.drain()
            flow = app.flows.get(job.id)
            assert flow.state == "failed"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(retry, "_slices", killed)
                with pytest.raises(ConnectionAbortedError):
                    app.flows.retry(job.id)
            assert app.flows.get(flow.id).state == "running"
            t.advance("61m")
            t.drain()
            assert app.flows.get(flow.id).state == "failed"
            assert app.flows.retry(flow.id) == 1_050 + 3

    def test_a_key_makes_a_flow_unique(self, app: Mainspring, work: Work) -> None:
        flow = (work.add.s(1, 2) | work.double).flow(key="nightly")
        first, second = flow.enqueue(), flow.enqueue()
        assert (first.id, first.created, second.created) == (second.id, True, False)
        from mainspring import Key

        with pytest.raises(KeyTaken):
            (work.add.s(1, 2) | work.double).flow(key=Key("nightly", on_conflict="error")).enqueue()
        with app.worker():
            assert second.result(timeout=LIMIT) == 6
            until(lambda: app.flows.get(first.id).state == "succeeded")
        assert flow.enqueue().created

    def test_a_deleted_flow_is_gone(self, app: Mainspring, work: Work) -> None:
        job = (work.add.s(1, 2) | work.double).enqueue()
        app.flows.delete(job.id)
        until(lambda: not app.jobs.count(Query.everything())[State.READY])
        with pytest.raises(NotFound):
            app.flows.get(job.id)

    def test_why_names_the_parents(self, app: Mainspring, work: Work) -> None:
        job = (work.add.s(1, 2) | work.double).enqueue()
        (obstacle,) = [each for each in job.why().obstacles if each.kind == "dependency"]
        parents = [info.id for info in app.jobs.list(task=work.add)]
        assert list(obstacle.jobs) == parents
        assert work.add.name in obstacle.text

    def test_a_flow_larger_than_one_step(self, app: Mainspring, work: Work) -> None:
        job = chord(group(work.double.s(n) for n in range(2500)), work.total).enqueue()
        assert app.jobs.count()[State.READY] == 2500
        with app.worker():
            assert job.result(timeout=10 * LIMIT) == 2499 * 2500

    def test_a_job_without_a_flow_has_none(self, app: Mainspring, work: Work) -> None:
        @app.task(retries=0)
        def lonely(ctx: Context) -> None:
            _ = ctx.flow

        job = lonely.enqueue()
        with app.worker(), pytest.raises(JobDead, match="belongs to no flow"):
            job.result(timeout=LIMIT)
        with pytest.raises(NotFound):
            app.flows.get(job.id)
        with pytest.raises(NotOpen):
            lonely()

    def test_joins_are_in_a_queue_of_their_own(self, app: Mainspring, work: Work) -> None:
        (work.add.s(1, 2) | work.double).enqueue()
        assert app.jobs.count(queue=FLOW_QUEUE)[State.BLOCKED] == 1


def killed(_: Any) -> Any:
    """In the place of the slices of a retry: the program ends here."""
    raise ConnectionAbortedError


@pytest.mark.row("F7")
class TestUndo:
    def test_compensations_run_in_reverse_order(self, app: Mainspring, work: Work) -> None:
        flow = work.add.s(1, 2).undo(work.undo) | work.double
        flow = flow.undo(work.undo).then(work.add, 1).undo(work.undo) | work.fail
        job = flow.enqueue()
        with app.worker():
            with pytest.raises(JobCancelled if isinstance(flow, Chain) and len(flow.links) > 3 else JobDead):
                job.result(timeout=LIMIT)
            until(lambda: app.flows.get(job.id).state == "failed")
        assert [value for what, value, *_ in work.ran if what == "undo"] == [7, 6, 3]

    def test_a_part_that_did_not_succeed_is_not_undone(self, app: Mainspring, work: Work) -> None:
        job = group(work.add.s(1, 2).undo(work.undo), work.fail.s(5).undo(work.undo)).enqueue()
        with app.worker():
            until(lambda: app.flows.get(job.id).state == "failed")
        assert [value for what, value, *_ in work.ran if what == "undo"] == [3]

    def test_a_flow_that_succeeds_undoes_nothing(self, app: Mainspring, work: Work) -> None:
        job = (work.add.s(1, 2).undo(work.undo) | work.double).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == 6
            until(lambda: app.flows.get(job.id).state == "succeeded")
        assert not [each for each in work.ran if each[0] == "undo"]

    def test_a_compensation_is_retried(self, app: Mainspring, work: Work) -> None:
        tries: list[int] = []

        @app.task(retries=3, backoff="10ms")
        def give_back(value: int) -> None:
            tries.append(value)
            if len(tries) < 3:
                raise ValueError("not yet")

        job = (work.add.s(1, 2).undo(give_back) | work.fail).enqueue()
        with app.worker():
            until(lambda: app.flows.get(job.id).state == "failed")
        assert tries == [3, 3, 3]
        with pytest.raises(WrongState):
            app.flows.retry(job.id)

    def test_a_parallel_part_is_undone_after_it_has_ended(self, app: Mainspring, work: Work) -> None:
        go: list[int] = []

        @app.task
        def slow(x: int) -> int:
            until(lambda: go)
            return x

        dag = Dag()
        left, right = dag.add(slow.s(4).undo(work.undo)), dag.add(work.fail.s(1))
        dag.add(work.note.s("end"), after=[left, right])
        job = dag.enqueue()
        with app.worker():
            until(app.dead.list, "the other part is dead")
            time.sleep(0.2)
            assert not [each for each in work.ran if each[0] == "undo"]
            go.append(1)
            until(lambda: app.flows.get(job.id).state == "failed")
        assert [value for what, value, *_ in work.ran if what == "undo"] == [4]


def test_a_flow_in_the_transaction_of_the_caller(app: Mainspring, work: Work, tmp_path: Path) -> None:
    """On SQLite here; the tests of each engine have the others."""
    import sqlite3

    if not str(app.client.address.url).startswith("sqlite"):
        return
    app.open()
    connection = sqlite3.connect(str(app.client.address.url).removeprefix("sqlite:///"))
    connection.execute("begin")
    job = (work.add.s(1, 2) | work.double).flow(connection=connection).enqueue()
    connection.rollback()
    connection.close()
    with pytest.raises(NotFound):
        app.flows.get(job.id)
