"""The arguments and the replies of ``turn.lua``, ``retire.lua`` and ``rescue.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from mainspring.outcomes import Ack, Outcome
from mainspring.records import Order, Rescued, Turned
from mainspring.states import Action, State, allows
from mainspring.stores.base import Turn

from . import rows
from .enqueue import EXACT

_pack = msgspec.msgpack.Encoder().encode


def storable(acks: Sequence[Ack]) -> tuple[list[Ack], tuple[tuple[bytes, int], ...]]:
    """The acks that the store can keep, and the leases of those it cannot."""
    good = [ack for ack in acks if _is_storable(ack)]
    if len(good) == len(acks):
        return good, ()
    return good, tuple((ack.id, ack.token) for ack in acks if not _is_storable(ack))


def _is_storable(ack: Ack) -> bool:
    in_range = abs(ack.due or 0) < EXACT and 0 <= ack.delay < EXACT // 2 and abs(ack.token) < EXACT
    return in_range and _legal(ack.action, ack.to)


@cache
def _legal(action: Action, to: State) -> bool:
    return allows(action, State.RUNNING, to)


def turn_arguments(turn: Turn, acks: Sequence[Ack]) -> list[bytes | str]:
    holds = turn.holds
    packed = _pack(
        (
            turn.number,
            turn.seen,
            turn.suspects,
            [_ack(ack) for ack in acks],
            [(want.lanes, want.n, want.oldest) for want in turn.wants],
            False if holds is None else [token for _, token in holds],
        )
    )
    return [turn.worker, packed, b"".join(job for job, _ in holds or ()), *_ack_bytes(acks)]


def turned(reply: list[Any], unstorable: tuple[tuple[bytes, int], ...]) -> Turned:
    now, lost, claims, already, stale, orders, gone = reply
    if lost:
        return Turned(now=now, lost=True)
    return Turned(
        now=now,
        claims=tuple(rows.claim(each) for each in claims),
        already=_leases(already),
        stale=_leases(stale),
        unstorable=unstorable,
        orders=tuple(Order(job, token, reason.decode()) for job, token, reason in orders),
        gone=_leases(gone),
    )


def retire_arguments(worker: str, cause: Outcome, acks: Sequence[Ack], delays: Sequence[int]) -> list[bytes | str]:
    return [worker, cause.value, _pack(delays), _pack([_ack(ack) for ack in acks]), *_ack_bytes(acks)]


def rescue_arguments(worker: str, number: int, cause: Outcome, delays: Sequence[int]) -> list[bytes | str | int]:
    return [worker, number, cause.value, _pack(delays)]


def rescued(reply: list[Any]) -> Rescued:
    taken, ready, retrying, dead, cancelled = reply
    return Rescued(bool(taken), tuple(ready), tuple(retrying), tuple(dead), tuple(cancelled))


def _ack(ack: Ack) -> tuple[object, ...]:
    """As ``_acks.lua`` reads it; a missing value is False, nil would end the array."""
    due = False if ack.due is None else ack.due
    has = ack.result is not None, ack.error is not None
    return ack.token, ack.outcome, ack.to, ack.reason or False, ack.delay, due, ack.refund, ack.park, *has


def _ack_bytes(acks: Sequence[Ack]) -> list[bytes]:
    words: list[bytes] = []
    for ack in acks:
        words += (ack.id, ack.result or b"", ack.error or b"")
    return words


def _leases(pairs: list[list[Any]]) -> tuple[tuple[bytes, int], ...]:
    return tuple((job, token) for job, token in pairs)
