"""Acks: what a turn or a retirement takes in, as ``lua/_ack.lua`` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from struct import Struct

import msgspec

from mainspring.jobs.outcomes import Ack
from mainspring.states import Action, State, allows
from mainspring.stores.redis import limits
from mainspring.stores.redis.driver.constants import CODES, EXACT, ID_BYTES
from mainspring.stores.redis.rows import moment

Leases = tuple[tuple[bytes, int], ...]

_pack = msgspec.msgpack.Encoder().encode
_length = Struct(">I").pack
_times = Struct(">dd").pack


def storable(acks: Sequence[Ack]) -> tuple[list[Ack], Leases]:
    """The acks that the store can apply, and the leases of the others."""
    good = [ack for ack in acks if _is_storable(ack)]
    if len(good) == len(acks):
        return good, ()
    return good, tuple((ack.id, ack.token) for ack in acks if not _is_storable(ack))


def _is_storable(ack: Ack) -> bool:
    in_range = abs(ack.due or 0) < EXACT and 0 <= ack.delay < EXACT // 2 and abs(ack.token) < EXACT
    if ack.slow or ack.spent or ack.buckets:  # few acks have these
        in_range = in_range and 0 <= ack.slow < EXACT // 2 and all(abs(cost) < EXACT for _, cost in ack.spent)
        in_range = in_range and all(0 <= each.cost < EXACT for each in ack.buckets)
    if ack.delays:
        in_range = in_range and all(0 <= delay < EXACT // 2 for delay in ack.delays)
    return in_range and len(ack.id) == ID_BYTES and _is_legal(ack.action, ack.to)


@cache
def _is_legal(action: Action, to: State) -> bool:
    return allows(action, State.RUNNING, to)


def pack_acks(acks: Sequence[Ack]) -> tuple[int, list[bytes]]:
    """The number of plain successes, and the arguments of all acks: plain successes first."""
    plain: list[bytes] = []
    others: list[bytes] = []
    for ack in acks:
        if ack.to is State.SUCCEEDED and ack.error is None and not (ack.slow or ack.spent):
            said = ack.id + _times(ack.token, ack.run_us)
            plain.append(said if ack.result is None else said + b"+" + ack.result)
        else:
            others += _pack_other(ack)
    return len(plain), plain + others


def _pack_other(ack: Ack) -> tuple[bytes, bytes]:
    """A missing value is False: nil would end an array in Lua."""
    due = False if ack.due is None else ack.due
    has = ack.result is not None, ack.error is not None
    said = ack.outcome, CODES[ack.to], ack.reason or False, ack.delay, due, ack.refund, ack.park, ack.label or False
    result, error = ack.result or b"", ack.error or b""
    lacked = limits.labelled(ack.buckets) if ack.buckets else False
    return (
        _pack((*said, *has, ack.slow, ack.spent, lacked, ack.unstarted, ack.run_us, ack.delays)),
        b"".join((ack.id, moment(ack.token), _length(len(result)), result, _length(len(error)), error)),
    )
