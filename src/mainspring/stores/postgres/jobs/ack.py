"""The acks that a turn and a retirement carry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mainspring.common.text import storable
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import State, allows
from mainspring.stores.postgres.driver.arrays import INT_MAX, flags, numbers
from mainspring.stores.postgres.lanes import labelled_json
from mainspring.stores.postgres.limits import is_storable_use, spent_json

MAX_BYTES = 256 * 1024 * 1024
"""Bytes of a result or an error. A row may not exceed 1 GB, and the hex form of a dump takes twice the bytes."""

ACKS = """array(
        select row(a.n, a.id, a.token, a.outcome, a."to", a.reason, a.delay, a.due, a.result, a.error, a.label,
            a.refund, a.unstarted, a.park, a.slow, a.spent::jsonb, a.buckets::jsonb, a.ran, a.delays::bigint[]
        )::{schema}.ack_v1
        from unnest(%(a_id)b::bytea[], %(a_token)s::bigint[], %(a_outcome)b::text[], %(a_to)b::text[],
            %(a_reason)b::text[], %(a_delay)s::bigint[], %(a_due)s::bigint[], %(a_result)b::bytea[],
            %(a_error)b::bytea[], %(a_label)b::text[], %(a_refund)s::boolean[], %(a_unstarted)s::boolean[],
            %(a_park)s::boolean[], %(a_slow)s::bigint[], %(a_spent)b::text[],
            %(a_buckets)b::text[], %(a_ran)s::bigint[], %(a_delays)b::text[]
        ) with ordinality as a(
            id, token, outcome, "to", reason, delay, due, result, error, label, refund, unstarted, park, slow,
            spent, buckets, ran, delays, n
        )
    )"""
"""Acks as an argument of a function; :func:`ack_params` has the parameters."""

Pair = tuple[bytes, int]
"""The id of a job and a token."""


def is_plain(ack: Ack) -> bool:
    """Whether the ack is a success that says nothing else."""
    return ack.to is State.SUCCEEDED and not ack.spent and not ack.slow


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
        "a_unstarted": flags(ack.unstarted for ack in acks),
        "a_park": flags(ack.park for ack in acks),
        "a_slow": numbers(ack.slow for ack in acks),
        "a_spent": [spent_json(ack.spent) for ack in acks],
        "a_buckets": [labelled_json(ack.buckets) for ack in acks],
        "a_ran": numbers(ack.run_us for ack in acks),
        "a_delays": [_delays_text(ack) for ack in acks],
    }


def _delays_text(ack: Ack) -> str | None:
    """The delays of a crash as a literal of an array: an array of arrays would need equal lengths."""
    return "{" + ",".join(map(str, ack.delays)) + "}" if ack.outcome is Outcome.CRASHED else None


def sift_acks(acks: Iterable[Ack]) -> tuple[list[Ack], list[Pair], list[Pair]]:
    """(acks to send, acks that cannot be stored, acks that are repeated within the call)."""
    good: dict[Pair, Ack] = {}
    unstorable: list[Pair] = []
    again: list[Pair] = []
    for ack in acks:
        if not _is_storable(ack):
            unstorable.append((ack.id, ack.token))
        elif (ack.id, ack.token) in good:
            again.append((ack.id, ack.token))
        else:
            good[ack.id, ack.token] = ack
    return list(good.values()), unstorable, again


def _is_storable(ack: Ack) -> bool:
    if max(len(ack.result or b""), len(ack.error or b"")) > MAX_BYTES or abs(ack.token) >= INT_MAX:
        return False
    if (ack.spent or ack.slow) and not is_storable_use(ack.spent, ack.slow):
        return False
    if not all(storable(each.limit) and abs(each.cost) < INT_MAX for each in ack.buckets):
        return False
    if ack.to is State.SUCCEEDED:
        return allows(ack.action, State.RUNNING, ack.to)
    return (
        max(abs(ack.delay), abs(ack.due or 0), *map(abs, ack.delays)) < INT_MAX
        and (ack.label is None or storable(ack.label))
        and allows(ack.action, State.RUNNING, ack.to)
    )
