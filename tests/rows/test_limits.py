"""R9, R11, B5: limits of the whole fleet, and why a job does not run."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainspring import Concurrency, Mainspring, Rate, RateLimited
from mainspring.common.pause import GrowingPause
from mainspring.errors import InvalidOption, LimitTimeout, NotFound
from mainspring.limits import limiter
from mainspring.states import State
from mainspring.worker.run.rate_slots import RateSlots
from tests.rows.crew import LIMIT, Crew, Tasks, until
from tests.timing import short_settings


class Gauge:
    """How many are inside at once, by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: dict[object, int] = {}
        self.most: dict[object, int] = {}
        self.total = 0
        self.most_in_all = 0

    def __call__(self, key: object, seconds: float = 0.02) -> None:
        with self._lock:
            self._now[key] = self._now.get(key, 0) + 1
            self.most[key] = max(self.most.get(key, 0), self._now[key])
            self.total += 1
            self.most_in_all = max(self.most_in_all, sum(self._now.values()))
        time.sleep(seconds)
        with self._lock:
            self._now[key] -= 1


@pytest.mark.row("R11")
class TestConcurrency:
    @pytest.mark.option("task.limit")
    def test_a_task_is_limited_in_the_whole_fleet(self, app: Mainspring) -> None:
        """Two workers with many slots: never more than three jobs run at once, and all of them run."""
        gauge = Gauge()

        @app.task(limit=Concurrency(3))
        def work(n: int) -> int:
            gauge("all")
            return n

        jobs = app.enqueue_many(work.s(n) for n in range(40))
        with app.worker(), app.worker():
            assert [job.result(timeout=LIMIT) for job in jobs] == list(range(40))
        assert gauge.most["all"] == 3

    def test_each_key_has_its_own_limit(self, app: Mainspring) -> None:
        gauge = Gauge()

        @app.task(limit=Concurrency(1, by="tenant"))
        def work(tenant: str, n: int) -> None:
            gauge(tenant)

        jobs = app.enqueue_many(work.s(tenant, n) for n in range(6) for tenant in ("a", "b", "c"))
        with app.worker(), app.worker():
            for job in jobs:
                job.result(timeout=LIMIT)
        assert set(gauge.most.values()) == {1}
        assert gauge.most_in_all > 1

    def test_tasks_share_a_limiter(self, app: Mainspring) -> None:
        gauge = Gauge()
        together = app.limiter("billing", Concurrency(1))

        @app.task(name="limits.charge", limit=together)
        def charge(n: int) -> None:
            gauge("billing")

        @app.task(name="limits.refund", limit=together)
        def refund(n: int) -> None:
            gauge("billing")

        jobs = app.enqueue_many(each.s(n) for n in range(6) for each in (charge, refund))
        with app.worker():
            for job in jobs:
                job.result(timeout=LIMIT)
        assert (gauge.most["billing"], gauge.total) == (1, 12)

    def test_a_limiter_has_one_set_of_limits(self, app: Mainspring) -> None:
        """The same declaration is accepted twice, because a module can be run twice."""
        app.limiter("api", Rate(100, per="1s"), Concurrency(2))
        app.limiter("api", Rate(100, per="1s"), Concurrency(2))
        for limits in ([Rate(100, per="1s")], [Rate(100, per="1s"), Concurrency(3)], [Concurrency(2, by="who")]):
            with pytest.raises(InvalidOption, match="other limits"):
                app.limiter("api", *limits)

    def test_a_task_named_like_a_limiter_has_its_own_limits(self, app: Mainspring) -> None:
        shared = app.limiter("limits.same", Concurrency(1))

        @app.task(name="limits.same", limit=Concurrency(1))
        def work() -> int:
            return 7

        with app.worker(), shared:
            assert work.enqueue().result(timeout=LIMIT) == 7
        assert [limit.name for limit in app.limits.list()] == ["limiter/limits.same:at-once", "limits.same:at-once"]

    def test_a_limit_is_changed_at_run_time(self, app: Mainspring) -> None:
        inside, go_on = threading.Semaphore(0), threading.Event()

        @app.task(name="limits.slow", limit=Concurrency(1))
        def slow() -> None:
            inside.release()
            go_on.wait(LIMIT)

        jobs = app.enqueue_many(slow.s() for _ in range(3))
        with app.worker():
            assert inside.acquire(timeout=LIMIT)
            app.limits.set("limits.slow:at-once", 2)
            assert inside.acquire(timeout=LIMIT)
            assert app.limits.get("limits.slow:at-once").used == 2
            app.limits.set("limits.slow:at-once", 1)
            info = app.limits.get("limits.slow:at-once")
            assert (info.size, info.declared, info.used) == (1, 1, 2)
            go_on.set()
            for job in jobs:
                job.result(timeout=LIMIT)
            app.limits.reset("limits.slow:at-once")

    def test_unknown_limits_are_refused(self, app: Mainspring) -> None:
        for verb in (lambda: app.limits.set("nobody", 1), lambda: app.limits.reset("nobody"),
                     lambda: app.limits.get("nobody"), lambda: app.limits.delete("nobody")):  # fmt: skip
            with pytest.raises(NotFound, match="not in the store"):
                verb()

    def test_the_size_in_the_last_code_applies(self, app: Mainspring, store_url: str) -> None:
        @app.task(name="limits.sized", limit=Concurrency(1))
        def sized() -> None: ...

        sized.enqueue()
        newer = Mainspring(store_url, poll="200ms")

        @newer.task(name="limits.sized", limit=Concurrency(7))
        def sized_anew() -> None: ...

        with newer.worker():
            until(lambda: app.limits.get("limits.sized:at-once").size == 7, "the worker declares it")
        assert app.limits.get("limits.sized:at-once").size == 7
        newer.close()

    def test_the_places_of_a_killed_process_are_released(self, tasks: Tasks, crew: Crew, tmp_path: Path) -> None:
        """A process is killed while its job holds a place. Another worker runs the job under the same limit."""
        app = tasks.app
        held = tasks.held.enqueue()
        doomed = crew.start()
        until(lambda: held.info().state is State.RUNNING, "it runs")
        doomed.kill()
        crew.start()
        others = app.enqueue_many(tasks.held.s() for _ in range(3))
        tasks.say("go_on")
        for job in (held, *others):
            job.result(timeout=LIMIT)
        assert app.limits.get("crew.held:at-once").used == 0


