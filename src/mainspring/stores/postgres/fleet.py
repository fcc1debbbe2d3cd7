"""Workers: heartbeats, rescue, retirement."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import State
from mainspring.stores.postgres.driver.arrays import numbers
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Rows, Step
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.jobs.ack import ACKS, ack_params, sift_acks
from mainspring.stores.postgres.rows import worker_row
from mainspring.worker.records import Beat, BeatResult, LeadResult, RescueResult, WorkerRow

_BEAT = """
select * from {schema}.beat_v1(
    %(worker)b::text[], %(new)b::text[], %(queues)b::text[], %(tasks)b::text[], %(lease)s::bigint[], %(info)b::bytea[],
    %(now)s::bigint
)
"""
_RESCUE = """
select id, state, woken from {schema}.rescue_v1(
    %(worker)s::text, %(number)s::bigint, %(cause)s::text, %(delays)s::bigint[], %(now)s::bigint
)
"""
_RETIRE = f"""
select id, state, woken from {{schema}}.retire_v1(
    %(worker)s::text, %(cause)s::text, {ACKS}, %(delays)s::bigint[], %(now)s::bigint
)
"""
_LEAD = """
select now, led, fleet, next_due, next_look, always_due from {schema}.lead_v1(
    %(worker)s::text, %(services)b::text[], %(span)s::bigint, %(now)s::bigint
)
"""
_WORKERS = f"""
select w.id, w.number, w.turn, w.lost, w.started, w.seen, r.running, w.queues, w.tasks, w.lease, w.info
from {{schema}}.workers w
cross join lateral (
    select count(*) as running from {{schema}}.jobs j where j.worker = w.id and j.state = '{State.RUNNING.value}'
) r
order by w.started, w.id
"""


async def beat(db: Database, beats: Sequence[Beat]) -> list[BeatResult]:
    rows = await db.run(beat_call(beats, db.schema, db.now()))
    alive: dict[str, int] = {worker: number for worker, number in rows}  # noqa: C416 - rows are of any length to mypy
    return [BeatResult(beat.worker, beat.worker in alive, alive.get(beat.worker, 0)) for beat in beats]


async def rescue(db: Database, worker: str, number: int, cause: Outcome, delays: Sequence[int]) -> RescueResult:
    params = {
        "worker": worker, "number": number, "cause": cause.value, "delays": numbers(delays), "now": db.now(),
    }  # fmt: skip
    return await _taken_back(db, await db.rows(_RESCUE, params))


async def retire(db: Database, worker: str, cause: Outcome, acks: Sequence[Ack], delays: Sequence[int]) -> RescueResult:
    good, _, _ = sift_acks(acks)
    params = {
        "worker": worker, "cause": cause.value, **ack_params(good), "delays": numbers(delays), "now": db.now(),
    }  # fmt: skip
    return await _taken_back(db, await db.rows(_RETIRE, params))


async def lead(db: Database, worker: str, services: Sequence[str], span: int) -> LeadResult:
    params = {"worker": worker, "services": list(services), "span": span, "now": db.now()}
    ((now, led, fleet, due, look, always),) = await db.rows(_LEAD, params)
    return LeadResult(
        now=now, services=tuple(led), fleet=fleet, next_due=due, next_look=look, always_due=always
    )  # fmt: skip


async def workers(db: Database) -> list[WorkerRow]:
    return [worker_row(row) for row in await db.rows(_WORKERS)]


def beat_call(beats: Sequence[Beat], schema: str, now: int | None) -> Step:
    """The statement of several heartbeats."""
    new = {beat.worker: beat.register for beat in beats if beat.register is not None}
    return fill_schema(_BEAT, schema), {
        "worker": [beat.worker for beat in beats],
        "new": list(new),
        "queues": [msgspec.json.encode(each.queues).decode() for each in new.values()],
        "tasks": [msgspec.json.encode(each.tasks).decode() for each in new.values()],
        "lease": numbers(each.lease for each in new.values()),
        "info": [each.info for each in new.values()],
        "now": now,
    }


async def _taken_back(db: Database, rows: Rows) -> RescueResult:
    """The rows of a rescue: moved jobs with their state, queues to wake, and whether the worker was taken."""
    await db.wake({woken for _, state, woken in rows if woken is not None and state is None})
    moved: dict[str, list[bytes]] = {State.READY: [], State.RETRYING: [], State.DEAD: [], State.CANCELLED: []}
    for job, state, _ in rows:
        if job is not None:
            moved[state].append(job)
    ready, retrying, dead, cancelled = map(tuple, moved.values())
    return RescueResult(any(state == "taken" for _, state, _ in rows), ready, retrying, dead, cancelled)
