"""The turn: acks, then what the worker has to know, then claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.errors import StoreConflict
from mainspring.worker.records import CancelOrder, Claim, TurnResult

from .breakers import swap_in
from .jobs.ack import apply_acks
from .jobs.claim.wants import TurnClaims, hand_out
from .limits.buckets import Capacities
from .limits.waiting import settle_released
from .rows import claim_of, claim_order

if TYPE_CHECKING:
    from mainspring.worker.records import Turn

    from .driver.transaction import Row, Tx


def turn(tx: Tx, turn: Turn) -> TurnResult:
    worker = tx.first("worker_of_turn", (turn.worker,))
    if worker is None or worker[0]:
        return TurnResult(tx.now, lost=True)
    _, last, tasks = worker
    _check_number(turn, last)
    is_new = turn.number > last
    verdicts = apply_acks(tx, turn.worker, turn.acks)
    capacities = Capacities(tx)
    breakers = swap_in(tx, turn.breakers) if turn.breakers else ()
    if tx.released:
        settle_released(tx, capacities)
    gone = _lost_leases(tx, turn) if turn.holds else ()
    claims = _unread_claims(tx, turn) if turn.seen < last or not is_new else []
    handed = _claim(tx, turn, tasks, capacities) if is_new else TurnClaims()
    orders = tx.all("cancel_orders", (turn.worker,))
    return TurnResult(
        tx.now,
        False,
        (*claims, *handed.claims),
        tuple(verdicts.already),
        tuple(verdicts.stale),
        tuple(verdicts.unstorable),
        tuple(CancelOrder(*order) for order in orders),
        gone,
        handed.more,
        next_at=handed.next_at,
        held=tuple(sorted(capacities.held_back)),
        breakers=tuple(breakers),
        passed=handed.passed,
    )


def _check_number(turn: Turn, last: int) -> None:
    if turn.number < last:
        raise StoreConflict(
            f"turn {turn.number} of worker {turn.worker} came after its turn {last}",
            hint="A worker sends one turn at a time. Check that no two processes use this worker id.",
        )


def _lost_leases(tx: Tx, turn: Turn) -> tuple[tuple[bytes, int], ...]:
    """The leases that the worker believes it has and does not have, except those that it acked in this turn."""
    good = set(tx.all("leases", (turn.worker,)))
    good.update((ack.id, ack.token) for ack in turn.acks)
    return tuple(lease for lease in turn.holds or () if tuple(lease) not in good)


def _unread_claims(tx: Tx, turn: Turn) -> list[Claim]:
    """Claims of turns whose reply the worker has not read: the reply was lost, the jobs are the worker's."""
    rows = tx.all("claims_since", (turn.worker, min(turn.seen, turn.number - 1)))
    rows.sort(key=_turn_order)
    return [claim_of(row) for row in rows]


def _turn_order(row: Row) -> tuple[int, int, int]:
    return (row[13], *claim_order(row))


def _claim(tx: Tx, turn: Turn, tasks: str, capacities: Capacities) -> TurnClaims:
    handed = hand_out(tx, turn, tasks, capacities)
    tx.run("set_worker_turn", (turn.number, tx.now, turn.worker))
    return handed
