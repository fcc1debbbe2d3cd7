"""Take what a worker finished: compare by (job, token, worker), then move the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.jobs.outcomes import Ack
from mainspring.states import Reason, State, allows

from .breakers import ended, succeeded
from .errors import is_unstorable
from .finish import End, finish
from .leaving import correct, free
from .places import Standing, enter_ready, parked
from .relaning import relane, unspent
from .statements import sizes
from .tx import LIMITED, OF_PART, ORDERED

if TYPE_CHECKING:
    from .tx import Row, Tx

Leases = list[tuple[bytes, int]]


class Verdicts:
    """What became of the acks that were not simply applied."""

    __slots__ = ("already", "stale", "unstorable")

    def __init__(self) -> None:
        self.already: Leases = []
        self.stale: Leases = []
        self.unstorable: Leases = []


def take_acks(tx: Tx, worker: str, acks: Sequence[Ack]) -> Verdicts:
    verdicts = Verdicts()
    plain = [ack for ack in acks if ack.to is State.SUCCEEDED]
    if plain and _all_succeeded(tx, worker, plain):
        acks = [ack for ack in acks if ack.to is not State.SUCCEEDED] if len(plain) < len(acks) else ()
    for ack in acks:
        _take(tx, worker, ack, verdicts)
    return verdicts


def _all_succeeded(tx: Tx, worker: str, acks: Sequence[Ack]) -> bool:
    """Apply plain successes in bulk; False, and nothing changed, unless every one of them could be."""
    execute = tx.cursor.execute
    execute("savepoint successes")
    try:
        good = _move_succeeded(tx, worker, acks) == len(acks)
    except Exception as error:
        if not is_unstorable(error):
            raise
        good = False
    if not good:
        execute("rollback to successes")  # it takes no places in the order: nothing to forget
    execute("release successes")
    return good


def _move_succeeded(tx: Tx, worker: str, acks: Sequence[Ack]) -> int:
    moved = 0
    for start, end in sizes(len(acks)):
        part = acks[start:end]
        values: list[object] = [tx.now, worker]
        for ack in part:
            values += (ack.id, ack.token, ack.result, ack.error)
        moved += tx.sized("ack_succeeded", end - start, values).rowcount
        ids = [ack.id for ack in part]
        corrections = [ack for ack in part if ack.spent or ack.slow]
        if (corrections or tx.sized("delete_free", end - start, ids).rowcount < len(part)) and moved == end:
            _leave_limits(tx, ids, corrections)
    return moved


def _leave_limits(tx: Tx, ids: list[bytes], corrections: Sequence[Ack]) -> None:
    """Of these that have just succeeded, those that are left go too; who waits for their places is told."""
    rows = tx.sized("delete_limited", len(ids), ids).fetchall()
    left = {id: buckets for id, buckets, _ in rows if buckets}
    free(tx, list(left.items()))
    began: dict[str, int] = {}
    for _, buckets, started in rows:
        began[buckets] = max(started, began.get(buckets, 0))
    for buckets, started in began.items():
        succeeded(tx, buckets, started)
    for ack in corrections:
        correct(tx, left.get(ack.id), ack.spent, ack.slow)


def _take(tx: Tx, worker: str, ack: Ack, verdicts: Verdicts) -> None:
    lease = (ack.id, ack.token)
    try:
        row = tx.first("owned", (ack.id,))
        if row is None or row[1] != ack.token or row[2] != worker or row[0] != "running":
            (verdicts.already if _was_applied(tx, worker, ack) else verdicts.stale).append(lease)
        elif not allows(ack.action, State.RUNNING, ack.to):
            verdicts.unstorable.append(lease)
        else:
            with tx.savepoint("ack"):
                _apply(tx, worker, ack, row)
            if row[13] & LIMITED:
                ended(tx, row[14], ack, row[12])
    except Exception as error:
        if not is_unstorable(error):
            raise
        verdicts.unstorable.append(lease)


def _was_applied(tx: Tx, worker: str, ack: Ack) -> bool:
    """Whether this very owner has ended this very attempt in this very way."""
    said = {"id": ack.id, "token": ack.token, "worker": worker, "outcome": ack.outcome}
    return bool(tx.all("ended_by", said))


def _apply(tx: Tx, worker: str, ack: Ack, row: Row) -> None:
    _, token, _, lane, task, queue, priority, attempt, epoch, crashes, _, _, started, flags, buckets, words = row
    ordered = flags & ORDERED
    if ordered or ack.to is not State.SUCCEEDED:
        acked = (ack.id, token, epoch, attempt, worker, started, tx.now, ack.outcome, 1, ack.error)
        tx.add_attempt(acked)
    if flags & LIMITED:
        correct(tx, buckets, unspent(buckets) if ack.buckets or ack.part else ack.spent, ack.slow)
        free(tx, [(ack.id, buckets)])
    if ack.refund:
        attempt -= 1
    if ordered or ack.to in (State.SUCCEEDED, State.DEAD, State.CANCELLED):
        if ordered:
            end = End(State.CANCELLED, Reason.BY_USER, worker, attempt, crashes, error=ack.error, note=words or None)
        else:
            end = End(ack.to, ack.reason, worker, attempt, crashes, result=ack.result, error=ack.error, label=ack.label)
        finish(tx, ack.id, flags, end)
        return
    if (ack.buckets or ack.part) and ack.to is State.READY:
        standing = Standing(lane, task, priority, crashes, buckets)
        relane(tx, ack, queue, attempt, standing, of_part=bool(flags & OF_PART))
    elif ack.to is State.READY:
        if ack.park:
            lane = parked(lane, task, buckets)
        seq = tx.next_seq()
        tx.run("give_back", (attempt, lane, seq, ack.id))
        enter_ready(tx, queue, Standing(lane, task, priority, crashes, buckets), seq)
    else:
        due = ack.due if ack.due is not None else tx.now + ack.delay
        tx.run("put_off", (ack.to, due, attempt, ack.id))
