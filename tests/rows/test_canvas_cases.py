"""The cases in which canvas of Celery is known to break, by name, and the situations that joins must survive.

Chains, groups and chords in ordinary use are in ``test_flows.py``; joins as the store sees them are in the contract
suite (``testing/contract/flows``); kills between the steps of a flow are in
``tests/processes/test_flow_failpoints.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainspring import Context, Dag, JobCancelled, JobDead, Mainspring, chain, chord, group
from mainspring.errors import FlowClosed, InvalidOption, WrongArgument
from mainspring.jobs.query import Query
from mainspring.states import State
from tests.rows.crew import LIMIT, until


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
        def total_if_any(numbers: list[int] | None) -> int:
            ran.append(("total_if_any", numbers))
            return -1 if numbers is None else sum(numbers)

        @app.task
        def flatten(lists: list[list[int]]) -> list[int]:
            ran.append(("flatten", len(lists)))
            return [x for each in lists for x in each]

        @app.task(retries=0)
        def fail(x: int) -> int:
            ran.append(("fail", x))
            raise ValueError(f"no {x}")

        @app.task
        def note(what: str) -> str:
            ran.append(("note", what))
            return what

        self.add, self.double, self.total, self.total_if_any = add, double, total, total_if_any
        self.flatten, self.fail, self.note = flatten, fail, note

    def count(self, name: str) -> int:
        """How often a task ran."""
        return sum(1 for what, *_ in self.ran if what == name)


@pytest.fixture
def work(app: Mainspring) -> Work:
    return Work(app)


def result(app: Mainspring, flow: Any) -> Any:
    """Enqueue the flow and run it to its end; nothing of it is left blocked."""
    job = flow.enqueue()
    with app.worker():
        value = job.result(timeout=LIMIT)
        until(lambda: app.flows.get(job.id).state == "succeeded")
    assert app.jobs.count()[State.BLOCKED] == 0
    return value


def failed(app: Mainspring, flow: Any) -> str:
    """Enqueue the flow, which fails, and run it to its end; returns what the caller gets to read."""
    job = flow.enqueue()
    with app.worker():
        with pytest.raises((JobCancelled, JobDead)) as caught:
            job.result(timeout=LIMIT)
        until(lambda: app.flows.get(job.id).state == "failed")
    assert app.jobs.count()[State.BLOCKED] == 0
    return str(caught.value)


# ---- canvas of Celery ---------------------------------------------------------------------------------


@pytest.mark.row("F2")
class TestChordWithAnEmptyHeader:
    def test_alone(self, app: Mainspring, work: Work) -> None:
        assert result(app, chord(group([]), work.total)) == 0
        assert work.ran == [("total", ())]

    def test_in_a_chain(self, app: Mainspring, work: Work) -> None:
        assert result(app, work.note.s("before") | group([]) | work.total | work.double) == 0
        assert [what for what, *_ in work.ran] == ["note", "total", "double"]

    def test_in_a_group(self, app: Mainspring, work: Work) -> None:
        header = group(chord(group([]), work.total), work.double.s(4), chord(group([]), work.total))
        assert result(app, header | work.total) == 8
        assert work.count("total") == 3

    def test_of_empty_groups(self, app: Mainspring, work: Work) -> None:
        empty: Any = group(group([]), group([]))
        assert result(app, empty | work.flatten) == []

    def test_of_a_list_that_is_empty_when_it_is_known(self, app: Mainspring, work: Work) -> None:
        @app.task
        def nothing() -> list[int]:
            return []

        assert result(app, nothing.s().each(work.double) | work.total) == 0


@pytest.mark.row("F2")
class TestGroupOfOne:
    def test_its_result_is_a_list(self, app: Mainspring, work: Work) -> None:
        assert result(app, group(work.double.s(7)).flow(name="one")) == [14]

    def test_as_the_header_of_a_chord(self, app: Mainspring, work: Work) -> None:
        assert result(app, chord(group(work.double.s(7)), work.total)) == 14
        assert work.count("total") == 1

    def test_in_a_chain(self, app: Mainspring, work: Work) -> None:
        assert result(app, work.add.s(1, 1) | group(work.double) | work.total | work.double) == 8

    def test_at_the_end_of_a_chain(self, app: Mainspring, work: Work) -> None:
        assert result(app, work.add.s(1, 1) | group(work.double)) == [4]

    def test_of_a_group_of_one(self, app: Mainspring, work: Work) -> None:
        assert result(app, group(group(group(work.double.s(1))))) == [[[2]]]

    def test_of_a_chain(self, app: Mainspring, work: Work) -> None:
        assert result(app, group(work.add.s(1, 1) | work.double) | work.total) == 4


@pytest.mark.row("F2")
class TestChordInAChainInAGroup:
    def test_each_callback_runs_once(self, app: Mainspring, work: Work) -> None:
        def part(n: int) -> Any:
            return work.add.s(n, n) | group(work.double, work.double, work.double) | work.total | work.double

        assert result(app, group(part(n) for n in range(5)) | work.total) == sum(24 * n for n in range(5))
        assert (work.count("double"), work.count("total")) == (5 * 4, 5 + 1)

    def test_beside_a_plain_call(self, app: Mainspring, work: Work) -> None:
        inner = chain(work.add.s(1, 1), group(work.double, work.double), work.total)
        assert result(app, chord(group(inner, work.double.s(1)), work.total)) == 10

    def test_as_the_last_part_of_a_group(self, app: Mainspring, work: Work) -> None:
        inner = work.add.s(1, 1) | group(work.double, work.double) | work.total
        assert result(app, group(work.double.s(1), inner)) == [2, 8]


@pytest.mark.row("F2")
class TestNestedChords:
    def test_a_chord_in_the_header_of_a_chord(self, app: Mainspring, work: Work) -> None:
        inner = chord(group(work.double.s(1), work.double.s(2)), work.total)
        assert result(app, chord(group(inner, inner), work.total)) == 12
        assert work.count("total") == 3

    def test_three_deep(self, app: Mainspring, work: Work) -> None:
        def nested(depth: int) -> Any:
            header = [work.double.s(1) for _ in range(3)] if depth == 1 else [nested(depth - 1) for _ in range(3)]
            return chord(group(header), work.total)

        assert result(app, nested(3)) == 2 * 3**3
        assert (work.count("double"), work.count("total")) == (27, 13)

    def test_groups_in_the_header(self, app: Mainspring, work: Work) -> None:
        header = group(group(work.double.s(1), work.double.s(2)), group(work.double.s(3)))
        assert result(app, header | work.flatten | work.total) == 12

    def test_a_group_as_the_callback(self, app: Mainspring, work: Work) -> None:
        header = group(work.double.s(1), work.double.s(2))
        assert result(app, header | group(work.total, work.total)) == [6, 6]

    def test_nested_groups_chains_and_calls(self, app: Mainspring, work: Work) -> None:
        inner = chord(group(work.double.s(1), work.double.s(2)), work.total)
        flow = group(inner | work.double, group(work.add.s(1, 1), work.add.s(2, 2)) | work.total, work.add.s(0, 1))
        assert result(app, flow | work.total) == 12 + 6 + 1


@pytest.mark.row("F2")
class TestChainGroupChain:
    def test_with_the_result(self, app: Mainspring, work: Work) -> None:
        assert result(app, work.add.s(1, 1) | group(work.double, work.double) | work.total | work.double) == 16

    def test_chains_on_both_sides_and_inside(self, app: Mainspring, work: Work) -> None:
        members = group(work.add.s(1, 1) | work.double, work.add.s(2, 2) | work.double)
        flow = work.note.s("a") | work.note.s("b") | members | work.total | work.double
        assert result(app, flow) == 24
        assert work.ran[:2] == [("note", "a"), ("note", "b")]

    def test_two_groups_in_one_chain(self, app: Mainspring, work: Work) -> None:
        flow = work.add.s(1, 1) | group(work.double, work.double) | work.total | group(work.double, work.double)
        assert result(app, flow | work.total) == 32

    def test_built_by_chain(self, app: Mainspring, work: Work) -> None:
        flow = chain(work.add.s(1, 1), group(work.double, work.double), work.total, work.double)
        assert result(app, flow) == 16


@pytest.mark.row("F2")
class TestErrorsInAHeader:
    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_without_a_callback_for_errors(self, app: Mainspring, work: Work, at: int) -> None:
        """The other members run, the callback does not, and the caller reads which job failed."""
        header = [work.double.s(1), work.double.s(2), work.double.s(3)]
        header[at] = work.fail.s(9)
        said = failed(app, chord(group(header), work.total) | work.double)
        assert "fail" in said
        assert "ValueError: no 9" in said
        assert (work.count("double"), work.count("total")) == (2, 0)

    def test_all_members_fail(self, app: Mainspring, work: Work) -> None:
        failed(app, chord(group(work.fail.s(n) for n in range(3)), work.total))
        assert (work.count("fail"), work.count("total")) == (3, 0)

    def test_in_a_chord_in_a_chord(self, app: Mainspring, work: Work) -> None:
        inner = chord(group(work.fail.s(1), work.double.s(1)), work.total)
        failed(app, chord(group(inner, work.double.s(2)), work.total))
        assert (work.count("double"), work.count("total")) == (2, 0)

    def test_in_a_chain_in_the_header(self, app: Mainspring, work: Work) -> None:
        failed(app, group(work.add.s(1, 1) | work.fail | work.double, work.double.s(5)) | work.total)
        assert (work.count("double"), work.count("total")) == (1, 0)

    def test_in_the_callback(self, app: Mainspring, work: Work) -> None:
        @app.task(retries=0)
        def broken(numbers: list[int]) -> int:
            raise KeyError("callback")

        assert "callback" in failed(app, chord(group(work.double.s(1), work.double.s(2)), broken) | work.double)
        assert work.count("double") == 2

    def test_a_callback_for_errors_runs_once(self, app: Mainspring, work: Work) -> None:
        """Not once for each member that failed."""
        header = group(work.fail.s(n) for n in range(5))
        assert result(app, chord(header, work.total_if_any).when("ignore")) == -1
        assert [entry for entry in work.ran if entry[0] == "total_if_any"] == [("total_if_any", None)]

    def test_a_callback_for_errors_beside_the_callback(self, app: Mainspring, work: Work) -> None:
        """The callback is cancelled; the job for both cases runs once."""
        dag = Dag()
        header = dag.add(group(work.fail.s(1), work.double.s(1), work.fail.s(2)))
        dag.add(work.total.s(header.result))
        dag.add(work.note.s("ended"), after=[header], when="ignore")
        job = dag.enqueue()
        with app.worker():
            assert job.join(timeout=LIMIT).state == State.CANCELLED
            until(lambda: app.flows.get(job.id).state == "failed")
        assert (work.count("total"), work.count("note")) == (0, 1)

    def test_a_callback_for_errors_of_each_member(self, app: Mainspring, work: Work) -> None:
        @app.task(retries=0, on_dead=work.note.s("a member is dead"))
        def fragile(n: int) -> int:
            raise ValueError(n)

        failed(app, chord(group(fragile.s(1), work.double.s(1), fragile.s(2)), work.total))
        with app.worker():
            until(lambda: work.count("note") == 2)
        assert work.count("total") == 0

    def test_the_callback_gets_what_succeeded(self, app: Mainspring, work: Work) -> None:
        header = group(work.double.s(1), work.fail.s(2), work.double.s(3), on_failure="partial")
        assert result(app, chord(header, work.total)) == 8


@pytest.mark.row("F1", "F2")
class TestReplacingATaskByAFlow:
    """A task that returns a flow."""

    @pytest.mark.parametrize("kind", ["def", "async def"])
    def test_in_a_chain_and_in_a_group(self, app: Mainspring, work: Work, kind: str) -> None:
        if kind == "def":

            @app.task(name="choose")
            def choose(n: int) -> int:
                return work.add.s(n, 1) | work.double  # type: ignore[return-value]  # its result stands for this one

        else:

            @app.task(name="choose")
            async def choose(n: int) -> int:
                return work.add.s(n, 1) | work.double  # type: ignore[return-value]  # as above

        assert result(app, choose.s(2) | work.double) == 12
        assert result(app, group(choose.s(1), choose.s(2)).flow(name="two")) == [4, 6]

    def test_by_one_call(self, app: Mainspring, work: Work) -> None:
        @app.task
        def choose(n: int) -> int:
            return work.double.s(n)  # type: ignore[return-value]  # as above

        assert result(app, chord(group(choose.s(1), work.double.s(5)), work.total)) == 12

    def test_by_a_group_in_the_header_of_a_chord(self, app: Mainspring, work: Work) -> None:
        @app.task
        def fan_out(n: int) -> list[int]:
            return group(work.double.s(each) for each in range(n))  # type: ignore[return-value]  # as above

        assert result(app, chord(group(fan_out.s(3), fan_out.s(1), fan_out.s(2)), work.flatten)) == [0, 2, 4, 0, 0, 2]
        assert work.count("flatten") == 1

    def test_by_an_empty_group(self, app: Mainspring, work: Work) -> None:
        @app.task
        def fan_out() -> list[int]:
            return group([])  # type: ignore[return-value]  # as above

        assert result(app, fan_out.s() | work.total) == 0

    def test_by_a_chord_in_a_chord(self, app: Mainspring, work: Work) -> None:
        @app.task
        def again(n: int) -> int:
            return chord(group(work.double.s(n), work.double.s(n)), work.total)  # type: ignore[return-value]

        assert result(app, chord(group(again.s(1), again.s(2)), work.total) | work.double) == 24
        assert work.count("total") == 3

    def test_again_and_again(self, app: Mainspring, work: Work) -> None:
        @app.task
        def countdown(n: int) -> int:
            return countdown.s(n - 1) if n else 100  # type: ignore[return-value]

        assert result(app, group(countdown.s(5), countdown.s(0)) | work.total) == 200

    def test_the_callback_of_a_chord(self, app: Mainspring, work: Work) -> None:
        @app.task
        def split(numbers: list[int]) -> int:
            return group(work.double.s(n) for n in numbers) | work.total  # type: ignore[return-value]

        assert result(app, chord(group(work.double.s(1), work.double.s(2)), split) | work.double) == 24

    def test_by_a_flow_that_fails(self, app: Mainspring, work: Work) -> None:
        @app.task
        def choose() -> int:
            return work.add.s(1, 1) | work.fail  # type: ignore[return-value]

        failed(app, chord(group(choose.s(), work.double.s(1)), work.total))
        assert (work.count("fail"), work.count("total")) == (1, 0)

    def test_a_job_of_no_flow_is_refused(self, app: Mainspring, work: Work) -> None:
        @app.task(retries=0)
        def choose() -> int:
            return work.add.s(1, 1) | work.double  # type: ignore[return-value]

        job = choose.enqueue()
        with app.worker(), pytest.raises(JobDead, match="belongs to no flow"):
            job.result(timeout=LIMIT)


# ---- situations ---------------------------------------------------------------------------------------


@pytest.mark.row("F4")
class TestBatchesOfNoneAndOfOne:
    @pytest.mark.parametrize("n", [0, 1])
    def test_callbacks_run_once(self, app: Mainspring, work: Work, n: int) -> None:
        with app.worker():
            with app.flows.batch("x", on_success=work.note.s("good"), on_finished=work.note.s("end")) as batch:
                batch.add_many(work.double.s(7) for _ in range(n))
            batch.join(timeout=LIMIT)
        assert sorted(what for name, what in work.ran if name == "note") == ["end", "good"]
        found = batch.counts()
        assert (found.total, found.succeeded, found.closed) == (n, n, True)


@pytest.mark.row("F2", "F4")
class TestAMemberRetriedByHand:
    def test_after_it_was_counted_the_callback_does_not_run_again(self, app: Mainspring, work: Work) -> None:
        fixed: list[int] = []

        @app.task(retries=0)
        def flaky(n: int) -> int:
            if not fixed:
                raise ValueError(n)
            return n

        header = group(work.double.s(1), flaky.s(2), on_failure="partial")
        job = chord(header, work.total).enqueue()
        with app.worker():
            assert job.result(timeout=LIMIT) == 2
            fixed.append(1)
            assert app.dead.retry(Query.everything()) == 1
            until(lambda: not app.dead.list() and not app.jobs.list(task=flaky, state=["ready", "running"]))
            until(lambda: app.flows.get(job.id).counts == {"succeeded": 3})
        assert work.count("total") == 1

    def test_while_others_are_pending_the_join_still_waits_for_them(self, app: Mainspring, work: Work) -> None:
        """The batch has three members: one has died, is counted, and is retried while another has not ended."""
        fixed: list[int] = []

        @app.task(retries=0)
        def flaky() -> None:
            if not fixed:
                raise ValueError

        @app.task
        def last() -> None:
            until(lambda: len(fixed) > 1)

        with app.worker():
            with app.flows.batch("x", on_finished=work.note.s("end")) as batch:
                batch.add(flaky.s())
                batch.add(work.double.s(1))
                batch.add(last.s())
            until(lambda: batch.counts().dead == 1 and batch.counts().succeeded == 1)
            fixed.append(1)
            assert app.dead.retry(Query.everything()) == 1
            until(lambda: not app.dead.list() and not app.jobs.list(task=flaky, state=["ready", "running"]))
            found = batch.counts()
            assert (found.total, found.pending) == (3, 1)
            assert work.count("note") == 0
            fixed.append(2)
            batch.join(timeout=LIMIT)
        assert work.count("note") == 1


@pytest.mark.row("F5")
class TestAParentThatGoesAway:
    """A job waits, and the job before it is deleted, expires, or is dead for longer than dead jobs are kept."""

    @pytest.mark.parametrize("end", ["deleted", "expired"])
    @pytest.mark.parametrize(
        ("when", "state"),
        [("fail", State.CANCELLED), ("wait", State.CANCELLED), ("ignore", State.SUCCEEDED), ("skip", State.CANCELLED)],
    )
    def test_the_child_ends_by_its_policy(
        self, app: Mainspring, work: Work, store_url: str, end: str, when: Any, state: State
    ) -> None:
        with app.test(url=store_url) as t:
            dag = Dag()
            parent = dag.add(work.double.s(1).options(expires="1h"))
            child = dag.add(work.note.s("child"), after=[parent], when=when)
            dag.add(work.add.s(1, 1), after=[child])
            job = dag.enqueue()
            ids = {info.task: info.id for info in t.jobs.list(flow=app.flows.get(job.id).id)}
            if end == "deleted":
                t.jobs.get(ids[work.double.name]).delete()
            t.clock.advance("61m")
            t.drain()
            assert t.jobs.get(ids[work.note.name]).info().state == state
            goes_on = when in ("ignore", "skip")
            assert t.jobs.get(ids[work.add.name]).info().state == (State.SUCCEEDED if goes_on else State.CANCELLED)
            assert t.flows.get(job.id).state == ("succeeded" if goes_on else "failed")
            assert work.count("double") == 0

    def test_a_dead_parent_of_an_open_flow_is_not_pruned(self, app: Mainspring, work: Work, store_url: str) -> None:
        fixed: list[int] = []

        @app.task(retries=0)
        def flaky() -> int:
            if not fixed:
                raise ValueError
            return 4

        with app.test(url=store_url) as t:
            job = (flaky.s() | work.double).when("wait").enqueue()
            t.drain()
            t.advance("90d")
            t.drain()
            assert job.info().state == State.BLOCKED
            fixed.append(1)
            assert app.dead.retry(Query.everything()) == 1
            t.drain()
            assert job.result(timeout=0) == 8


@pytest.mark.row("F2", "F4")
class TestACallbackThatNoWorkerKnows:
    def test_it_waits_and_says_why_until_a_worker_knows_it(
        self, app: Mainspring, other: Mainspring, work: Work
    ) -> None:
        seen: list[list[int]] = []

        def twice(x: int) -> int:
            return 2 * x

        def collect(numbers: list[int]) -> int:
            seen.append(numbers)
            return sum(numbers)

        app.task(name="twice")(twice)
        members = other.task(name="twice")(twice)
        job = (group(members.s(n) for n in range(3)) | other.task(name="collect")(collect)).enqueue()
        with app.worker():
            until(lambda: job.info().state == State.READY)
            until(lambda: [each.kind for each in job.why().obstacles] == ["unknown_task"])
            assert app.flows.get(job.id).state == "running"
            assert not seen
        with other.worker():
            assert job.result(timeout=LIMIT) == 6
        assert seen == [[0, 2, 4]]

    def test_of_a_batch(self, app: Mainspring, other: Mainspring, work: Work) -> None:
        seen: list[int] = []

        def report() -> None:
            seen.append(1)

        declared = other.task(name="report")(report)
        with app.worker():
            with app.flows.batch("x", on_success=app.call("report")) as batch:
                batch.add(work.double.s(1))
            until(lambda: app.jobs.list(task=declared, state="ready"))
            assert app.flows.get(batch.id).state == "running"
        with other.worker():
            batch.join(timeout=LIMIT)
        assert seen == [1]


@pytest.mark.row("F5")
class TestCycles:
    """Nodes name earlier nodes only, so a cycle needs a graph inside of itself."""

    def test_a_graph_in_itself(self, app: Mainspring, work: Work) -> None:
        dag = Dag()
        dag.add(work.double.s(1))
        one = work.double.s(1)
        for inside in (group(dag), dag | one, one | dag, group(one | group(dag))):
            with pytest.raises(InvalidOption, match="is a cycle"):
                dag.add(inside)
        dag.enqueue()

    def test_two_graphs_in_each_other(self, work: Work) -> None:
        left, right = Dag(), Dag()
        left.add(work.double.s(1))
        left.add(group(right))
        with pytest.raises(InvalidOption, match="is a cycle"):
            right.add(group(left))

    def test_a_graph_may_stand_in_another_one_twice(self, app: Mainspring, work: Work) -> None:
        inner = Dag()
        first = inner.add(work.double.s(1))
        inner.add(work.double.s(first.result))
        outer = Dag()
        outer.add(group(inner, inner))
        outer.add(inner | work.note.s("behind"))
        job = outer.enqueue()
        with app.worker():
            assert job.join(timeout=LIMIT).state == State.SUCCEEDED
        assert (work.ran.count(("double", 1)), work.ran.count(("double", 2))) == (3, 3)


@pytest.mark.row("F5", "B6")
class TestBadInput:
    """Refused when it is written down. ``tests/typing/wrong.py`` shows that type checkers refuse it too."""

    def test_a_callback_that_cannot_take_the_results_of_the_header(self, work: Work) -> None:
        header: Any = group(work.double.s(1), work.double.s(2))
        note: Any = work.note
        refused: list[Callable[[], Any]] = [
            lambda: chord(header, note),
            lambda: header | work.note,
            lambda: header.then(work.double),
            lambda: chain(header, work.note),
            lambda: header | group(work.note, work.note),
            lambda: header.each(work.note),
        ]
        for write in refused:
            with pytest.raises(WrongArgument, match="the part before it returns"):
                write()

    def test_a_part_of_a_fan_out_that_cannot_take_the_result(self, work: Work) -> None:
        call: Any = work.double.s(1)
        with pytest.raises(WrongArgument, match="'what' is declared as str, and the part before it returns int"):
            call | group(work.note, work.note)

    def test_a_compensation_that_cannot_take_the_result(self, work: Work) -> None:
        with pytest.raises(WrongArgument, match="'what' is declared as str"):
            work.double.s(1).undo(work.note)  # type: ignore[arg-type]  # the checker refuses it too

    def test_an_argument_that_cannot_take_the_result_of_its_node(self, work: Work) -> None:
        dag = Dag()
        node = dag.add(work.double.s(1))
        with pytest.raises(WrongArgument, match="'what' is declared as str, and the node returns int"):
            dag.add(work.note.s(node.result))  # type: ignore[arg-type]  # as above
        assert len(dag.nodes) == 1

    def test_a_missing_node(self, work: Work) -> None:
        dag = Dag()
        for missing in (None, "first", Dag().add(work.double.s(1))):
            with pytest.raises(InvalidOption, match="is not a node of this Dag"):
                dag.add(work.double.s(1), after=[missing])  # type: ignore[list-item]  # as above

    def test_an_addition_behind_a_job_that_does_not_exist(self, app: Mainspring, work: Work) -> None:
        """It ends like a job whose parent was deleted: nothing waits for ever."""

        @app.task(retries=0)
        def more(ctx: Context) -> None:
            gone = work.double.s(1).options(delay="1d").enqueue()
            gone.delete()
            ctx.flow.add(work.note.s("never"), after=[gone])

        failed(app, group(more.s(), more.s()) | work.note.s("behind"))
        assert work.count("note") == 0

    def test_an_addition_to_a_closed_batch(self, app: Mainspring, work: Work) -> None:
        with app.flows.batch("x", on_success=work.note.s("good")) as batch:
            batch.add(work.double.s(1))
        for call in (work.double.s(2), work.double.s(2) | work.double, group(work.double.s(2), work.double.s(3))):
            with pytest.raises(FlowClosed):
                batch.add(call)
        with pytest.raises(FlowClosed):
            batch.add_many(work.double.s(n) for n in range(3))
        assert batch.counts().total == 1
        with app.worker():
            batch.join(timeout=LIMIT)
        assert (work.count("double"), work.count("note")) == (1, 1)
        with pytest.raises(FlowClosed):
            batch.add(work.double.s(4))
