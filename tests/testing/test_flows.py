"""app.test() and flows: drains, the clock, and assertions on shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mainspring import Dag, JobCancelled, Mainspring, group
from mainspring.errors import InvalidOption
from mainspring.testing import TestApp

app = Mainspring("sqlite://")
sent: list[str] = []


@app.task(name="fetch")
def fetch(url: str) -> str:
    return url.upper()


@app.task(name="words")
async def words(text: str) -> list[str]:
    return text.split()


@app.task(name="length")
def length(word: str, factor: int = 1) -> int:
    return factor * len(word)


@app.task(name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="note")
def note(what: str) -> None:
    sent.append(what)


@app.task(name="fail", retries=1, backoff="1h")
def fail(what: str) -> str:
    raise ValueError(what)


@pytest.fixture
def t() -> Iterator[TestApp]:
    sent.clear()
    with app.test() as t:
        yield t


@pytest.mark.row("B12", "F1", "F2", "F3")
class TestDrain:
    def test_a_drain_runs_a_flow_to_its_end(self, t: TestApp) -> None:
        chained = (fetch.s("a b c") | words).each(length) | total
        job = chained.enqueue()
        assert t.drain().succeeded == 7, "with the built-in job that adds the members"
        assert job.result(timeout=0) == 3
        assert t.flows.get(job.id).state == "succeeded"

    def test_a_drain_runs_a_flow_that_is_enqueued_in_pieces(self, t: TestApp) -> None:
        job = (group(length.s("abc") for _ in range(2_500)) | total).enqueue()
        assert t.drain().succeeded == 2_501
        assert job.result(timeout=0) == 7_500

    def test_inline_tests_run_flows_when_they_are_enqueued(self) -> None:
        with app.test(inline=True):
            assert (fetch.s("a b") | words).each(length).enqueue().result(timeout=0) == [1, 1]

    async def test_in_async_tests(self) -> None:
        async with app.test() as t:
            job = await (fetch.s("a b") | words).aenqueue()
            await t.adrain()
            assert await job.aresult(timeout=0) == ["A", "B"]
            assert (await t.aassert_flow(fetch.s("a b") | words)).state == "succeeded"

    def test_a_failed_part_and_its_compensation(self, t: TestApp) -> None:
        job = ((fetch.s("x").undo(note)) | fail | note).enqueue()
        t.drain(future=True)
        assert sent == ["X"]
        assert t.flows.get(job.id).state == "failed"
        with pytest.raises(JobCancelled, match="ValueError: X"):
            job.result(timeout=0)


@pytest.mark.row("B12", "F4", "F6")
class TestClock:
    def test_the_time_limit_of_a_flow(self, t: TestApp) -> None:
        job = (fetch.s("x") | fail).flow(time_limit="30m").enqueue()
        t.drain()
        assert t.flows.get(job.id).state == "running", "the second attempt is due in an hour"
        t.advance("31m")
        assert t.flows.get(job.id).state == "expired"
        t.advance("2h")
        assert job.info().state == "cancelled"

    def test_a_batch_that_is_left_open(self, t: TestApp) -> None:
        batch = app.flows.batch("import", hold="1h", on_finished=note.s("end")).open()
        batch.add(note.s("member"))
        t.advance("59m")
        assert (sent, t.flows.get(batch.id).state) == (["member"], "running")
        t.advance("2m")
        assert t.flows.get(batch.id).state == "failed"

    def test_an_ended_flow_is_pruned_whole(self, t: TestApp) -> None:
        (fetch.s("a b") | words).each(length).enqueue()
        t.drain()
        assert t.jobs.count().total > 5
        t.clock.advance("8d")
        t.drain()
        assert t.jobs.count().total == 0


@pytest.mark.row("B12", "F1", "F2", "F5")
class TestShapes:
    def test_a_flow_with_the_same_shape_is_found(self, t: TestApp) -> None:
        flow = (fetch.s("a b") | words).each(length, factor=2) | total
        job = flow.enqueue()
        assert t.assert_flow((fetch.s("a b") | words).each(length, factor=2) | total).id == t.flows.get(job.id).id
        t.drain()
        assert t.assert_flow((fetch.s("a b") | words).each(length, factor=2) | total).state == "succeeded"

    @pytest.mark.parametrize(
        "other",
        [
            lambda: (fetch.s("a b") | words).each(length),
            lambda: fetch.s("a c") | words,
            lambda: group(fetch.s("a b"), words.s("x")),
            lambda: fetch.s("a b") | words.s("a b"),
            lambda: (fetch.s("a b") | words).when("ignore"),
            lambda: fetch.s("a b").undo(note) | words,
        ],
        ids=["longer", "another argument", "a group", "without the result", "another policy", "a compensation"],
    )
    def test_another_shape_is_not(self, t: TestApp, other: Any) -> None:
        (fetch.s("a b") | words).enqueue()
        with pytest.raises(AssertionError, match=r"(?s)No flow of this shape .*Enqueued were:\n  flow"):
            t.assert_flow(other())

    def test_the_message_lists_both(self, t: TestApp) -> None:
        (group(fetch.s("a"), fetch.s("b")) | note.s("done")).flow(name="report").enqueue()
        with pytest.raises(AssertionError) as raised:
            t.assert_flow(fetch.s("a") | words)
        assert str(raised.value).splitlines() == [
            "No flow of this shape was enqueued:",
            "  fetch(url='a')",
            "  words() after fetch",
            "Enqueued were:",
            "  flow report",
            "    fetch(url='a')",
            "    fetch(url='b')",
            "    note(what='done') after a group",
        ]

    def test_graphs_options_and_large_groups(self, t: TestApp) -> None:
        def build(last: str) -> Dag:
            dag = Dag()
            first = dag.add(fetch.s("x"))
            dag.add(note.s(first.result), when="skip")
            dag.add(note.s(last), after=[first])
            return dag

        build("end").enqueue()
        t.assert_flow(build("end"))
        with pytest.raises(AssertionError):
            t.assert_flow(build("start"))
        (fetch.s("y").options(queue="slow") | words).flow(key="k", tags=["x"]).enqueue()
        t.assert_flow(fetch.s("y") | words)
        (group(length.s("abc") for _ in range(1_200)) | total).enqueue()
        t.assert_flow(group(length.s("abc") for _ in range(1_200)) | total)

    def test_one_job_is_no_flow(self, t: TestApp) -> None:
        fetch.enqueue("x")
        with pytest.raises(InvalidOption, match="is one job, not a flow"):
            t.assert_flow(fetch.s("x"))
        with pytest.raises(InvalidOption, match="is not a flow"):
            t.assert_flow(fetch)  # type: ignore[arg-type]  # the checker refuses it as well
        with pytest.raises(AssertionError, match="No flow was enqueued"):
            t.assert_flow(fetch.s("x") | words)

    def test_joins_are_not_among_the_enqueued_jobs(self, t: TestApp) -> None:
        (group(fetch.s("a"), fetch.s("b")) | note.s("x")).enqueue()
        assert sorted(job.task for job in t.enqueued()) == ["fetch", "fetch", "note"]
        assert t.assert_enqueued(fetch, "a").flow == t.flows.list()[0].id
        with pytest.raises(AssertionError) as raised:
            t.assert_enqueued(words)
        assert "mainspring." not in str(raised.value)
