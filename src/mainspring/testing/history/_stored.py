"""The store's part of a history, made from the store at the end of a run.

A store keeps the row and the ended attempts of each job, not every step. The steps between follow from the transition
table: a retrying job that was claimed must have been promoted. For a job that was retried by hand, only the last epoch
is in the history.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.jobs.actions import pages
from mainspring.jobs.outcomes import ACTIONS, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import AttemptRow, JobBody, JobRow
from mainspring.schedules.plan import decode_run
from mainspring.states import FINAL, Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.history._events import FlowEdge, JobEvent, JoinCount, Occurrence, Snapshot

Shown = Callable[[JobRow], int | None]
"""Returns the token under which the result of a job was written."""

_decode_body = msgspec.json.Decoder(JobBody).decode

_AFTER = {
    Outcome.FAILED: State.RETRYING,
    Outcome.TIMED_OUT: State.RETRYING,
    Outcome.SNOOZED: State.SCHEDULED,
}
"""The state of a live job after an attempt; ready for other outcomes."""


class StoredHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a run in the store."""

    jobs: tuple[tuple[JobRow, list[AttemptRow]], ...]
    """Every job with its ended attempts."""
    events: tuple[JobEvent, ...]
    listed: tuple[tuple[str, State], ...]
    occurrences: tuple[Occurrence, ...]
    snapshot: Snapshot
    durability: str
    edges: tuple[FlowEdge, ...] = ()
    joins: tuple[JoinCount, ...] = ()


async def read(store: Store, *, shown: Shown = lambda _: None) -> StoredHistory:
    """Read all jobs of a store. No job may change meanwhile."""
    rows = [row async for page in pages(store, Query.everything(), 1000) for row in page]
    jobs = [(row, await store.attempts(row.id)) for row in {row.id: row for row in rows}.values()]
    events = [event for row, attempts in jobs for event in life_of(row, attempts, wrote=shown(row))]
    counts = await store.count(Query.everything())
    at = max((event.at for event in events), default=0.0)
    return StoredHistory(
        jobs=tuple(jobs),
        events=tuple(replace(event, seq=n) for n, event in enumerate(events)),
        listed=tuple((str(UUID(bytes=row.id)), row.state) for row in rows),
        occurrences=tuple([each for row in await store.schedules() for each in await _occurrences(store, row.name)]),
        snapshot=Snapshot(at=at, counts=counts),
        durability=await store.durability(),
        edges=tuple(edge for row, _ in jobs for edge in edges_of(row)),
        joins=tuple([count async for count in _counts(store, [row.id for row, _ in jobs if is_join(row)])]),
    )


def body_in_flow(row: JobRow) -> JobBody | None:
    """The record of a job of a flow; None for any other job, and for a record that cannot be read."""
    if b'"flow":' not in row.record:
        return None
    try:
        body = _decode_body(row.record)
    except msgspec.MsgspecError:
        return None
    return body if body.flow is not None else None


def is_join(row: JobRow) -> bool:
    body = body_in_flow(row)
    return body is not None and body.members is not None


def edges_of(row: JobRow) -> list[FlowEdge]:
    """The edges that a job of a flow had when it was enqueued."""
    body, job = body_in_flow(row), str(UUID(bytes=row.id))
    if body is None:
        return []
    waited = [FlowEdge(parent=str(UUID(hex=id)), child=job, policy=policy) for id, policy in body.after]
    return waited + [FlowEdge(parent=job, child=str(UUID(hex=id)), policy="member") for id in body.before]


async def _counts(store: Store, joins: Sequence[bytes]) -> AsyncIterator[JoinCount]:
    for row in await store.joins(joins):
        yield JoinCount(
            job=str(UUID(bytes=row.id)), open=row.open, total=row.total, succeeded=row.succeeded, dead=row.dead,
            cancelled=row.cancelled, bypassed=row.bypassed,
        )  # fmt: skip


