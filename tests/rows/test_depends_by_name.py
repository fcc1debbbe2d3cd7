"""O2 to O4: which rules of a schedule hold for jobs of its task that were enqueued by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mainspring import Mainspring, NotTriggered
from mainspring.jobs.outcomes import Outcome
from tests.rows.crew import LIMIT
from tests.timing import short_settings


@pytest.fixture
def publisher(store_url: str) -> Iterator[Mainspring]:
    """A program that has none of the tasks."""
    app = Mainspring(store_url, **short_settings())
    yield app
    app.close()


@pytest.mark.row("O2")
def test_jobs_by_name_do_not_wait_and_their_success_counts_for_no_schedule(
    app: Mainspring, publisher: Mainspring
) -> None:
    """``depends_on`` holds for the runs of the schedule. No job is handed back for it."""
    app.schedule("fetch", mode="triggered")(app.task(name="etl.fetch")(lambda: None))
    app.schedule("process", mode="triggered", depends_on="fetch")(app.task(name="etl.process")(lambda: None))
    with app.worker():
        process = publisher.call("etl.process").enqueue()
        process.result(timeout=LIMIT)
        publisher.call("etl.fetch").enqueue().result(timeout=LIMIT)
        with pytest.raises(NotTriggered, match="it waits for 'fetch' to succeed"):
            app.schedules.trigger("process")
        app.schedules.trigger("fetch").result(timeout=LIMIT)
        app.schedules.trigger("process").result(timeout=LIMIT)
    assert process.info().attempts == ()


@pytest.mark.row("O3", "O4")
def test_blocks_and_groups_apply_to_jobs_by_name(app: Mainspring, publisher: Mainspring) -> None:
    """Each job is handed back once."""
    app.schedules.group("etl", max_concurrent=1)
    app.schedule("a", mode="triggered", group="etl", blocks="b")(app.task(name="etl.a")(lambda: None))
    app.schedule("b", mode="triggered", group="etl", depends_on="a")(app.task(name="etl.b")(lambda: None))
    second, first = publisher.call("etl.b").enqueue(), publisher.call("etl.a").enqueue()
    with app.worker():
        for job in (first, second):
            job.result(timeout=LIMIT)
    for job in (first, second):
        assert [each.outcome for each in job.info().attempts] == [Outcome.INTERRUPTED]
