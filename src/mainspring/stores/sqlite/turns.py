"""The turn: acks, then what the worker should know, then claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import StoreConflict
from mainspring.worker.records import CancelOrder, Claim, TurnResult

from .acks import take_acks
from .breakers import told_of
from .claims import claim_of, hand_out
from .parking import settle
from .rooms import Rooms

if TYPE_CHECKING:
    from mainspring.worker.records import Turn

    from .tx import Tx


def turn(tx: Tx, turn: Turn) -> TurnResult:
    found = tx.first("worker_row", (turn.worker,))
    if found is None or found[0]:
        return TurnResult(tx.now, lost=True)
    last = found[1]
    if turn.number < last:
        raise StoreConflict(
            f"turn {turn.number} of worker {turn.worker} came after its turn {last}",
            hint="A worker has one turn in flight. Are two processes using one worker id?",
        )
    verdicts = take_acks(tx, turn.worker, turn.acks)
    rooms = Rooms(tx)
    if turn.good and turn.number > last:
        for name, n in turn.good:
            told_of(tx, name).good += n
    if tx.freed or tx.told:
        settle(tx, rooms)
    gone = _gone(tx, turn) if turn.holds else ()
    claims: list[Claim] = []
    more, next_at = False, None
    short: tuple[bytes, ...] = ()
    if turn.seen < last or turn.number == last:
        claims = _unheard(tx, turn)
    if turn.number > last:
        handed = hand_out(tx, turn, found[2], rooms)
        claims += handed.claims
        more, next_at, short = handed.more, handed.next_at, tuple(handed.short)
        tx.run("worker_turned", (turn.number, tx.now, turn.worker))
    orders = tx.all("orders", (turn.worker,))
    return TurnResult(
        tx.now,
        False,
        tuple(claims),
        tuple(verdicts.already),
        tuple(verdicts.stale),
        tuple(verdicts.unstorable),
        tuple(CancelOrder(*order) for order in orders),
        gone,
        more,
        next_at=next_at,
        held=tuple(sorted(rooms.held)),
        breakers=tuple(tx.news),
        short=short,
    )


def _gone(tx: Tx, turn: Turn) -> tuple[tuple[bytes, int], ...]:
    """The leases that the worker believes in and has not; what it acked just now is no surprise to it."""
    good = set(tx.all("leases", (turn.worker,)))
    good.update((ack.id, ack.token) for ack in turn.acks)
    return tuple(lease for lease in turn.holds or () if tuple(lease) not in good)


def _unheard(tx: Tx, turn: Turn) -> list[Claim]:
    """Claims whose reply the worker has not read: the reply was lost, the jobs are its own."""
    rows = tx.all("claims_since", (turn.worker, min(turn.seen, turn.number - 1)))
    rows.sort(key=lambda row: (row[13], -row[5], row[14]))
    return [claim_of(row) for row in rows]
