"""Hand back jobs that do not name the limits of their task, with these limits, before they start.

Such a job was enqueued by name, by a program that does not have the task, or before the task got the limit. The lane of
a claim shows which limits its job names. If a job names a limit, its key of that limit is taken as right: so a job is
handed back at most once for each limit, even when workers of several versions disagree on the limits of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mainspring.jobs.lanes import limit_label, limits_in
from mainspring.jobs.outcomes import Ack
from mainspring.limits.declare import BoundLimit, buckets_of
from mainspring.worker.run.executor import decode_record

if TYPE_CHECKING:
    import asyncio

    from mainspring.limits.records import Bucket, Limit
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.run.attempt import RunningAttempt

Finish = Callable[["RunningAttempt", Ack], None]
AckFailure = Callable[["RunningAttempt", BaseException], Ack]
DeclareLimits = Callable[["tuple[Limit, ...]"], "asyncio.Future[None]"]


class MissingLimits:
    """Finds the claims of one worker that lack limits. ``is_needed`` is set once a task has limits."""

    def __init__(
        self, specs: Iterable[TaskSpec], finish: Finish, ack_failure: AckFailure, declare_limits: DeclareLimits
    ) -> None:
        self._finish = finish
        self._ack_failure = ack_failure
        self._declare_limits = declare_limits
        self._declaring: dict[str, asyncio.Future[None]] = {}
        self._labels: dict[str, frozenset[str]] = {}
        """The lane labels of the limits of a task, by task; for tasks with limits."""
        self.is_needed = False
        for spec in specs:
            self._add_task(spec)

    def add_late_task(self, spec: TaskSpec) -> None:
        """Add a task that was declared after the worker had started: the store does not know its limits yet."""
        self._add_task(spec)
        if spec.bounds:
            self._declaring[spec.name] = self._declare_limits(spec.limits)

    def hand_back_unlimited(self, attempts: Iterable[RunningAttempt]) -> list[RunningAttempt]:
        """Hand back the attempts that lack limits; returns the others, which may start."""
        startable = []
        for attempt in attempts:
            labels = self._labels.get(attempt.spec.name)
            if labels is None or labels <= limits_in(attempt.claim.lane):
                startable.append(attempt)
            else:
                self._hand_back(attempt)
        return startable

    def _add_task(self, spec: TaskSpec) -> None:
        if spec.bounds:
            self._labels[spec.name] = frozenset(limit_label(bound.limit.name) for bound in spec.bounds)
            self.is_needed = True

    def _hand_back(self, attempt: RunningAttempt) -> None:
        attempt.finished = True
        spec, named = attempt.spec, limits_in(attempt.claim.lane)
        missing = [bound for bound in spec.bounds if limit_label(bound.limit.name) not in named]
        try:
            ack = Ack.returned(attempt.lease, buckets=_buckets(attempt, missing))
        except Exception as error:  # noqa: BLE001 - a key function of the user, or arguments that cannot be decoded
            ack = self._ack_failure(attempt, error)
        declaring = self._declaring.get(spec.name)
        if declaring is None or declaring.done():
            self._finish(attempt, ack)
        else:
            declaring.add_done_callback(lambda _: self._finish(attempt, ack))


def _buckets(attempt: RunningAttempt, bounds: Iterable[BoundLimit]) -> tuple[Bucket, ...]:
    signature = attempt.spec.signature

    def arguments() -> dict[str, Any]:
        """The arguments by name. The producer may not have known the names."""
        decoded = decode_record(attempt.spec, attempt.claim.record)
        return signature.arguments(signature.encode_call(decoded.args, decoded.kwargs))

    return buckets_of(bounds, arguments, f"task {attempt.spec.name!r}")
