"""What an enqueue script says instead of a reply, as errors."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from mainspring.errors import KeyConflict, KeyTaken, QueueDisabled, QueueDraining, StoreConflict
from mainspring.stores.shared.depth import queue_full


class Special(Exception):
    """The queue is for the longer way: something is stored of it that a plain batch does not look at."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue)
        self.queue = queue


def _draining(queue: bytes) -> Exception:
    return QueueDraining(queue.decode())


def _special(queue: bytes) -> Exception:
    return Special(queue.decode())


def _disabled(queue: bytes, by: bytes) -> Exception:
    return QueueDisabled(queue.decode(), by.decode())


def _full(queue: bytes, most: int, on_full: bytes, depth: int, excess: int, age: int) -> Exception:
    return queue_full(queue.decode(), most, on_full.decode(), depth=depth, excess=excess, age=age)


def _taken(task: bytes, holder: bytes) -> Exception:
    return KeyTaken(task.decode(), UUID(bytes=holder))


def _conflict(task: bytes, holder: bytes, job: bytes) -> Exception:
    return KeyConflict(task.decode(), UUID(bytes=holder), UUID(bytes=job))


def _nobody(child: bytes, parent: bytes) -> Exception:
    return StoreConflict(
        f"job {UUID(bytes=child)} waits for job {UUID(bytes=parent)}, which does not exist",
        hint="Enqueue the parent first or in the same batch; was it deleted or pruned?",
    )


REFUSALS: dict[bytes, Callable[..., Exception]] = {
    b"draining": _draining, b"disabled": _disabled, b"full": _full, b"special": _special, b"taken": _taken,
    b"conflict": _conflict, b"nobody": _nobody,
}  # fmt: skip
