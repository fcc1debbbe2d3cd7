"""What time does to waiting jobs: due ones become ready, expired ones are cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.records import Promoted
from mainspring.states import Reason

from .finish import finish_waiting
from .places import Standing, enter_ready

if TYPE_CHECKING:
    from .tx import Tx


def promote(tx: Tx, limit: int) -> Promoted:
    """Expired jobs first: what is both due and expired must not become ready."""
    late = tx.all("expired", (tx.now, limit))
    ended = tuple(job for (job,) in late if finish_waiting(tx, job, Reason.EXPIRED))
    due = tx.all("due", (tx.now, limit))
    if due:
        seq = tx.next_seq(len(due))
        tx.cursor.executemany(tx.sql["promote"], [(seq + n, row[0]) for n, row in enumerate(due)])
        for _, queue, *standing in due:
            enter_ready(tx, queue, Standing(*standing))
    (next_due,) = tx.all("next_due")[0]
    queues = tuple(sorted({row[1] for row in due}))
    return Promoted(tx.now, len(due), len(ended), queues, next_due, ended)
