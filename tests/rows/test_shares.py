"""Q7: queues with weights share the claims of a worker; what one does not use is lent at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption, UnknownOption
from mainspring.states import State
from tests.rows.crew import LIMIT, until

WEIGHTS = {"gold": 5, "silver": 3, "bronze": 2}


def declare(app: Mainspring, ran: list[str], *, kind: str = "async") -> Any:
    """A task that notes the queue that its job came from."""
    for name, weight in WEIGHTS.items():
        app.queue(name, weight=weight)

    async def note(queue: str) -> None:
        ran.append(queue)

    def note_in_thread(queue: str) -> None:
        ran.append(queue)

    return app.task(name="note")(note if kind == "async" else note_in_thread)


def fill(app: Mainspring, note: Any, each: dict[str, int]) -> None:
    calls = [note.options(queue=queue).s(queue) for queue, n in each.items() for _ in range(n)]
    for start in range(0, len(calls), 1000):
        app.enqueue_many(calls[start : start + 1000])


def in_percent(ran: list[str]) -> dict[str, float]:
    return {queue: 100 * n / len(ran) for queue, n in Counter(ran).items()}


def is_fair(shares: dict[str, float]) -> bool:
    """Whether each queue is within five points of its weight."""
    return all(abs(shares.get(queue, 0) - 10 * weight) <= 5 for queue, weight in WEIGHTS.items())


@pytest.mark.row("Q7")
class TestWeights:
    @pytest.mark.option("queue.weight")
    @pytest.mark.parametrize("kind", ["async", "thread"])
    def test_backlogged_queues_share_by_weight_within_five_points(self, app: Mainspring, kind: str) -> None:
        """The jobs of one queue are enqueued before those of the next, so that another order would show. Counted
        while all queues have jobs.
        """
        ran: list[str] = []
        note = declare(app, ran, kind=kind)
        fill(app, note, dict.fromkeys(WEIGHTS, 1200))
        with app.worker():
            until(lambda: len(ran) == 3600, "all have run")
        backlogged = ran[: min(len(ran) - 1 - ran[::-1].index("gold"), 2000)]
        shares = in_percent(backlogged)
        assert all(abs(shares[queue] - 10 * weight) <= 5 for queue, weight in WEIGHTS.items()), shares

    @pytest.mark.parametrize("kind", ["async", "thread"])
    def test_empty_jobs_start_interleaved_by_weight(self, app: Mainspring, kind: str) -> None:
        """Empty jobs are claimed in large numbers. The shares hold in every hundred jobs that start one after the
        other, not only in a whole claim, also in the claim that takes the last jobs of a queue.
        """
        ran: list[str] = []
        note = declare(app, ran, kind=kind)
        fill(app, note, dict.fromkeys(WEIGHTS, 1200))
        with app.worker(thread_slots=1):  # several threads may note their starts in another order
            until(lambda: len(ran) == 3600, "all have run")
        backlogged = ran[: len(ran) - ran[::-1].index("gold")]
        windows = [backlogged[start : start + 100] for start in range(len(backlogged) - 99)]
        off = [shares for shares in map(in_percent, windows) if not is_fair(shares)]
        assert not off, f"{len(off)} of {len(windows)} windows, for example {off[:1]}"

    @pytest.mark.parametrize("kind", ["async", "thread"])
    def test_a_backlog_that_fits_into_one_claim_starts_by_weight(self, app: Mainspring, kind: str) -> None:
        """The first claim asks for hundreds of jobs and finds sixty of each queue."""
        ran: list[str] = []
        note = declare(app, ran, kind=kind)
        warm_up = app.task(name="warm_up", queue="gold")(note.fn)
        jobs = app.enqueue_many([warm_up.s("gold") for _ in range(1000)])
        with app.worker(thread_slots=1):
            for job in jobs:  # the worker learns that the bodies are short, and claims far ahead
                job.join(timeout=LIMIT)
            ran.clear()
            fill(app, note, dict.fromkeys(WEIGHTS, 60))  # one batch: a worker sees all of its jobs or none
            until(lambda: len(ran) == 180, "all have run")
        shares = in_percent(ran[:120])  # gold 60, silver 36, bronze 24
        assert all(abs(shares[queue] - 10 * weight) <= 5 for queue, weight in WEIGHTS.items()), shares

    def test_a_worker_with_one_slot_shares_by_weight_too(self, app: Mainspring) -> None:
        """The jobs are too long to be claimed ahead, so the share of a queue is less than one job."""
        ran: list[str] = []
        for name, weight in WEIGHTS.items():
            app.queue(name, weight=weight)

        @app.task(name="note")
        async def note(queue: str) -> None:
            ran.append(queue)
            await asyncio.sleep(0.011)

        fill(app, note, dict.fromkeys(WEIGHTS, 60))
        with app.worker(async_slots=1, thread_slots=0):
            until(lambda: len(ran) >= 100, "a hundred have run")
        shares = in_percent(ran[:100])
        assert all(abs(shares[queue] - 10 * weight) <= 5 for queue, weight in WEIGHTS.items()), shares

    def test_an_unused_share_goes_to_the_other_queues(self, app: Mainspring) -> None:
        """Every slot runs a job of the lightest queue while the other queues are empty."""
        slots, inside = 8, 0
        for name, weight in WEIGHTS.items():
            app.queue(name, weight=weight)
        met = asyncio.Event()

        @app.task(name="meet", queue="bronze")
        async def meet() -> None:
            nonlocal inside
            inside += 1
            if inside == slots:
                met.set()
            await met.wait()

        jobs = app.enqueue_many([meet.s() for _ in range(slots)])
        with app.worker(async_slots=slots, thread_slots=2):
            assert {job.join(timeout=LIMIT).state for job in jobs} == {State.SUCCEEDED}

    def test_the_lightest_queue_does_not_starve(self, app: Mainspring) -> None:
        """Its weight is one thousandth. Its job starts long before the backlog of the other queue ends."""
        ran: list[str] = []
        app.queue("flood", weight=1000)

        @app.task(name="note")
        async def note(queue: str) -> None:
            ran.append(queue)

        fill(app, note, {"flood": 3000, "default": 2})
        with app.worker(async_slots=4, thread_slots=0):
            until(lambda: len(ran) == 3002, "all have run")
        assert ran.index("default") < 2000

    def test_priorities_apply_inside_a_queue_only(self, app: Mainspring) -> None:
        ran: list[str] = []
        for name in ("one", "two"):
            app.queue(name, weight=10)

        @app.task(name="note")
        async def note(name: str) -> None:
            ran.append(name)
            await asyncio.sleep(0.011)

        urgent = note.options(queue="one", priority="critical")
        usual, lesser = note.options(queue="two"), note.options(queue="two", priority="low")
        app.enqueue_many([lesser.s("lesser"), *(urgent.s("urgent") for _ in range(10)), usual.s("usual")])
        with app.worker(async_slots=1, thread_slots=0):
            until(lambda: len(ran) == 12, "all have run")
        assert max(ran.index("usual"), ran.index("lesser")) <= 4
        assert ran.index("usual") < ran.index("lesser")

    def test_concurrency_applies_together_with_weights(self, app: Mainspring) -> None:
        now: Counter[str] = Counter()
        most: Counter[str] = Counter()
        for name, weight in WEIGHTS.items():
            app.queue(name, weight=weight)

        @app.task(name="note")
        async def note(queue: str) -> None:
            now[queue] += 1
            most[queue] = max(most[queue], now[queue])
            await asyncio.sleep(0.002)
            now[queue] -= 1

        fill(app, note, dict.fromkeys(WEIGHTS, 60))
        with app.worker(async_slots=16, thread_slots=0, concurrency={"gold": 2}, until_empty=True) as worker:
            until(lambda: sum(app.jobs.count().values()) == app.jobs.count()[State.SUCCEEDED], "all have run")
        assert worker.exit_code == 0
        assert most["gold"] == 2
        assert most["silver"] > 2


@pytest.mark.stores("sqlite")
class TestDeclaring:
    def test_a_worker_serves_declared_queues_that_no_task_names(self, app: Mainspring) -> None:
        app.queue("premium", weight=5)

        @app.task(name="work")
        async def work() -> str:
            return "done"

        with app.worker():
            assert "premium" in app.workers.list()[0].queues
            assert work.options(queue="premium").enqueue().result(timeout=LIMIT) == "done"

    def test_the_queue_object_can_be_used_as_its_name(self, app: Mainspring) -> None:
        premium, other = app.queue("premium", weight=5), app.queue("other")

        @app.task(name="work", queue=premium)
        async def work() -> None: ...

        assert (work.queue, work.enqueue().info().queue) == ("premium", "premium")
        assert work.options(queue=other).enqueue().info().queue == "other"
        assert (premium.name, premium.options["weight"], other.options["weight"]) == ("premium", 5, 1)

    def test_a_second_declaration_of_a_queue_must_be_equal(self, app: Mainspring) -> None:
        first = app.queue("premium", weight=5)
        assert app.queue("premium", weight=5) == first
        with pytest.raises(InvalidOption, match=r"already declared as Queue\('premium', weight=5\)"):
            app.queue("premium", weight=4)
        with pytest.raises(InvalidOption, match="already declared"):
            app.queue("premium")

    @pytest.mark.parametrize("weight", [0, -1, True, "5", None, float("nan"), float("inf"), 2_000_000])
    def test_a_bad_weight_is_refused(self, app: Mainspring, weight: Any) -> None:
        with pytest.raises(InvalidOption, match=r"queue 'premium': weight=.*must be a number"):
            app.queue("premium", weight=weight)

    def test_a_bad_queue_name_is_refused(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match="not a queue name"):
            app.queue("pre mium")

    def test_unknown_options_are_refused(self, app: Mainspring) -> None:
        with pytest.raises(UnknownOption, match="did you mean 'weight'"):
            app.queue("premium", wieght=5)  # type: ignore[call-arg]
        with pytest.raises(UnknownOption, match=r"'retries' is an option of task\.options"):
            app.queue("premium", retries=5)  # type: ignore[call-arg]
