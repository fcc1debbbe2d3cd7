"""The roles of a process: run jobs, or only the services that the whole fleet needs.

worker     has slots and lifespans; promotes due jobs and rescues the jobs of lost workers
scheduler  promotes, rescues, prunes and fires schedules; has no slots, no lifespans and no queues
api        enqueues and queries; runs no worker and no services
"""

from __future__ import annotations

from msgspec.structs import replace

from mainspring.errors import InvalidOption
from mainspring.worker.config import WorkerConfig

WORKER, SCHEDULER = "worker", "scheduler"


def apply_roles(config: WorkerConfig) -> WorkerConfig:
    """The configuration without the parts that these roles do not use.

    A process with neither role was refused earlier, by the settings.
    """
    settings = config.settings
    if WORKER in settings.roles:
        return config
    if settings.ends_when_empty:
        name = "burst" if settings.burst else "until_empty"
        raise InvalidOption(name, True, "needs the role 'worker': a scheduler runs no jobs", subject="worker")
    return config._replace(
        settings=replace(
            settings, queues=(), concurrency={}, max_jobs=None, async_slots=0, thread_slots=0, process_slots=0
        ),
        lifespans=(),
    )
