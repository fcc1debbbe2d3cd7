"""What queues do, as somebody set it for the whole fleet. A queue without a row is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.records import Mode, QueueRow

if TYPE_CHECKING:
    from .tx import Tx


def draining(tx: Tx) -> list[str]:
    """Asked at every enqueue: of a table that is empty, or nearly so."""
    return [name for (name,) in tx.all("draining")]


def paused(tx: Tx) -> list[str]:
    """Asked at every turn that wants jobs."""
    return [name for (name,) in tx.all("paused")]


def set_mode(tx: Tx, queues: Sequence[str], mode: Mode) -> None:
    for queue in queues:
        if mode is Mode.OPEN:
            tx.run("open_queue", (queue,))
        else:
            tx.run("set_mode", (queue, mode, tx.now))
    if mode is not Mode.PAUSED:
        tx.woken.update(queues)


def modes(tx: Tx) -> list[QueueRow]:
    return [QueueRow(name, Mode(mode), since) for name, mode, since in tx.all("modes")]
