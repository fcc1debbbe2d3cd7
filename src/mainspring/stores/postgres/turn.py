"""One turn of a worker: its acks go in, its claims and orders come out, in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from psycopg import errors as pg

from mainspring.breakers.records import StoredBreaker
from mainspring.jobs.outcomes import Ack
from mainspring.stores.postgres.breakers import swaps_json
from mainspring.stores.postgres.driver.arrays import numbers, some
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Params, Rows, Step
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.jobs.ack import ACKS, Pair, ack_params, is_plain, sift_acks
from mainspring.stores.postgres.jobs.claim import LowWaterMarks, Marks, add_large_records, claim_params
from mainspring.stores.postgres.rows import stored_breaker
from mainspring.worker.records import CancelOrder, Claim, Turn, TurnResult

_TURN = """
select * from {schema}.turn_v1(
    %(worker)s::text, %(number)s::bigint, %(seen)s::bigint, %(now)s::bigint, %(suspects)s::integer,
    %(done)b::bytea[], %(token)s::bigint[], %(result)b::bytea[], %(error)b::bytea[],
    %(ran)s::bigint[], {acks},
    %(want)s::integer[], %(lane)b::text[], %(n)s::integer[], %(ahead)s::boolean[],
    %(held)b::bytea[], %(held_token)s::bigint[], %(inline)s::integer, %(max_bytes)s::bigint{marks}{breakers}
)
"""
_MARKS = ",\n    %(low_lane)b::text[], %(low_priority)s::integer[], %(low_seq)s::bigint[]"
_BREAKERS = ",\n    p_breakers => %(breakers)s::jsonb"
_FORMS = {
    (mixed, marked, swaps): _TURN.replace("{acks}", ACKS if mixed else "'{}'")
    .replace("{marks}", _MARKS if marked else "")
    .replace("{breakers}", _BREAKERS if swaps else "")
    for mixed in (False, True)
    for marked in (False, True)
    for swaps in (False, True)
}
"""The statement by what the turn carries: acks beside plain successes, low-water marks, breakers."""
_by_id = attrgetter("id")


async def turn(db: Database, low_water: LowWaterMarks, turn: Turn) -> TurnResult:
    acks, unstorable, again = sift_acks(turn.acks)
    lanes = [lane for want in turn.wants for lane in want.lanes]
    marks, lowered = low_water.params(lanes), low_water.lowered
    try:
        rows = await db.run(turn_call(turn, acks, db.schema, db.now(), marks))
    except pg.QueryCanceled:
        low_water.search_heads(lanes)
        raise
    result, woken, found = turn_reply(await add_large_records(db, turn.worker, rows), unstorable, again)
    low_water.learn(found, lowered)
    await db.wake(woken)
    return result


def turn_call(turn: Turn, acks: Sequence[Ack], schema: str, now: int | None, marks: Params) -> Step:
    """The statement of a turn; ``acks`` are its acks that can be stored, ``marks`` the low-water marks of its lanes."""
    done = [ack for ack in acks if is_plain(ack)]
    done.sort(key=_by_id)
    others = [ack for ack in acks if not is_plain(ack)] if len(done) < len(acks) else ()
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
        "ran": numbers([ack.run_us for ack in done]),
        "held": None if held is None else [job for job, _ in held],
        "held_token": None if held is None else numbers([token for _, token in held]),
        **claim_params(turn),
    }
    if others:
        params |= ack_params(others)
    if turn.breakers:
        params["breakers"] = swaps_json(turn.breakers)
    return fill_schema(_FORMS[bool(others), bool(marks), bool(turn.breakers)], schema), {
        **params,
        **marks,
    } if marks else params


def turn_reply(rows: Rows, unstorable: Sequence[Pair], again: Sequence[Pair]) -> tuple[TurnResult, list[str], Marks]:
    """The rows of a turn, sorted by their kind; the queues in which a job became ready; where its claims began.

    Rows are read by position: this is the hot path. The columns are those of ``turn_v1`` in ``sql/turn.sql``.
    """
    pairs: dict[str, list[Pair]] = {"already": list(again), "stale": [], "gone": []}
    claims: list[Claim] = []
    orders: list[CancelOrder] = []
    woken: list[str] = []
    marks: Marks = {}
    breakers: list[StoredBreaker] = []
    now, lost = 0, False
    flags: set[str] = set()
    next_at: int | None = None
    held: set[str] = set()
    for row in rows:
        match row[0]:
            case "claim":
                claims.append(Claim(*row[1:15]))
            case "order":
                orders.append(CancelOrder(row[1], row[2], row[15]))
            case "turn":
                now, lost = row[2], row[10]
            case "woken":
                woken.append(row[4])
            case "more" | "passed":
                flags.add(row[0])
            case "next":
                next_at = row[2]
            case "held":
                held.add(row[4])
            case "breaker":
                breakers.append(stored_breaker(row[15]))
            case "low":
                marks[row[5], row[6]] = row[2]
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
            more="more" in flags,
            next_at=next_at,
            held=tuple(sorted(held)),
            breakers=tuple(breakers),
            passed="passed" in flags,
        ),
        woken,
        marks,
    )
