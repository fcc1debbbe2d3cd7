"""Q6: which queue a job goes to."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption
from mainspring.states import State

LIMIT = 60
ROUTES = {"shop.*": "shop", "shop.mail.*": "mail", "shop.mail.urgent": "now", "*.nightly": "night"}

pytestmark = pytest.mark.row("Q6")


@pytest.fixture
def routed(store_url: str) -> Any:
    app = Mainspring(store_url, routes=ROUTES, poll="200ms")
    yield app
    app.close()


def note(n: int = 0) -> int:
    return n


@pytest.mark.option("app.routes", "task.queue", "job.queue")
class TestTable:
    @pytest.mark.parametrize(
        ("name", "queue"),
        [
            ("shop.mail.urgent", "now"),
            ("shop.mail.send", "mail"),
            ("shop.pay", "shop"),
            ("blog.nightly", "night"),
            ("blog.write", "own"),
        ],
    )
    def test_an_exact_route_beats_a_pattern_and_both_beat_the_queue_of_the_task(
        self, routed: Mainspring, name: str, queue: str
    ) -> None:
        task = routed.task(name=name, queue="own")(note)
        assert task.queue == queue
        assert task.enqueue().info().queue == queue
        assert task.options(priority=5).enqueue().info().queue == queue
        assert routed.enqueue_many([task.s(1)])[0].info().queue == queue

    def test_a_task_without_a_queue_or_a_route_goes_to_default(self, routed: Mainspring) -> None:
        assert routed.task(name="blog.write")(note).enqueue().info().queue == "default"

    def test_the_queue_of_one_job_beats_every_route(self, routed: Mainspring) -> None:
        task = routed.task(name="shop.mail.urgent")(note)
        assert task.options(queue="mine").enqueue().info().queue == "mine"
        assert task.s(1).options(queue="mine").enqueue().info().queue == "mine"

    def test_a_call_by_name_is_routed_too(self, routed: Mainspring) -> None:
        jobs = [routed.call(name).enqueue() for name in ("shop.mail.urgent", "shop.pay", "elsewhere")]
        assert [job.info().queue for job in jobs] == ["now", "shop", "default"]

    def test_a_follow_up_is_routed_too(self, routed: Mainspring) -> None:
        task = routed.task(name="a", on_cancel="shop.mail.urgent")(note)
        task.enqueue().cancel()
        [child] = [info for info in routed.jobs.list().jobs if info.task == "shop.mail.urgent"]
        assert child.queue == "now"


def test_a_worker_serves_the_routes_of_its_tasks_and_every_queue_of_the_table(routed: Mainspring) -> None:
    here = routed.task(name="shop.pay", queue="own")(note)
    elsewhere = routed.task(name="blog.write", queue="blog")(note)
    moved = here.options(queue="night")  # a queue that only the table names
    with routed.worker():
        jobs = [here.enqueue(1), elsewhere.enqueue(2), moved.enqueue(3)]
        assert [job.result(timeout=LIMIT) for job in jobs] == [1, 2, 3]
    assert routed.parts().settings.queues == ("blog", "default", "mail", "night", "now", "shop")


def test_a_worker_with_given_queues_serves_only_those(routed: Mainspring) -> None:
    pay, write = routed.task(name="shop.pay")(note), routed.task(name="blog.write", queue="blog")(note)
    left = pay.enqueue(1)
    with routed.worker(queues=["blog"]):
        assert write.enqueue(2).result(timeout=LIMIT) == 2
    assert left.info().state is State.READY


def test_the_route_of_an_alias_is_served(routed: Mainspring) -> None:
    routed.task(name="blog.write", queue="blog", aliases=["shop.mail.urgent"])(note)
    stranger = Mainspring(routed.settings.url, routes=ROUTES)
    job = stranger.call("shop.mail.urgent", 7).enqueue()
    assert job.info().queue == "now"
    with routed.worker():
        assert job.result(timeout=LIMIT) == 7
    stranger.close()


def test_a_route_to_a_bad_queue_name_is_refused_when_the_app_is_made() -> None:
    with pytest.raises(InvalidOption, match=r"Mainspring: routes\['shop\.\*'\]='not a queue'"):
        Mainspring("sqlite://", routes={"shop.*": "not a queue"})
