"""Beats, rescues and retirements; the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString

import msgspec

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.stores.postgres.arrays import numbers
from mainspring.stores.postgres.limits import breaker_row
from mainspring.stores.postgres.session import Params, Rows
from mainspring.stores.postgres.statements import fill
from mainspring.stores.postgres.turns import ACKS, ack_params
from mainspring.worker.records import Beat, BeatResult, RescueResult, WorkerRow

_BEAT = """
select * from {schema}.beat_v1(
    %(worker)b::text[], %(new)b::text[], %(queues)b::text[], %(tasks)b::text[], %(lease)s::bigint[], %(info)b::bytea[],
    %(now)s::bigint
)
"""
_RESCUE = """
select * from {schema}.rescue_v1(
    %(worker)s::text, %(number)s::bigint, %(cause)s::text, %(delays)s::bigint[], %(now)s::bigint
)
"""
_RETIRE = (
    "select * from {schema}.retire_v1(%(worker)s::text, %(cause)s::text, "
    + ACKS
    + ", %(delays)s::bigint[], %(now)s::bigint)"
)


def beat(beats: Sequence[Beat], schema: str, now: int | None) -> tuple[LiteralString, Params]:
    new = {beat.worker: beat.register for beat in beats if beat.register is not None}
    return fill(_BEAT, schema), {
        "worker": [beat.worker for beat in beats],
        "new": list(new),
        "queues": [msgspec.json.encode(each.queues).decode() for each in new.values()],
        "tasks": [msgspec.json.encode(each.tasks).decode() for each in new.values()],
        "lease": numbers(each.lease for each in new.values()),
        "info": [each.info for each in new.values()],
        "now": now,
    }


def beaten(beats: Sequence[Beat], rows: Rows) -> list[BeatResult]:
    alive: dict[str, int] = {row[0]: row[1] for row in rows}
    return [BeatResult(beat.worker, beat.worker in alive, alive.get(beat.worker, 0)) for beat in beats]


def rescue(
    worker: str, number: int, cause: Outcome, delays: Sequence[int], *, schema: str, now: int | None
) -> tuple[LiteralString, Params]:
    return fill(_RESCUE, schema), {
        "worker": worker, "number": number, "cause": cause.value, "delays": numbers(delays), "now": now,
    }  # fmt: skip


def retire(
    worker: str, cause: Outcome, acks: Sequence[Ack], delays: Sequence[int], *, schema: str, now: int | None
) -> tuple[LiteralString, Params]:
    return fill(_RETIRE, schema), {
        "worker": worker, "cause": cause.value, **ack_params(acks), "delays": numbers(delays), "now": now,
    }  # fmt: skip


def rescued(rows: Rows) -> RescueResult:
    moved: dict[str, list[bytes]] = {"ready": [], "retrying": [], "dead": [], "cancelled": []}
    for job, state, _ in rows:
        if job is not None:
            moved[state].append(job)
    ready, retrying, dead, cancelled = map(tuple, moved.values())
    breakers = tuple(breaker_row(said) for _, state, said in rows if state == "breaker")
    return RescueResult(any(state == "taken" for _, state, _ in rows), ready, retrying, dead, cancelled, breakers)


def worker_row(row: tuple[object, ...]) -> WorkerRow:
    names = ("id", "number", "turn", "lost", "started", "seen", "running", "queues", "tasks", "lease", "info")
    return msgspec.convert(dict(zip(names, row, strict=True)), WorkerRow)
