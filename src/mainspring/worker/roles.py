"""What a process does for the fleet: run jobs, or only the services that serve everybody.

worker     slots and lifespans; promotes what is due and rescues the jobs of lost workers
scheduler  promotes, rescues and prunes; no slots, no lifespan, no queue
api        enqueues and looks; nothing of it runs here
"""

from __future__ import annotations

from msgspec.structs import replace

from mainspring.errors import InvalidOption
from mainspring.worker.config import WorkerConfig

WORKER, SCHEDULER = "worker", "scheduler"


def fitted(parts: WorkerConfig) -> WorkerConfig:
    """The parts that a process with these roles needs; the settings have refused one that runs nothing."""
    settings = parts.settings
    if WORKER in settings.roles:
        return parts
    if settings.until_empty:
        raise InvalidOption("until_empty", True, "needs the role worker: a scheduler runs no jobs", subject="worker")
    return parts._replace(
        settings=replace(settings, queues=(), concurrency={}, async_slots=0, thread_slots=0), lifespans=()
    )
