"""The arguments and the replies of ``turn.lua``, ``retire.lua`` and ``rescue.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import Any

import msgspec

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import Action, State, allows
from mainspring.worker.records import CancelOrder, RescueResult, Turn, TurnResult

from . import rooms
from .enqueue import EXACT
from .heads import CODES, moment
from .rooms import breaker_row
from .rows import claim

Leases = tuple[tuple[bytes, int], ...]

_pack = msgspec.msgpack.Encoder().encode
_length = Struct(">I").pack


def storable(acks: Sequence[Ack]) -> tuple[list[Ack], Leases]:
    """The acks that the store can keep, and the leases of those it cannot."""
    good = [ack for ack in acks if _is_storable(ack)]
    if len(good) == len(acks):
        return good, ()
    return good, tuple((ack.id, ack.token) for ack in acks if not _is_storable(ack))


def _is_storable(ack: Ack) -> bool:
    in_range = abs(ack.due or 0) < EXACT and 0 <= ack.delay < EXACT // 2 and abs(ack.token) < EXACT
    if ack.slow or ack.spent or ack.buckets:  # of few
        in_range = in_range and 0 <= ack.slow < EXACT // 2 and all(abs(cost) < EXACT for _, cost in ack.spent)
        in_range = in_range and all(0 <= each.cost < EXACT for each in ack.buckets)
    return in_range and len(ack.id) == 16 and _legal(ack.action, ack.to)


@cache
def _legal(action: Action, to: State) -> bool:
    return allows(action, State.RUNNING, to)


def turn_arguments(turn: Turn, acks: Sequence[Ack]) -> list[bytes | str]:
    plain, words = _said(acks)
    wants = [(want.lanes, want.n, want.oldest, _or_false(want.limited)) for want in turn.wants]
    packed = _pack((turn.number, turn.seen, turn.suspects, wants, plain, turn.holds is not None, turn.good))
    holds = b"".join(job + moment(token) for job, token in turn.holds or ())
    return [turn.worker, packed, holds, *words]


def turned(turn: Turn, reply: list[Any], unstorable: Leases) -> TurnResult:
    now, lost, claims, already, stale, orders, gone, more, full, next_at, held, breakers, short = reply
    if lost:
        return TurnResult(now=now, lost=True)
    return TurnResult(
        now=now,
        claims=tuple(map(claim, claims[::2], claims[1::2])),
        already=_leases(already),
        stale=_leases(stale),
        unstorable=unstorable,
        orders=tuple(CancelOrder(job, token, reason.decode()) for job, token, reason in orders),
        gone=_gone(turn, gone),
        more=more == 1,
        full=full == 1,
        next_at=next_at,
        held=tuple(sorted(queue.decode() for queue in held)),
        breakers=tuple(map(breaker_row, breakers)),
        short=tuple(short),
    )


def _gone(turn: Turn, gone: list[bytes]) -> Leases:
    if not gone:
        return ()
    missing = set(gone)
    return tuple((job, token) for job, token in turn.holds or () if job + moment(token) in missing)


def retire_arguments(worker: str, cause: Outcome, acks: Sequence[Ack], delays: Sequence[int]) -> list[bytes | str]:
    plain, words = _said(acks)
    return [worker, cause.value, _pack(delays), str(plain), *words]


def rescue_arguments(worker: str, number: int, cause: Outcome, delays: Sequence[int]) -> list[bytes | str | int]:
    return [worker, number, cause.value, _pack(delays)]


def rescued(reply: list[Any]) -> RescueResult:
    taken, ready, retrying, dead, cancelled, breakers = reply
    changed = tuple(map(breaker_row, breakers))
    return RescueResult(bool(taken), tuple(ready), tuple(retrying), tuple(dead), tuple(cancelled), changed)


def _said(acks: Sequence[Ack]) -> tuple[int, list[bytes]]:
    """How many plain successes there are, and the acks as ``_acks.lua`` reads them: those first."""
    plain: list[bytes] = []
    others: list[bytes] = []
    for ack in acks:
        if ack.to is State.SUCCEEDED and ack.error is None and not (ack.slow or ack.spent):
            lease = ack.id + moment(ack.token)
            plain.append(lease if ack.result is None else lease + b"+" + ack.result)
        else:
            others += _other(ack)
    return len(plain), plain + others


def _or_false(value: int | None) -> int | bool:
    """A missing value is False: nil would end an array in Lua."""
    return False if value is None else value


def _other(ack: Ack) -> tuple[bytes, bytes]:
    due = _or_false(ack.due)
    has = ack.result is not None, ack.error is not None
    said = ack.outcome, CODES[ack.to], ack.reason or False, ack.delay, due, ack.refund, ack.park, ack.label or False
    result, error = ack.result or b"", ack.error or b""
    lacked = rooms.labelled(ack.buckets) if ack.buckets or ack.part else False
    return (
        _pack((*said, *has, ack.slow, ack.spent, ack.fault or False, lacked, ack.part or False)),
        b"".join((ack.id, moment(ack.token), _length(len(result)), result, _length(len(error)), error)),
    )


def _leases(pairs: list[list[Any]]) -> Leases:
    return tuple((job, token) for job, token in pairs)
