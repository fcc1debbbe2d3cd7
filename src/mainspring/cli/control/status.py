"""``mainspring status``: the whole store on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring.cli.common import listing, on_store
from mainspring.cli.control.queues import queue_document, queue_table, unserved_queues
from mainspring.cli.control.workers import worker_table
from mainspring.cli.document import documents
from mainspring.cli.jobs.dead import group_table
from mainspring.cli.output import FactList, Shown, Table
from mainspring.cli.root import Command
from mainspring.cli.schedules.documents import summary_document
from mainspring.cli.schedules.tables import summary_table
from mainspring.errors import mask_url
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.app import Mainspring

WORST = 10
"""Maximum number of dead-job groups shown."""


@click.command(cls=Command)
@on_store
@listing
def status(app: Mainspring) -> Shown:
    """Show the store, jobs, queues, schedules and workers."""
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
        "workers": documents(workers),
        "dead": documents(dead),
    }
    jobs = Table([state.value for state in State], [[counts[state] for state in State]], title="jobs")
    return Shown(document, [
        FactList([*store.items()]),
        jobs,
        queue_table(queues, title="queues"),
        *unserved_queues(queues),
        summary_table(schedules, title="schedules"),
        worker_table(workers, title="workers"),
        group_table(dead[:WORST], "error", title="dead"),
    ])  # fmt: skip
