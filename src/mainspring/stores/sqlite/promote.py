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
    expired = sum(finish_waiting(tx, job, Reason.EXPIRED) for (job,) in tx.all("expired", (tx.now, limit)))
    due = tx.all("due", (tx.now, limit))
    if due:
        seq = tx.next_seq(len(due))
        tx.cursor.executemany(tx.sql["promote"], [(seq + n, row[0]) for n, row in enumerate(due)])
        for _, queue, *standing in due:
            enter_ready(tx, queue, Standing(*standing))
    (next_due,) = tx.all("next_due")[0]
    queues = tuple(sorted({row[1] for row in due}))
    return Promoted(now=tx.now, promoted=len(due), expired=expired, queues=queues, next_due=next_due)
