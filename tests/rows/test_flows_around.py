"""Flows beside other features: bulk tasks, limits, secrets, middleware."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from mainspring import Concurrency, Context, Mainspring, group
from mainspring.client import blocking
from mainspring.errors import InvalidOption, JobDead, NotFound, WrongArgument
from mainspring.flows.shape import EACH_TASK
from mainspring.jobs.query import Query
from mainspring.states import Action
from mainspring.worker.loop.left_jobs import has_jobs_to_wait_for
from mainspring.worker.run.flows import inputs
from tests.rows.crew import LIMIT, until


@pytest.mark.row("F1", "F2")
class TestBulkTask:
    def test_a_bulk_task_gets_the_result_before_it(self, app: Mainspring) -> None:
        @app.task
        def word(n: int) -> str:
            return f"word {n}"

        @app.bulk_task(size=10)
        def shout(items: list[str]) -> list[str]:
            return [item.upper() for item in items]

        with app.worker():
            assert (word.s(1) | shout).enqueue().result(timeout=LIMIT) == "WORD 1"
            job = group(word.s(n) | shout for n in range(20)).enqueue()
            assert job.result(timeout=LIMIT) == [f"WORD {n}" for n in range(20)]

    def test_results_are_gathered_by_their_fields(self, app: Mainspring) -> None:
        calls: list[set[str]] = []

        @app.task
        def mail(tenant: str) -> dict[str, str]:
            return {"tenant": tenant}

        @app.bulk_task(size=50, by="tenant", wait="50ms")
        def send(items: list[dict[str, str]]) -> list[int]:
            calls.append({item["tenant"] for item in items})
            return [1] * len(items)

        with app.worker():
            group(mail.s("ab"[n % 2]) | send for n in range(20)).enqueue().join(timeout=LIMIT)
        assert all(len(tenants) == 1 for tenants in calls)


@pytest.mark.row("F1")
class TestLimits:
    def test_a_limit_by_a_result_is_refused_at_enqueue(self, app: Mainspring) -> None:
        @app.task
        def find(n: int) -> str:
            return f"tenant {n}"

        @app.task(limit=Concurrency(1, by="tenant"))
        def bill(tenant: str, month: int = 1) -> str:
            return tenant

        with pytest.raises(InvalidOption, match=r"(?s)there is no 'tenant'.*'tenant' is the result of another job"):
            (find.s(1) | bill).enqueue()
        with app.worker():
            job = group(find.s(1), find.s(2)).each(bill).enqueue()  # enqueued when the results are known
            assert job.result(timeout=LIMIT) == ["tenant 1", "tenant 2"]


@pytest.mark.row("G2")
class TestSecrets:
    @pytest.mark.parametrize("name", ["card", "password"])
    def test_a_secret_argument_that_is_a_result_is_hidden(self, app: Mainspring, name: str) -> None:
        """``card`` is declared as sensitive, ``password`` looks like a secret."""

        @app.task
        def find(n: int) -> str:
            return f"4111-2222-{n}"

        @app.task(sensitive=["card"], retries=0)
        def pay(card: str) -> None:
            raise ValueError(f"refused {card}")

        @app.task(retries=0)
        def login(password: str) -> None:
            raise ValueError(f"refused {password}")

        job = (find.s(7) | (pay if name == "card" else login)).enqueue()
        with app.worker(), pytest.raises(JobDead, match=r"refused \*\*\*"):
            job.result(timeout=LIMIT)
        assert "4111" not in str(job.info())


@pytest.mark.row("F4")
class TestContext:
    def test_ctx_flow_names_the_flow(self, app: Mainspring) -> None:
        @app.task
        def which(ctx: Context) -> str:
            return str(ctx.flow.id)

        job = group(which.s(), which.s()).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == [str(app.flows.get(job.id).id)] * 2

    def test_a_part_that_is_added_delays_what_waits_for_the_job(self, app: Mainspring) -> None:
        ran: list[str] = []

        @app.task
        def note(what: str) -> str:
            ran.append(what)
            return what

        @app.task
        def more(ctx: Context) -> None:
            first = ctx.flow.add(note.s("added first"))
            ctx.flow.add(note.s("added second"), after=[first])

        job = (group(more.s(), note.s("beside")) | note.s("behind")).enqueue()
        with app.worker():
            job.join(timeout=LIMIT)
        assert ran[-1] == "behind"
        assert ran.index("added first") < ran.index("added second")

    def test_an_attempt_that_is_retried_adds_no_second_part(self, app: Mainspring) -> None:
        added: list[Any] = []

        @app.task
        def part() -> None: ...

        @app.task(retries=2, backoff="10ms")
        def more(ctx: Context) -> None:
            added.append(ctx.flow.add(part.s()).id)
            if len(added) < 3:
                raise ConnectionError

        job = (more.s() | part.s()).enqueue()
        with app.worker():
            job.join(timeout=LIMIT)
        assert len(added) == 3
        assert len(set(added)) == 1
        assert app.flows.get(job.id).counts == {"succeeded": 3}


@pytest.mark.row("F6")
class TestLooking:
    def test_flows_are_found_by_state(self, app: Mainspring) -> None:
        @app.task(retries=0)
        def step(good: bool) -> None:
            if not good:
                raise ValueError

        with app.test() as t:
            for name, good in (("good", True), ("bad", False)):
                (step.s(good) | step.s(True)).flow(name=name).enqueue()
            t.drain()
            app.flows.cancel((step.s(True) | step.s(True)).flow(name="cancelled").enqueue().id)
            late = step.s(True).options(delay="1h") | step.s(True)
            late.flow(name="expired", time_limit="1m").enqueue()
            t.advance("2m")
            (step.s(True) | step.s(True)).flow(name="open").enqueue()
            names = {"succeeded": "good", "failed": "bad", "cancelled": "cancelled", "expired": "expired"}
            for state, name in {**names, "running": "open"}.items():
                assert [flow.name for flow in app.flows.list(state=state)] == [name]  # type: ignore[arg-type]  # a text
            with pytest.raises(InvalidOption, match="must be one of running"):
                app.flows.list(state="dead")  # type: ignore[arg-type]  # the checker refuses it as well

    def test_a_large_group_of_chains_is_one_node(self, app: Mainspring) -> None:
        @app.task
        def double(n: int) -> int:
            return 2 * n

        job = group(double.s(n) | double for n in range(10)).enqueue()
        [node] = app.flows.get(job.id).nodes
        assert (node.kind, node.total) == ("group", 10)
        small = group(double.s(n) | double for n in range(3)).enqueue()
        flow = app.flows.get(small.id)
        top, *inside = flow.nodes
        assert {each.group for each in inside} == {top.id}
        edges = app.flows.graph(small.id).edges
        assert sum(1 for edge in edges if edge.child == top.id) == 3, "one from the end of each chain"

    def test_a_batch_that_does_not_exist_cannot_be_closed(self, app: Mainspring) -> None:
        @app.task
        def double(n: int) -> int:
            return 2 * n

        job = (double.s(1) | double).enqueue()
        for id in (job.id, app.flows.get(job.id).id):
            with pytest.raises(NotFound, match="a flow that is no batch"):
                app.flows.batch_of(id).close()
        until(lambda: app.flows.get(job.id).state == "running")


@pytest.mark.row("F3")
class TestEach:
    def test_a_worker_without_async_slots_expands_a_list(self, app: Mainspring) -> None:
        @app.task
        def listing(n: int) -> list[int]:
            return list(range(n))

        @app.task
        def double(n: int) -> int:
            return 2 * n

        job = listing.s(3).each(double).enqueue()
        with app.worker(async_slots=0):
            assert job.result(timeout=LIMIT) == [0, 2, 4]

    def test_the_job_that_expands_a_list_is_known_to_workers(self, app: Mainspring) -> None:
        """It is a task of Mainspring: no worker announces it, and each can run it."""

        @app.task
        def listing(n: int) -> list[int]:
            return list(range(n))

        @app.task(queue="closed")
        def double(n: int) -> int:
            return 2 * n

        app.queues.pause("closed")
        job = listing.s(3).each(double).enqueue()
        with app.worker():
            until(lambda: [info.state for info in app.jobs.list(task=listing)] == ["succeeded"])
            [each] = app.jobs.list(task=EACH_TASK)
            until(lambda: app.jobs.get(each.id).info().state == "ready", "it waits for its queue")
            assert [obstacle.kind for obstacle in app.jobs.why(each.id).obstacles] == ["paused"]
            app.queues.resume("closed")
            assert job.result(timeout=LIMIT) == [0, 2, 4]

    async def test_a_worker_that_ends_when_nothing_is_left_runs_it(self, app: Mainspring) -> None:
        @app.task
        def listing(n: int) -> list[int]:
            return list(range(n))

        @app.task(queue="other")
        def double(n: int) -> int:
            return 2 * n

        await listing.s(3).each(double).aenqueue()
        async with app.worker(queues=["default"]):
            while not await app.jobs.alist(task=EACH_TASK, state="ready"):  # noqa: ASYNC110 - the store tells no event
                await asyncio.sleep(0.01)
        assert await has_jobs_to_wait_for(await app.client.store(), app.parts(queues=["other"], burst=True))

    def test_results_of_each_are_without_those_that_were_added(self, app: Mainspring) -> None:
        @app.task
        def listing(n: int) -> list[int]:
            return list(range(n))

        @app.task
        def double(ctx: Context, n: int) -> int:
            ctx.flow.add(listing.s(n))
            return 2 * n

        @app.task
        def total(numbers: list[int]) -> int:
            return sum(numbers)

        job = (listing.s(4).each(double) | total).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == 12


@pytest.mark.row("F5")
class TestMissingResults:
    """A part that runs although the part before it did not succeed."""

    @pytest.fixture
    def bad(self, app: Mainspring) -> Any:
        @app.task(name="bad", retries=0)
        def bad() -> int:
            raise ValueError

        return bad

    def test_a_default_stands_for_it_else_none(self, app: Mainspring, bad: Any) -> None:
        @app.task
        def with_default(n: int = 5) -> int:
            return n

        @app.task
        def optional(n: int | None) -> str:
            return f"{n}"

        with app.worker():
            assert (bad.s() | with_default).when("ignore").enqueue().result(timeout=LIMIT) == 5
            assert (bad.s() | optional).when("ignore").enqueue().result(timeout=LIMIT) == "None"

    def test_a_parameter_that_cannot_be_none_is_named(self, app: Mainspring, bad: Any) -> None:
        @app.task
        def strict(n: int) -> int:
            return n

        job = (bad.s() | strict).when("ignore").enqueue()
        with app.worker(), pytest.raises(JobDead, match=r"(?s)undecodable.*argument 'n' did not succeed"):
            job.result(timeout=LIMIT)

    def test_a_part_without_a_first_parameter_is_refused(self, app: Mainspring, bad: Any) -> None:
        @app.task
        def rest(*numbers: int) -> None: ...

        @app.task
        def nothing() -> None: ...

        with pytest.raises(WrongArgument, match=r"takes only \*args, and a step"):
            bad.s() | rest
        with pytest.raises(WrongArgument, match="takes no argument by position, and a step"):
            bad.s() | nothing

    def test_results_larger_than_the_limit_are_refused(self, app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
        @app.task
        def text(n: int) -> str:
            return "x" * n

        @app.task
        def join(texts: list[str]) -> int:
            return sum(map(len, texts))

        monkeypatch.setattr(inputs, "INPUTS_LIMIT", 1_000)
        with app.worker():
            assert (group(text.s(90) for _ in range(10)) | join).enqueue().result(timeout=LIMIT) == 900
            for flow in (group(text.s(90) for _ in range(11)) | join, text.s(2_000) | text_length(app)):
                with pytest.raises(JobDead, match=r"(?s)take more than 1,000 bytes.*names of files"):
                    flow.enqueue().result(timeout=LIMIT)

    def test_a_result_that_was_deleted_is_named(self, app: Mainspring) -> None:
        @app.task
        def text(n: int) -> str:
            return "x" * n

        with app.test() as t:
            job = (text.s(1) | text_length(app).options(delay="1h")).enqueue()
            t.drain()
            [first] = t.jobs.list(task=text)
            blocking.run("delete", delete_in_store(app, first.id))  # app.jobs refuses it
            t.advance("2h")
            with pytest.raises(JobDead, match="undecodable"):
                job.result(timeout=0)


async def delete_in_store(app: Mainspring, id: UUID) -> None:
    await (await app.client.store()).act(Action.DELETE, Query.of(id))


def text_length(app: Mainspring) -> Any:
    @app.task(name="text_length")
    def text_length(text: str) -> int:
        return len(text)

    return text_length
