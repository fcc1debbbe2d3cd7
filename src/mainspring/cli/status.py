"""``mainspring status``: everything on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring.cli.common import listing, on_store
from mainspring.cli.dead import group_document, group_table
from mainspring.cli.output import FactList, Shown, Table
from mainspring.cli.queues import queue_document, queue_table
from mainspring.cli.schedule_documents import summary_document
from mainspring.cli.schedule_tables import summary_table
from mainspring.cli.workers import worker_document, worker_table
from mainspring.errors import mask_url
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.app import Mainspring

WORST = 10
"""Most groups of dead jobs on the screen."""


@click.command()
@on_store
@listing
def status(app: Mainspring) -> Shown:
    """One screen: the store, jobs by state, queues, schedules, workers, what jobs died of."""
    from mainspring.client.blocking import run

    store = {
        "url": mask_url(app.settings.url),
        "namespace": app.settings.namespace,
        "durability": run("app.client.durability", app.client.durability()),
    }
    counts, queues, workers, dead = app.jobs.count(), app.queues.list(), app.workers.list(), app.dead.stats()
    schedules = app.schedules.status()
    document = {
        "store": store,
        "jobs": {"total": counts.total, "live": counts.live, **{state.value: counts[state] for state in State}},
        "queues": [queue_document(each) for each in queues],
        "schedules": summary_document(schedules),
        "workers": [worker_document(each) for each in workers],
        "dead": [group_document(each) for each in dead],
    }
    jobs = Table([state.value for state in State], [[counts[state] for state in State]], title="jobs")
    return Shown(document, [
        FactList([*store.items()]),
        jobs,
        queue_table(queues, title="queues"),
        summary_table(schedules, title="schedules"),
        worker_table(workers, title="workers"),
        group_table(dead[:WORST], "error", title="dead"),
    ])  # fmt: skip