@pytest.mark.row("R9")
class TestRate:
    def test_a_rate_starts_no_more_jobs_in_any_window(self, app: Mainspring) -> None:
        """The test counts the start times that the store recorded."""

        @app.task(limit=Rate(10, per="500ms"))
        async def call(n: int) -> None: ...

        jobs = app.enqueue_many(call.s(n) for n in range(40))
        with app.worker(), app.worker():
            starts = sorted(job.join(timeout=LIMIT).started for job in jobs)  # type: ignore[type-var]  # all of them started
        assert all(job.info().attempt == 1 for job in jobs)
        for first, beyond in zip(starts, starts[10:], strict=False):
            assert (beyond - first).total_seconds() >= 0.5  # type: ignore[operator]  # all of them started

    @pytest.mark.parametrize("kind", ["async", "thread"])
    def test_a_handler_sees_at_most_the_rate_plus_one(self, app: Mainspring, kind: str) -> None:
        """By its own clock, although a neighbour holds the worker up: then claimed jobs start late, and the jobs of the
        next window must not start too soon after them.
        """
        n, per, starts = 10, 0.4, list[float]()

        async def on_loop(number: int) -> None:
            starts.append(time.monotonic())

        def in_thread(number: int) -> None:
            starts.append(time.monotonic())

        @app.task(queue="rude")
        async def hold_up() -> None:
            while len(starts) < 6 * n:
                for _ in range(8):  # a turn goes out between two blocks, and its answer is read after the next one
                    time.sleep(0.1)  # noqa: ASYNC251 - it blocks the loop of the worker: that is the fault
                    await asyncio.sleep(0)
                await asyncio.sleep(per)

        call = app.task(name="call", limit=Rate(n, per=per))(on_loop if kind == "async" else in_thread)
        jobs = app.enqueue_many([call.s(number) for number in range(6 * n)])
        hold_up.enqueue()
        with app.worker(thread_slots=n):
            for job in jobs:
                job.join(timeout=LIMIT)
        starts.sort()
        crowded = [later - first for first, later in zip(starts, starts[n + 1 :], strict=False) if later - first < per]
        assert not crowded, f"{n + 2} starts within {min(crowded):.3f} s, {len(crowded)} times"

    @pytest.mark.parametrize("kind", ["async", "thread"])
    def test_a_cancelled_job_does_not_wait_for_its_slot_in_the_rate(
        self, app: Mainspring, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = threading.Event()

        def wait_an_hour(*_: object) -> float:
            asked.set()
            return 3600.0

        monkeypatch.setattr(RateSlots, "seconds_until_start", wait_an_hour)

        async def on_loop() -> None: ...

        def in_thread() -> None: ...

        call = app.task(name="call", limit=Rate(5, per="1h"))(on_loop if kind == "async" else in_thread)
        job = call.enqueue()
        with app.worker():
            assert asked.wait(LIMIT)
            job.cancel()
            assert job.join(timeout=LIMIT).state is State.CANCELLED

    def test_a_handler_lowers_the_rate(self, app: Mainspring) -> None:
        tried: list[float] = []

        @app.task(limit=Rate(100, per="1s"), retries=0)
        def call(n: int) -> int:
            tried.append(time.monotonic())
            if len(tried) == 1:
                raise RateLimited(retry_after="1s")
            return n

        first = call.enqueue(1)
        with app.worker(thread_slots=1):
            until(lambda: tried, "the first is tried")
            second = call.enqueue(2)
            assert (first.result(timeout=LIMIT), second.result(timeout=LIMIT)) == (1, 2)
        assert all(later - tried[0] >= 0.9 for later in tried[1:])
        assert first.info().attempt == 1

    def test_blocks_obey_a_limiter(self, app: Mainspring) -> None:
        limiter = app.limiter("api", Rate(3, per="1s"), Concurrency(2))
        entered: list[float] = []

        def sync_code() -> None:
            with limiter:
                entered.append(time.monotonic())

        async def async_code() -> None:
            async with limiter:
                entered.append(time.monotonic())

        async def several() -> None:
            await asyncio.gather(*(async_code() for _ in range(3)))
            await app.aclose()

        for _ in range(3):
            sync_code()
        asyncio.run(several())
        entered.sort()
        assert len(entered) == 6
        assert entered[3] - entered[0] >= 0.9
        assert app.limits.get("limiter/api:at-once").used == 0

    def test_a_backlog_of_jobs_does_not_starve_blocks(self, app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
        """A worker releases a place and takes it again in one step, so a block never finds the place free."""
        asked, go_on = threading.Event(), threading.Event()
        order: list[str] = []

        class RefusedOnce(GrowingPause):
            """The pause of the block, after the store refused it."""

            def next(self) -> float:
                asked.set()
                return super().next()

        monkeypatch.setattr(limiter, "KEEP", int(LIMIT * 1e6))
        monkeypatch.setattr(limiter, "GrowingPause", RefusedOnce)
        one = app.limiter("one", Concurrency(1))

        @app.task(name="backlog.job", limit=one)
        def work() -> None:
            order.append("job")
            go_on.wait(LIMIT)

        def enter() -> None:
            with one.at(wait=LIMIT):
                order.append("block")

        jobs = app.enqueue_many(work.s() for _ in range(5))
        with app.worker(), ThreadPoolExecutor(1) as pool:
            until(lambda: order, "the first runs")
            block = pool.submit(enter)
            assert asked.wait(LIMIT)
            go_on.set()
            block.result(LIMIT)
            for job in jobs:
                job.join(timeout=LIMIT)
        assert order == ["job", "block", *["job"] * 4]

    def test_a_block_raises_limit_timeout_after_its_wait(self, app: Mainspring) -> None:
        limiter = app.limiter("one", Concurrency(1, by="who"))
        hurried = limiter.at(key="a", wait="100ms")
        with limiter.at(key="a"), limiter.at(key="b"), pytest.raises(LimitTimeout, match="one:at-once/who=a"), hurried:
            raise AssertionError("there was no room")
        with pytest.raises(InvalidOption, match="needs a key"), limiter:
            raise AssertionError("whose room?")


@pytest.mark.row("B5")
class TestWhy:
    def test_why_names_the_limit_that_delays_a_job(self, app: Mainspring) -> None:
        go_on = threading.Event()

        @app.task(name="why.slow", limit=Concurrency(1, by="who"))
        def slow(who: str) -> None:
            go_on.wait(LIMIT)

        @app.task(name="why.rare", limit=Rate(1, per="1h"))
        def rare() -> None: ...

        later = slow.options(delay="1h").enqueue("a")
        first, second = slow.enqueue("a"), slow.enqueue("a")
        assert {each.kind for each in first.why().obstacles} == {"no_worker"}
        with app.worker():
            until(lambda: first.info().state is State.RUNNING, "the first runs")
            (why,) = second.why().obstacles
            assert (why.kind, why.jobs, why.name) == ("limit", (first.id,), "why.slow:at-once/who=a")
            assert "(1/1)" in why.text
            assert [each.kind for each in later.why().obstacles] == ["not_due", "limit"]
            assert first.why().obstacles[0].kind == "running"
            rares = app.enqueue_many(rare.s() for _ in range(2))
            until(lambda: any(job.info().state is State.SUCCEEDED for job in rares), "one ran")
            waiting = next(job for job in rares if job.info().state is not State.SUCCEEDED)
            (why,) = waiting.why().obstacles
            assert why.kind == "rate"
            assert why.until is not None
            app.queues.pause("default")
            assert "paused" in {each.kind for each in second.why().obstacles}
            app.queues.resume("default")
            go_on.set()
            second.result(timeout=LIMIT)
            assert second.why().obstacles[0].kind == "ended"
            assert "ended as succeeded" in str(second.why())
            by_name = app.call("nobody.knows").enqueue()
            until(lambda: {each.kind for each in by_name.why().obstacles} == {"unknown_task"}, "it is parked")

    def test_why_names_a_job_of_higher_cost_ahead(self, app: Mainspring) -> None:
        """Jobs of one lane start in order: a cheaper job does not overtake."""

        @app.task(name="why.dear", limit=Rate(3, per="1h", cost="cost"))
        def work(cost: int) -> None: ...

        first, dear, cheap = (work.enqueue(cost) for cost in (2, 2, 1))
        with app.worker():
            first.join(timeout=LIMIT)
            (why,) = until(lambda: [each for each in cheap.why().obstacles if each.kind == "rate"])
            assert (why.jobs, why.until) == ((dear.id,), dear.why().obstacles[0].until)
            dear.cancel()
            assert cheap.join(timeout=LIMIT).state == "succeeded"

    def test_why_says_that_all_workers_have_reached_the_concurrency_of_the_queue(self, app: Mainspring) -> None:
        """Until a worker has a free place."""
        go_on = threading.Event()

        @app.task(name="why.capped", queue="capped")
        def work() -> None:
            go_on.wait(LIMIT)

        jobs = app.enqueue_many(work.s() for _ in range(4))
        with app.worker(concurrency={"capped": 2}, thread_slots=9):
            until(lambda: sum(job.info().state is State.RUNNING for job in jobs) == 2, "two run")
            first, *_ = waiting = [job for job in jobs if job.info().state is State.READY]
            (why,) = first.why().obstacles
            assert (why.kind, why.name, set(why.jobs)) == (
                "capped",
                "capped",
                {job.id for job in jobs if job not in waiting},
            )
            assert "(2/2)" in why.text
            with app.worker(queues="other"):
                assert first.why().obstacles == (why,)
            with app.worker(queues="capped", thread_slots=1, concurrency={"capped": 3}):
                until(lambda: any(job.info().state is State.RUNNING for job in waiting), "a third runs")
                (last,) = [job for job in waiting if job.info().state is State.READY]
                assert last.why().obstacles == ()
                go_on.set()
                for job in jobs:
                    job.join(timeout=LIMIT)

    def test_why_names_missing_labels_and_versions(self, store_url: str) -> None:
        def train() -> None: ...

        old, new = (
            Mainspring(store_url, version="1", **short_settings()),
            Mainspring(store_url, version="2", **short_settings()),
        )
        pinned = old.task(name="why.pinned", pin_version=True)(train).enqueue()
        labelled = new.task(name="why.labelled", needs={"gpu"})(train).enqueue()
        new.task(name="why.pinned", pin_version=True)(train)
        with new.worker():
            assert [(each.kind, each.name) for each in pinned.why().obstacles] == [("version", "1")]
            assert [(each.kind, each.name) for each in labelled.why().obstacles] == [("labels", "gpu")]
        with new.worker(labels={"gpu"}):
            labelled.result(timeout=LIMIT)
        old.close()
        new.close()

    def test_why_reports_no_obstacle_for_a_job_of_the_next_turn(self, app: Mainspring) -> None:
        gone = threading.Event()

        @app.task(name="why.free")
        def free() -> None:
            gone.set()

        @app.task(name="why.block")
        def block() -> None:
            gone.wait(LIMIT)

        with app.worker(thread_slots=1, async_slots=0):
            blocking = block.enqueue()
            until(lambda: blocking.info().state is State.RUNNING, "the slot is taken")
            waiting = free.enqueue()
            assert waiting.why().obstacles == ()
            gone.set()
            waiting.result(timeout=LIMIT)
