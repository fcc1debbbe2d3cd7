"""Turn, and the acks that a turn and a retirement carry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, LiteralString

from mainspring.outcomes import Ack
from mainspring.records import Claim, Order, Turned
from mainspring.stores.base import Turn
from mainspring.stores.postgres.arrays import INT_MAX, flags, numbers
from mainspring.stores.postgres.session import Params, Rows
from mainspring.stores.postgres.statements import fill

MAX_BYTES = 256 * 1024 * 1024
"""A row may not exceed 1 GB, and the hex form of a dump takes twice the bytes."""

ACKS = """array(
        select row(a.n, a.id, a.token, a.outcome, a."to", a.reason, a.delay, a.due, a.result, a.error, a.refund, a.park,
            a.run_us)::{schema}.ack_v1
        from unnest(%(a_id)b::bytea[], %(a_token)s::bigint[], %(a_outcome)b::text[], %(a_to)b::text[],
            %(a_reason)b::text[], %(a_delay)s::bigint[], %(a_due)s::bigint[], %(a_result)b::bytea[],
            %(a_error)b::bytea[], %(a_refund)s::boolean[], %(a_park)s::boolean[], %(a_run_us)s::bigint[]
        ) with ordinality as a(id, token, outcome, "to", reason, delay, due, result, error, refund, park, run_us, n)
    )"""

_CALL = (
    """
select * from {schema}.turn_v1(
    %(worker)s::text, %(number)s::bigint, %(seen)s::bigint, %(now)s::bigint, %(suspects)s::integer,
    """
    + ACKS
    + """,
    %(want)s::integer[], %(lane)b::text[], %(n)s::integer[], %(oldest)s::integer[],
    %(held)b::bytea[], %(held_token)s::bigint[]
)
"""
)

Pair = tuple[bytes, int]


def call(turn: Turn, acks: Sequence[Ack], schema: str, now: int | None) -> tuple[LiteralString, Params]:
    """The statement of a turn; ``acks`` are those of its acks that can be stored."""
    wants = [(number, lane) for number, want in enumerate(turn.wants, start=1) for lane in want.lanes]
    held = turn.holds
    return fill(_CALL, schema), {
        "worker": turn.worker,
        "number": turn.number,
        "seen": turn.seen,
        "now": now,
        "suspects": turn.suspects,
        **ack_params(acks),
        "want": numbers(number for number, _ in wants),
        "lane": [lane for _, lane in wants],
        "n": numbers(want.n for want in turn.wants),
        "oldest": numbers(want.oldest for want in turn.wants),
        "held": None if held is None else [job for job, _ in held],
        "held_token": None if held is None else numbers(token for _, token in held),
    }


def ack_params(acks: Sequence[Ack]) -> dict[str, Any]:
    """The parameters that ``ACKS`` names."""
    return {
        "a_id": [ack.id for ack in acks],
        "a_token": numbers(ack.token for ack in acks),
        "a_outcome": [ack.outcome.value for ack in acks],
        "a_to": [ack.to.value for ack in acks],
        "a_reason": [ack.reason and ack.reason.value for ack in acks],
        "a_delay": numbers(ack.delay for ack in acks),
        "a_due": numbers(ack.due for ack in acks),
        "a_result": [ack.result for ack in acks],
        "a_error": [ack.error for ack in acks],
        "a_refund": flags(ack.refund for ack in acks),
        "a_park": flags(ack.park for ack in acks),
        "a_run_us": numbers(ack.run_us for ack in acks),
    }


def sift(acks: Iterable[Ack]) -> tuple[list[Ack], list[Pair], list[Pair]]:
    """(those to send, those that cannot be stored, those that are there a second time)."""
    good: dict[Pair, Ack] = {}
    unstorable: list[Pair] = []
    again: list[Pair] = []
    for ack in acks:
        if not _storable(ack):
            unstorable.append((ack.id, ack.token))
        elif (ack.id, ack.token) in good:
            again.append((ack.id, ack.token))
        else:
            good[ack.id, ack.token] = ack
    return list(good.values()), unstorable, again


def _storable(ack: Ack) -> bool:
    sizes = len(ack.result or b""), len(ack.error or b"")
    return max(sizes) <= MAX_BYTES and all(
        abs(number) < INT_MAX for number in (ack.token, ack.delay, ack.due or 0, ack.run_us)
    )


def reply(rows: Rows, unstorable: Sequence[Pair], again: Sequence[Pair]) -> Turned:
    """The rows of a turn, sorted by their kind."""
    pairs: dict[str, list[Pair]] = {"already": list(again), "stale": [], "gone": []}
    claims: list[Claim] = []
    orders: list[Order] = []
    now, lost = 0, False
    for row in rows:
        match row[0]:
            case "claim":
                claims.append(Claim(*row[1:15]))
            case "order":
                orders.append(Order(row[1], row[2], row[15]))
            case "turn":
                now, lost = row[2], row[10]
            case kind:
                pairs[kind].append((row[1], row[2]))
    if lost:
        return Turned(now=now, lost=True)
    return Turned(
        now=now,
        claims=tuple(claims),
        already=tuple(pairs["already"]),
        stale=tuple(pairs["stale"]),
        unstorable=tuple(unstorable),
        orders=tuple(orders),
        gone=tuple(pairs["gone"]),
    )
