"""F1 to F7: uses of flows that would lose work or results silently, and are refused or made to work."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import AsyncContext, Context, Dag, JobCancelled, JobDead, Key, Mainspring, chain, chord, group
from mainspring.errors import InvalidOption, KeyTaken, NotFound, UnknownAttribute, WrongArgument
from mainspring.states import State
from tests.rows.crew import LIMIT


class Work:
    """Some tasks, and what they did."""

    def __init__(self, app: Mainspring) -> None:
        self.ran: list[Any] = []
        ran = self.ran

        @app.task
        def one(n: int) -> int:
            return n

        @app.task
        def report(n: int = -1, title: str = "") -> str:
            ran.append(("report", n, title))
            return f"{title}{n}"

        @app.task
        def double(n: int) -> int:
            ran.append(("double", n))
            return 2 * n

        @app.task
        def total(numbers: list[int]) -> int:
            return sum(numbers)

        @app.task
        def count_to(n: int) -> list[int]:
            return list(range(n))

        @app.task(key="the-only-one")
        def keyed(n: int) -> int:
            ran.append(("keyed", n))
            return n

        @app.task(result="ignore")
        def forget(n: int) -> int:
            return n

        @app.task(retries=0)
        def fail(n: int) -> int:
            raise ValueError(f"no {n}")

        self.one, self.report, self.double, self.total = one, report, double, total
        self.count_to, self.keyed, self.forget, self.fail = count_to, keyed, forget, fail


@pytest.fixture
def work(app: Mainspring) -> Work:
    return Work(app)


@pytest.mark.row("F2")
class TestEachWithAKey:
    """The jobs of ``each`` would all have the same key: only the first element would run."""

    def test_it_is_refused(self, app: Mainspring, work: Work) -> None:
        with pytest.raises(InvalidOption, match="cannot be given to a job of a flow"):
            work.count_to.s(3).each(work.keyed).enqueue()
        with pytest.raises(InvalidOption, match="cannot be given to a job of a flow"):
            work.count_to.s(3).each(work.one.options(key="x")).enqueue()
        assert app.jobs.count()[State.READY] == 0

    def test_a_key_that_only_the_worker_knows(self, app: Mainspring, other: Mainspring) -> None:
        """The task got its key after the flow was enqueued."""

        @other.task(name="numbers")
        def old_numbers() -> list[int]:
            return [1, 2, 3]

        @other.task(name="load")
        def old_load(n: int) -> int:
            return n

        job = old_numbers.s().each(old_load).enqueue()

        @app.task(name="numbers")
        def numbers() -> list[int]:
            return [1, 2, 3]

        @app.task(name="load", key="load")
        def load(n: int) -> int:
            return n

        with app.worker(), pytest.raises(JobCancelled, match="cannot be given to a job of a flow"):
            job.result(timeout=LIMIT)


@pytest.mark.row("F3")
class TestResultOfANode:
    def test_it_cannot_become_text(self, work: Work) -> None:
        dag = Dag()
        node = dag.add(work.one.s(1))
        for text in ("{}", "{:>3}", "{!s}"):
            with pytest.raises(InvalidOption, match=r"(?s)not known yet.*task\.s\(node\.result\)"):
                text.format(node.result)

    def test_in_a_list(self, work: Work) -> None:
        dag = Dag()
        node = dag.add(work.one.s(1))
        said = r"(?s)an argument of its own: task\.s\(a\.result, b\.result\)"
        with pytest.raises(WrongArgument, match=said):
            work.total.s([node.result, 2])
        inside: Any = {"a": [node.result]}
        with pytest.raises(WrongArgument, match=said):
            work.report.s(node.result, inside)

    def test_after_must_be_a_list(self, work: Work) -> None:
        dag = Dag()
        node = dag.add(work.one.s(1))
        with pytest.raises(InvalidOption, match=r"after='one'.*is not a list of nodes"):
            dag.add(work.one.s(1), after="one")  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match=r"after=\[node\]"):
            dag.add(work.one.s(1), after=node)  # type: ignore[arg-type]


@pytest.mark.row("F1")
class TestACallThatCouldTakeTheResult:
    """In Celery, ``a.s(1) | report.s()`` gives the result to ``report``."""

    @pytest.mark.parametrize("kind", ["call", "keyword", "chain", "group", "first of a chain", "chord"])
    def test_it_is_refused(self, work: Work, kind: str) -> None:
        make: dict[str, Any] = {
            "call": lambda: work.one.s(1) | work.report.s(),
            "keyword": lambda: work.one.s(1) | work.report.s(title="x"),
            "chain": lambda: chain(work.one.s(1), work.report.s()),
            "group": lambda: work.one.s(1) | group(work.report.s(), work.one.s(2)),
            "first of a chain": lambda: work.one.s(1) | (work.report.s() | work.count_to.s(2)),
            "chord": lambda: chord(group(work.report.s(1)), work.report.s()),  # type: ignore[arg-type]
        }
        if kind == "chord":  # a list of texts cannot be the number that report takes
            assert make[kind]()
            return
        with pytest.raises(InvalidOption, match=r"(?s)parameter 'n' is free.*Write \| report.*report\.s\(n=\.\.\.\)"):
            make[kind]()

    def test_with_its_value_it_runs_without_the_result(self, app: Mainspring, work: Work) -> None:
        job = (work.one.s(1) | work.report.s(n=7)).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == "7"

    def test_the_hint_of_a_missing_argument_says_how(self, work: Work) -> None:
        with pytest.raises(Exception, match=r"In a flow, the result before it is its value: write \| double"):
            work.one.s(1) | work.double.s()  # type: ignore[call-arg]

    def test_a_part_without_a_result(self, app: Mainspring, work: Work) -> None:
        @app.task
        def send(n: int) -> None: ...

        job = (send.s(1) | work.report.s()).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == "-1"


@pytest.mark.row("F1")
class TestIgnoredResults:
    @pytest.mark.parametrize("kind", ["then", "fan", "each", "member", "undo", "node"])
    def test_a_step_behind_a_task_without_a_result_is_refused(self, work: Work, kind: str) -> None:
        dag = Dag()
        node = dag.add(work.forget.s(1))
        make: dict[str, Any] = {
            "then": lambda: work.forget.s(1) | work.double,
            "fan": lambda: work.forget.s(1) | group(work.double, work.one),
            "each": lambda: work.count_to.s(3).each(work.forget) | work.total,
            "member": lambda: group(work.one.s(1), work.forget.s(1)) | work.total,
            "undo": lambda: work.forget.s(1).undo(work.double),
            "node": lambda: dag.add(work.double.s(node.result)),
        }
        with pytest.raises(WrongArgument, match=r"declared with result='ignore'"):
            make[kind]()

    def test_without_its_result(self, app: Mainspring, work: Work) -> None:
        job = (work.forget.s(1) | work.double.s(4)).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == 8


@pytest.mark.row("F2")
class TestEmptyGroup:
    """A fan-out over rows, of which there are none today."""

    def test_enqueued_in_a_job(self, app: Mainspring, work: Work) -> None:
        @app.task
        async def fan_out(ctx: AsyncContext) -> list[str]:
            empty: Any = group(work.one.s(n) for n in range(0))
            alone = await empty.aenqueue()
            child = await ctx.spawn(empty)
            return [str(alone.id), str(child.id)]

        with app.worker():
            for id in fan_out.enqueue().result(timeout=LIMIT):
                assert app.jobs.get(id).result(timeout=LIMIT) == []

    @pytest.mark.parametrize("inside", [True, False], ids=["in a flow", "alone"])
    def test_returned_and_added(self, app: Mainspring, work: Work, inside: bool) -> None:
        @app.task
        def fan_out(ctx: Context) -> list[int]:
            if inside:
                ctx.flow.add(group([]))
            return group([])  # type: ignore[return-value]

        flow: Any = fan_out.s() | work.total if inside else fan_out.s()
        with app.worker():
            assert flow.enqueue().result(timeout=LIMIT) == (0 if inside else [])

    def test_with_an_app_beside_it(self, app: Mainspring, work: Work) -> None:
        empty: Any = group([])
        with app.worker():
            assert (work.one.s(1) | empty).enqueue().result(timeout=LIMIT) == []


@pytest.mark.row("F1")
class TestReplacedOutsideOfAFlow:
    """A task that returns a flow, enqueued alone."""

    @pytest.mark.parametrize("kind", ["def", "async def"])
    def test_the_result_is_that_of_the_flow(self, app: Mainspring, work: Work, kind: str) -> None:
        if kind == "def":

            @app.task(name="choose")
            def choose(n: int) -> int:
                return work.one.s(n) | work.double if n else work.double.s(50)  # type: ignore[return-value]

        else:

            @app.task(name="choose")
            async def choose(n: int) -> int:
                return work.one.s(n) | work.double if n else work.double.s(50)  # type: ignore[return-value]

        with app.worker():
            job = choose.enqueue(3)
            assert job.result(timeout=LIMIT) == 6
            [flow] = app.jobs.list(parent=job.id)
            assert app.flows.join(flow.id, timeout=LIMIT).state == "succeeded"
            assert choose.enqueue(0).result(timeout=LIMIT) == 100

    def test_again_and_again(self, app: Mainspring, work: Work) -> None:
        @app.task
        def countdown(n: int) -> int:
            return (work.one.s(n - 1) | countdown) if n else 100  # type: ignore[return-value]

        with app.worker():
            assert countdown.enqueue(3).result(timeout=LIMIT) == 100

    def test_by_a_flow_that_fails(self, app: Mainspring, work: Work) -> None:
        @app.task
        def choose() -> int:
            return work.one.s(1) | work.fail | work.double  # type: ignore[return-value]

        with app.worker(), pytest.raises(JobCancelled, match="ValueError: no 1"):
            choose.enqueue().result(timeout=LIMIT)

    def test_by_a_flow_of_more_than_one_piece(self, app: Mainspring, work: Work) -> None:
        @app.task
        def choose() -> int:
            return group(work.double.s(n) for n in range(1_200)) | work.total  # type: ignore[return-value]

        with app.worker():
            assert choose.enqueue().result(timeout=10 * LIMIT) == 1_199 * 1_200


@pytest.mark.row("F1")
class TestDelays:
    def test_a_delay_that_counts_from_the_part_before(self, app: Mainspring, work: Work) -> None:
        @app.task
        def later(n: int) -> int:
            return work.double.options(delay="1h").s(n)  # type: ignore[return-value]

        with app.test() as t:
            job = (work.one.options(delay="1h").s(4) | later).enqueue()
            t.advance("61m")
            t.drain()
            assert not work.ran
            t.advance("61m")
            t.drain()
            assert job.result(timeout=0) == 8


@pytest.mark.row("F3")
class TestResultOfAGraph:
    def test_it_is_none_and_the_nodes_have_theirs(self, app: Mainspring, work: Work) -> None:
        dag = Dag()
        node = dag.add(work.one.s(3))
        dag.add(work.double.s(node.result))
        job = dag.enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) is None
        results = [app.jobs.get(each.id).result(timeout=0) for each in app.flows.get(job.id).nodes]
        assert results == [3, 6]


@pytest.mark.row("F7")
class TestUndoOfALaterPart:
    def test_it_belongs_to_the_part_before_it(self, app: Mainspring, work: Work) -> None:
        job = ((work.one.s(3).undo(work.report) | work.one).undo(work.double) | work.fail).enqueue()
        with app.worker():
            app.flows.join(job.id, timeout=LIMIT)
        assert work.ran == [("double", 3), ("report", 3, "")]


@pytest.mark.row("F1")
class TestContextOutsideOfAFlow:
    def test_ctx_flow_is_not_retried(self, app: Mainspring) -> None:
        @app.task(retries=5)
        def lonely(ctx: Context) -> None:
            _ = ctx.flow

        job = lonely.enqueue()
        with app.worker(), pytest.raises(JobDead, match="belongs to no flow"):
            job.result(timeout=LIMIT)
        assert len(job.info().attempts) == 1

    @pytest.mark.parametrize("kind", ["def", "async def"])
    def test_a_flow_is_spawned_once(self, app: Mainspring, work: Work, kind: str) -> None:
        if kind == "def":

            @app.task(name="spawning", retries=1, backoff="10ms")
            def spawning(ctx: Context) -> str:
                child = ctx.spawn(work.one.s(4) | work.double)
                if ctx.attempt == 1:
                    raise ValueError("again")
                return str(child.id)

        else:

            @app.task(name="spawning", retries=1, backoff="10ms")
            async def spawning(ctx: AsyncContext) -> str:
                child = await ctx.spawn(work.one.s(4) | work.double)
                if ctx.attempt == 1:
                    raise ValueError("again")
                return str(child.id)

        job = spawning.enqueue()
        with app.worker():
            child = work.double.job(job.result(timeout=LIMIT))
            assert child.result(timeout=LIMIT) == 8
        assert len(app.flows.list()) == 1
        assert [each.id for each in app.jobs.list(parent=job.id)] == [app.flows.get(child.id).id]

    def test_a_spawned_part_keeps_its_compensation(self, app: Mainspring, work: Work) -> None:
        @app.task
        def spawning(ctx: Context) -> str:
            return str(ctx.spawn(work.one.s(4).undo(work.double)).id)

        with app.worker():
            id = spawning.enqueue().result(timeout=LIMIT)
            assert [node.kind for node in app.flows.join(id, timeout=LIMIT).nodes] == ["job", "undo"]


@pytest.mark.row("F1")
class TestKeyOfAFlow:
    """All flows share their keys. A flow of other tasks cannot stand for this one."""

    def test_of_another_shape(self, app: Mainspring, work: Work) -> None:
        first = (work.one.s(1) | work.double).flow(key="order:1").enqueue()
        with pytest.raises(KeyTaken, match="held by another flow, which consists of other tasks"):
            (work.one.s(1) | work.report).flow(key="order:1").enqueue()
        with pytest.raises(KeyTaken, match="held by a flow that is no batch"):
            app.flows.batch(key="order:1").open()
        assert (work.one.s(2) | work.double).flow(key="order:1").enqueue().id == first.id

    async def test_in_async_code(self, app: Mainspring, work: Work) -> None:
        await (work.one.s(1) | work.double).flow(key="order:1").aenqueue()
        with pytest.raises(KeyTaken, match="held by another flow"):
            await (work.one.s(1) | work.report).flow(key="order:1").aenqueue()

    def test_a_group_of_another_size_is_the_same_flow(self, app: Mainspring, work: Work) -> None:
        def load(n: int) -> Any:
            return (group(work.one.s(each) for each in range(n)) | work.total).flow(key="load").enqueue()

        assert load(3).id == load(7).id

    def test_of_a_graph(self, app: Mainspring, work: Work) -> None:
        def make(n: int) -> Any:
            dag = Dag()
            node = dag.add(work.one.s(n))
            dag.add(work.double.s(node.result))
            return dag.flow(key="dag")

        assert make(1).enqueue().id == make(2).enqueue().id

    def test_a_batch_with_other_callbacks(self, app: Mainspring, work: Work) -> None:
        first = app.flows.batch(key="import", on_success=work.report.s(1)).open()
        with pytest.raises(KeyTaken, match=r"a batch with on_success='.*report', and this one has on_success='.*one'"):
            app.flows.batch(key="import", on_success=work.one.s(1)).open()
        with pytest.raises(KeyTaken, match=r"a batch with no on_dead, and this one has on_dead='.*one'"):
            app.flows.batch(key="import", on_dead=work.one.s(1)).add(work.one.s(2))
        with pytest.raises(KeyTaken):
            app.flows.batch(key=Key("import", on_conflict="error")).open()
        assert app.flows.batch(key="import").open().id == first.id
        with pytest.raises(KeyTaken, match="held by another flow"):
            (work.one.s(1) | work.double).flow(key="import").enqueue()

    def test_a_retry_takes_the_key_again(self, app: Mainspring, work: Work) -> None:
        works = False

        @app.task(retries=0)
        def flaky(n: int) -> int:
            if not works:
                raise ValueError("not yet")
            return n

        flow = (work.one.s(1) | flaky | work.double).flow(key="order:1")
        first = flow.enqueue()
        with app.worker():
            app.flows.join(first.id, timeout=LIMIT)
        second = flow.enqueue()
        assert second.id != first.id
        with pytest.raises(KeyTaken, match=str(app.flows.get(second.id).id)):
            app.flows.retry(first.id)
        assert app.flows.get(first.id).state == "failed"
        assert app.jobs.count(flow=app.flows.get(first.id).id)[State.READY] == 0
        assert app.flows.cancel(second.id)
        works = True
        assert app.flows.retry(first.id) == 3
        assert flow.enqueue().id == first.id
        with app.worker():
            assert first.result(timeout=LIMIT) == 2
            assert app.flows.join(first.id, timeout=LIMIT).state == "succeeded"

    def test_a_large_flow(self, app: Mainspring, work: Work) -> None:
        (work.one.s(1) | work.double).flow(key="order:1").enqueue()
        with pytest.raises(KeyTaken, match="held by another flow"):
            group(work.one.s(n) for n in range(1_500)).flow(key="order:1").enqueue()


@pytest.mark.row("F4")
class TestOpenBatches:
    def test_counts_before_it_is_open(self, app: Mainspring) -> None:
        with pytest.raises(NotFound, match=r"created by with, batch\.open\(\), or the first batch\.add\(\)"):
            app.flows.batch("x").counts()

    def test_why_says_that_the_batch_is_open(self, app: Mainspring, work: Work) -> None:
        batch = app.flows.batch("x", on_success=work.report.s(1)).open()
        batch.add(work.one.s(1))
        callback = next(node for node in app.flows.get(batch.id).nodes if node.kind == "job")
        for id in (callback.id, batch.id):
            assert "a batch that is still open: close it with batch.close()" in app.jobs.get(id).why().text
        batch.close()
        assert "still open" not in app.jobs.get(callback.id).why().text


@pytest.mark.row("F1")
class TestMessages:
    def test_a_call_in_the_place_of_a_task(self, work: Work) -> None:
        for verb in ("then", "each"):
            with pytest.raises(
                InvalidOption, match=rf"Give the task and its further arguments: {verb}\(task, \.\.\.\)"
            ):
                getattr(work.count_to.s(1), verb)(work.one.s(1))

    def test_lists_and_tasks_before_a_pipe(self, work: Work) -> None:
        calls: Any = [work.one.s(1)]
        with pytest.raises(InvalidOption, match=r"Several calls are a group: chord\(group\(\.\.\.\), \.\.\.\)"):
            chord(calls, work.total)
        with pytest.raises(InvalidOption, match=r"The left side is a call or a group"):
            calls | work.total
        task: Any = work.one
        with pytest.raises(InvalidOption, match=r"A flow begins with a call: one\.s\(\.\.\.\)"):
            task | work.double

    def test_a_group_of_tasks(self, work: Work) -> None:
        tasks: Any = group(work.one, work.double)
        with pytest.raises(UnknownAttribute, match=r"To enqueue a group, give calls"):
            tasks.enqueue()
        with pytest.raises(InvalidOption, match=r"has no part before it"):
            tasks | work.total

    def test_options_of_a_group_or_chain(self, work: Work) -> None:
        for flow in (group(work.one.s(1)), work.one.s(1) | work.double):
            with pytest.raises(UnknownAttribute, match=r"Options of jobs belong to the parts"):
                flow.options(priority="high")  # type: ignore[union-attr]

    def test_what_makes_single_jobs_takes_no_flow(self, app: Mainspring, work: Work) -> None:
        flows: list[Any] = [work.one.s(1) | work.double, work.one.s(1).undo(work.double), group(work.one.s(1))]
        for flow in flows:
            with pytest.raises(InvalidOption, match=r"For a flow, name a task that returns the flow: on_success=start"):
                app.task(on_success=flow)(lambda: None)
            with pytest.raises(InvalidOption, match=r"For a flow, schedule a task that returns the flow"):
                app.schedules.put("nightly", flow, every="1h")
            with pytest.raises(InvalidOption, match=r"For a flow, schedule a task that returns the flow"):
                app.schedule(call=flow, every="1h")
            with pytest.raises(InvalidOption, match=r"It is a flow: enqueue it by flow\.enqueue\(\)"):
                app.enqueue_many([flow])
