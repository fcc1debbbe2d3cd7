"""Why a job of a flow was cancelled: which job, or the end of the flow, caused it. For ``JobCancelled``."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from mainspring.flows.results import is_join, rows_of
from mainspring.flows.shape import BUILT_IN, body_of
from mainspring.jobs.info import decode_error
from mainspring.jobs.query import Query, flow_mark
from mainspring.jobs.records import JobBody, JobRow
from mainspring.states import FINAL, Reason, State

if TYPE_CHECKING:
    from mainspring.stores.base import Store

STEPS_BACK = 100
"""Jobs before a job that are looked at one after the other, before the flow is searched as a whole."""
_OWN_REASONS = (Reason.BY_USER, Reason.EXPIRED, Reason.SKIPPED, Reason.SUPERSEDED)
"""Reasons of a cancelled job that are not about another job."""
_decode_body = msgspec.json.Decoder(JobBody).decode


async def find_cause(store: Store, row: JobRow) -> str:
    """The cause in words; empty if the job is no part of a flow, or was cancelled alone."""
    if row.state is not State.CANCELLED or b'"flow":' not in row.record:
        return ""
    body = _decode_body(row.record)
    if body.flow is None or row.reason not in (Reason.PARENT, Reason.BYPASSED, Reason.BY_USER):
        return ""
    flow = bytes.fromhex(body.flow)
    cause = await _find_end(store, flow, row)
    if cause or row.reason is Reason.BY_USER:
        return cause
    cause = await _walk_back(store, row) or await _search(store, flow)
    if row.reason is not Reason.BYPASSED:
        return cause or "a job before it in its flow was deleted"
    return f"it was left out: {cause or 'its flow did not need it'}"


async def _find_end(store: Store, flow: bytes, row: JobRow) -> str:
    """The flow was cancelled, or its time limit was over, before the job ended."""
    rows = await rows_of(store, [flow, body_of(flow)])
    for id in (flow, body_of(flow)):
        join = rows.get(id)
        if join is None or join.state is not State.CANCELLED or id == row.id:
            continue
        if (row.finished or 0) < (join.finished or 0):
            continue
        if join.reason is Reason.EXPIRED:
            return f"the time limit of its flow {UUID(bytes=flow)} was over"
        if join.reason is Reason.BY_USER:
            return f"its flow {UUID(bytes=flow)} was cancelled{f': {join.note}' if join.note else ''}"
    return ""


async def _walk_back(store: Store, row: JobRow) -> str:
    """Go back from job to job, along those that were cancelled by a job before them."""
    for _ in range(STEPS_BACK):
        parents = [bytes.fromhex(parent) for parent, _ in _decode_body(row.record).after]
        rows = await rows_of(store, parents) if parents else {}
        bad = [rows[id] for id in parents if id in rows and rows[id].state in (State.DEAD, State.CANCELLED)]
        causes = [each for each in bad if each.state is State.DEAD or each.reason in _OWN_REASONS]
        if causes:
            return _describe(causes[0])
        missing = next((id for id in parents if id not in rows), None)
        if missing is not None:
            return f"job {UUID(bytes=missing)}, which it waited for, was deleted"
        further = [each for each in bad if each.reason is Reason.PARENT and not is_join(each)]
        if not further:
            return ""
        row = further[0]
    return ""


async def _search(store: Store, flow: bytes) -> str:
    """The first job of the flow that is dead or was cancelled for a reason of its own."""
    mark = (flow_mark(flow),)
    found = (await store.find(Query(marks=mark, states=(State.DEAD,)), limit=1)).jobs
    if not found:
        query = Query(marks=mark, states=(State.CANCELLED,), reasons=_OWN_REASONS)
        found = (await store.find(query, limit=1)).jobs
    return _describe(found[0]) if found else ""


def _describe(row: JobRow) -> str:
    assert row.state in FINAL, "only an ended job is a cause"
    if row.task in BUILT_IN and row.state is State.CANCELLED:
        how = "was not completed in time" if row.reason is Reason.EXPIRED else "was cancelled"
        return f"a part of its flow {how}"
    name = f"job {UUID(bytes=row.id)} of task {row.task!r} in its flow"
    if row.state is State.DEAD:
        error = decode_error(row.error)
        return f"{name} is dead{f': {error.type}: {error.message}' if error else f' ({row.reason})'}"
    if row.reason is Reason.EXPIRED:
        return f"{name} expired before it started"
    if row.reason is Reason.BY_USER:
        return f"{name} was cancelled{f': {row.note}' if row.note else ' by hand'}"
    return f"{name} was cancelled ({row.reason})"
