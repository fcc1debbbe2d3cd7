"""A turn: acks in, cancel orders and claims out, in one script (``lua/turn.lua``)."""

from __future__ import annotations

import msgspec

from mainspring.worker.records import CancelOrder, Turn, TurnResult

from .breakers import stored_breaker, swap_words
from .driver.client import RedisClient
from .jobs.ack import Leases, pack_acks, storable
from .jobs.claim import read_claim, want_arguments
from .rows import moment

_pack = msgspec.msgpack.Encoder().encode


async def turn(client: RedisClient, turn: Turn) -> TurnResult:
    acks, unstorable = storable(turn.acks)
    plain, words = pack_acks(acks)
    wants = want_arguments(turn.wants)
    swaps = swap_words(turn.breakers) if turn.breakers else ()
    packed = _pack((turn.number, turn.seen, turn.suspects, wants, plain, turn.holds is not None, swaps))
    holds = b"".join(job + moment(token) for job, token in turn.holds or ())
    reply = await client.run("turn", turn.worker, packed, holds, *words)
    now, lost, claims, already, stale, orders, gone, more, full, next_at, held, breakers, passed = reply
    if lost:
        return TurnResult(now=now, lost=True)
    return TurnResult(
        now=now,
        claims=tuple(map(read_claim, claims[::2], claims[1::2])),
        already=_leases(already),
        stale=_leases(stale),
        unstorable=unstorable,
        orders=tuple(CancelOrder(job, token, reason.decode()) for job, token, reason in orders),
        gone=_gone(turn, gone),
        more=more == 1,
        full=full == 1,
        next_at=next_at,
        held=tuple(sorted(queue.decode() for queue in held)),
        breakers=tuple(map(stored_breaker, breakers)),
        passed=passed == 1,
    )


def _gone(turn: Turn, gone: list[bytes]) -> Leases:
    if not gone:
        return ()
    missing = set(gone)
    return tuple((job, token) for job, token in turn.holds or () if job + moment(token) in missing)


def _leases(pairs: list[tuple[bytes, int]]) -> Leases:
    return tuple((job, token) for job, token in pairs)
