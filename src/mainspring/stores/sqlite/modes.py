"""What queues do, as somebody set it for the whole fleet. A queue without a row is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.queues.records import DisabledMode, QueueMode, QueueRow

from .settings import Kept, kept, read

if TYPE_CHECKING:
    from .tx import Tx


def paused(tx: Tx) -> list[str]:
    """Those that hand out nothing, whatever the reason."""
    return [name for name, queue in kept(tx).items() if queue.mode == QueueMode.PAUSED or queue.disabled]


def set_mode(tx: Tx, queues: Sequence[str], mode: QueueMode) -> None:
    for queue in queues:
        if mode is QueueMode.OPEN:
            tx.run("open_queue", (queue,))
            tx.run("forget_queue", (queue,))
        else:
            tx.run("set_mode", (queue, mode, tx.now))
    if mode is not QueueMode.PAUSED:
        tx.woken.update(queues)


def modes(tx: Tx) -> list[QueueRow]:
    return [_row(name, queue) for name, queue in kept(tx).items()]


def _row(name: str, queue: Kept) -> QueueRow:
    disabled = None if queue.disabled is None else DisabledMode(queue.disabled)
    return QueueRow(
        name,
        QueueMode(queue.mode),
        queue.since,
        read(queue.declared),
        read(queue.given),
        disabled,
        queue.disabled_at,
        queue.by,
    )
