"""The states of a job, and the one table of the transitions between them.

Everything that needs states reads this file: the stores, the constraints in the schemas, the contract test of all
pairs, the diagram in the documentation.

    (new) ──enqueue──> blocked ──unblock──> scheduled ──promote──┐
      │                   └────────unblock──────────┐            │
      └──────────────────────enqueue────────────> ready <────────┤
                                                    │            │
                              claim                 v            │
                                                 running ──> retrying
                                                    │
                       ┌──────────────┬─────────────┴┐
                       v              v              v
                   succeeded        dead         cancelled        (final; retry by hand -> ready)
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """The state of a job. "failed" is an outcome of an attempt, never a state of a job."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why a job is cancelled or dead. Other states have no reason."""

    BY_USER = "by_user"
    EXPIRED = "expired"
    SKIPPED = "skipped"
    SUPERSEDED = "superseded"
    PARENT = "parent"
    BYPASSED = "bypassed"
    """Not needed: the condition of an edge to its parent did not come true. Its dependents go on."""
    FAILED = "failed"
    """The only attempt failed: the job has ``retries=0`` or ``ack="early"``."""
    RETRIES_EXHAUSTED = "retries_exhausted"
    NOT_RETRYABLE = "not_retryable"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    UNDECODABLE = "undecodable"


class Action(StrEnum):
    """What a worker, a user or the store does to a job."""

    ENQUEUE = "enqueue"
    UNBLOCK = "unblock"
    PROMOTE = "promote"
    CLAIM = "claim"
    ACK_SUCCEEDED = "ack_succeeded"
    ACK_FAILED = "ack_failed"
    ACK_TIMED_OUT = "ack_timed_out"
    ACK_SNOOZED = "ack_snoozed"
    ACK_CANCELLED = "ack_cancelled"
    ACK_INTERRUPTED = "ack_interrupted"
    RESCUE = "rescue"
    CANCEL = "cancel"
    EXPIRE = "expire"
    RUN_NOW = "run_now"
    REPRIORITISE = "reprioritise"
    RETRY = "retry"
    RETRY_FLOW = "retry_flow"
    DELETE = "delete"


LIVE = frozenset({State.BLOCKED, State.SCHEDULED, State.RETRYING, State.READY, State.RUNNING})
WAITING = frozenset({State.BLOCKED, State.SCHEDULED, State.RETRYING, State.READY})
FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})

REASONS: dict[State, frozenset[Reason]] = {
    State.CANCELLED: frozenset(
        {Reason.BY_USER, Reason.EXPIRED, Reason.SKIPPED, Reason.SUPERSEDED, Reason.PARENT, Reason.BYPASSED}
    ),
    State.DEAD: frozenset(
        {
            Reason.FAILED,
            Reason.RETRIES_EXHAUSTED,
            Reason.NOT_RETRYABLE,
            Reason.CRASHED,
            Reason.TIMED_OUT,
            Reason.OUT_OF_MEMORY,
            Reason.UNDECODABLE,
        }
    ),
}


class Transition(NamedTuple):
    """``action`` takes a job from any of ``sources`` to one of ``targets``.

    No source means that the job is new. No target means that the job is deleted.
    """

    action: Action
    sources: frozenset[State]
    targets: frozenset[State]


def _t(action: Action, sources: set[State] | frozenset[State], *targets: State) -> Transition:
    return Transition(action, frozenset(sources), frozenset(targets))


_S = State
_ACKED_WITH_ORDER = _S.CANCELLED  # any ack or rescue of a job with a cancel order ends it as cancelled

TRANSITIONS: tuple[Transition, ...] = (
    _t(Action.ENQUEUE, set(), _S.READY, _S.SCHEDULED, _S.BLOCKED, _S.CANCELLED, _S.SUCCEEDED),  # a join without members
    _t(Action.UNBLOCK, {_S.BLOCKED}, _S.READY, _S.SCHEDULED, _S.CANCELLED, _S.SUCCEEDED),  # succeeded: a join
    _t(Action.PROMOTE, {_S.SCHEDULED, _S.RETRYING}, _S.READY),
    _t(Action.CLAIM, {_S.READY}, _S.RUNNING),
    _t(Action.ACK_SUCCEEDED, {_S.RUNNING}, _S.SUCCEEDED, _ACKED_WITH_ORDER),
    _t(Action.ACK_FAILED, {_S.RUNNING}, _S.RETRYING, _S.DEAD, _ACKED_WITH_ORDER),
    _t(Action.ACK_TIMED_OUT, {_S.RUNNING}, _S.RETRYING, _S.DEAD, _ACKED_WITH_ORDER),
    _t(Action.ACK_SNOOZED, {_S.RUNNING}, _S.SCHEDULED, _ACKED_WITH_ORDER),
    _t(Action.ACK_CANCELLED, {_S.RUNNING}, _S.CANCELLED),
    _t(Action.ACK_INTERRUPTED, {_S.RUNNING}, _S.READY, _S.DEAD, _ACKED_WITH_ORDER),
    _t(Action.RESCUE, {_S.RUNNING}, _S.READY, _S.RETRYING, _S.DEAD, _ACKED_WITH_ORDER),
    _t(Action.CANCEL, WAITING, _S.CANCELLED),
    _t(Action.CANCEL, {_S.RUNNING}, _S.RUNNING),  # an order, which the next turn delivers
    _t(Action.EXPIRE, WAITING - {_S.RETRYING}, _S.CANCELLED),  # `expires` limits the first start, not retries
    _t(Action.RUN_NOW, {_S.SCHEDULED, _S.RETRYING}, _S.READY),
    _t(Action.REPRIORITISE, {_S.BLOCKED}, _S.BLOCKED),
    _t(Action.REPRIORITISE, {_S.SCHEDULED}, _S.SCHEDULED),
    _t(Action.REPRIORITISE, {_S.RETRYING}, _S.RETRYING),
    _t(Action.REPRIORITISE, {_S.READY}, _S.READY),
    _t(Action.RETRY, FINAL, _S.READY),
    _t(Action.RETRY_FLOW, FINAL - {_S.SUCCEEDED}, _S.READY, _S.BLOCKED, _S.CANCELLED, _S.SUCCEEDED),
    _t(Action.DELETE, WAITING | FINAL),
)


def sources(action: Action) -> frozenset[State]:
    """The states in which ``action`` is possible."""
    return frozenset().union(*(t.sources for t in TRANSITIONS if t.action is action))


def targets(action: Action, source: State | None = None) -> frozenset[State]:
    """The states to which ``action`` may lead from ``source``; None for a new job."""
    fitting = (t for t in TRANSITIONS if t.action is action and (source in t.sources if source else not t.sources))
    return frozenset().union(*(t.targets for t in fitting))


def allows(action: Action, source: State | None, target: State | None) -> bool:
    """Whether the table has this transition; ``None`` means a new job as source and a deleted job as target."""
    for t in TRANSITIONS:
        if t.action is not action or (source not in t.sources if source else t.sources):
            continue
        if target in t.targets if target else not t.targets:
            return True
    return False
