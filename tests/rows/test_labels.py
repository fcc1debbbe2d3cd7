"""D5 (labels): a job of a task with needs runs only where all of them are met; and version pins, by the same means."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption
from mainspring.jobs.outcomes import Outcome
from mainspring.states import State
from tests.rows.crew import LIMIT, until
from tests.timing import short_settings

Make = Callable[..., Mainspring]


@pytest.fixture
def fleet(store_url: str) -> Iterator[Make]:
    """Apps on one store with the same tasks: each stands for a machine. ``ran`` has who ran what."""
    apps: list[Mainspring] = []

    def make(ran: list[tuple[str, str]] | None = None, name: str = "", **given: Any) -> Mainspring:
        app = Mainspring(store_url, **{**short_settings(), **given})
        apps.append(app)
        seen = [] if ran is None else ran

        @app.task(name="train", needs={"gpu"})
        def train() -> None:
            seen.append(("train", name))

        @app.task(name="train_much", needs=["gpu", "big"])
        async def train_much() -> None:
            seen.append(("train_much", name))

        @app.task(name="infer")
        def infer() -> None:
            seen.append(("infer", name))

        return app

    yield make
    for app in apps:
        app.close()


def call(app: Mainspring, task: str) -> Any:
    return app.call(task)


@pytest.mark.row("D5")
class TestLabels:
    @pytest.mark.option("task.needs", "worker.labels")
    def test_training_never_runs_without_the_label_while_inference_does(self, fleet: Make) -> None:
        ran: list[tuple[str, str]] = []
        plain, gpu = fleet(ran, "plain"), fleet(ran, "gpu", labels=["nothing"])
        training = plain.enqueue_many([call(plain, "train") for _ in range(10)])
        with plain.worker():
            for _ in range(10):
                assert call(plain, "infer").enqueue().join(timeout=LIMIT).state is State.SUCCEEDED
            assert {job.info().state for job in training} == {State.READY}
            assert not any(job.info().attempts for job in training), "not even claimed and handed back"
            with gpu.worker(labels={"gpu"}):
                assert {job.join(timeout=LIMIT).state for job in training} == {State.SUCCEEDED}
        assert {who for task, who in ran if task == "train"} == {"gpu"}
        assert ("infer", "plain") in ran

    def test_all_labels_are_needed(self, fleet: Make) -> None:
        ran: list[tuple[str, str]] = []
        one, both = fleet(ran, "one"), fleet(ran, "both")
        much, little = call(one, "train_much").enqueue(), call(one, "train").enqueue()
        with one.worker(labels="gpu"):
            assert little.join(timeout=LIMIT).state is State.SUCCEEDED
            assert much.info().state is State.READY
            with both.worker(labels="gpu, big, other"):
                assert much.join(timeout=LIMIT).state is State.SUCCEEDED
        assert ("train_much", "both") in ran

    def test_a_job_by_name_is_left_to_the_labelled_ones_without_an_attempt(self, fleet: Make) -> None:
        """The producer does not know the needs; who finds out hands it back once, and is not given it again."""
        ran: list[tuple[str, str]] = []
        plain, gpu = fleet(ran, "plain"), fleet(ran, "gpu")
        stranger = Mainspring(gpu.settings.url)
        job = stranger.call("train").enqueue()
        with plain.worker():
            until(lambda: job.info().attempts, "handed back")
            for _ in range(20):
                assert call(plain, "infer").enqueue().join(timeout=LIMIT).state is State.SUCCEEDED
            info = job.info()
            assert (info.state, info.attempt) == (State.READY, 0)
            assert [each.outcome for each in info.attempts] == [Outcome.INTERRUPTED]
            with gpu.worker(labels=["gpu"]):
                assert job.join(timeout=LIMIT).attempt == 1
        assert ("train", "gpu") in ran
        stranger.close()

    def test_a_job_that_waits_since_before_the_need_is_left_to_them_too(self, fleet: Make) -> None:
        ran: list[tuple[str, str]] = []
        before, plain, gpu = Mainspring(fleet().settings.url), fleet(ran, "plain"), fleet(ran, "gpu")

        @before.task(name="train")
        def train() -> None: ...

        job = train.enqueue()
        with plain.worker(until_empty=True) as worker:
            until(lambda: worker.exit_code == 0, "it finds nothing that it could do")
        assert job.info().state is State.READY
        with gpu.worker(labels=["gpu"]):
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        assert ran == [("train", "gpu")]
        before.close()

    def test_a_need_that_changed_leaves_no_job_behind(self, fleet: Make) -> None:
        """Jobs keep what they were enqueued with; who has what both ask for runs them."""
        ran: list[tuple[str, str]] = []
        before, after = Mainspring(fleet().settings.url), fleet(ran, "after")

        @before.task(name="infer", needs={"cuda"})
        def infer() -> None: ...

        job = infer.enqueue()
        with after.worker(labels=["cuda"]):
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        before.close()

    @pytest.mark.parametrize("needs", [{"cuda"}, set()], ids=["one of two", "none"])
    def test_needs_that_were_taken_off_leave_no_job_behind(self, fleet: Make, needs: set[str]) -> None:
        before, after = Mainspring(fleet().settings.url), Mainspring(fleet().settings.url, **short_settings())

        @before.task(name="infer", needs={"cuda", "large"})
        def infer() -> None: ...

        @after.task(name="infer", needs=needs)
        def infer_now() -> None: ...

        job = infer.enqueue()
        with after.worker(labels=["cuda", "large"]):
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        before.close()
        after.close()

    def test_why_tells_when_a_worker_does_not_ask_for_such_jobs(self, fleet: Make) -> None:
        """Of many labels not every set is asked for: what a task needed once is left behind, and that is told."""
        before, after = Mainspring(fleet().settings.url), Mainspring(fleet().settings.url, **short_settings())

        @before.task(name="infer", needs={"a", "b"})
        def infer() -> None: ...

        @after.task(name="infer")
        async def infer_now() -> None: ...

        job = infer.enqueue()
        with after.worker(labels=["a", "b", "c", "d"]):
            until(lambda: [each.kind for each in job.why().obstacles] == ["no_worker"])
            assert "claims jobs with these labels" in str(job.why())
        with after.worker(labels=["a", "b", "c"]):
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        before.close()
        after.close()

    def test_a_retry_needs_the_label_too(self, fleet: Make) -> None:
        app, tries = fleet(), list[int]()

        @app.task(name="flaky", needs={"gpu"}, retries=1, backoff="10ms")
        def flaky() -> None:
            tries.append(1)
            if len(tries) == 1:
                raise ValueError

        job = flaky.enqueue()
        with app.worker(labels=["gpu"]):
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        assert len(tries) == 2

    def test_a_worker_tells_its_labels_and_what_it_can_run(self, fleet: Make) -> None:
        app = fleet()
        with app.worker(labels={"gpu", "a100"}):
            [told] = app.workers.list()
        assert told.labels == ("a100", "gpu")
        assert set(told.tasks) == {"train", "infer"}

    @pytest.mark.option("app.labels")
    def test_labels_of_the_app_are_those_of_its_workers(self, fleet: Make) -> None:
        app = fleet(labels="gpu,big")
        with app.worker():
            assert app.workers.list()[0].labels == ("big", "gpu")
            assert call(app, "train_much").enqueue().join(timeout=LIMIT).state is State.SUCCEEDED

    def test_a_worker_until_empty_does_not_wait_for_what_it_cannot_run(self, fleet: Make) -> None:
        app = fleet()
        waits, runs = call(app, "train").enqueue(), call(app, "infer").enqueue()
        with app.worker(until_empty=True) as worker:
            until(lambda: worker.exit_code == 0, "it ends")
        assert (waits.info().state, runs.info().state) == (State.READY, State.SUCCEEDED)

    def test_a_test_has_every_label(self, fleet: Make) -> None:
        app = fleet()
        with app.test() as t:
            job = call(app, "train_much").enqueue()
            t.drain()
            assert job.info().state is State.SUCCEEDED


@pytest.mark.stores("sqlite")
class TestBadLabels:
    @pytest.mark.parametrize("needs", ["gpu", {"GPU"}, {"a b"}, {""}, {"x" * 41}, {7}, 7, {str(n) for n in range(11)}])
    def test_needs_that_are_none_are_refused_at_declaration(self, app: Mainspring, needs: Any) -> None:
        with pytest.raises(InvalidOption, match=r"task '.*train': needs="):

            @app.task(needs=needs)
            def train() -> None: ...

    @pytest.mark.parametrize("labels", ["gpu,,big", ["gpu!"], "", 7])
    def test_labels_that_are_none_are_refused(self, app: Mainspring, labels: Any) -> None:
        with pytest.raises(InvalidOption, match="labels="):
            app.worker(labels=labels)


def pinned(url: str, version: str, ran: list[str]) -> Mainspring:
    app = Mainspring(url, version=version, **short_settings())

    @app.task(name="pinned", pin_version=True)
    async def _() -> None:
        ran.append(version)

    @app.task(name="free")
    async def _() -> None:
        ran.append("free")

    return app


class TestPins:
    @pytest.mark.option("task.pin_version")
    @pytest.mark.parametrize(
        "versions", [("1.4", "1.4.1"), ("1/é~,!#?", "1/é~,!#"), ("x" * 199 + "a", "x" * 199 + "b")]
    )
    def test_a_pinned_job_runs_on_its_own_version_only(self, store_url: str, versions: tuple[str, str]) -> None:
        ran: list[str] = []
        old, new = (pinned(store_url, version, ran) for version in versions)
        job, free, other = (
            call(app, task).enqueue() for app, task in ((old, "pinned"), (old, "free"), (new, "pinned"))
        )
        with new.worker(until_empty=True) as worker:
            until(lambda: worker.exit_code == 0, "it does not wait for what it cannot run")
        assert [each.info().state for each in (job, free, other)] == [State.READY, State.SUCCEEDED, State.SUCCEEDED]
        with old.worker():
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        assert sorted(ran) == sorted(["free", versions[1], versions[0]])
        for app in (old, new):
            app.close()

    def test_a_drain_of_a_test_leaves_what_is_pinned_to_another_version(self, store_url: str) -> None:
        ran: list[str] = []
        old, new = (pinned(store_url, version, ran) for version in "12")
        left = call(old, "pinned").enqueue()
        with new.test(url=store_url) as t:
            call(new, "pinned").enqueue()
            call(new, "free").enqueue()
            t.drain()
            assert sorted(ran) == ["2", "free"]
        assert left.info().state is State.READY
        for app in (old, new):
            app.close()

    def test_pins_and_needs_go_together(self, store_url: str) -> None:
        app = Mainspring(store_url, version="2", **short_settings())
        begun = threading.Event()

        @app.task(name="both", needs={"gpu"}, pin_version=True)
        def both() -> None:
            begun.set()

        job = both.enqueue()
        with app.worker(), app.worker(labels=["gpu"]):
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        app.close()

    def test_a_pin_that_was_taken_off_leaves_no_job_behind(self, store_url: str) -> None:
        pinned, free = (Mainspring(store_url, **{**short_settings(), "version": "1"}) for _ in range(2))

        @pinned.task(name="report", pin_version=True)
        def report() -> None: ...

        @free.task(name="report")
        def report_now() -> None: ...

        job = report.enqueue()
        with free.worker():
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        pinned.close()
        free.close()

    def test_a_job_by_name_is_not_pinned(self, store_url: str) -> None:
        """Who does not know the task cannot know that it is."""
        ran: list[str] = []
        app, stranger = pinned(store_url, "1", ran), Mainspring(store_url, version="0")
        job = stranger.call("pinned").enqueue()
        with app.worker():
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        for each in (app, stranger):
            each.close()

    def test_runs_of_a_schedule_are_not_pinned(self, store_url: str) -> None:
        """It outlives the version that declared it, and would wait for ever for the one that is gone."""
        ran: list[str] = []
        old, new = (pinned(store_url, version, ran) for version in ("1", "2"))
        old.schedules.put("user", "pinned", mode="triggered")
        job = old.schedules.trigger("user")
        with new.worker():
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        assert ran == ["2"]
        for each in (old, new):
            each.close()

    @pytest.mark.stores("sqlite")
    def test_without_a_version_it_is_refused_when_it_is_used(self, store_url: str) -> None:
        app = Mainspring(store_url)

        @app.task(name="pinned", pin_version=True)
        def task() -> None: ...

        for use in (task.enqueue, app.worker):
            with pytest.raises(InvalidOption, match=r"task 'pinned': pin_version=True.*needs the version of the app"):
                use()
