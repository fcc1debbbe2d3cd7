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
    """Apps on one store with the same tasks, one for each machine. ``ran`` has the app and the job of each run."""
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
    def test_a_job_with_a_need_never_runs_without_the_label(self, fleet: Make) -> None:
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

    def test_a_job_with_several_needs_runs_where_all_labels_are_met(self, fleet: Make) -> None:
        ran: list[tuple[str, str]] = []
        one, both = fleet(ran, "one"), fleet(ran, "both")
        much, little = call(one, "train_much").enqueue(), call(one, "train").enqueue()
        with one.worker(labels="gpu"):
            assert little.join(timeout=LIMIT).state is State.SUCCEEDED
            assert much.info().state is State.READY
            with both.worker(labels="gpu, big, other"):
                assert much.join(timeout=LIMIT).state is State.SUCCEEDED
        assert ("train_much", "both") in ran

    def test_a_job_by_name_is_handed_back_to_labelled_workers_without_an_attempt(self, fleet: Make) -> None:
        """The producer does not know the needs. A worker without the label hands the job back once and is not given
        the job again.
        """
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

    def test_a_job_that_waits_since_before_the_need_is_handed_back_too(self, fleet: Make) -> None:
        ran: list[tuple[str, str]] = []
        before, plain, gpu = Mainspring(fleet().settings.url), fleet(ran, "plain"), fleet(ran, "gpu")

        @before.task(name="train")
        def train() -> None: ...

        job = train.enqueue()
        with plain.worker(until_empty=True) as worker:
            until(lambda: worker.exit_code == 6, "it finds nothing that it could do")
        assert job.info().state is State.READY
        with gpu.worker(labels=["gpu"]):
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        assert ran == [("train", "gpu")]
        before.close()

    def test_a_changed_need_strands_no_job(self, fleet: Make) -> None:
        """Jobs keep the needs they were enqueued with. A worker that meets the old and the new needs runs them."""
        ran: list[tuple[str, str]] = []
        before, after = Mainspring(fleet().settings.url), fleet(ran, "after")

        @before.task(name="infer", needs={"cuda"})
        def infer() -> None: ...

        job = infer.enqueue()
        with after.worker(labels=["cuda"]):
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        before.close()

    @pytest.mark.parametrize("needs", [{"cuda"}, set()], ids=["one of two", "none"])
    def test_removed_needs_strand_no_job(self, fleet: Make, needs: set[str]) -> None:
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

    def test_why_says_that_no_worker_requests_the_labels_of_a_job(self, fleet: Make) -> None:
        """A worker with many labels does not request every subset of them. A subset that no task needs any more can
        be left out.
        """
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

    def test_a_worker_lists_its_labels_and_what_it_can_run(self, fleet: Make) -> None:
        app = fleet()
        with app.worker(labels={"gpu", "a100"}):
            [told] = app.workers.list()
        assert told.labels == ("a100", "gpu")
        assert set(told.tasks) == {"train", "infer"}

    @pytest.mark.option("app.labels")
    def test_workers_have_the_labels_of_their_app(self, fleet: Make) -> None:
        app = fleet(labels="gpu,big")
        with app.worker():
            assert app.workers.list()[0].labels == ("big", "gpu")
            assert call(app, "train_much").enqueue().join(timeout=LIMIT).state is State.SUCCEEDED

    def test_a_worker_until_empty_does_not_wait_for_jobs_it_cannot_run(self, fleet: Make) -> None:
        app = fleet()
        waits, runs = call(app, "train").enqueue(), call(app, "infer").enqueue()
        with app.worker(until_empty=True) as worker:
            until(lambda: worker.exit_code == 6, "it ends")
        assert (waits.info().state, runs.info().state) == (State.READY, State.SUCCEEDED)

    def test_a_test_app_has_every_label(self, fleet: Make) -> None:
        app = fleet()
        with app.test() as t:
            job = call(app, "train_much").enqueue()
            t.drain()
            assert job.info().state is State.SUCCEEDED


@pytest.mark.stores("sqlite")
class TestBadLabels:
    @pytest.mark.parametrize("needs", ["gpu", {"GPU"}, {"a b"}, {""}, {"x" * 41}, {7}, 7, {str(n) for n in range(11)}])
    def test_bad_needs_are_refused_at_declaration(self, app: Mainspring, needs: Any) -> None:
        with pytest.raises(InvalidOption, match=r"task '.*train': needs="):

            @app.task(needs=needs)
            def train() -> None: ...

    @pytest.mark.parametrize("labels", ["gpu,,big", ["gpu!"], "", 7])
    def test_bad_labels_are_refused(self, app: Mainspring, labels: Any) -> None:
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
            until(lambda: worker.exit_code == 6, "it does not wait for what it cannot run")
        assert [each.info().state for each in (job, free, other)] == [State.READY, State.SUCCEEDED, State.SUCCEEDED]
        with old.worker():
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        assert sorted(ran) == sorted(["free", versions[1], versions[0]])
        for app in (old, new):
            app.close()

    def test_a_drain_of_a_test_app_leaves_jobs_pinned_to_another_version(self, store_url: str) -> None:
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

    def test_pins_and_needs_apply_together(self, store_url: str) -> None:
        app = Mainspring(store_url, version="2", **short_settings())
        begun = threading.Event()

        @app.task(name="both", needs={"gpu"}, pin_version=True)
        def both() -> None:
            begun.set()

        job = both.enqueue()
        with app.worker(), app.worker(labels=["gpu"]):
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        app.close()

    def test_a_removed_pin_strands_no_job(self, store_url: str) -> None:
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
        """A producer that does not know the task cannot know that the task is pinned."""
        ran: list[str] = []
        app, stranger = pinned(store_url, "1", ran), Mainspring(store_url, version="0")
        job = stranger.call("pinned").enqueue()
        with app.worker():
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        for each in (app, stranger):
            each.close()

    def test_runs_of_a_schedule_are_not_pinned(self, store_url: str) -> None:
        """A schedule outlives the version that declared it. A pinned run would wait for ever for a version that is
        gone.
        """
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
    def test_a_pinned_task_without_a_version_of_the_app_is_refused(self, store_url: str) -> None:
        app = Mainspring(store_url)

        @app.task(name="pinned", pin_version=True)
        def task() -> None: ...

        for use in (task.enqueue, app.worker):
            with pytest.raises(InvalidOption, match=r"task 'pinned': pin_version=True.*needs the version of the app"):
                use()