async def _occurrences(store: Store, schedule: str) -> list[Occurrence]:
    """The stored occurrences of a schedule."""
    found, before = list[Occurrence](), None
    while runs := await store.schedule_runs(schedule, 1000, before):
        for run in runs:
            record = decode_run(run)
            job = "" if run.job is None else str(UUID(bytes=run.job))
            found.append(Occurrence(schedule=schedule, at=run.at, what=record.what, job=job, count=record.count))
        before = runs[-1].at
    return found


def life_of(row: JobRow, attempts: Sequence[AttemptRow], wrote: int | None = None) -> list[JobEvent]:
    """The steps of one job, in order."""
    life = _Life(row)
    for each in sorted(attempts, key=lambda attempt: attempt.token):
        if each.epoch == row.epoch:
            life.claim(each.started, each.token, each.worker, each.attempt)
            life.end(each)
    last = life.events[-1]
    succeeded = row.state is State.SUCCEEDED and last.state is not State.SUCCEEDED and not is_join(row)
    if row.state is State.RUNNING or succeeded:
        life.claim(row.started or 0, row.token, row.worker or "", row.attempt)
    if row.state in FINAL and life.state is not row.state:
        life.close()
    elif row.state is not State.BLOCKED:
        life.unblock(row.enqueued)
    if wrote is not None:
        life.events[-1] = replace(life.events[-1], wrote=wrote)
    return life.events


class _Life:
    def __init__(self, row: JobRow) -> None:
        self._row = row
        self.state: State | None = None
        self.events: list[JobEvent] = []
        body = body_in_flow(row)
        waits = body is not None and (body.after or body.members is not None)
        self._add(row.enqueued, Action.ENQUEUE, State.BLOCKED if waits else State.READY)

    def claim(self, at: int, token: int, worker: str, attempt: int) -> None:
        self.unblock(at)
        if self.state in (State.RETRYING, State.SCHEDULED):
            self._add(at, Action.PROMOTE, State.READY)
        self._add(at, Action.CLAIM, State.RUNNING, token=token, worker=worker, attempt=attempt)

    def unblock(self, at: int) -> None:
        """Add the step after the last parent, at a moment when it had been made."""
        if self.state is State.BLOCKED:
            self._add(at, Action.UNBLOCK, State.READY)

    def end(self, each: AttemptRow) -> None:
        row = self._row
        ended = row.state in FINAL and each.token == row.token and each.ended == row.finished
        state = row.state if ended else _AFTER.get(each.outcome, State.READY)
        reason = row.reason if ended else None
        self._add(
            each.ended, ACTIONS[each.outcome], state, token=each.token, worker=each.worker,
            attempt=each.attempt, outcome=each.outcome, reason=reason,
        )  # fmt: skip

    def close(self) -> None:
        """Add the last step, which has no attempt row."""
        row = self._row
        at, reason = row.finished or 0, row.reason
        if self.state is State.RUNNING:
            self._add(
                at, Action.ACK_SUCCEEDED, row.state, token=row.token, worker=row.worker or "",
                attempt=row.attempt, outcome=Outcome.SUCCEEDED, reason=reason,
            )  # fmt: skip
        elif self.state is State.BLOCKED and reason in (Reason.PARENT, Reason.BYPASSED, None):
            self._add(at, Action.UNBLOCK, row.state, reason=reason)
        elif reason is Reason.PARENT:
            self.events[-1] = replace(self.events[-1], state=row.state, reason=reason)
        else:
            action = Action.EXPIRE if reason is Reason.EXPIRED else Action.CANCEL
            self._add(at, action, row.state, reason=reason)

    def _add(
        self, at: int, action: Action, state: State, *, token: int = 0, worker: str = "", attempt: int = 0,
        outcome: Outcome | None = None, reason: Reason | None = None,
    ) -> None:  # fmt: skip
        self.state = state
        event = JobEvent(
            seq=len(self.events), at=at / 1e6, action=action, job=str(UUID(bytes=self._row.id)), state=state,
            epoch=self._row.epoch, token=token, worker=worker, attempt=attempt, outcome=outcome, reason=reason,
        )  # fmt: skip
        self.events.append(event)
