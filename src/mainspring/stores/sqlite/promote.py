"""What time does to waiting jobs: due ones become ready, expired ones are cancelled, lanes are looked at again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.jobs.records import PromoteResult
from mainspring.states import Reason

from .finish import finish_waiting
from .parking import open_due, stir
from .places import Standing, enter_ready

if TYPE_CHECKING:
    from .tx import Row, Tx


def promote(tx: Tx, limit: int) -> PromoteResult:
    """Expired jobs first: what is both due and expired must not become ready."""
    late = tx.all("expired", (tx.now, limit))
    ended = tuple(job for (job,) in late if finish_waiting(tx, job, Reason.EXPIRED))
    due = tx.all("due", (tx.now, limit))
    if due:
        seq = tx.next_seq(len(due))
        tx.cursor.executemany(tx.sql["promote"], [(seq + n, row[0]) for n, row in enumerate(due)])
        for n, (_, queue, *standing) in enumerate(due):
            enter_ready(tx, queue, Standing(*standing), seq + n)
    (next_due,) = tx.all("next_due")[0]
    moments = [at for at in (next_due, _look_again(tx)) if at is not None]
    return PromoteResult(tx.now, len(due), len(ended), tuple(sorted(tx.woken)), min(moments, default=None), ended)


def _look_again(tx: Tx) -> int | None:
    """Lanes whose moment has come stand in line again; the next moment."""
    for (limit,) in tx.all("stirred"):
        stir(tx, limit)
    moments: list[Row] = []
    for (group,) in tx.all("keyed_groups"):
        open_due(tx, group)
        moments += tx.all("first_until", (group,))
    return min((at for (at,) in moments if at is not None), default=None)
