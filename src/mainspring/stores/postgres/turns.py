"""Turn, and the acks that a turn and a retirement carry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, LiteralString

from mainspring.breakers.records import BreakerRow
from mainspring.common.text import storable
from mainspring.jobs.outcomes import Ack
from mainspring.states import State, allows
from mainspring.stores.postgres.arrays import INT_MAX, flags, numbers, some
from mainspring.stores.postgres.limits import breaker_row, labelled_json, spent_json, storable_use
from mainspring.stores.postgres.session import Params, Rows
from mainspring.stores.postgres.statements import fill
from mainspring.worker.records import CancelOrder, Claim, Turn, TurnResult

MAX_BYTES = 256 * 1024 * 1024
"""A row may not exceed 1 GB, and the hex form of a dump takes twice the bytes."""

INLINE = 64 * 1024
"""Bytes of records that the reply of a turn itself may carry: what a socket takes whether or not anybody reads it."""

ROOM = 1024 * 1024
"""Bytes of records after which a turn hands out no more: a slow wire carries them well within the time of a call."""

ACKS = """array(
        select row(a.n, a.id, a.token, a.outcome, a."to", a.reason, a.delay, a.due, a.result, a.error, a.label,
            a.refund, a.park, a.slow, a.spent::jsonb, a.fault, a.buckets::jsonb, a.part)::{schema}.ack_v1
        from unnest(%(a_id)b::bytea[], %(a_token)s::bigint[], %(a_outcome)b::text[], %(a_to)b::text[],
            %(a_reason)b::text[], %(a_delay)s::bigint[], %(a_due)s::bigint[], %(a_result)b::bytea[],
            %(a_error)b::bytea[], %(a_label)b::text[], %(a_refund)s::boolean[], %(a_park)s::boolean[],
            %(a_slow)s::bigint[], %(a_spent)b::text[], %(a_fault)b::text[], %(a_buckets)b::text[],
            %(a_part)b::text[]
        ) with ordinality as a(
            id, token, outcome, "to", reason, delay, due, result, error, label, refund, park, slow, spent, fault,
            buckets, part, n
        )
    )"""

_CALL = """
select * from {schema}.turn_v1(
    %(worker)s::text, %(number)s::bigint, %(seen)s::bigint, %(now)s::bigint, %(suspects)s::integer,
    %(done)b::bytea[], %(token)s::bigint[], %(result)b::bytea[], %(error)b::bytea[], {acks},
    %(want)s::integer[], %(lane)b::text[], %(n)s::integer[], %(oldest)s::integer[], %(few)s::integer[],
    %(held)b::bytea[], %(held_token)s::bigint[], %(inline)s::integer, %(room)s::bigint{low}{good}
)
"""
RECORDS = "select id, record from {schema}.jobs where id = any(%(ids)b::bytea[]) and worker = %(worker)s"
_LOW = "%(low_lane)b::text[], %(low_priority)s::integer[], %(low_seq)s::bigint[]"
_GOOD = "p_good => %(good)s::jsonb"
_FORMS = {
    (mixed, low, good): _CALL.replace("{acks}", ACKS if mixed else "'{}'")
    .replace("{low}", f",\n    {_LOW}" if low else "")
    .replace("{good}", f",\n    {_GOOD}" if good else "")
    for mixed in (False, True)
    for low in (False, True)
    for good in (False, True)
}

Pair = tuple[bytes, int]
Lows = dict[tuple[str, int], int]
"""By base lane and priority: the seq of the first job of the last claim."""


def call(turn: Turn, acks: Sequence[Ack], schema: str, now: int | None, low: Params) -> tuple[LiteralString, Params]:
    """The statement of a turn; ``acks`` are those of its acks that can be stored, ``low`` the marks of strays.py."""
    done = [ack for ack in acks if _plain(ack)]
    done.sort(key=_by_id)
    others = [ack for ack in acks if not _plain(ack)] if len(done) < len(acks) else ()
    wants = [(number, lane) for number, want in enumerate(turn.wants, start=1) for lane in want.lanes]
    held = turn.holds
    params = {
        "worker": turn.worker,
        "number": turn.number,
        "seen": turn.seen,
        "now": now,
        "suspects": turn.suspects,
        "done": [ack.id for ack in done],
        "token": numbers([ack.token for ack in done]),
        "result": some([ack.result for ack in done]),
        "error": some([ack.error for ack in done]),
        "want": numbers([number for number, _ in wants]),
        "lane": [lane for _, lane in wants],
        "n": numbers([want.n for want in turn.wants]),
        "oldest": numbers([want.oldest for want in turn.wants]),
        "few": numbers([want.limited for want in turn.wants]),
        "held": None if held is None else [job for job, _ in held],
        "held_token": None if held is None else numbers([token for _, token in held]),
        "inline": INLINE // max(1, sum([want.n for want in turn.wants])),
        "room": ROOM,
    }
    if others:
        params |= ack_params(others)
    if turn.good:
        params["good"] = spent_json(turn.good)
    return fill(_FORMS[bool(others), bool(low), bool(turn.good)], schema), {**params, **low} if low else params


def _plain(ack: Ack) -> bool:
    return ack.to is State.SUCCEEDED and not ack.spent and not ack.slow


def _by_id(ack: Ack) -> bytes:
    return ack.id


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
        "a_label": [ack.label for ack in acks],
        "a_refund": flags(ack.refund for ack in acks),
        "a_park": flags(ack.park for ack in acks),
        "a_slow": numbers(ack.slow for ack in acks),
        "a_spent": [spent_json(ack.spent) for ack in acks],
        "a_fault": [ack.fault or None for ack in acks],
        "a_buckets": [labelled_json(ack.buckets) if ack.buckets or not ack.part else "[]" for ack in acks],
        "a_part": [ack.part or None for ack in acks],
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
    if max(len(ack.result or b""), len(ack.error or b"")) > MAX_BYTES or abs(ack.token) >= INT_MAX:
        return False
    if (ack.spent or ack.slow) and not storable_use(ack.spent, ack.slow):
        return False
    if not storable(ack.part) or not all(storable(each.limit) and abs(each.cost) < INT_MAX for each in ack.buckets):
        return False
    if ack.to is State.SUCCEEDED:
        return allows(ack.action, State.RUNNING, ack.to)
    return (
        max(abs(ack.delay), abs(ack.due or 0)) < INT_MAX
        and (ack.label is None or storable(ack.label))
        and allows(ack.action, State.RUNNING, ack.to)
    )


def left_behind(rows: Rows) -> list[bytes]:
    """The claimed jobs whose records are too large to come with the turn."""
    return [row[1] for row in rows if row[13] is None and row[0] == "claim"]


def completed(rows: Rows, records: Rows) -> Rows:
    """The rows of a turn with the records that were left behind; a job that was taken away meanwhile is not claimed."""
    found: dict[bytes, bytes] = dict(records)
    whole = []
    for row in rows:
        if row[0] != "claim" or row[13] is not None:
            whole.append(row)
        elif row[1] in found:
            whole.append((*row[:13], found[row[1]], *row[14:]))
    return whole


def _short(rows: Rows) -> tuple[bytes, ...]:
    return tuple([row[1] for row in rows if row[0] == "claim" and row[15] and row[15].startswith("short")])


def reply(rows: Rows, unstorable: Sequence[Pair], again: Sequence[Pair]) -> tuple[TurnResult, list[str], Lows]:
    """The rows of a turn, sorted by their kind; the queues in which a job became ready; where its claims began."""
    pairs: dict[str, list[Pair]] = {"already": list(again), "stale": [], "gone": []}
    claims: list[Claim] = []
    orders: list[CancelOrder] = []
    woken: list[str] = []
    lows: Lows = {}
    breakers: list[BreakerRow] = []
    now, lost, more = 0, False, False
    next_at: int | None = None
    held: set[str] = set()
    for row in rows:
        match row[0]:
            case "claim":
                claims.append(Claim(*(*row[1:15], row[15] is not None and row[15].endswith("part"))))
            case "order":
                orders.append(CancelOrder(row[1], row[2], row[15]))
            case "turn":
                now, lost = row[2], row[10]
            case "woken":
                woken.append(row[4])
            case "more":
                more = True
            case "next":
                next_at = row[2]
            case "held":
                held.add(row[4])
            case "breaker":
                breakers.append(breaker_row(row[15]))
            case "low":
                lows[row[5], row[6]] = row[2]
            case kind:
                pairs[kind].append((row[1], row[2]))
    if lost:
        return TurnResult(now=now, lost=True), [], {}
    return (
        TurnResult(
            now=now,
            claims=tuple(claims),
            already=tuple(pairs["already"]),
            stale=tuple(pairs["stale"]),
            unstorable=tuple(unstorable),
            orders=tuple(orders),
            gone=tuple(pairs["gone"]),
            more=more,
            next_at=next_at,
            held=tuple(sorted(held)),
            breakers=tuple(breakers),
            short=_short(rows),
        ),
        woken,
        lows,
    )
