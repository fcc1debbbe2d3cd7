"""From packed heads to records.

A head is an array that Lua packed (places: see ``lua/_common.lua``); ``false`` stands for nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.outcomes import Outcome
from mainspring.records import AttemptRow, Claim, JobRow
from mainspring.states import Reason, State


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the store itself knows of a job, in the order of the packed array."""

    state: State
    task: str
    queue: str
    lane: str
    priority: int
    seq: int
    attempt: int
    epoch: int
    crashes: int
    crash_limit: int
    early: bool
    token: int
    worker: str | bool
    turn: int
    enqueued: int
    due: int | bool
    expires: int | bool
    started: int | bool
    ended: int | bool
    deps: int
    order: str | bool
    reason: str | bool


_head = msgspec.msgpack.Decoder(Head)
_attempt = msgspec.msgpack.Decoder(tuple[int, int, int, str, int, int, Outcome, bool])
_names = msgspec.msgpack.Decoder(tuple[str, ...])


def _number(place: int | bool) -> int | None:
    return None if place is False else int(place)


def _text(place: str | bool) -> str | None:
    return place if isinstance(place, str) else None


def names(packed: bytes) -> tuple[str, ...]:
    return _names.decode(packed)


def claim(row: list[Any]) -> Claim:
    """From ``[id, head, record]``."""
    job, packed, record = row
    head = _head.decode(packed)
    return Claim(
        id=job,
        token=head.token,
        task=head.task,
        queue=head.queue,
        lane=head.lane,
        priority=head.priority,
        attempt=head.attempt,
        epoch=head.epoch,
        crashes=head.crashes,
        early=head.early,
        enqueued=head.enqueued,
        expires=_number(head.expires),
        record=record,
        turn=head.turn,
    )


def job_row(row: list[Any]) -> JobRow:
    """From ``[id, head, record, result, error]``."""
    job, packed, record, result, error = row
    head = _head.decode(packed)
    reason = _text(head.reason)
    return JobRow(
        id=job,
        state=head.state,
        reason=Reason(reason) if reason else None,
        task=head.task,
        queue=head.queue,
        lane=head.lane,
        priority=head.priority,
        attempt=head.attempt,
        epoch=head.epoch,
        crashes=head.crashes,
        crash_limit=head.crash_limit,
        early=head.early,
        token=head.token,
        worker=_text(head.worker),
        seq=head.seq,
        enqueued=head.enqueued,
        due=_number(head.due),
        expires=_number(head.expires),
        started=_number(head.started),
        finished=_number(head.ended),
        deps=head.deps,
        ordered=head.state is State.RUNNING and head.order is not False,
        result=result,
        error=error,
        record=record,
    )


def attempt_rows(fields: dict[bytes, bytes]) -> list[AttemptRow]:
    """From the hash of a job's attempts, oldest first."""
    rows = []
    for field, packed in fields.items():
        if field.endswith(b":error"):
            continue
        token, epoch, attempt, worker, started, ended, outcome, _ = _attempt.decode(packed)
        rows.append(
            AttemptRow(
                token=token,
                epoch=epoch,
                attempt=attempt,
                worker=worker,
                started=started,
                ended=ended,
                outcome=outcome,
                error=fields.get(field + b":error"),
            )
        )
    return sorted(rows, key=lambda row: row.token)
