"""Queues with ready jobs that no live worker serves, for example after a typing error in ``queue=``."""

from __future__ import annotations

import pytest

from mainspring import AsyncTask, Mainspring
from mainspring.worker.records import Beat, Registration
from mainspring.worker.services.inspector import Inspector
from tests.rows.crew import until

HOUR = 3600.0
DAY = 86_400_000_000


@pytest.fixture
def send(app: Mainspring) -> AsyncTask[[], None]:
    @app.task(name="send", queue="email")
    async def send() -> None: ...

    return send


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "no live worker serves" in each.getMessage()]


def test_a_queue_shows_its_live_workers_and_that_none_serves_it(app: Mainspring, send: AsyncTask[[], None]) -> None:
    for _ in range(2):
        send.options(queue="emial").enqueue()
    assert app.queues.get("emial").unserved == "no live worker serves queue 'emial', which has 2 ready jobs"
    with app.worker():
        queues = {queue.name: queue for queue in app.queues.list()}
        assert [queues[name].workers for name in ("default", "email", "emial")] == [1, 1, 0]
        assert queues["email"].unserved == ""
        assert queues["emial"].unserved == (
            "no live worker serves queue 'emial', which has 2 ready jobs; did you mean 'email'?"
        )
    assert app.queues.get("email").workers == 0


@pytest.mark.parametrize("verb", ["pause", "disable"])
def test_a_closed_queue_is_not_reported_as_unserved(app: Mainspring, send: AsyncTask[[], None], verb: str) -> None:
    send.options(queue="emial").enqueue()
    getattr(app.queues, verb)("emial")
    assert app.queues.get("emial").unserved == ""


def test_a_worker_warns_of_a_queue_that_no_live_worker_serves(
    app: Mainspring, send: AsyncTask[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    send.options(queue="emial").enqueue()
    with app.worker():
        until(lambda: bool(warnings(caplog)), "the worker has warned")
    assert warnings(caplog) == ["no live worker serves queue 'emial', which has 1 ready job; did you mean 'email'?"]


async def test_the_leader_warns_once_per_hour_and_queue(
    app: Mainspring, send: AsyncTask[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """After two looks, and only of a queue that both have found."""
    store, hours = await app.client.store(), 0.0
    await store.beat([Beat("first", Registration(queues=("email",), lease=10 * DAY))])
    mine = Inspector(store, lease=7.0, now=lambda: hours * HOUR)
    assert await mine.tick() == Inspector.every
    job = await send.options(queue="emial").aenqueue()
    await send.options(queue="later").aenqueue()
    await app.queues.apause("later")
    assert await mine.tick() == 7.0
    assert warnings(caplog) == []
    for _ in range(3):
        assert await mine.tick() == Inspector.every
    assert [said.split(",")[0] for said in warnings(caplog)] == ["no live worker serves queue 'emial'"]
    hours = 1.0
    assert await mine.tick() == 7.0
    await job.adelete()
    assert await mine.tick() == Inspector.every
    assert len(warnings(caplog)) == 1
