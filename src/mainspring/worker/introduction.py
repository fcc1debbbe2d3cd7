"""What a worker says of itself when it registers."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping

from mainspring.codec import dumps
from mainspring.common.redact import redact
from mainspring.worker.config import WorkerConfig
from mainspring.worker.loop.eligibility import asked_kinds, runnable
from mainspring.worker.records import Registration


def introduce(parts: WorkerConfig, more: Mapping[str, object]) -> Registration:
    """The registration, with ``more`` facts for people and witnesses to read.

    Named are the tasks that it can run: jobs parked for want of a slot or a label must not come back to it.
    """
    settings = parts.settings
    info = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "version": parts.version,
        "roles": sorted(settings.roles),
        "async_slots": settings.async_slots,
        "thread_slots": settings.thread_slots,
        "labels": list(settings.labels),
        "kinds": asked_kinds(parts),
        "concurrency": settings.concurrency,
        **more,
    }
    return Registration(
        queues=settings.queues,
        tasks=runnable(parts),
        lease=settings.lease,
        info=dumps(info),
    )


def described(parts: WorkerConfig) -> str:
    """The store, the queues and the slots, in one line for the log."""
    at, settings = parts.store, parts.settings
    store = redact(at.url) if at.namespace == "default" else f"{redact(at.url)} (namespace {at.namespace})"
    if "worker" not in settings.roles:
        return f"store {store}, no slots: serves the fleet"
    queues = ", ".join(settings.queues) or "none"
    labels = f", labels {', '.join(settings.labels)}" if settings.labels else ""
    slots = f"{settings.async_slots} async and {settings.thread_slots} thread slots"
    return f"store {store}, queues {queues}, {slots}{labels}"
