"""What a flow means for one of its jobs: which jobs cannot be retried or deleted alone, and why a job was cancelled.

A retry by hand is not counted again by the joins of the flow, and a job whose edges are resolved does not wait for its
parents again. So a retry is refused after the flow has gone on without the job, and for a job that never started
because of a job before it. A delete is refused while the flow is open, because the jobs behind need the result.

A store knows nothing of this: it retries and deletes any job that has ended. ``jobs/actions.py`` and ``Job`` ask here
first, for every method and command.

The cause of a cancelled job, for ``JobCancelled``, is another job, or the end of the flow (:func:`find_cause`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from mainspring.errors import NotFound, WrongState
from mainspring.flows.results import flow_of, is_join, rows_of
from mainspring.flows.shape import BUILT_IN, ROOT_TASK, body_of
from mainspring.jobs.info import decode_error
from mainspring.jobs.query import FLOW_MARK, Query, flow_mark
from mainspring.jobs.records import JobBody, JobRow
from mainspring.states import FINAL, LIVE, Action, Reason, State, sources

if TYPE_CHECKING:
    from mainspring.stores.base import Store

PAGE = 500
STEPS_BACK = 100
"""Jobs before a job that are looked at one after the other, before the flow is searched as a whole."""
_OWN_REASONS = (Reason.BY_USER, Reason.EXPIRED, Reason.SKIPPED, Reason.SUPERSEDED)
"""Reasons of a cancelled job that are not about another job."""
_FLOW_MARK = re.compile(re.escape(FLOW_MARK) + "[0-9a-f]{32}").fullmatch
_decode_body = msgspec.json.Decoder(JobBody).decode


async def has_open_flows(store: Store) -> bool:
    """Whether any flow of the store has not ended."""
    query = Query(tasks=(ROOT_TASK,), states=tuple(sorted(LIVE)))
    return bool((await store.find(query, limit=1)).jobs)


async def find_refused(store: Store, action: Action, rows: Sequence[JobRow]) -> dict[bytes, WrongState]:
    """The jobs among these that cannot be retried or deleted because of their flow, each with the error for it."""
    if action not in (Action.RETRY, Action.DELETE):
        return {}
    bodies = {row.id: body for row in rows if (body := _body_of_member(row)) is not None}
    if not bodies:
        return {}
    joins = {bytes.fromhex(join) for body in bodies.values() for join in body.before}
    roots = {bytes.fromhex(body.flow or "") for body in bodies.values()}
    ids = list(joins | roots | {body_of(root) for root in roots})
    known: dict[bytes, JobRow] = {}
    for first in range(0, len(ids), PAGE):
        known.update(await rows_of(store, ids[first : first + PAGE]))
    check = _check_retry if action is Action.RETRY else _check_delete
    possible = sources(action)
    found = ((row, bodies[row.id]) for row in rows if row.id in bodies and row.state in possible)
    return {row.id: error for row, body in found if (error := check(row, body, known)) is not None}


def warn_of_refused(action: Action, refused: Sequence[WrongState]) -> None:
    """Log which jobs an action on many jobs has left out."""
    if not refused:
        return
    import logging

    jobs = "1 job" if len(refused) == 1 else f"{len(refused):,} jobs"
    first = refused[0]
    logging.getLogger("mainspring.jobs").warning(
        "%s left out %s of flows. The first: %s. %s", action, jobs, first.message, first.hint
    )


async def find_flow_mark(store: Store, mark: str) -> str:
    """The mark of a flow, also if the mark was made of the id of a job of the flow. Other marks are returned as given.

    ``NotFound`` for the id of a job that is no part of a flow.
    """
    if not _FLOW_MARK(mark):
        return mark
    id = bytes.fromhex(mark[len(FLOW_MARK) :])
    row = (await rows_of(store, [id])).get(id)
    if row is None:
        return mark
    flow = flow_of(row)
    if flow is None:
        hint = "app.flows.list() shows the flows; a job that is no part of a flow has none."
        raise NotFound("flow", str(UUID(bytes=id)), hint=hint)
    return flow


def _check_retry(row: JobRow, body: JobBody, known: dict[bytes, JobRow]) -> WrongState | None:
    flow = bytes.fromhex(body.flow or "")
    root = known.get(flow)
    undoing = known.get(body_of(flow))
    if root is None:
        return _refuse(row, "retry", f"its flow {_text(flow)} was deleted", "Enqueue the flow anew.")
    if root.state is State.SUCCEEDED and row.state is State.DEAD:
        return None  # the flow went on without its result, and nothing else depends on it
    if root.state is State.SUCCEEDED:
        return _refuse(row, "retry", f"its flow {_text(flow)} has succeeded", "Enqueue the flow anew.")
    again = f"app.flows.retry({_text(flow)!r}), or mainspring flows retry {_text(flow)}"
    if root.state in FINAL:
        why = f"its flow {_text(flow)} has ended and would not go on"
        return _refuse(row, "retry", why, f"{again}, runs the flow again from where it failed.")
    if undoing is not None and undoing.state in FINAL:
        why = f"the compensations of its flow {_text(flow)} have begun"
        return _refuse(row, "retry", why, "Enqueue the flow anew after its end.")
    later = f"When the flow has ended, {again}, runs it again from where it failed."
    if _is_left_out(row, body):
        why = f"it never started, because of a job before it in its flow {_text(flow)}"
        return _refuse(row, "retry", why, later)
    if any(join in known and known[join].state in FINAL for join in map(bytes.fromhex, body.before)):
        return _refuse(row, "retry", f"its flow {_text(flow)} has gone on without it", later)
    return None


def _is_left_out(row: JobRow, body: JobBody) -> bool:
    """Whether the job was cancelled while it waited for other jobs: its edges are gone."""
    if row.state is not State.CANCELLED:
        return False
    return row.reason in (Reason.PARENT, Reason.BYPASSED) or (row.token == 0 and bool(body.after))


def _check_delete(row: JobRow, body: JobBody, known: dict[bytes, JobRow]) -> WrongState | None:
    flow = bytes.fromhex(body.flow or "")
    root = known.get(flow)
    if root is None or root.state in FINAL:
        return None
    why = f"its flow {_text(flow)} is running, and jobs behind it may need its result"
    hint = f"app.flows.cancel({_text(flow)!r}), or mainspring flows cancel {_text(flow)}, ends the flow."
    return _refuse(row, "delete", why, hint)


def _refuse(row: JobRow, action: str, why: str, hint: str) -> WrongState:
    return WrongState(UUID(bytes=row.id), action, row.state, why=why, hint=hint)


def _text(flow: bytes) -> str:
    return str(UUID(bytes=flow))


def _body_of_member(row: JobRow) -> JobBody | None:
    """The record of a job of a flow; None for another job, and for a record that cannot be read."""
    if not isinstance(row.record, bytes) or b'"flow":' not in row.record:
        return None
    try:
        body = _decode_body(row.record)
    except (msgspec.DecodeError, TypeError, RecursionError):
        return None
    return None if body.flow is None else body


# ---- the cause of a cancelled job ---------------------------------------------------------------------


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
